"""Training runs and studies requested over HTTP: recorded at once, done once, and shown."""

from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

import halving
from halving import Run
from halving.errors import StoreUnavailable
from halving.records.run_record import RunRecords, SavedCheckpoint
from resources.backend import Backend
from resources.catalog import IntentRow
from resources.datasets.snapshot_catalog import deprecate
from resources.datasets.snapshots import Snapshot, take_snapshot
from resources.execution.worker import TrialRunner, work
from resources.scheduling import intents
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec
from server.errors import STORE_AWAY
from tests.server.launched import carried_out

Small = Callable[..., dict[str, Any]]


@pytest.fixture
def snapshot(either_backend: Backend, small: Small) -> Snapshot:
    return take_snapshot(either_backend.store, either_backend.catalog, parse_spec(small()).dataset)


def body(snapshot: Snapshot, **changes: Any) -> dict[str, Any]:
    return {
        "project": "single",
        "trainable": "tests.trainables:train",
        "dataset": snapshot.key,
        "objective": {"metric": "score", "direction": "maximize"},
        "params": {"x": 0.4},
        "epochs": 3,
        **changes,
    }


def start(client: TestClient, snapshot: Snapshot, **changes: Any) -> dict[str, Any]:
    answer = client.post("/training-runs", json=body(snapshot, **changes))
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def looked_at(client: TestClient, run_id: str) -> dict[str, Any]:
    answer = client.get(f"/training-runs/{run_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def train_once(backend: Backend, scheduler: Scheduler, snapshot: Snapshot) -> None:
    runner = TrialRunner(
        scheduler, backend.store, dataset_name=snapshot.name, dataset_digest=snapshot.digest, labels={}
    )
    work(scheduler, runner, lambda changed: None)


def count(backend: Backend) -> int:
    with backend.catalog.read() as session:
        return session.query(IntentRow).count()


@pytest.mark.slow
def test_a_training_run_has_its_id_at_once_and_is_trained_as_a_sweep_of_one(
    client: TestClient, either_backend: Backend, snapshot: Snapshot
) -> None:
    intent = start(client, snapshot)
    before = looked_at(client, intent["run_id"])
    assert (before["status"], before["params"], before["epochs"], before["on_its_own"]) == (
        "waiting",
        {"x": 0.4},
        3,
        True,
    )
    assert "every few seconds" in before["waiting"]
    scheduler = carried_out(either_backend, intent["intent"])
    assert (scheduler.spec.max_trials, scheduler.spec.concurrency) == (1, 1)
    assert looked_at(client, intent["run_id"])["status"] == "waiting"
    train_once(either_backend, scheduler, snapshot)
    after = looked_at(client, intent["run_id"])
    assert (after["status"], after["epoch"], after["waiting"]) == ("finished", 3, None)
    assert [checkpoint["epoch"] for checkpoint in after["checkpoints"]][-1] == 3
    assert [checkpoint["outcome"] for checkpoint in after["attempts"]] == ["complete"]
    assert client.get(f"/hpo/studies/{after['sweep']}").json()["status"] == "finished"


@pytest.mark.slow
def test_a_restored_run_trains_on_from_its_checkpoint_and_names_its_origin(
    client: TestClient, either_backend: Backend, snapshot: Snapshot
) -> None:
    intent = start(client, snapshot)
    train_once(either_backend, carried_out(either_backend, intent["intent"]), snapshot)
    answer = client.post(f"/training-runs/{intent['run_id']}/checkpoints/3/restore", json={"epochs": 5})
    assert answer.status_code == 202, answer.text
    restored = answer.json()
    assert restored["run_id"] != intent["run_id"]
    train_once(either_backend, carried_out(either_backend, restored["intent"]), snapshot)
    after = looked_at(client, restored["run_id"])
    assert (
        after["status"],
        after["params"],
        [checkpoint["epoch"] for checkpoint in after["checkpoints"]],
    ) == (
        "finished",
        {"x": 0.4},
        [4, 5],
    )
    assert after["restored_from"]["run"] == intent["run"]
    assert (
        RunRecords(either_backend.store, "single", restored["run"]).read()["parent"]["restored_from"]
        == after["restored_from"]
    )


@pytest.mark.parametrize(("epochs", "status"), [(None, 404), (3, 404), (0, 422), (True, 422), ("x", 422)])
def test_the_epochs_of_a_restored_run_are_a_number_or_null(
    client: TestClient, epochs: object, status: int
) -> None:
    assert (
        client.post("/training-runs/digits/none/checkpoints/1/restore", json={"epochs": epochs}).status_code
        == status
    )


@pytest.mark.slow
def test_a_restored_run_goes_on_from_its_own_checkpoint_without_the_first(
    client: TestClient, either_backend: Backend, snapshot: Snapshot
) -> None:
    intent = start(client, snapshot)
    train_once(either_backend, carried_out(either_backend, intent["intent"]), snapshot)
    restored, late = (
        client.post(f"/training-runs/{intent['run_id']}/checkpoints/3/restore", json={"epochs": 5}).json()
        for _ in range(2)
    )
    scheduler = carried_out(either_backend, restored["intent"])
    first = scheduler.next_work("w")
    own, source = (
        RunRecords(either_backend.store, "single", run) for run in (restored["run"], intent["run"])
    )
    own.add_checkpoint(source.checkpoints()[-1]._replace(epoch=4))
    scheduler.release(first, 1.0)  # type: ignore[arg-type]
    for name in either_backend.store.names(f"{source.folder}/checkpoints"):
        either_backend.store.delete(f"{source.folder}/checkpoints/{name}")
    train_once(either_backend, scheduler, snapshot)
    assert looked_at(client, restored["run_id"])["status"] == "finished"
    train_once(either_backend, carried_out(either_backend, late["intent"]), snapshot)
    after = looked_at(client, late["run_id"])
    assert (after["status"], after["attempts"][-1]["attempt"]) == ("failed", 1)
    assert "of epoch 3 of single/" in after["error"]
    assert after["error"].endswith("is gone")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epoch", "fields", "status", "says"),
    [
        (2, {}, 404, "no checkpoint of epoch 2; it has [1, 3]"),
        (3, {}, 422, "epochs = 3"),
        (1, {"epochs": 1}, 422, "epochs = 1"),
    ],
)
def test_a_restore_that_cannot_be_is_refused(
    client: TestClient,
    either_backend: Backend,
    snapshot: Snapshot,
    epoch: int,
    fields: dict[str, int],
    status: int,
    says: str,
) -> None:
    intent = start(client, snapshot)
    train_once(either_backend, carried_out(either_backend, intent["intent"]), snapshot)
    answer = client.post(f"/training-runs/{intent['run_id']}/checkpoints/{epoch}/restore", json=fields)
    assert (answer.status_code, says in answer.json()["detail"]) == (status, True), answer.text


def test_a_canceled_run_is_not_begun_or_stops_and_canceling_again_changes_nothing(
    client: TestClient, either_backend: Backend, snapshot: Snapshot
) -> None:
    early = start(client, snapshot)
    late = start(client, snapshot)
    scheduler = carried_out(either_backend, late["intent"])
    assignment = scheduler.next_work("w")
    for run in (early, late):
        for _ in range(2):
            assert client.post(f"/training-runs/{run['run_id']}/cancel").status_code == 200
    assert looked_at(client, early["run_id"])["status"] == "canceled"
    assert client.get(f"/hpo/studies/intents/{early['intent']}").json()["status"] == "canceled"
    assert looked_at(client, late["run_id"])["status"] == "canceling"
    assert scheduler.heartbeat(assignment) == "stop"  # type: ignore[arg-type]
    scheduler.release(assignment, 1.0)  # type: ignore[arg-type]
    scheduler.next_work("w")
    assert looked_at(client, late["run_id"])["status"] == "canceled"
    assert client.post(f"/training-runs/{late['run_id']}/cancel").status_code == 200


def test_a_trial_of_a_larger_sweep_is_looked_at_and_not_canceled_alone(
    client: TestClient, either_backend: Backend, snapshot: Snapshot, small: Small
) -> None:
    row = open_sweep(either_backend.catalog, parse_spec(small()), snapshot.digest, driver="job", commit=None)
    Scheduler(either_backend.catalog, row.id).next_work("w")
    status = looked_at(client, f"small/{row.id}.0000")
    assert (status["status"], status["on_its_own"]) == ("running", False)
    refused = client.post(f"/training-runs/small/{row.id}.0000/cancel")
    assert (refused.status_code, f"a trial of the sweep {row.id}" in refused.text) == (409, True)


def test_what_is_asked_again_with_its_key_is_done_once(
    client: TestClient, either_backend: Backend, snapshot: Snapshot
) -> None:
    key = {"Idempotency-Key": "k1"}
    answers = [client.post("/training-runs", json=body(snapshot), headers=key).json() for _ in range(2)]
    assert answers[0] == answers[1]
    other = client.post("/training-runs", json=body(snapshot, epochs=4), headers=key)
    assert other.status_code == 422
    assert count(either_backend) == 1
    start(client, snapshot)
    assert count(either_backend) == 2


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"dataset": "points@0000"}, 404, "no dataset snapshot 'points@0000'"),
    ({"dataset": "points@\0"}, 404, "no dataset snapshot"),
    ({"dataset": "points"}, 404, "give name@digest or a digest"),
    ({"params": {}}, 422, "params = {}"),
    ({"params": {"x": {"nested": "1e-3"}}}, 422, "space.x.constant.nested"),
    ({"project": "a b"}, 422, "name = 'a b'"),
    ({"trainable": "train"}, 422, "give module:function"),
    ({"resources": {"cpus": 4000}}, 422, "resources.cpus = 4000"),
    ({"image": "registry.example/train:1"}, 422, "HALVING_CLUSTER is not set"),
]


def test_a_training_run_that_cannot_be_is_refused_at_once(
    client: TestClient, either_backend: Backend, snapshot: Snapshot
) -> None:
    for changes, status, message in REFUSED:
        answer = client.post("/training-runs", json=body(snapshot, **changes))
        assert (answer.status_code, message in answer.json()["detail"]) == (status, True), (
            changes,
            answer.text,
        )
    assert count(either_backend) == 0


def test_a_study_is_recorded_at_once_and_says_why_it_waits(
    client: TestClient, either_backend: Backend, small: Small
) -> None:
    answer = client.post("/hpo/studies", json=small())
    assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
    intent = client.get(answer.json()["url"].removeprefix("/api/v1")).json()
    assert (intent["kind"], intent["study"]) == ("study", answer.json()["study"])
    assert "every few seconds" in intent["waiting"]
    intents.become(
        either_backend.catalog, intent["intent"], intents.Became(intents.FAILED, "r1", "no such column")
    )
    failed = client.get(f"/hpo/studies/intents/{intent['intent']}").json()
    assert (failed["status"], failed["error"], failed["waiting"]) == ("failed", "no such column", None)


def test_a_study_that_cannot_be_is_refused_with_every_problem(
    client: TestClient, either_backend: Backend, small: Small
) -> None:
    answer = client.post("/hpo/studies", json={**small(max_trials=0), "trainable": "train"})
    assert answer.status_code == 422
    assert "max_trials = 0" in answer.json()["detail"]
    assert "trainable = 'train'" in answer.json()["detail"]
    assert client.post("/hpo/studies", json=small(resources={"cpus": 4000})).status_code == 422
    assert count(either_backend) == 0


def test_nothing_is_asked_for_on_a_deprecated_snapshot(
    client: TestClient, either_backend: Backend, snapshot: Snapshot, small: Small
) -> None:
    """A study that names no snapshot is refused by its run, which takes one: see the tests of the jobs."""
    deprecate(either_backend.catalog, snapshot.digest, "labels of May are wrong")
    refused = (
        f"'{snapshot.key}' is not accepted: it is deprecated: labels of May are wrong; `halving sweep "
        "--allow-deprecated`"
    )
    named = small(snapshot=snapshot.digest)
    for field, answer in (
        ("dataset", client.post("/training-runs", json=body(snapshot))),
        ("snapshot", client.post("/hpo/studies", json=named)),
        ("snapshot", client.post("/hpo/studies", params={"driver": "api"}, json=named)),
    ):
        assert answer.status_code == 422
        assert f"{field} = {refused}" in answer.json()["detail"]
    assert count(either_backend) == 0


def test_a_study_for_external_loops_that_needs_dagster_waits_for_it(client: TestClient, small: Small) -> None:
    intent = client.post("/hpo/studies", params={"driver": "api"}, json=small()).json()
    assert intent["status"] == "waiting", "its snapshot is to be taken, and its winner evaluated"
    assert client.post(f"/hpo/studies/{intent['study']}/ask").status_code == 204


def test_unknown_runs_and_intents_are_named(client: TestClient, snapshot: Snapshot) -> None:
    intent = start(client, snapshot)
    wrong = (
        "none",
        "none-1234.0000",
        intent["run"].replace(".0000", ".0"),
        intent["run"].replace(".0000", ".99999999999"),
        "a%00.0000",
    )
    for path in (*(f"/training-runs/single/{run}" for run in wrong), "/hpo/studies/intents/none"):
        assert client.get(path).status_code == 404
    assert client.get(f"/training-runs/other/{intent['run']}").status_code == 404
    assert client.post(f"/training-runs/other/{intent['run']}/cancel").status_code == 404
    for run in (
        "nosuch/nosuch-1.0003",
        "single/nosuch-1.0000",
        f"single/{intent['run'].replace('.0000', '.0003')}",
    ):
        refused = client.post(f"/training-runs/{run}/cancel")
        assert (refused.status_code, refused.json()["detail"].startswith("no training run")) == (404, True), (
            refused.text
        )
    assert looked_at(client, intent["run_id"])["status"] == "waiting"


def test_why_a_run_never_began_is_said_without_where_the_store_is(
    client: TestClient, either_backend: Backend, snapshot: Snapshot
) -> None:
    intent = start(client, snapshot)
    reason = f"the store {either_backend.store.root} does not answer"
    intents.become(either_backend.catalog, intent["intent"], intents.Became(intents.FAILED, "r1", reason))
    assert looked_at(client, intent["run_id"])["error"] == "the store does not answer"


def test_each_attempt_says_why_it_ended_and_hides_where_the_store_is(
    client: TestClient, either_backend: Backend, snapshot: Snapshot
) -> None:
    intent = start(client, snapshot)
    scheduler = carried_out(either_backend, intent["intent"])
    root = either_backend.store.root
    hang = f"Where each rank was:\n  rank 1 (did not come):\n    reading {root}\nrank 1 did not come to save"
    scheduler.report_crash(scheduler.next_work("w"), hang, 1.0)  # type: ignore[arg-type]
    scheduler.report_preemption(scheduler.next_work("w"), f"the store {root} was away", 1.0)  # type: ignore[arg-type]
    scheduler.next_work("w")
    with Run(
        either_backend.store,
        project="single",
        run_id=intent["run"],
        params={},
        seed=None,
        attempt=3,
        system_metrics=None,
    ) as run:
        for step in range(4):
            run.log({"system/collectives": 60.0, "system/collectives/rank.1": 2.0}, step=step)
        run.log({"system/skipped_steps": 2, "system/nonfinite_loss/rank.1": 2}, step=57)
        run.flush()
        before = looked_at(client, intent["run_id"])  # without a checkpoint
        missed = {
            "count": 3,
            "since": "2026-03-01T10:00:00+00:00",
            "why": f"the store {root} does not answer",
        }
        run.records.add_checkpoint(SavedCheckpoint(1, 3, f"sha256:{'0' * 64}", {}, missed=missed))
    assert before["time_spent"]["straggler"]["rank"] == 1
    assert (before["skips"]["steps"][0]["count"], before["skips"]["checkpoints"]) == (2, [])
    status = looked_at(client, intent["run_id"])
    first, second, third = status["attempts"]
    assert (first["attempt"], first["outcome"], first["ranks"], first["reason"]) == (
        1,
        "retry",
        1,
        "rank 1 did not come to save",
    )
    assert first["error"] == hang.replace(root, "the store")
    assert (second["outcome"], second["error"], second["reason"]) == (
        "preempted",
        "the store was away",
        "the store was away",
    )
    assert (third["outcome"], third["error"], third["reason"]) == (None, None, None)
    [checkpoints] = status["skips"]["checkpoints"]
    assert (checkpoints["count"], checkpoints["epoch"], checkpoints["why"]) == (
        3,
        1,
        "the store does not answer",
    )
    assert [text.partition(" that")[0].partition(",")[0] for text in status["skips"]["texts"]] == [
        "attempt 3 left out 2 steps",
        "attempt 3 skipped 3 checkpoints",
    ]
    assert root not in str(status)


def test_a_page_that_looks_again_reads_no_points_again(
    client: TestClient, either_backend: Backend, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = start(client, snapshot)
    carried_out(either_backend, intent["intent"]).next_work("w")
    with Run(
        either_backend.store,
        project="single",
        run_id=intent["run"],
        params={},
        seed=None,
        attempt=1,
        system_metrics=None,
    ) as run:
        run.log({"system/collectives": 60.0}, step=1)
    reads: list[int] = []
    read_row_group = pq.ParquetFile.read_row_group

    def count(file: pq.ParquetFile, group: int, **options: Any) -> Any:
        reads.append(group)
        return read_row_group(file, group, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", count)
    looks = [(looked_at(client, intent["run_id"])["time_spent"]["collectives"], len(reads)) for _ in range(3)]
    assert looks == [(60.0, 2)] * 3, "its keys and its points, once"


def test_a_run_is_shown_without_its_checkpoints_while_the_store_is_away(
    client: TestClient, either_backend: Backend, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = start(client, snapshot)
    carried_out(either_backend, intent["intent"]).next_work("w")

    def away(*_: object) -> list[str]:
        raise StoreUnavailable("the store does not answer")

    monkeypatch.setattr("halving.store.store.Store.names", away)
    status = looked_at(client, intent["run_id"])
    assert (status["status"], status["checkpoints"], status["unavailable"]) == ("running", [], STORE_AWAY)


def test_a_run_that_a_script_recorded_is_named_where_it_can_be_seen(
    client: TestClient, either_backend: Backend
) -> None:
    halving.init("digits", id="mine", root=either_backend.root, system_metrics=None).finish()
    answer = client.get("/training-runs/digits/mine")
    nothing = client.get("/training-runs/digits/other")
    assert (answer.status_code, nothing.status_code) == (404, 404)
    assert "/api/v1/runs/digits/mine" in answer.json()["detail"]
    assert "/api/v1/runs" not in nothing.json()["detail"]
