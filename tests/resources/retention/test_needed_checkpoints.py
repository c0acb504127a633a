"""Checkpoints that something still needs stay, also beside a promotion, a restore and a rerun."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.store import digest_of
from resources.backend import Backend
from resources.catalog import RungResultRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.retention import carry_out as carrying
from resources.retention import ended_trials
from resources.scheduling import intents
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import add_version
from tests.resources.retention.ended_sweeps import (
    Spec,
    add_report,
    add_sweep,
    carried_out,
    checkpoints_left,
    content,
)


@pytest.fixture
def spec(small_spec: Spec) -> SweepSpec:
    return small_spec(strategy={"random": {"budget": 9}}, max_trials=5)


def test_what_open_sweeps_versions_reports_warm_starts_and_restores_need_stays(
    backend: Backend, spec: SweepSpec, small_spec: Spec
) -> None:
    sweep = add_sweep(backend, spec)
    searched = add_sweep(backend, small_spec(name="searched", max_trials=5), ended=False)
    report = add_report(backend, sweep, 0, 1)
    with backend.catalog.write() as session:
        named = {
            "sweep": sweep,
            "trial": 2,
            "run": trial_key(sweep, 2),
            "snapshot": "sha256:s",
            "report": report,
        }
        add_version(
            session,
            model="small",
            version="1.0.0",
            stage="archived",
            checkpoint=digest_of(content(trial_key(sweep, 2), 2)),
            **named,
        )
        source = {
            "project": "small",
            "run": trial_key(sweep, 4),
            "epoch": 2,
            "checkpoint": digest_of(content(trial_key(sweep, 4), 2)),
        }
        restored = small_spec(restored_from=source, strategy={"random": {"budget": 9}})
        intents.add(session, restored, kind="training-run", driver="sensors", actor="ada")
    done = carried_out(backend, 30)
    assert checkpoints_left(backend.store, sweep) == {0: [1, 3], 1: [3], 2: [2, 3], 3: [], 4: [1, 2, 3]}
    assert checkpoints_left(backend.store, searched) == {key: [1, 2, 3] for key in range(5)}
    assert done.protected_by_reason() == {
        "its sweep is not over": 5,
        "a report": 1,
        "a training goes on from it": 1,
    }
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, searched).warm_start = [sweep]
    other = add_sweep(backend, small_spec(name="third", max_trials=5), ended=False)
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, other).warm_start = [searched]
    backend.catalog.end_sweep(searched, "finished")
    carried_out(backend, 30)
    assert checkpoints_left(backend.store, searched) == {key: [3] for key in range(5)}


def test_a_rungs_sharded_checkpoint_keeps_its_parts_though_the_trial_saved_another(
    backend: Backend, spec: SweepSpec
) -> None:
    store = backend.store
    sweep = add_sweep(backend, spec)
    part = store.put_blob(b"a part")
    manifest = store.put_blob(f'{{"halving_checkpoint": 1, "parts": ["{part}"]}}'.encode())
    records = RunRecords(store, "small", trial_key(sweep, 1))
    records.add_checkpoint(SavedCheckpoint(4, 1, manifest, {}, sharded=True))
    records.add_checkpoint(SavedCheckpoint(5, 1, store.put_blob(b"after the last rung, then it crashed"), {}))
    with backend.catalog.write() as session:
        for row in (session.get(TrialRow, (sweep, 1)), session.get(RungResultRow, (sweep, 1, 0))):
            assert row is not None
            row.checkpoint = manifest
    carried_out(backend, 15)
    assert (store.has_blob(manifest), store.has_blob(part)) == (True, True)


def test_a_training_cannot_go_on_from_deleted_checkpoints_and_keeps_its_own_source(
    either_backend: Backend, spec: SweepSpec, small_spec: Spec
) -> None:
    """Nobody gets a checkpoint between its decision and its deletion: the first in the catalog wins."""
    backend = either_backend
    sweep = add_sweep(either_backend, spec)

    def restored_spec(number: int, epoch: int) -> SweepSpec:
        run = trial_key(sweep, number)
        source = {
            "project": "small",
            "run": run,
            "epoch": epoch,
            "checkpoint": digest_of(content(run, epoch)),
        }
        return small_spec(restored_from=source, strategy={"random": {"budget": 9}})

    def ask(number: int, epoch: int) -> None:
        with backend.catalog.write() as session:
            intents.add(
                session, restored_spec(number, epoch), kind="training-run", driver="sensors", actor="ada"
            )

    ask(0, 1)
    carried_out(backend, 15)
    assert checkpoints_left(backend.store, sweep) == {0: [1, 2, 3], 1: [3], 2: [], 3: [], 4: []}
    ask(0, 2)
    ask(1, 3)
    for number, epoch, said in (
        (2, 3, "none of its checkpoints is kept"),
        (1, 2, "only its newest and best checkpoint are kept"),
    ):
        with pytest.raises(
            InvalidInput,
            match=rf"restored_from = '{sweep}.000{number}', epoch {epoch}, is not accepted: .*{said}",
        ):
            ask(number, epoch)
        with pytest.raises(InvalidInput, match="is not accepted"):
            open_sweep(backend.catalog, restored_spec(number, epoch), "sha256:s", driver="job", commit=None)


def test_a_restore_between_decision_and_deletion_is_refused_or_has_its_checkpoint(
    backend: Backend, spec: SweepSpec, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = add_sweep(backend, spec)
    outcomes = []

    def ask(*arguments: Any) -> Any:
        for number in (1, 2):
            source = {"project": "small", "run": trial_key(sweep, number), "epoch": 3}
            source["checkpoint"] = digest_of(content(trial_key(sweep, number), 3))
            try:
                with backend.catalog.write() as session:
                    spec = small_spec(restored_from=source, strategy={"random": {"budget": 9}})
                    intents.add(session, spec, kind="training-run", driver="sensors", actor="ada")
                outcomes.append("has it")
            except InvalidInput:
                outcomes.append("is refused")
        return find(*arguments)

    find = carrying.find_unmarked
    monkeypatch.setattr(carrying, "find_unmarked", ask)
    carried_out(backend, 15)
    assert outcomes == ["has it", "is refused"]
    assert checkpoints_left(backend.store, sweep, range(1, 3)) == {1: [3], 2: []}


def test_a_restore_that_is_being_written_down_is_waited_for(
    either_backend: Backend, spec: SweepSpec, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = either_backend
    sweep = add_sweep(either_backend, spec)
    deciding = threading.Event()
    source = {
        "project": "small",
        "run": trial_key(sweep, 2),
        "epoch": 2,
        "checkpoint": digest_of(content(trial_key(sweep, 2), 2)),
    }
    read_report = ended_trials._reasons_by_report

    def read_and_tell(*arguments: Any) -> dict[str, str]:
        reasons = read_report(*arguments)
        deciding.set()
        return reasons

    monkeypatch.setattr(ended_trials, "_reasons_by_report", read_and_tell)
    with ThreadPoolExecutor(1) as pool:
        with backend.catalog.write() as session:
            restored = small_spec(restored_from=source, strategy={"random": {"budget": 9}})
            intents.add(session, restored, kind="training-run", driver="sensors", actor="ada")
            done = pool.submit(carried_out, backend, 15)
            assert deciding.wait(60)  # what comes next is the transaction that decides
        done.result()
    assert checkpoints_left(backend.store, sweep) == {0: [], 1: [3], 2: [1, 2, 3], 3: [], 4: []}


def test_a_run_that_is_trained_again_keeps_its_checkpoints_until_the_rerun_has_ended(
    backend: Backend, spec: SweepSpec
) -> None:
    sweep = add_sweep(backend, spec)
    again = RunRecords(backend.store, "small", "again")
    again.start({}, {"rerun_of": f"small/{trial_key(sweep, 0)}"}, 1, {})
    carried_out(backend, 15)
    assert checkpoints_left(backend.store, sweep) == {0: [1, 2, 3], 1: [3], 2: [], 3: [], 4: []}
    again.end(1, {"status": "finished"})
    carried_out(backend, 15)
    assert checkpoints_left(backend.store, sweep, range(1)) == {0: []}


def test_bytes_that_a_run_saves_in_that_moment_stay_though_all_that_named_them_goes(
    backend: Backend, spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = add_sweep(backend, spec)
    long_ago = (datetime.now(UTC) - timedelta(days=40)).timestamp()
    for path in Path(backend.store.root, "artifacts").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, sweep).finished_at = datetime.now(UTC) - timedelta(days=30)

    def save(*arguments: Any) -> Any:
        unmarked = find(*arguments)
        backend.store.put_blob(content(trial_key(sweep, 0), 3))
        return unmarked

    find = carrying.find_unmarked
    monkeypatch.setattr(carrying, "find_unmarked", save)
    assert [gone.count for gone in carried_out(backend, 0).gone] == [13]
    assert checkpoints_left(backend.store, sweep) == {0: [3], 1: [3], 2: [], 3: [], 4: []}


def test_a_promotion_that_ends_its_sweep_in_that_moment_has_its_checkpoint(
    backend: Backend, spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is kept for a single day after a sweep's end."""
    sweep = add_sweep(backend, spec, ended=False)
    winner = trial_key(sweep, 2)

    def promote(*arguments: Any) -> Any:
        with backend.catalog.write(exclusive=True) as session:
            if backend.catalog.sweep(session, sweep).status == "searching":
                about = {
                    "sweep": sweep,
                    "trial": 2,
                    "run": winner,
                    "snapshot": "sha256:s",
                    "checkpoint": digest_of(content(winner, 3)),
                }
                add_version(session, model="small", version="1.0.0", stage="champion", **about)
        backend.catalog.end_sweep(sweep, "finished")
        return find(*arguments)

    find = carrying.find_unmarked
    monkeypatch.setattr(carrying, "find_unmarked", promote)
    for _ in range(2):
        carried_out(backend, 30, {"checkpoints": {"top_k": 0, "days": 0}})
        assert backend.store.has_blob(digest_of(content(winner, 3)))
    assert checkpoints_left(backend.store, sweep) == {0: [], 1: [], 2: [3], 3: [], 4: []}
