"""What clients log into runs, and where it is then."""

import json
import math
from typing import Any

import pytest
from fastapi.testclient import TestClient

from halving.metrics.segments import live_folder
from halving.query.curve_stats import fill_last
from halving.query.runs import read_run
from resources.tracking.run_files import MAX_LIVE
from server.mlflow import history
from tests.server.mlflow.conftest import JSON, Api, api_of
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("without_services")


def data_of(api: Api, run: str) -> dict[str, dict[str, Any]]:
    data = api("runs/get", "GET", run_id=run)["run"]["data"]
    return {kind: {item["key"]: item["value"] for item in values} for kind, values in data.items()}


def test_what_a_client_logs_is_in_our_own_run(api: Api, run: str, client: TestClient) -> None:
    api(
        "runs/log-batch",
        run_id=run,
        metrics=[
            {"key": "loss", "value": 1.0 / (step + 1), "timestamp": 1_700_000_000_000 + step, "step": step}
            for step in range(5)
        ],
        params=[{"key": "lr", "value": "0.1"}],
        tags=[{"key": "team", "value": "vision"}, {"key": "mlflow.user", "value": "ada"}],
    )
    store = client.app.state.halving.store  # type: ignore[attr-defined]
    (info,) = fill_last(store, [read_run(store, "Default", run)])
    assert info.params == {"lr": 0.1}
    assert (info.tags["team"], info.tags["user"]) == ("vision", "ada")
    assert info.summary == {"loss": 0.2}
    assert info.status == "running"


def test_the_latest_value_of_a_metric_is_that_of_the_greatest_step(api: Api, run: str) -> None:
    for step, value in ((3, 1.0), (1, 9.0)):
        api("runs/log-metric", run_id=run, key="loss", value=value, timestamp=1_700_000_000_000, step=step)
    assert data_of(api, run)["metrics"] == {"loss": 1.0}


def test_a_history_has_every_value_by_time_and_one_that_was_sent_twice_once(api: Api, run: str) -> None:
    for time, step, value in ((3, 0, 1.0), (1, 0, 2.0), (2, 7, 3.0), (3, 0, 1.0)):
        api("runs/log-metric", run_id=run, key="loss", value=value, timestamp=time, step=step)
    metrics = api("metrics/get-history", "GET", run_id=run, metric_key="loss")["metrics"]
    assert [(metric["timestamp"], metric["step"], metric["value"]) for metric in metrics] == [
        (1, 0, 2.0),
        (2, 7, 3.0),
        (3, 0, 1.0),
    ]
    first = api("metrics/get-history", "GET", run_id=run, metric_key="loss", max_results=2)
    rest = api(
        "metrics/get-history",
        "GET",
        run_id=run,
        metric_key="loss",
        max_results=2,
        page_token=first["next_page_token"],
    )
    assert first["metrics"] + rest["metrics"] == metrics
    assert api("metrics/get-history", "GET", run_id=run, metric_key="nothing") == {}
    for _ in range(2):
        api("runs/log-metric", run_id=run, key="nan", value="NaN", timestamp=1, step=0)
    assert len(api("metrics/get-history", "GET", run_id=run, metric_key="nan")["metrics"]) == 1


def test_a_long_history_comes_in_pages_whether_its_client_asks_for_them_or_not(
    api: Api, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_MAX_AT_ONCE", 3)
    api(
        "runs/log-batch",
        run_id=run,
        metrics=[{"key": "loss", "value": step, "timestamp": step, "step": step} for step in range(5)],
    )
    first = api("metrics/get-history", "GET", run_id=run, metric_key="loss")
    rest = api(
        "metrics/get-history", "GET", run_id=run, metric_key="loss", page_token=first["next_page_token"]
    )
    assert [metric["step"] for metric in [*first["metrics"], *rest["metrics"]]] == list(range(5))
    assert "next_page_token" not in rest


def test_numbers_that_are_not_finite_come_back_as_they_were(api: Api, run: str) -> None:
    texts = {"nan": "NaN", "more": "Infinity", "less": "-Infinity"}
    api(
        "runs/log-batch",
        run_id=run,
        metrics=[{"key": key, "value": value, "timestamp": 1} for key, value in texts.items()],
    )
    assert data_of(api, run)["metrics"] == texts
    (metric,) = api("metrics/get-history", "GET", run_id=run, metric_key="more")["metrics"]
    assert float(metric["value"]) == math.inf


def test_python_writes_nan_without_quotes_and_that_is_accepted(
    client: TestClient, api: Api, run: str
) -> None:
    body = f'{{"run_id": "{run}", "key": "x", "value": NaN, "timestamp": 1}}'
    assert (
        client.post(
            "http://127.0.0.1:3001/api/2.0/mlflow/runs/log-metric", content=body, headers=JSON
        ).status_code
        == 200
    )
    assert data_of(api, run)["metrics"] == {"x": "NaN"}


SPELLED_NUMBERS = [
    ("NaN", "NaN"),
    ('"NaN"', "NaN"),
    ("Infinity", "Infinity"),
    ('"Infinity"', "Infinity"),
    ("-Infinity", "-Infinity"),
    ('"-Infinity"', "-Infinity"),
    ('"1e3"', 1000.0),
    ("null", None),
    ('"nan?"', None),
    ('""', None),
    ("[1]", None),
    ("true", None),
    ("1" + "0" * 400, None),
]
"""As JSON has them, and what is kept: None where they are refused."""


def test_a_number_in_any_spelling_of_json_is_kept_or_refused(client: TestClient, api: Api, run: str) -> None:
    metrics = {}
    for number, (text, kept) in enumerate(SPELLED_NUMBERS):
        body = f'{{"run_id": "{run}", "key": "x{number}", "value": {text}, "timestamp": 1}}'
        answer = client.post(
            "http://127.0.0.1:3001/api/2.0/mlflow/runs/log-metric", content=body, headers=JSON
        )
        if kept is None:
            assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), text
        else:
            metrics[f"x{number}"] = kept
    assert data_of(api, run)["metrics"] == metrics


def test_clocks_that_are_far_off_are_kept_as_they_were_given(api: Api, run: str) -> None:
    last = 253_402_300_799_999  # the end of the year 9999
    for step, time in enumerate((last, 1, 1_700_000_000_000, 1_700_000_000_000 - 1, 0)):
        api("runs/log-metric", run_id=run, key="loss", value=step, timestamp=time, step=step)
    metrics = api("metrics/get-history", "GET", run_id=run, metric_key="loss")["metrics"]
    assert [(metric["timestamp"], metric["step"]) for metric in metrics] == [
        (0, 4),
        (1, 1),
        (1_700_000_000_000 - 1, 3),
        (1_700_000_000_000, 2),
        (last, 0),
    ]
    assert data_of(api, run)["metrics"] == {"loss": 4}  # the greatest step counts, not the latest clock
    begun = [
        api("runs/create", experiment_id="0", start_time=time)["run"]["info"]["run_id"] for time in (last, 1)
    ]
    api("runs/update", run_id=begun[0], status="FINISHED", end_time=1)  # ends before it began
    assert [metric["info"]["run_id"] for metric in api("runs/search", experiment_ids=["0"])["runs"]] == [
        begun[0],
        run,
        begun[1],
    ]


@pytest.mark.parametrize("name", ["größe", "損失", "Ω/π", "a b", "é".encode().decode()])
def test_names_in_any_script_are_names(api: Api, run: str, name: str) -> None:
    api("runs/log-metric", run_id=run, key=name, value=1, timestamp=1)
    api("runs/log-parameter", run_id=run, key=name, value=name)
    api("runs/set-tag", run_id=run, key=name, value=name)
    data = data_of(api, run)
    assert (data["metrics"][name], data["params"][name], data["tags"][name]) == (1, name, name)
    assert len(api("metrics/get-history", "GET", run_id=run, metric_key=name)["metrics"]) == 1


def test_a_curve_of_several_runs_has_the_first_and_the_last_step_of_each(api: Api, run: str) -> None:
    other = api("runs/create", experiment_id="0")["run"]["info"]["run_id"]
    for run_id, last in ((run, 50), (other, 30)):
        metrics = [{"key": "loss", "value": step, "timestamp": 1, "step": step} for step in range(last + 1)]
        api("runs/log-batch", run_id=run_id, metrics=metrics)
    sampled = api(
        "metrics/get-history-bulk-interval", "GET", run_ids=[run, other], metric_key="loss", max_results=5
    )["metrics"]
    steps: dict[str, list[int]] = {run: [], other: []}
    for point in sampled:
        steps[point["run_id"]].append(point["step"])
    assert steps == {run: [0, 11, 21, 31, 50], other: [0, 7, 13, 19, 30]}, (
        "the first of each fifth, and the last"
    )
    assert [point["run_id"] for point in sampled] == [run] * 5 + [other] * 5, "in the order of the request"
    assert api("metrics/get-history-bulk-interval", "GET", run_ids=["0" * 32], metric_key="loss") == {}
    part = api(
        "metrics/get-history-bulk-interval",
        "GET",
        run_ids=[run],
        metric_key="loss",
        start_step=10,
        end_step=12,
    )["metrics"]
    assert [point["step"] for point in part] == [10, 11, 12]


def test_a_param_never_changes_and_a_batch_that_would_change_one_leaves_nothing(api: Api, run: str) -> None:
    api("runs/log-parameter", run_id=run, key="lr", value="0.1")
    api("runs/log-parameter", run_id=run, key="lr", value="0.1")
    refused = api(
        "runs/log-batch",
        answered=400,
        run_id=run,
        params=[{"key": "new", "value": "1"}, {"key": "lr", "value": "0.2"}],
        metrics=[{"key": "loss", "value": 1, "timestamp": 1}],
    )
    assert refused["error_code"] == "INVALID_PARAMETER_VALUE"
    assert "Changing param values is not allowed" in refused["message"]
    assert data_of(api, run) == {"params": {"lr": "0.1"}, "tags": data_of(api, run)["tags"]}


def test_tags_change_and_go(api: Api, run: str, client: TestClient) -> None:
    api("runs/set-tag", run_id=run, key="a", value="b")
    api("runs/set-tag", run_id=run, key="a", value="c")
    assert data_of(api, run)["tags"]["a"] == "c"
    api("runs/delete-tag", run_id=run, key="a")
    assert "a" not in data_of(api, run)["tags"]
    assert "a" not in read_run(client.app.state.halving.store, "Default", run).tags  # type: ignore[attr-defined]
    assert (
        api("runs/delete-tag", answered=404, run_id=run, key="a")["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    )


def test_more_amendments_than_are_kept_leave_a_run_as_it_is(api: Api, run: str, client: TestClient) -> None:
    for number in range(20):
        api("runs/log-parameter", run_id=run, key=f"p{number}", value=str(number))
    store = client.app.state.halving.store  # type: ignore[attr-defined]
    assert read_run(store, "Default", run).params == {f"p{number}": number for number in range(20)}
    assert (
        len([name for name in store.names(f"runs/project=Default/{run}") if name.startswith("amend-")]) < 10
    )


def test_datasets_are_inputs_once_each(api: Api, run: str) -> None:
    dataset = {"name": "digits", "digest": "abc", "source_type": "local", "source": "{}"}
    entry = {"dataset": dataset, "tags": [{"key": "mlflow.data.context", "value": "training"}]}
    for _ in range(2):
        api("runs/log-inputs", run_id=run, datasets=[entry])
    assert api("runs/get", "GET", run_id=run)["run"]["inputs"] == {"dataset_inputs": [entry]}
    assert (
        api("runs/log-inputs", answered=400, run_id=run, datasets=[{"dataset": {"name": "x"}}])["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )


def test_a_search_for_datasets_has_each_once_with_what_it_was_for(api: Api, run: str) -> None:
    other = api("runs/create", experiment_id="0")["run"]["info"]["run_id"]
    dataset = {"name": "digits", "digest": "abc", "source_type": "local", "source": "{}"}
    tags = [{"key": "mlflow.data.context", "value": "training"}]
    for run_id, logged in (
        (run, {"dataset": dataset, "tags": tags}),
        (other, {"dataset": dataset, "tags": tags}),
    ):
        api("runs/log-inputs", run_id=run_id, datasets=[logged])
    api("runs/log-inputs", run_id=other, datasets=[{"dataset": {**dataset, "name": "letters"}}])
    summaries = api("experiments/search-datasets", experiment_ids=["0"])["dataset_summaries"]
    assert sorted(summaries, key=lambda summary: str(summary["name"])) == [
        {"experiment_id": "0", "name": "digits", "digest": "abc", "context": "training"},
        {"experiment_id": "0", "name": "letters", "digest": "abc"},
    ]
    assert api("experiments/search-datasets", experiment_ids=["7"]) == {}
    for wrong in ([], ["0"] * 21):
        assert (
            api("experiments/search-datasets", answered=400, experiment_ids=wrong)["error_code"]
            == "INVALID_PARAMETER_VALUE"
        )


METRIC = {"key": "m", "value": 1.0, "timestamp": 1, "step": 0}


REFUSED_BATCHES: list[dict[str, Any]] = [
    {"metrics": [METRIC] * 1_001},
    {"params": [{"key": f"p{n}", "value": "1"} for n in range(101)]},
    {"tags": [{"key": f"t{n}", "value": "1"} for n in range(101)]},
    {"metrics": [METRIC] * 950, "params": [{"key": f"p{n}", "value": "1"} for n in range(51)]},
    {"params": [{"key": "p", "value": "1"}, {"key": "p", "value": "2"}]},
    {"params": [{"key": "a" * 251, "value": "1"}]},
    {"params": [{"key": "../up", "value": "1"}]},
    {"params": [{"key": "a*b", "value": "1"}]},
    {"metrics": [{**METRIC, "key": "/absolute"}]},
    {"metrics": [{**METRIC, "value": "much"}]},
    {"metrics": [{**METRIC, "value": None}]},
    {"metrics": [{**METRIC, "value": True}]},
    {"metrics": [{**METRIC, "timestamp": -1}]},
    {"metrics": [{**METRIC, "timestamp": 2**62}]},
    {"metrics": [{**METRIC, "step": 2**63}]},
    {"metrics": [{**METRIC, "step": 1.5}]},
    {"metrics": {"m": 1}},
    {"metrics": ["m"]},
    {"tags": [{"key": "a", "value": "\ud800"}]},
]


def test_a_batch_that_is_not_accepted_is_refused_and_leaves_nothing(api: Api, run: str) -> None:
    before = data_of(api, run)
    for fields in REFUSED_BATCHES:
        assert (
            api("runs/log-batch", answered=400, run_id=run, **fields)["error_code"]
            == "INVALID_PARAMETER_VALUE"
        ), str(fields)[:200]
        assert data_of(api, run) == before, str(fields)[:200]


def test_a_value_that_is_null_is_an_empty_one_and_half_of_a_dataset_is_refused(api: Api, run: str) -> None:
    """As MLflow's own server answers them (compared with 3.17.2)."""
    api("runs/log-parameter", run_id=run, key="p", value=None)
    api("runs/set-tag", run_id=run, key="t", value=None)
    assert (data_of(api, run)["params"]["p"], data_of(api, run)["tags"]["t"]) == ("", "")
    assert (
        api("runs/log-metric", answered=400, run_id=run, **METRIC, dataset_name="d")["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )
    two = {"run_name": "a", "tags": [{"key": "mlflow.runName", "value": "b"}]}
    assert (
        api("runs/create", answered=400, experiment_id="0", **two)["error_code"] == "INVALID_PARAMETER_VALUE"
    )
    assert api("runs/create", experiment_id="0", **{**two, "run_name": "b"})["run"]["info"]["run_name"] == "b"


def test_unknown_fields_are_passed_over_and_a_body_that_is_no_object_is_refused(
    api: Api, client: TestClient, run: str
) -> None:
    api("runs/set-tag", run_id=run, key="a", value="b", later="version")
    for body in ("[1]", "{", "7", '"' * 10, "[" * 100_000):
        answer = client.post("http://127.0.0.1:3001/api/2.0/mlflow/runs/set-tag", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


def test_a_long_param_is_cut_as_mlflows_server_cuts_it(api: Api, run: str) -> None:
    api("runs/log-parameter", run_id=run, key="long", value="x" * 7_000)
    assert len(data_of(api, run)["params"]["long"]) == 6_000


def test_the_largest_batch_is_taken_whole(api: Api, run: str) -> None:
    api(
        "runs/log-batch",
        run_id=run,
        metrics=[{**METRIC, "key": f"größe/{n}", "value": n} for n in range(1_000)],
    )
    assert data_of(api, run)["metrics"] == {f"größe/{n}": n for n in range(1_000)}


@pytest.mark.slow
def test_a_run_of_very_many_requests_is_compacted_and_keeps_every_value(local: TestClient) -> None:
    api = api_of(local)
    run = api("runs/create", experiment_id="0")["run"]["info"]["run_id"]
    for step in range(MAX_LIVE + 30):
        api("runs/log-metric", run_id=run, key="loss", value=step / 3, timestamp=step, step=step)
    store = local.app.state.halving.store  # type: ignore[attr-defined]
    wait_for(lambda: len(store.names(live_folder("Default", run))) < MAX_LIVE, 60, "the run is compacted")
    api("runs/log-metric", run_id=run, key="loss", value=7, timestamp=10**6, step=10**6)
    history = api("metrics/get-history", "GET", run_id=run, metric_key="loss")["metrics"]
    assert [(metric["step"], metric["value"]) for metric in history] == [
        *((step, step / 3) for step in range(MAX_LIVE + 30)),
        (10**6, 7),
    ]


def test_models_of_mlflow_2_are_noted_in_a_tag_each_beside_the_others(api: Api, run: str) -> None:
    model = {
        "run_id": run,
        "artifact_path": "first",
        "utc_time_created": "2026-01-01 00:00:00",
        "flavors": {"python_function": {"config": 1, "env": "x"}},
    }
    api(
        "runs/log-model",
        run_id=run,
        model_json=json.dumps({**model, "signature": {"inputs": "…"}, "model_uuid": "0f"}),
    )
    api("runs/log-model", run_id=run, model_json=json.dumps({**model, "artifact_path": "second"}))
    first, second = json.loads(data_of(api, run)["tags"]["mlflow.log-model.history"])
    assert first == {**model, "model_uuid": "0f", "flavors": {"python_function": {"env": "x"}}}
    assert second["artifact_path"] == "second"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{", "Malformed model info"),
        ("[" * 100_000, "Malformed model info"),
        ("[]", "missing mandatory fields: ['artifact_path', 'flavors', 'run_id', 'utc_time_created']"),
        (
            '{"run_id": "r", "flavors": {}, "artifact_path": "m"}',
            "missing mandatory fields: ['utc_time_created']",
        ),
        (
            json.dumps(
                {"run_id": "r", "flavors": {"f": "x" * 9_000}, "artifact_path": "m", "utc_time_created": "t"}
            ),
            "exceeds the maximum length",
        ),
    ],
    ids=range(5),
)
def test_what_is_no_model_is_refused(api: Api, run: str, model: str, message: str) -> None:
    answer = api("runs/log-model", run_id=run, model_json=model, answered=400)
    assert (answer["error_code"], message in answer["message"]) == ("INVALID_PARAMETER_VALUE", True)
    assert "mlflow.log-model.history" not in data_of(api, run)["tags"]
