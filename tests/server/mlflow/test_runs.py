"""Runs: their lives, and searches for them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from halving.query.run_filter_match import match_runs
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import list_runs, read_run
from halving.records.amendments import amend, with_lifecycle
from resources.analysis.run_index.rebuild import rebuild
from resources.backend import Backend
from resources.catalog import TrackedRunRow
from resources.tracking import run_files
from resources.tracking.run_files import TrackedPoint
from tests.server.mlflow.conftest import Api

FINISHED = {"status": "FINISHED", "end_time": 1_700_000_001_000}


def info_of(api: Api, run: str) -> dict[str, object]:
    info: dict[str, object] = api("runs/get", "GET", run_id=run)["run"]["info"]
    return info


def our_status(client: TestClient, run: str) -> tuple[str, int]:
    info = read_run(client.app.state.halving.store, "Default", run)  # type: ignore[attr-defined]
    return info.status, len(info.attempts)


def test_a_new_run_is_as_it_was_asked_for(api: Api) -> None:
    fields = {"experiment_id": "0", "start_time": 1_700_000_000_000, "user_id": "ada", "run_name": "first"}
    made = api("runs/create", **fields, tags=[{"key": "a", "value": "b"}])["run"]
    info = made["info"]
    assert len(info["run_id"]) == 32
    assert info["run_uuid"] == info["run_id"]
    assert {name: info[name] for name in fields} == fields
    assert (info["status"], info["lifecycle_stage"]) == ("RUNNING", "active")
    assert info["artifact_uri"] == f"mlflow-artifacts:/0/{info['run_id']}/artifacts"
    assert made["data"] == {"tags": [{"key": "a", "value": "b"}, {"key": "mlflow.runName", "value": "first"}]}
    tags = [{"key": "mlflow.runName", "value": "another"}]
    assert (
        api("runs/create", answered=400, experiment_id="0", run_name="first", tags=tags)["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )
    assert api("runs/get", "GET", run_id=info["run_id"])["run"] == made


@pytest.mark.parametrize(
    ("theirs", "ours"), [("FINISHED", "finished"), ("FAILED", "failed"), ("KILLED", "terminated")]
)
def test_a_run_ends_with_its_status_here_and_there(
    api: Api, run: str, client: TestClient, theirs: str, ours: str
) -> None:
    ended = api("runs/update", run_id=run, status=theirs, end_time=1_700_000_001_000)["run_info"]
    assert (ended["status"], ended["end_time"]) == (theirs, 1_700_000_001_000)
    assert our_status(client, run) == (ours, 1)


def test_a_run_that_goes_on_after_its_end_is_another_attempt(api: Api, run: str, client: TestClient) -> None:
    api("runs/log-metric", run_id=run, key="loss", value=1, timestamp=1, step=0)
    api("runs/update", run_id=run, **FINISHED)
    api("runs/update", run_id=run, status="RUNNING")
    assert our_status(client, run) == ("running", 2)
    assert "end_time" not in info_of(api, run)
    api("runs/log-metric", run_id=run, key="loss", value=2, timestamp=2, step=1)
    api("runs/update", run_id=run, **FINISHED)
    assert our_status(client, run) == ("finished", 2)
    assert [
        metric["value"]
        for metric in api("metrics/get-history", "GET", run_id=run, metric_key="loss")["metrics"]
    ] == [1, 2]


def test_an_end_that_is_corrected_is_the_runs_status_until_it_goes_on(
    api: Api, run: str, client: TestClient
) -> None:
    api("runs/update", run_id=run, **FINISHED)
    api("runs/update", run_id=run, status="FAILED")
    assert our_status(client, run) == ("failed", 1)
    api("runs/update", run_id=run, status="RUNNING")
    assert our_status(client, run) == ("running", 2)


def test_what_is_logged_after_the_end_is_there(api: Api, run: str) -> None:
    api("runs/update", run_id=run, **FINISHED)
    api("runs/log-metric", run_id=run, key="late", value=1, timestamp=1)
    assert len(api("metrics/get-history", "GET", run_id=run, metric_key="late")["metrics"]) == 1


def test_a_name_is_changed_by_an_update_and_by_its_tag(api: Api, run: str, client: TestClient) -> None:
    api("runs/update", run_id=run, run_name="second")
    assert {"key": "mlflow.runName", "value": "second"} in api("runs/get", "GET", run_id=run)["run"]["data"][
        "tags"
    ]
    api("runs/set-tag", run_id=run, key="mlflow.runName", value="third")
    assert info_of(api, run)["run_name"] == "third"
    assert read_run(client.app.state.halving.store, "Default", run).tags["name"] == "third"  # type: ignore[attr-defined]


def test_a_deleted_run_takes_nothing_and_is_found_as_deleted_until_it_is_restored(api: Api, run: str) -> None:
    api("runs/delete", run_id=run)
    for path, fields in (
        ("set-tag", {"key": "a", "value": "b"}),
        ("log-parameter", {"key": "a", "value": "b"}),
        ("update", FINISHED),
    ):
        refused = api(f"runs/{path}", answered=400, run_id=run, **fields)
        assert refused["error_code"] == "INVALID_PARAMETER_VALUE"
        assert "must be in the 'active' state" in refused["message"]
    assert api("runs/search", experiment_ids=["0"]) == {}
    assert [
        row["info"]["run_id"]
        for row in api("runs/search", experiment_ids=["0"], run_view_type="DELETED_ONLY")["runs"]
    ] == [run]
    api("runs/restore", run_id=run)
    api("runs/set-tag", run_id=run, key="a", value="b")


def test_a_run_that_is_not_there_is_not_found(api: Api) -> None:
    assert api("runs/get", "GET", answered=404, run_id="0" * 32)["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    assert (
        api("runs/set-tag", answered=404, run_id="0" * 32, key="a", value="b")["error_code"]
        == "RESOURCE_DOES_NOT_EXIST"
    )


TEXTS = {
    "lr": ["0.5", "0.05", "1e-05", "10", "9", "auto"],
    "amp": ["True", "False", "true", "false", "yes", "1"],
    "id": ["9007199254740993", "9007199254740991", "007", "7", "-7", "1E2"],
}


@pytest.fixture
def typed_runs(api: Api, client: TestClient) -> list[str]:
    """Six runs, the newest last, with the params of TEXTS, in the index."""
    runs = []
    for number in range(6):
        run = api("runs/create", experiment_id="0", start_time=1_700_000_000_000 + number)["run"]["info"][
            "run_id"
        ]
        params = [{"key": name, "value": texts[number]} for name, texts in TEXTS.items()]
        api("runs/log-batch", run_id=run, params=params[:2])
        api("runs/log-batch", run_id=run, params=params[2:])
        api("runs/update", run_id=run, status="FINISHED", end_time=1_700_000_100_000)
        runs.append(run)
    state = client.app.state.halving  # type: ignore[attr-defined]
    # the server's own refresher may have read a run before its last params
    rebuild(state.store, state.catalog)
    return runs


TYPED_FILTERS = [
    ("params.lr < 0.1", [2, 1]),
    ("params.lr >= 9", [4, 3]),
    ("params.lr = auto", [5]),
    ("params.lr = '0.5'", []),
    ("order by params.lr", [2, 1, 0, 4, 3, 5]),
    ("params.amp = true", [2, 0]),
    ("params.amp = false", [3, 1]),
    ("params.amp = yes", [4]),
    ("params.amp = 1", [5]),
    ("params.id = '007'", [2]),
    ("params.id < 0", [4]),
    ("params.id between 7 and 100", [5, 3]),
]
"""Filters of ours, and the numbers of the runs that they choose, in their order."""


def test_our_filters_take_numbers_and_flags_in_params_as_such(
    client: TestClient, typed_runs: list[str]
) -> None:
    store = client.app.state.halving.store  # type: ignore[attr-defined]
    runs = list_runs(store)
    for chosen, numbers in TYPED_FILTERS:
        answer = client.get("/runs", params={"filter": chosen}).json()
        assert [typed_runs.index(entry["run"]) for entry in answer["runs"]] == numbers, chosen
        assert [
            typed_runs.index(info.run) for info in match_runs(store, runs, parse_filter(chosen))
        ] == numbers, chosen


def test_columns_of_params_are_numbers_and_flags_and_mlflows_api_gives_the_texts(
    client: TestClient, api: Api, typed_runs: list[str]
) -> None:
    rows = client.get(
        "/runs", params={"columns": "params.lr,params.amp,params.id", "filter": "params.lr < 0.6"}
    ).json()["runs"]
    assert [row["values"] for row in rows] == [
        {"params.lr": 1e-05, "params.amp": True, "params.id": "007"},
        {"params.lr": 0.05, "params.amp": False, "params.id": 9007199254740991},
        {"params.lr": 0.5, "params.amp": True, "params.id": 9007199254740993},
    ]
    kinds = {
        row["name"]: row["type"]
        for row in client.get("/runs/columns", params={"filter": "params.lr < 1"}).json()["params"]
    }
    assert kinds["lr"] == "number"
    for number, run in enumerate(typed_runs):
        params = {
            row["key"]: row["value"] for row in api("runs/get", "GET", run_id=run)["run"]["data"]["params"]
        }
        assert params == {name: texts[number] for name, texts in TEXTS.items()}
    assert [
        row["info"]["run_id"]
        for row in api("runs/search", experiment_ids=["0"], filter="params.lr = '0.50'").get("runs", [])
    ] == []
    assert [
        row["info"]["run_id"]
        for row in api("runs/search", experiment_ids=["0"], filter="params.lr = '0.5'")["runs"]
    ] == typed_runs[:1]


@pytest.fixture
def many(api: Api) -> list[str]:
    """Ten runs, newest last: the metric loss is the number, with param n and tag k; every third failed."""
    runs = []
    for number in range(10):
        run = api(
            "runs/create", experiment_id="0", start_time=1_700_000_000_000 + number, run_name=f"r{number}"
        )["run"]["info"]["run_id"]
        api(
            "runs/log-batch",
            run_id=run,
            metrics=[{"key": "loss", "value": number, "timestamp": 1}],
            params=[{"key": "n", "value": str(number)}],
            tags=[{"key": "k", "value": "odd" if number % 2 else "even"}],
        )
        api(
            "runs/update",
            run_id=run,
            status="FAILED" if number % 3 == 0 else "FINISHED",
            end_time=1_700_000_100_000,
        )
        runs.append(run)
    return runs


SEARCHES = [
    ("", [], "r9 r8 r7 r6 r5 r4 r3 r2 r1 r0"),
    ("", ["start_time ASC"], "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9"),
    ("metrics.loss > 6", [], "r9 r8 r7"),
    ("metrics.loss <= 2 AND params.n != '1'", [], "r2 r0"),
    ("tags.k = 'odd'", ["metrics.loss ASC"], "r1 r3 r5 r7 r9"),
    ("attributes.status = 'FAILED'", ["params.n DESC"], "r9 r6 r3 r0"),
    ("run_name LIKE 'r%' and tags.`k` ILIKE 'EV%'", [], "r8 r6 r4 r2 r0"),
    ("metrics.other > 0", [], ""),
    ("run_name != 'r8' and attributes.start_time > 1700000000006", [], "r9 r7"),
]
"""MLflow's filters and orders, and the names of the runs that a search has."""


def test_a_search_knows_mlflows_filters_and_orders(api: Api, many: list[str]) -> None:
    for text, order, names in SEARCHES:
        answer = api("runs/search", experiment_ids=["0"], filter=text, order_by=order)
        assert " ".join(run["info"]["run_name"] for run in answer.get("runs", [])) == names, (text, order)


@pytest.mark.parametrize("value", ['a "quoted" 100% größe', "back\\slash", "_", '"key":"other","value":"x"'])
def test_a_text_is_found_as_it_is_whatever_is_in_it(api: Api, run: str, value: str) -> None:
    api(
        "runs/log-batch",
        run_id=run,
        params=[{"key": "p.größe", "value": value}],
        tags=[{"key": "other", "value": "y"}],
    )
    api("runs/create", experiment_id="0", tags=[{"key": "other", "value": "x"}])
    answer = api(
        "runs/search", experiment_ids=["0"], filter=f"params.`p.größe` = '{value}' and tags.other = 'y'"
    )
    assert [row["info"]["run_id"] for row in answer["runs"]] == [run]
    assert api("runs/search", experiment_ids=["0"], filter=f"params.`p.größe` != '{value}'") == {}
    assert api("runs/search", experiment_ids=["0"], filter="params.other = 'x'") == {}


_LINES = "First line\nwith 50%\r\nand the last"
_OF_LINES = [
    ("LIKE 'First%last'", True),
    ("LIKE 'first%last'", False),
    ("ILIKE 'FIRST%LAST'", True),
    ("LIKE '%\n%'", True),
    ("LIKE '%line_with%'", True),
    ("LIKE 'First line%'", True),
    ("LIKE 'First line'", False),
    ("LIKE '%line'", False),
    ("LIKE '%50\\%%'", False),  # there a backslash is one
    ("LIKE '%50%last'", True),
    ("ILIKE '%50__AND THE LAST'", False),
    ("ILIKE '%50___AND THE LAST'", True),
    ("LIKE '%last\n'", False),
    (f"= '{_LINES}'", True),
    (f"!= '{_LINES}'", False),
    ("!= 'First line'", True),
]


@pytest.mark.parametrize("field", ["params.note", "tags.note"])
def test_a_text_of_several_lines_is_found_by_any_of_them(api: Api, run: str, field: str) -> None:
    api(
        "runs/log-batch",
        run_id=run,
        params=[{"key": "note", "value": _LINES}],
        tags=[{"key": "note", "value": _LINES}],
    )
    counts = {
        condition: api("runs/search", experiment_ids=["0"], filter=f"{field} {condition}")
        for condition, _ in _OF_LINES
    }
    assert {condition: bool(answer.get("runs")) for condition, answer in counts.items()} == dict(_OF_LINES)


def test_a_run_that_names_a_sweeps_trial_belongs_to_it(api: Api, either_backend: Backend) -> None:
    tags = [{"key": "halving.sweep", "value": "digits-13b5"}, {"key": "halving.trial", "value": "7"}]
    run = api("runs/create", experiment_id="0", tags=tags)["run"]["info"]["run_id"]
    info = read_run(either_backend.store, "Default", run)
    assert (info.parent["sweep"], info.parent["trial"]) == ("digits-13b5", 7)
    odd = api(
        "runs/create",
        experiment_id="0",
        tags=[{"key": "halving.sweep", "value": "s"}, {"key": "halving.trial", "value": "x"}],
    )
    assert "trial" not in read_run(either_backend.store, "Default", odd["run"]["info"]["run_id"]).parent


@pytest.mark.parametrize("query", [{}, {"filter": "metrics.loss >= 0"}])
def test_pages_together_are_the_whole_answer(api: Api, many: list[str], query: dict[str, str]) -> None:
    ids = []
    token = None
    while True:
        page = api(
            "runs/search",
            experiment_ids=["0"],
            max_results=4,
            **query,
            **({"page_token": token} if token else {}),
        )
        ids += [row["info"]["run_id"] for row in page["runs"]]
        token = page.get("next_page_token")
        if token is None:
            break
    assert ids == many[::-1]


@pytest.mark.parametrize(
    "fields",
    [
        {"filter": "loss >"},
        {"filter": "metrics.loss = 'x'"},
        {"order_by": ["what"]},
        {"max_results": 50_001},
        {"page_token": "?"},
    ],
)
def test_a_search_that_is_not_accepted_is_refused(api: Api, run: str, fields: dict[str, object]) -> None:
    assert (
        api("runs/search", answered=400, experiment_ids=["0"], **fields)["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )


def test_clients_with_one_run_lose_nothing(api: Api, run: str) -> None:
    def log(client: int) -> None:
        for step in range(10):
            api("runs/log-metric", run_id=run, key=f"m{client}", value=step, timestamp=step, step=step)
            api("runs/set-tag", run_id=run, key=f"t{client}.{step}", value="x")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(log, range(4)))
    for client in range(4):
        history = api("metrics/get-history", "GET", run_id=run, metric_key=f"m{client}")["metrics"]
        assert [metric["step"] for metric in history] == list(range(10))
    tags = {metric["key"] for metric in api("runs/get", "GET", run_id=run)["run"]["data"]["tags"]}
    assert {f"t{client}.{step}" for client in range(4) for step in range(10)} <= tags


def test_a_server_killed_between_files_and_commit_loses_nothing_acknowledged(
    api: Api, run: str, client: TestClient
) -> None:
    api("runs/log-metric", run_id=run, key="loss", value=1, timestamp=1, step=1)
    store = client.app.state.halving.store  # type: ignore[attr-defined]
    # What such a server leaves behind: files that no row knows of.
    run_files.add_points(store, "Default", run, 1, [TrackedPoint("loss", 2, 2, 2.0)])
    facts = {
        "name": "x",
        "user": "",
        "stage": "active",
        "status": None,
        "attempt": 1,
        "params": {"lost": "1"},
        "tags": {},
        "inputs": [],
    }
    run_files.amend(store, "Default", run, facts)
    run_files.end_attempt(store, "Default", run, 1, "failed", 1_700_000_002_000)
    api("runs/log-metric", run_id=run, key="loss", value=2, timestamp=2, step=2)  # the client tries again
    api("runs/log-parameter", run_id=run, key="lr", value="0.1")
    api("runs/update", run_id=run, **FINISHED)
    assert [
        metric["step"]
        for metric in api("metrics/get-history", "GET", run_id=run, metric_key="loss")["metrics"]
    ] == [1, 2]
    assert read_run(store, "Default", run).params == {"lr": 0.1}
    assert our_status(client, run) == ("finished", 1)


def test_a_run_deleted_before_lifecycles_existed_is_deleted_and_can_be_restored(
    api: Api, run: str, client: TestClient
) -> None:
    store = client.app.state.halving.store  # type: ignore[attr-defined]
    api("runs/update", run_id=run, **FINISHED)
    api("runs/delete", run_id=run)
    later = ("lifecycle", "since", "by")
    amend(
        store,
        f"runs/project=Default/{run}",
        lambda fields: {name: value for name, value in fields.items() if name not in later},
    )
    assert read_run(store, "Default", run).lifecycle == "deleted"
    api("runs/restore", run_id=run)
    assert (read_run(store, "Default", run).lifecycle, info_of(api, run)["lifecycle_stage"]) == (
        "active",
        "active",
    )


def test_a_change_of_which_only_the_store_or_only_the_catalog_knows_is_made_in_both(
    api: Api, run: str, client: TestClient
) -> None:
    state = client.app.state.halving  # type: ignore[attr-defined]
    api("runs/update", run_id=run, **FINISHED)
    for stage, made in (
        ("deleted", "runs/restore"),
        ("active", "runs/delete"),
    ):
        with state.catalog.write() as session:
            session.get_one(TrackedRunRow, run).stage = stage
        api(made, run_id=run)
        wanted = "active" if made == "runs/restore" else "deleted"
        assert (read_run(state.store, "Default", run).lifecycle, info_of(api, run)["lifecycle_stage"]) == (
            wanted,
            wanted,
        )
    amend(state.store, f"runs/project=Default/{run}", lambda fields: with_lifecycle(fields, "active", "ada"))
    api("runs/delete", run_id=run)
    assert read_run(state.store, "Default", run).lifecycle == "deleted"
