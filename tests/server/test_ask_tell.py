"""Studies that external loops train: asked for and told over HTTP, on every database."""

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient
from sqlalchemy import text

from halving import Store
from halving.errors import StoreUnavailable
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog import AttemptRow, Catalog, RungResultRow, TrialRow
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
from server.fair_queue import FairQueue
from server.settings import Settings
from tests.backends import CHECKOUT
from tests.clock import Clock
from tests.ports import free_port
from tests.searches import search
from tests.trainables import score
from tests.waiting import wait_for

Small = Callable[..., dict[str, Any]]
REPORTS = {
    "tell": ("attempt", "epoch", "values"),
    "heartbeat": ("attempt",),
    "fail": ("attempt", "error"),
    "release": ("attempt",),
}


@pytest.fixture
def external(either_backend: Backend, small: Small) -> Small:
    """The small spec for external loops, on a snapshot that there is."""

    def spec(**changes: Any) -> dict[str, Any]:
        spec = small(**changes)
        snapshot = take_snapshot(either_backend.store, either_backend.catalog, parse_spec(spec).dataset)
        del spec["predictor"]
        return {**spec, "snapshot": snapshot.digest}

    return spec


def open_study(client: TestClient, spec: dict[str, Any]) -> str:
    answer = client.post("/hpo/studies", params={"driver": "api"}, json=spec)
    assert answer.status_code == 202, answer.text
    assert answer.json()["status"] == "done"
    return str(answer.json()["study"])


def ask(client: TestClient, study: str, **options: Any) -> dict[str, Any]:
    """The next trial, once there is one."""
    answer = wait_for(lambda: _check_ask(client.post(f"/hpo/studies/{study}/ask", **options)), 60, "a trial")
    return dict(answer.json())


def _check_ask(answer: Any) -> Any:
    assert answer.status_code in (200, 204), answer.text
    return answer if answer.status_code == 200 else None


def tell(
    client: TestClient, study: str, assignment: dict[str, Any], epoch: int, value: float
) -> dict[str, Any]:
    body = {"attempt": assignment["attempt"], "epoch": epoch, "values": {"score": value}}
    answer = client.post(f"/hpo/studies/{study}/trials/{assignment['trial']}/tell", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def drive(client: TestClient, study: str) -> None:
    """A loop as a user would write it, to the study's end."""
    while (answer := client.post(f"/hpo/studies/{study}/ask")).status_code != 410:
        if answer.status_code == 204:
            continue
        assignment = answer.json()
        verdict = {"decision": "continue", "epochs": assignment["epochs"]}
        while verdict["decision"] == "continue":
            verdict = tell(
                client,
                study,
                assignment,
                verdict["epochs"],
                score(assignment["params"]["x"], verdict["epochs"]),
            )


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


def test_two_loops_at_once_share_the_trials_and_take_none_twice(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(max_trials=12))
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda _: drive(client, study), range(2)):
            pass
    trials = Scheduler(either_backend.catalog, study).state().trials
    assert len(trials) == 12
    assert {str(trial.status) for trial in trials} <= {"completed", "paused"}


def test_a_repeated_ask_with_its_key_gets_the_same_trial_also_when_it_is_over(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    first = ask(client, study, headers={"Idempotency-Key": "k1"})
    other = ask(client, study, headers={"Idempotency-Key": "k2"})
    again = ask(client, study, headers={"Idempotency-Key": "k1"})
    tell(client, study, first, 1, 0.5)
    later = ask(client, study, headers={"Idempotency-Key": "k1"})
    assert [assignment["trial"] for assignment in (first, other, again, later)] == [0, 1, 0, 0]
    assert [assignment["attempt"] for assignment in (first, again, later)] == [1, 1, 1]


def test_a_repeated_ask_holds_the_lease_it_names_and_goes_on_from_the_trial(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(
        client, external(strategy={"median": {"sampler": "random", "max_budget": 3}}, max_trials=1)
    )
    key = {"Idempotency-Key": "k"}
    checkpoint = either_backend.store.put_blob(b"weights")
    ask(client, study, headers=key, json={"lease_seconds": 2})
    body = {"attempt": 1, "epoch": 1, "values": {"score": 0.5}, "checkpoint": checkpoint, "lease_seconds": 2}
    assert client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).json()["epochs"] == 2
    for _ in range(2):  # also while nothing is to be done for others
        again = ask(client, study, headers=key, json={"lease_seconds": 600})
        assert (again["attempt"], again["epoch"], again["epochs"], again["checkpoint"]) == (
            1,
            1,
            2,
            checkpoint,
        )
        with either_backend.catalog.read() as session:
            assert session.get_one(TrialRow, (study, 0)).lease_until == pytest.approx(again["lease_until"])
        assert again["lease_until"] > either_backend.catalog.now() + 300
        assert client.post(f"/hpo/studies/{study}/ask").status_code == 204


def test_a_repeated_ask_for_an_attempt_that_is_over_promises_no_lease(
    client: TestClient, external: Small
) -> None:
    study = open_study(
        client, external(strategy={"median": {"sampler": "random", "max_budget": 2}}, max_trials=1)
    )
    key = {"Idempotency-Key": "k"}
    first = ask(client, study, headers=key)
    tell(client, study, first, 1, 0.5)
    client.post(f"/hpo/studies/{study}/trials/0/release", json={"attempt": 1})
    released = ask(client, study, headers=key)
    assert (released["attempt"], released["epoch"], released["epochs"], released["lease_until"]) == (
        1,
        1,
        1,
        None,
    )
    second = ask(client, study, headers={"Idempotency-Key": "other"})
    assert (second["attempt"], second["epoch"], second["epochs"]) == (2, 1, 2)
    assert ask(client, study, headers=key)["lease_until"] is None
    assert tell(client, study, second, 2, 0.5)["decision"] == "complete"
    assert ask(client, study, headers={"Idempotency-Key": "other"})["lease_until"] is None


def test_asks_with_one_key_that_come_at_once_get_one_trial(client: TestClient, external: Small) -> None:
    study = open_study(client, external())
    together = threading.Barrier(4)

    def ask_together(_: int) -> int:
        together.wait(10)
        return int(ask(client, study, headers={"Idempotency-Key": "k"})["trial"])

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask_together, range(4))) == {0}


def test_loops_of_one_study_hold_few_threads_and_no_other_study_up(
    client: TestClient, either_backend: Backend, external: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = open_study(client, external())
    other = open_study(client, external(seed=3))
    threads = []
    may_end = threading.Event()

    def ask(loops: ExternalLoops, *_: Any, **__: Any) -> Wait:
        if loops.scheduler.id == slow:
            threads.append(threading.get_ident())
            may_end.wait(30)
        return Wait()

    monkeypatch.setattr(ExternalLoops, "ask", ask)
    askers = client.app.state.halving.loop_queue._askers  # type: ignore[attr-defined]
    with ThreadPoolExecutor(6) as pool:
        try:
            asking = [pool.submit(client.post, f"/hpo/studies/{slow}/ask") for _ in range(6)]
            at_once = 4 if either_backend.catalog.engine.dialect.name == "postgresql" else 1
            wait_for(
                lambda: slow in askers and askers[slow].asking == 6 and len(threads) >= at_once,
                60,
                "all have come",
                every=0.01,
            )
            assert client.post(f"/hpo/studies/{other}/ask").status_code == 204
            assert len(threads) == at_once
        finally:
            may_end.set()
        assert {request.result(30).status_code for request in asking} == {204}


def test_loops_beyond_their_turns_are_told_when_to_ask_again(client: TestClient) -> None:
    app: Any = client.app
    app.state.halving = replace(app.state.halving, loop_queue=FairQueue(1, 1, waiting=0))
    body = {"attempt": 1, "epoch": 1, "values": {}, "error": "it burns"}
    for path, names in (("ask", ()), *((f"trials/0/{name}", names) for name, names in REPORTS.items())):
        answer = client.post(f"/hpo/studies/digits-1234/{path}", json={name: body[name] for name in names})
        assert (answer.status_code, bool(answer.headers.get("Retry-After"))) == (503, True), path


def test_what_is_told_again_is_answered_as_before(client: TestClient, external: Small) -> None:
    study = open_study(client, external(strategy={"median": {"sampler": "random", "max_budget": 3}}))
    assignment = ask(client, study)
    first = tell(client, study, assignment, 1, 0.3)
    assert (first["decision"], first["epochs"]) == ("continue", 2)
    tell(client, study, assignment, 2, 0.4)
    again = tell(client, study, assignment, 1, 0.9)
    assert (again["decision"], again["epochs"]) == ("continue", 2)
    ends = [tell(client, study, assignment, 3, value)["decision"] for value in (0.5, 0.6)]
    assert ends == ["complete", "complete"]


def test_what_is_decided_on_a_tell_is_written_in_one_transaction_with_the_lease(
    either_backend: Backend, external: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = either_backend.catalog
    writes = list[Catalog]()
    turn = Catalog._turn_to_write
    study = opened_by_loops(
        either_backend, external(strategy={"median": {"sampler": "random", "max_budget": 2}})
    )

    def count(written: Catalog) -> Any:
        writes.append(written)
        return turn(written)

    monkeypatch.setattr(Catalog, "_turn_to_write", count)
    with closing(ExternalLoops(catalog, study)) as loops:
        assignment = loops.ask("w", 60)
        for epoch, decision in ((1, "continue"), (2, "complete")):
            writes.clear()
            verdict = loops.tell(0, 1, epoch, {"score": 0.5}, lease_seconds=5_000)
            assert (verdict.decision, len(writes)) == (decision, 1)
            if decision == "continue":
                with catalog.read() as session:
                    assert session.get_one(TrialRow, (study, 0)).lease_until >= assignment.lease_until + 4_000  # type: ignore[union-attr, operator]


def test_a_search_of_which_nothing_is_known_any_more_may_be_over(
    either_backend: Backend, external: Small
) -> None:
    scheduler = LoopScheduler(either_backend.catalog, opened_by_loops(either_backend, external()))
    assert scheduler.may_be_over()
    assert scheduler.running() == 0
    assert not scheduler.may_be_over()
    scheduler._transactions.cache.forget()  # as after a transaction that failed
    assert scheduler.may_be_over()


def test_an_attempt_that_was_lost_is_not_told_to_go_on_when_it_tells_again(
    client: TestClient, external: Small
) -> None:
    study = open_study(
        client, external(strategy={"median": {"sampler": "random", "max_budget": 3}}, max_trials=1)
    )
    assignment = ask(client, study)
    assert tell(client, study, assignment, 1, 0.3)["decision"] == "continue"
    body = {"attempt": 1, "epoch": 1, "values": {"score": 0.3}}
    client.post(f"/hpo/studies/{study}/trials/0/release", json={"attempt": 1})
    assert client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).status_code == 409
    assert ask(client, study)["attempt"] == 2
    assert client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).status_code == 409


def test_nothing_is_decided_between_rungs_or_accepted_beyond_the_grant(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 5}}))
    assignment = ask(client, study)
    before = tell(client, study, assignment, 2, 0.1)
    assert (before["decision"], before["epochs"]) == ("continue", 5)
    path = f"/hpo/studies/{study}/trials/0/tell"
    beyond = client.post(path, json={"attempt": 1, "epoch": 6, "values": {"score": 1}})
    assert (beyond.status_code, "5 epochs are granted" in beyond.text) == (422, True)
    missing = client.post(path, json={"attempt": 1, "epoch": 5, "values": {"loss": 1}})
    assert (missing.status_code, missing.json()["detail"]) == (
        422,
        "values = loss is not accepted: score is missing; at a rung tell score",
    )
    assert tell(client, study, assignment, 5, 0.2)["decision"] == "complete"


def test_a_value_that_is_not_finite_ends_the_trial(client: TestClient, external: Small) -> None:
    study = open_study(client, external())
    ask(client, study)
    body = {"attempt": 1, "epoch": 1, "values": {"score": "NaN"}}
    answers = [client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).json() for _ in range(2)]
    assert answers[0]["decision"] == answers[1]["decision"] == "stop"
    assert "'score' became nan" in answers[0]["reason"]


def test_a_value_that_is_not_finite_and_is_not_asked_for_is_left_out(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    ask(client, study)
    values = {"score": 0.5, "a": "NaN", "b": "Infinity", "c": "-Infinity", "a\0b": 3.0}
    body = {"attempt": 1, "epoch": 1, "values": values}
    for _ in range(2):
        answer = client.post(f"/hpo/studies/{study}/trials/0/tell", json=body)
        assert (answer.status_code, answer.json()["decision"]) == (200, "complete"), answer.text
    with either_backend.catalog.read() as session:
        assert session.get_one(RungResultRow, (study, 0, 0)).metrics == {"score": 0.5, "a\0b": 3.0}
    assert client.get(f"/hpo/studies/{study}").status_code == 200


def test_too_many_values_or_overlong_names_are_refused_and_the_trial_goes_on(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    assignment = ask(client, study)
    for values in (
        {f"m{number}": 0.0 for number in range(1_001)},
        {"m" * 501: 0.0},
        {"": 0.0},
        {"\ud800": 0.0},
    ):
        body = json.dumps({"attempt": 1, "epoch": 1, "values": {"score": 0.5, **values}})
        refused = client.post(
            f"/hpo/studies/{study}/trials/0/tell", content=body, headers={"Content-Type": "application/json"}
        )
        assert (refused.status_code, "values" in refused.json()["detail"]) == (422, True), refused.text
    assert tell(client, study, assignment, 1, 0.5)["decision"] == "complete"


def test_a_checkpoint_missing_from_the_store_is_refused_and_the_trial_goes_on(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    tell = "/hpo/studies/{}/trials/0/tell"
    ask(client, study)
    body = {"attempt": 1, "epoch": 1, "values": {"score": 0.5}, "checkpoint": "sha256:" + "2" * 64}
    refused = client.post(tell.format(study), json=body)
    assert (refused.status_code, "the store has no such blob" in refused.json()["detail"]) == (422, True), (
        refused.text
    )
    body["checkpoint"] = either_backend.store.put_blob(b"weights")
    assert client.post(tell.format(study), json=body).json()["decision"] == "complete"
    either_backend.store.delete(blob_name(str(body["checkpoint"])))  # as retention may
    assert client.post(tell.format(study), json=body).json()["decision"] == "complete", (
        "told again, it is answered as before"
    )


def test_a_silent_store_is_asked_again_later_while_other_loops_tell(
    client: TestClient, external: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    options = ask(client, study)

    def hangs(_: Store, digest: str) -> bool:
        assert threading.current_thread().name == "AnyIO worker thread"
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(Store, "has_blob", hangs)
    body = {"attempt": 1, "epoch": 1, "values": {"score": 0.5}, "checkpoint": "sha256:" + "2" * 64}
    assert client.post(f"/hpo/studies/{study}/trials/0/tell", json=body).status_code == 503
    assert tell(client, study, options, 1, 0.5)["decision"] == "complete"


def opened_by_loops(backend: Backend, spec: dict[str, Any]) -> str:
    checked = parse_spec(spec, trains=False)
    return open_sweep(backend.catalog, checked, str(checked.snapshot), driver="api", commit=None).id


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
    study = opened_by_loops(either_backend, external(strategy={"tpe": {"budget": 1}}))
    with closing(ExternalLoops(either_backend.catalog, study)) as loops:
        assert [type(loops.ask("w", again=False)) for _ in range(20)] == [Wait] * 20
        assert chosen.wait(30)
    assert set(wanted) == {1}


def test_training_seconds_are_the_same_whichever_server_is_told(
    either_backend: Backend, external: Small
) -> None:
    study = opened_by_loops(
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


def test_a_loop_that_dies_loses_its_trial_to_another_loop(either_backend: Backend, external: Small) -> None:
    clock = Clock()
    loops = ExternalLoops(
        either_backend.catalog, opened_by_loops(either_backend, external(max_trials=1)), clock=clock
    )
    first = loops.ask("dies", 60)
    for now in (59, 10, 10):  # the lease runs out, is doubted, and is lost
        clock.now += now
        loops.settle()  # or it would not look again so soon
        again = loops.ask("lives", 60)
    assert (first.trial, first.attempt, again.trial, again.attempt) == (0, 1, 0, 2)  # type: ignore[union-attr]
    loops.close()


def test_a_heartbeat_renews_the_lease_and_tells_of_a_pause(client: TestClient, external: Small) -> None:
    study = open_study(client, external())
    assignment = ask(client, study, json={"lease_seconds": 5})
    beat = f"/hpo/studies/{study}/trials/0/heartbeat"
    renewed = client.post(beat, json={"attempt": 1, "lease_seconds": 500}).json()
    assert renewed["lease_until"] > assignment["lease_until"] + 400
    client.post(f"/hpo/studies/{study}/pause")
    assert client.post(beat, json={"attempt": 1}).json()["decision"] == "pause"
    assert (
        client.post(f"/hpo/studies/{study}/trials/0/release", json={"attempt": 1}).json()["decision"]
        == "pause"
    )
    assert client.post(beat, json={"attempt": 1}).status_code == 409
    for _ in range(2):  # also while nobody looks again
        nothing = client.post(f"/hpo/studies/{study}/ask")
        assert (nothing.status_code, nothing.headers["Held-Back"]) == (204, "the sweep's user has paused it")
    client.post(f"/hpo/studies/{study}/resume")
    assert ask(client, study)["attempt"] == 2


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


def test_a_trial_that_is_handed_out_again_comes_with_the_checkpoint_that_was_told(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(strategy={"median": {"sampler": "random", "max_budget": 3}}))
    digest = either_backend.store.put_blob(b"weights")
    assignment = ask(client, study)
    tell = f"/hpo/studies/{study}/trials/0/tell"
    for epoch, told_with in ((1, {"checkpoint": digest}), (2, {})):
        body = {"attempt": assignment["attempt"], "epoch": epoch, "values": {"score": 0.5}, **told_with}
        assert client.post(tell, json=body).json()["decision"] == "continue"
    client.post(f"/hpo/studies/{study}/trials/0/release", json={"attempt": 1})
    again = ask(client, study)
    assert (again["attempt"], again["epoch"], again["epochs"], again["checkpoint"]) == (2, 2, 3, digest)
    wrong = client.post(
        tell, json={"attempt": 2, "epoch": 3, "values": {"score": 0.5}, "checkpoint": "model.pt"}
    )
    assert wrong.status_code == 422


def test_a_failed_trial_is_tried_again_and_then_given_up(client: TestClient, external: Small) -> None:
    study = open_study(client, external(max_retries=1))
    decisions = []
    for attempt in (1, 2):
        assert ask(client, study)["attempt"] == attempt
        body = {"attempt": attempt, "error": "it burns"}
        decisions += [
            client.post(f"/hpo/studies/{study}/trials/0/fail", json=body).json()["decision"] for _ in range(2)
        ]
    assert decisions == ["retry", "retry", "stop", "stop"]


def test_who_ends_an_attempt_is_in_the_write_log_once_or_it_is_not_ended(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external())
    trial = f"/hpo/studies/{study}/trials"
    for number in range(3):
        ask(client, study)
        client.post(f"{trial}/{number}/heartbeat", json={"attempt": 1})
    ends = {
        "0/release": {"attempt": 1},
        "1/fail": {"attempt": 1, "error": "it burns", "final": True},
        "2/release": {"attempt": 1},
    }
    with either_backend.catalog.write() as session:
        session.execute(text("ALTER TABLE write_log RENAME TO gone"))
    assert client.post(f"{trial}/0/release", json={"attempt": 1}).status_code == 500
    with either_backend.catalog.write() as session:
        session.execute(text("ALTER TABLE gone RENAME TO write_log"))
        assert session.get_one(TrialRow, (study, 0)).status == "running"
    for path, body in ends.items():
        assert [client.post(f"{trial}/{path}", json=body).status_code for _ in range(2)] == [200, 200]
    entries = client.get("/write-log").json()["entries"]
    ended = [
        (entry["actor"], entry["target"])
        for entry in entries
        if "/trials/" in entry["route"] and entry["status"] == 200
    ]
    assert ended == [("local", f"/api/v1{trial}/{path}") for path in reversed(ends)]


def test_a_study_that_is_stopped_ends_with_the_last_trial_that_is_given_back(
    client: TestClient, either_backend: Backend, external: Small
) -> None:
    study = open_study(client, external(strategy={"random": {"budget": 1}}))
    assignment = ask(client, study)
    held = ask(client, study)
    tell(client, study, assignment, 1, 0.5)
    client.post(f"/hpo/studies/{study}/stop")
    client.post(f"/hpo/studies/{study}/trials/{held['trial']}/release", json={"attempt": 1})
    assert client.get(f"/hpo/studies/{study}").json()["status"] == "finished"
    assert client.post(f"/hpo/studies/{study}/ask").status_code == 410


def test_a_stopped_study_without_a_running_trial_has_ended_at_once(
    client: TestClient, external: Small
) -> None:
    study = open_study(client, external())
    tell(client, study, ask(client, study), 1, 0.5)
    client.post(f"/hpo/studies/{study}/stop")
    assert client.get(f"/hpo/studies/{study}").json()["status"] == "finished"


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
