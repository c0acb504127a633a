"""A trial of a sweep, trained again from the record of its run."""

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import yaml

from halving import NotFound, Store
from halving.query.runs import read_run
from halving.rerun.rerun import Options, plan_rerun, rerun
from resources.analysis.trial_history import history_of
from resources.backend import Backend
from resources.execution.worker import TrialRunner
from resources.scheduling.assignment import Assignment
from resources.search.decide import Finish
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import CHECKOUT
from tests.resources.execution.worked_sweeps import WorkedSweep

OPTIONS = Options(repository=CHECKOUT)


@pytest.fixture
def own_fork_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fork server of this test alone, because Python reads the seed of ``hash`` when a process begins."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # as the sweep sets it, so that it is taken away again
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.usefixtures("own_fork_server")
def test_a_paused_killed_and_moved_trial_has_the_weights_of_one_that_ran_through(
    backend: Backend,
) -> None:
    fields: dict[str, Any] = yaml.safe_load((CHECKOUT / "sweeps" / "digits.yaml").read_text())
    del fields["gates"]
    first = {
        "lr": 0.01,
        "hidden": 32,
        "dropout": 0.3,
        "batch_size": 128,
        "optimizer": "adam",
        "preference": 1.0,
    }
    fields |= {
        "trainable": "tests.digits_trial:train",
        "objective": {"metric": "preference", "direction": "maximize"},
    }
    fields |= {"start_from": [first], "max_trials": 9, "max_retries": 1, "deterministic": True}
    fields["space"]["preference"] = {"float": {"low": 0.0, "high": 1.0}}
    fields["strategy"]["asha"] |= {"sampler": "random", "max_budget": 9}
    ran = WorkedSweep(backend, parse_spec(fields))
    # Two workers, each with a runner of its own, take turns attempt by attempt.
    other = TrialRunner(
        ran.scheduler,
        backend.store,
        dataset_name=ran.snapshot.name,
        dataset_digest=ran.snapshot.digest,
        labels={},
    )
    workers = cycle([("worker-0", ran.runner), ("worker-1", other)])
    trained_by = []
    for name, runner in workers:
        if isinstance(work := ran.scheduler.next_work(name), Finish):
            break
        assert isinstance(work, Assignment)
        runner.run(work, ran.changes.append)
        if work.trial == 0:
            trained_by.append(name)
    assert set(trained_by) == {"worker-0", "worker-1"}
    key = f"{ran.sweep}.0000"
    history = history_of(backend.catalog, key)
    assert [(result.epochs, result.decision) for result in history.results] == [
        (1, "pause"),
        (3, "pause"),
        (9, "complete"),
    ]
    assert (history.failures, len(history.attempts)) == (1, 4)
    verdict = rerun(backend.store, "digits", key, OPTIONS, tell=print)
    assert (verdict.verdict, verdict.status) == ("identical", ("finished", "finished"))
    assert verdict.points == 9 * 4  # train/loss, val_accuracy, val_loss, preference
    assert verdict.factors == []
    assert verdict.weights[0] == verdict.weights[1] is not None
    again = read_run(backend.store, "digits", verdict.run)
    assert again.parent["rerun_of"] == f"digits/{key}"
    assert len(again.attempts) == 1
    assert again.record["determinism"]["PYTHONHASHSEED"] == "0"


@pytest.mark.slow
def test_of_a_snapshot_what_is_gone_is_fetched_before_a_rerun_or_named(
    backend: Backend, small_spec: Callable[..., SweepSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = WorkedSweep(backend, small_spec(max_trials=1)).work()
    key = f"{ran.sweep}.0000"
    manifest = (
        Path(backend.store.root)
        / "datasets"
        / "points"
        / ran.snapshot.digest.removeprefix("sha256:")[:16]
        / "manifest.json"
    )
    shard = next(iter(json.loads(manifest.read_text())["shards"].values()))[0][0]
    place = Path(backend.store.root) / "shards" / "sha256" / shard[:2] / shard
    content = place.read_bytes()
    place.unlink()
    with pytest.raises(
        NotFound,
        match=(
            f"the snapshot points {ran.snapshot.digest} of run small/{key} is incomplete: "
            f"shards/sha256/.*{shard} is gone"
        ),
    ):
        rerun(backend.store, "small", key, OPTIONS)
    remote = Store(tmp_path / "remote")
    monkeypatch.setenv("HALVING_DVC_REMOTE", remote.root)
    with pytest.raises(NotFound, match=f"{shard} is gone; nor could it be fetched from HALVING_DVC_REMOTE: "):
        rerun(backend.store, "small", key, OPTIONS)
    remote.create(f"shards/sha256/{shard[:2]}/{shard}", content)
    with pytest.warns(UserWarning, match="it was fetched again from"):
        plan_rerun(backend.store, "small", key)
    assert place.read_bytes() == content
    manifest.unlink()
    with pytest.raises(NotFound, match=f"no dataset snapshot points {ran.snapshot.digest}"):
        rerun(backend.store, "small", key, OPTIONS)


@pytest.mark.slow
def test_a_gang_is_trained_again_in_as_many_processes_as_it_had(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    fields = {
        "trainable": "tests.search_trainables:train_on_all_ranks",
        "strategy": {"random": {"budget": 2}},
        "max_trials": 1,
    }
    ran = WorkedSweep(backend, small_spec(**fields, resources={"processes": 2})).work()
    verdict = rerun(backend.store, "small", f"{ran.sweep}.0000", OPTIONS, tell=print)
    assert (verdict.verdict, verdict.status, verdict.factors) == ("identical", ("finished", "finished"), [])
    assert verdict.points == 2 * 4, "rank 0 alone logs"
    assert read_run(backend.store, "small", verdict.run).summary["ranks"] == 2.0


@pytest.mark.slow
def test_a_gang_that_halved_its_micro_batch_is_rerun_with_half_from_its_first_step(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    fields = {
        "trainable": "tests.search_trainables:train_with_memory_for_four_rows",
        "strategy": {"random": {"budget": 3}},
        "max_trials": 1,
    }
    ran = WorkedSweep(backend, small_spec(**fields, max_retries=0, resources={"processes": 2})).work()
    assert [attempt.outcome for attempt in history_of(backend.catalog, f"{ran.sweep}.0000").attempts] == [
        "halved",
        "complete",
    ]
    verdict = rerun(backend.store, "small", f"{ran.sweep}.0000", OPTIONS, tell=print)
    assert verdict.status == ("finished", "finished")
    assert [(each.factor, each.name, each.recorded) for each in verdict.factors] == [
        ("hardware", "micro-batch of attempt 1", "8 rows, too many for a rank's memory")
    ]
    assert read_run(backend.store, "small", verdict.run).summary["rows"] == 4.0
