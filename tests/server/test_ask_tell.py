"""Studies that external loops train: asked for and told over HTTP, on every database."""

import sys
import threading
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.catalog import AttemptRow, RungResultRow, TrialRow
from resources.datasets.snapshots import take_snapshot
from resources.execution.external_loops import ExternalLoops, TrialToTrain
from resources.scheduling import gpu_hours
from resources.scheduling.loop_scheduler import LoopScheduler
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.search.decide import Finish, Wait
from resources.sweep_spec import parse_spec
from resources.tenancy.projects import set_project
from server.app import create_app
from server.settings import Settings
from tests.backends import CHECKOUT
from tests.ports import free_port
from tests.searches import search
from tests.server.loops import Small, ask, drive, open_for_loops, open_study, tell
from tests.trainables import score
from tests.waiting import wait_for


def results(backend: Backend, sweep: str) -> list[tuple[Any, ...]]:
    state = Scheduler(backend.catalog, sweep).state()
    return [(trial.number, str(trial.status), trial.results) for trial in state.trials]


def test_a_trial_over_http_gets_null_lists_and_mappings_as_they_are(
    client: TestClient, external: Small
) -> None:
    layers: list[Any] = [None, [64, 64], {"wide": [128], "deep": None}]
    space = {
        "layers": {"categorical": layers},
        "depth": {"constant": None},
        "x": {"float": {"low": 0.0, "high": 1.0}},
    }
    starts = [{"layers": value, "x": 0.5} for value in layers]
    study = open_study(
        client, external(space=space, start_from=starts, strategy={"tpe": {"budget": 1}}, max_trials=4)
    )
    for value in layers:
        assignment = ask(client, study)
        assert assignment["params"] == {"layers": value, "depth": None, "x": 0.5}
        tell(client, study, assignment, 1, 0.5)
    assert ask(client, study)["params"]["layers"] in layers


def test_a_flag_is_a_number_in_metrics_alone(client: TestClient, external: Small) -> None:
    study = open_study(client, external())
    assignment = ask(client, study)
    body = {"attempt": assignment["attempt"], "epoch": 1, "values": {"score": 0.5}}
    for change in ({"attempt": True}, {"epoch": True}):
        answer = client.post(f"/hpo/studies/{study}/trials/{assignment['trial']}/tell", json=body | change)
        assert answer.status_code == 422
        assert "true and false are no numbers" in answer.json()["detail"]
    assert client.post(f"/hpo/studies/{study}/extend", json={"max_trials": True}).status_code == 422
    accepted = client.post(
        f"/hpo/studies/{study}/trials/{assignment['trial']}/tell",
        json=body | {"values": {"score": 0.5, "converged": True}},
    )
    assert accepted.status_code == 200, "as in run.report"


@pytest.mark.parametrize("strategy", ["asha", "median"])
def test_a_search_driven_by_ask_and_tell_decides_as_a_workers_search_does(
    client: TestClient, either_backend: Backend, external: Small, strategy: str
) -> None:
    spec = external(
        **(
            {"strategy": {"median": {"sampler": "random", "max_budget": 3, "min_trials": 2}}}
            if strategy == "median"
            else {}
        )
    )
    study = open_study(client, spec)
    drive(client, study)
    by_a_worker = search(
        either_backend, parse_spec(spec), lambda trial, params, epochs: {"score": score(params["x"], epochs)}
    )
    assert results(either_backend, study) == results(either_backend, by_a_worker)
    with either_backend.catalog.read() as session:
        assert either_backend.catalog.sweep(session, study).status == "finished"


def test_a_sampler_that_fails_is_named_to_the_loops_and_in_the_study(
    client: TestClient, external: Small
) -> None:
    # gamma must be a function, which shows after the random trials
    options = {"gamma": 3, "n_startup_trials": 4}
    study = open_study(
        client,
        external(
            strategy={"optuna": {"sampler": "optuna.samplers:TPESampler", "options": options, "budget": 1}}
        ),
    )
    shown_study = client.get(f"/hpo/studies/{study}")
    assert shown_study.json()["problem"] is None

    def fail() -> Any:
        answer = client.post(f"/hpo/studies/{study}/ask")
        if answer.status_code == 200:
            tell(client, study, answer.json(), 1, 0.5)
        return answer if answer.status_code not in (200, 204) else None

    answer = wait_for(fail, 60, "the sampler's error")
    assert answer.status_code == 409
    assert "and options gamma = 3, n_startup_trials = 4 fails: " in answer.json()["detail"]
    assert client.get(f"/hpo/studies/{study}").json()["problem"] == answer.json()["detail"]


def test_a_search_whose_sampler_takes_long_never_keeps_a_loop_waiting(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external(strategy={"tpe": {"budget": 1}}, max_trials=12))
    for number in range(12):
        assignment = ask(client, study)
        assert assignment["trial"] == number
        assert tell(client, study, assignment, 1, assignment["params"]["x"])["decision"] == "complete"
    assert client.post(f"/hpo/studies/{study}/ask").status_code == 410


def test_how_often_loops_ask_is_no_demand_for_suggestions(
    either_backend: Backend, external: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = list[int]()
    chosen = threading.Event()

    def choose_nothing(_: LoopScheduler, length: int) -> int:
        wanted.append(length)
        chosen.set()
        return 0

    monkeypatch.setattr(LoopScheduler, "suggest_ahead", choose_nothing)
    study = open_for_loops(either_backend, external(strategy={"tpe": {"budget": 1}}))
    with closing(ExternalLoops(either_backend.catalog, study)) as loops:
        assert [type(loops.ask("w", again=False)) for _ in range(20)] == [Wait] * 20
        assert chosen.wait(30)
    assert set(wanted) == {1}


def test_training_seconds_are_the_same_whichever_server_is_told(
    either_backend: Backend, external: Small
) -> None:
    study = open_for_loops(
        either_backend, external(strategy={"median": {"sampler": "random", "max_budget": 3}})
    )
    with (
        closing(ExternalLoops(either_backend.catalog, study)) as asked_here,
        closing(ExternalLoops(either_backend.catalog, study)) as told_here,
    ):
        assignment = asked_here.ask("w")
        assert isinstance(assignment, TrialToTrain)
        with either_backend.catalog.write() as session:
            session.get_one(AttemptRow, (study, 0, 1)).started_at -= timedelta(hours=1)
        assert told_here.tell(0, 1, 1, {"score": 0.1}).decision == "continue"
        with either_backend.catalog.write() as session:
            reached = session.get_one(RungResultRow, (study, 0, 0))
            assert 3_600 <= reached.seconds < 3_900
            reached.reached_at -= timedelta(hours=2)
        asked_here.tell(0, 1, 2, {"score": 0.1})
    with either_backend.catalog.read() as session:
        assert 10_800 <= session.get_one(TrialRow, (study, 0)).seconds < 11_400


def test_a_study_of_external_loops_needs_no_trainable_but_the_platform_does(
    client: TestClient, external: Small
) -> None:
    spec = external(max_trials=3)
    dataset = spec.pop("dataset")
    del spec["trainable"]
    drive(client, open_study(client, spec))
    (study,) = client.get("/hpo/studies").json()["studies"]
    kept = client.get(f"/hpo/studies/{study['id']}").json()["spec"]
    assert (study["status"], kept["dataset"].items() >= dataset.items()) == ("finished", True)
    refused = client.post("/hpo/studies", json={**spec, "max_trials": 0})
    assert refused.status_code == 422
    assert "trainable is missing: give module:function" in refused.json()["detail"]
    assert "only a study that external loops train does without one" in refused.json()["detail"]
    assert "max_trials = 0" in refused.json()["detail"]


def test_a_loop_is_told_that_its_projects_gpu_hours_are_used_up(
    client: TestClient, either_backend: Backend, external: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_hours, "LOOK_SECONDS", 0.0)
    study = open_study(client, external(resources={"gpus": 2}, max_trials=1))
    assignment = ask(client, study)
    nothing = client.post(f"/hpo/studies/{study}/ask")
    assert (nothing.status_code, "Held-Back" in nothing.headers) == (204, False), "there is no other trial"
    set_project(either_backend.catalog, "small", gpu_hours=0.0)
    body = {"attempt": assignment["attempt"]}
    beat = f"/hpo/studies/{study}/trials/{assignment['trial']}"
    decisions = [client.post(f"{beat}/heartbeat", json=body).json()["decision"] for _ in range(2)]
    assert decisions[-1] == "pause", "the first one looked"
    client.post(f"{beat}/release", json=body)
    for _ in range(2):
        nothing = client.post(f"/hpo/studies/{study}/ask")
        assert nothing.status_code == 204
        assert nothing.headers["Held-Back"].startswith("project small has used its 0 GPU-hours of ")
        assert nothing.headers["Held-Back"] == client.get(f"/hpo/studies/{study}").json()["held_back"]
    set_project(either_backend.catalog, "small", gpu_hours=100.0)
    assert ask(client, study)["attempt"] == 2


def test_a_loop_may_ask_before_its_study_is_open(client: TestClient, small: Small) -> None:
    study = client.post("/hpo/studies", params={"driver": "api"}, json=small()).json()["study"]
    early = client.post(f"/hpo/studies/{study}/ask")
    assert (early.status_code, int(early.headers["Retry-After"]) > 0) == (204, True), early.text
    assert client.post(f"/hpo/studies/{study}/stop").status_code == 200
    late = client.post(f"/hpo/studies/{study}/ask")
    assert (late.status_code, "was never opened" in late.text) == (409, True), late.text


def test_dagsters_studies_hand_out_nothing_and_unknown_ones_are_named(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    spec = parse_spec(external())
    row = open_sweep(either_backend.catalog, spec, str(spec.snapshot), driver="sensors", commit=None)
    refused = client.post(f"/hpo/studies/{row.id}/ask")
    assert (refused.status_code, "run by Dagster" in refused.text) == (409, True)
    assert client.post("/hpo/studies/none-1234/ask").status_code == 404
    study = open_study(client, external(seed=3))
    assert client.post(f"/hpo/studies/{study}/trials/5/heartbeat", json={"attempt": 1}).status_code == 404


def test_a_final_training_of_external_loops_is_refused_with_what_to_do(
    client: TestClient, external: Small
) -> None:
    answer = client.post(
        "/hpo/studies",
        params={"driver": "api"},
        json={**external(), "predictor": "a:b", "final": {"seeds": 2}},
    )
    assert answer.status_code == 422, answer.text
    for said in (
        "final = {'seeds': 2",
        "not accepted with driver api",
        "leave it out and train the winner again yourself",
    ):
        assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    ("sampler", "says"),
    [
        ({"sampler": "tests.slow_to_import:Sampler"}, "imports no other code"),
        ({"sampler": "optuna.samplers:CmaEsSampler", "options": {"sigma": 1}}, "its options are"),
        ({"sampler": "optuna.samplers:Nothing"}, "strategy.optuna.sampler"),
    ],
)
def test_the_server_imports_no_code_that_a_study_names(
    client: TestClient, external: Small, sampler: dict[str, Any], says: str
) -> None:
    answer = client.post(
        "/hpo/studies", params={"driver": "api"}, json=external(strategy={"optuna": sampler})
    )
    assert (answer.status_code, says in answer.json()["detail"]) == (422, True), answer.text
    assert "tests.slow_to_import" not in sys.modules


def test_another_server_goes_on_where_the_first_was_killed(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(max_trials=3))
    assignment = ask(client, study)
    other = ExternalLoops(either_backend.catalog, study)
    assert (
        other.tell(assignment["trial"], assignment["attempt"], assignment["epochs"], {"score": 0.4}).decision
        == "pause"
    )
    assert tell(client, study, assignment, assignment["epochs"], 0.4)["decision"] == "pause"
    while not isinstance(next_assignment := other.ask("w"), Finish):
        verdict = other.tell(
            next_assignment.trial, next_assignment.attempt, next_assignment.epochs, {"score": 0.1}
        )  # type: ignore[union-attr]
        if verdict.decision != "continue":
            break
    other.close()


def test_the_example_of_the_documentation_drives_a_study_to_its_end(backend: Backend, small: Small) -> None:
    spec = small(max_trials=4)
    snapshot = take_snapshot(backend.store, backend.catalog, parse_spec(spec).dataset)
    del spec["predictor"], spec["trainable"]
    example = (CHECKOUT / "docs" / "search.md").read_text().partition("```python\n")[2].partition("```")[0]
    port = free_port()
    app = create_app(Settings(root=backend.store.root, port=port))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, 60, "the server")
        names = {
            "SPEC": {**spec, "snapshot": snapshot.digest},
            "train": lambda params, epochs: score(params["x"], epochs),
        }
        exec(example.replace(":3001", f":{port}"), names)
        state = Scheduler(backend.catalog, names["study"]).state()  # type: ignore[arg-type]
        assert len(state.trials) == 4
    finally:
        server.should_exit = True
        thread.join(30)
