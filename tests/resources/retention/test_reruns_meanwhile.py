"""A rerun that begins between marking and deletion compares what is there, or says what is missing."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.query.runs import read_run
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.rerun.verdict import judge_rerun
from resources.backend import Backend
from resources.catalog import RungResultRow, TrialRow, utcnow
from resources.catalog.trial_key import trial_key
from resources.retention import carry_out as carrying
from resources.retention.carry_out import carry_out
from resources.retention.policy import parse_policy
from resources.retention.policy_file import PolicyFile
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row
from tests.sdk.run.runs import start

_LOSSES = [0.5, 0.25, 0.125]
_POLICY = PolicyFile(
    parse_policy({"checkpoints": {"top_k": 0, "days": 1}}, "retention.yaml"), "retention.yaml"
)


@pytest.fixture
def backend(any_store: Store, tmp_path: Path, catalog_file: Path) -> Any:
    shutil.copy(catalog_file, tmp_path / "catalog.db")
    backend = Backend(root=any_store.root, catalog_url=f"sqlite:///{tmp_path}/catalog.db")
    yield backend
    backend.catalog.close()


def save(store: Store, run: str, *, weights: str | None) -> str:
    """A checkpoint after the third epoch; without a digest of its weights it is a sharded one.

    Gives its blob.
    """
    content = f'{{"halving_checkpoint": 1, "of": "{run}"}}' if weights is None else run
    blob = store.put_blob(content.encode())
    RunRecords(store, "small", run).add_checkpoint(
        SavedCheckpoint(3, 1, blob, {}, None, weights, sharded=weights is None)
    )
    return blob


def train(store: Store, run: str, parent: dict[str, Any]) -> Any:
    opened = start(store, project="small", run_id=run, parent=parent)
    for step, loss in enumerate(_LOSSES, start=1):
        opened.log({"loss": loss}, step=step)
    return opened


def add_ended_trial(backend: Backend, spec: SweepSpec, *, weights: str | None) -> tuple[str, str]:
    """The run and the checkpoint's blob of a trial whose sweep has ended."""
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    sweep = open_sweep(backend.catalog, spec, "sha256:s", driver="job", commit=None).id
    run = trial_key(sweep, 0)
    train(backend.store, run, {"sweep": sweep, "trial": 0}).finish()
    blob = save(backend.store, run, weights=weights)
    with backend.catalog.write() as session:
        session.add(
            TrialRow(sweep=sweep, number=0, params={"x": 0.5}, status="completed", attempt=1, checkpoint=blob)
        )
        session.flush()
        result = RungResultRow(
            sweep=sweep, trial=0, rung=0, epochs=3, value=0.5, decision="finish", attempt=1, seconds=1.0
        )
        result.checkpoint = blob
        result.reached_at = utcnow()
        session.add(result)
    backend.catalog.end_sweep(sweep, "finished")
    return run, blob


@pytest.mark.parametrize(
    ("weights", "equal", "said"),
    [
        ("sha256:weights", True, []),
        (None, None, ["weights after epoch 3: retention has deleted the checkpoint of small/{run}"]),
    ],
    ids=["digest in the record", "sharded"],
)
def test_a_rerun_between_marks_and_deletion_has_all_records_and_names_lost_weights(
    backend: Backend,
    small_spec: Any,
    monkeypatch: pytest.MonkeyPatch,
    weights: str | None,
    equal: bool | None,
    said: list[str],
) -> None:
    store = backend.store
    begun = []
    run, blob = add_ended_trial(
        backend, small_spec(strategy={"random": {"budget": 3}}, max_trials=1), weights=weights
    )
    before = RunRecords(store, "small", run).checkpoints()

    def begin(*arguments: Any) -> Any:
        """The rerun begins when what stays has been marked."""
        begun.append(train(store, "again", {"rerun_of": f"small/{run}", "trial": 0}))
        return find_unmarked(*arguments)

    find_unmarked = carrying.find_unmarked
    monkeypatch.setattr(carrying, "find_unmarked", begin)
    gone = carry_out(store, backend.catalog, _POLICY, now=datetime.now(UTC) + timedelta(days=15)).gone
    assert [(row.kind, row.count) for row in gone] == [("checkpoints", 1)]
    assert not store.has_blob(blob)
    save(store, "again", weights="sha256:weights")
    begun[0].finish()
    assert RunRecords(store, "small", run).checkpoints() == before
    verdict = judge_rerun(store, read_run(store, "small", run), read_run(store, "small", "again"), ())
    assert (verdict.verdict, verdict.points, verdict.first_difference) == ("identical", len(_LOSSES), None)
    assert verdict.weights_equal is equal
    assert verdict.not_compared == [line.format(run=run) for line in said]


def test_a_rerun_that_began_before_keeps_the_checkpoint_until_it_has_ended(
    backend: Backend, small_spec: Any
) -> None:
    run, blob = add_ended_trial(
        backend, small_spec(strategy={"random": {"budget": 3}}, max_trials=1), weights=None
    )
    begun = train(backend.store, "again", {"rerun_of": f"small/{run}", "trial": 0})
    later = datetime.now(UTC) + timedelta(days=15)
    assert carry_out(backend.store, backend.catalog, _POLICY, now=later).gone == []
    assert backend.store.has_blob(blob)
    begun.finish()
    carry_out(backend.store, backend.catalog, _POLICY, now=later)
    assert not backend.store.has_blob(blob)
