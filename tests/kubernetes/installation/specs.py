"""Sweep specs for the cluster, and what became of them: whose attempt ran when, and on which GPU."""

import copy
import itertools
import secrets
from dataclasses import dataclass
from typing import Any

import yaml
from sqlalchemy import select

from halving import sql
from halving.errors import NotFound
from halving.query.runs import read_run, seconds_of
from resources.backend import Backend
from resources.catalog import AttemptRow, RungResultRow, SweepRow, TrialRow
from resources.catalog.trial_key import trial_key
from tests.backends import CHECKOUT, SMALL
from tests.kubernetes.trainables import release_file

CLOCK_SECONDS = 0.05  # records have milliseconds


def digits(**changes: Any) -> dict[str, Any]:
    """The digits sweep of the README, with fewer epochs, each trial on a GPU of its own."""
    spec = yaml.safe_load((CHECKOUT / "sweeps" / "digits.yaml").read_text())
    strategy = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 4, "reduction_factor": 4}}
    wanted = {"gpus": 1, "gpu_type": "a100", "cpus": 0.25}
    return {**spec, "strategy": strategy, "resources": wanted, "max_trials": 5, **changes}


def slow(name: str, *, trials: int = 1, epochs: int = 9, **changes: Any) -> dict[str, Any]:
    """Trials of ``epochs`` seconds that run to their end."""
    spec = copy.deepcopy(SMALL)
    spec |= {
        "name": f"{name}-{secrets.token_hex(2)}",  # of its own, also when a test is tried again
        "trainable": "tests.kubernetes.trainables:train",
        "strategy": {"random": {"budget": epochs}},
        "max_trials": trials,
        "concurrency": trials,
        "resources": {"cpus": 0.25, "grace_seconds": 10},
    }
    return {**spec, **changes}


def held(name: str, *, epochs: int = 6, **changes: Any) -> dict[str, Any]:
    """Trials that stay in their fourth epoch until they are asked to stop, or :func:`release`."""
    return slow(name, epochs=epochs, trainable="tests.kubernetes.trainables:train_held", **changes)


def release(backend: Backend, *sweeps: str) -> None:
    for sweep in sweeps:
        backend.store.create(release_file(sweep), b"")


@dataclass(frozen=True)
class Spell:
    """The time in which an attempt trained, in seconds since the epoch, and the GPUs that it saw."""

    trial: str
    attempt: int
    begin: float
    end: float
    gpus: frozenset[str]


def spells(backend: Backend, sweep: str) -> list[Spell]:
    """Every attempt at a sweep's trials that began to train, by the points that it has logged."""
    project = name_of(backend, sweep)
    spells_of_trials = []
    points = sql(
        (
            f"select run, attempt, max(wall_time) as newest from points where run like '{sweep}.%' group by "
            "run, attempt"
        ),
        root=backend.store.root,
    )
    newest = {(row["run"], row["attempt"]): row["newest"].timestamp() for row in points.to_pylist()}
    for trial in trials(backend, sweep):
        try:
            run = read_run(backend.store, project, trial_key(sweep, trial.number))
        except NotFound:  # not begun yet
            continue
        for attempt in run.attempts:
            began = run.starts.get(attempt.number, run.record)
            # the device plugin sets the second, and the user may the first
            visible = began["provenance"]["hardware"]["visible_gpus"]
            devices = visible.get("CUDA_VISIBLE_DEVICES") or visible.get("NVIDIA_VISIBLE_DEVICES") or ""
            begin = seconds_of(attempt.started)
            ends = [
                newest.get((run.run, attempt.number), begin),
                seconds_of(attempt.ended) if attempt.ended else begin,
            ]
            spells_of_trials.append(
                Spell(run.run, attempt.number, begin, max(ends), frozenset(filter(None, devices.split(","))))
            )
    return spells_of_trials


def assert_exclusive(spells: list[Spell]) -> None:
    """No two attempts that train at the same time share a GPU, and no trial trains twice at the same time."""
    for first, other in itertools.combinations(sorted(spells, key=lambda spell: spell.begin), 2):
        if other.begin < first.end - CLOCK_SECONDS:
            assert not first.gpus & other.gpus, (first, other)
            assert first.trial != other.trial, (first, other)


def assert_nothing_lost(backend: Backend, sweep: str) -> None:
    """Every trial is complete with each of its epochs logged, and each rung was reached once."""
    logged = sql(
        f"""select run, list(distinct step order by step) as steps from points
        where run like '{sweep}.%' and key = 'train/loss' group by run""",
        root=backend.store.root,
    )
    steps = {row["run"]: row["steps"] for row in logged.to_pylist()}
    with backend.catalog.read() as session:
        results = list(session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep)))
    for trial in trials(backend, sweep):
        assert trial.status == "completed", (trial.number, trial.status, trial.error)
        reached = max(result.epochs for result in results if result.trial == trial.number)
        assert steps[trial_key(sweep, trial.number)] == list(range(1, reached + 1))


def sweep_of(backend: Backend, name: str) -> SweepRow | None:
    """The newest sweep of this name."""
    with backend.catalog.read() as session:
        return session.scalar(
            select(SweepRow).where(SweepRow.name == name).order_by(SweepRow.created_at.desc())
        )


def name_of(backend: Backend, sweep: str) -> str:
    with backend.catalog.read() as session:
        return backend.catalog.sweep(session, sweep).name


def trials(backend: Backend, sweep: str) -> list[TrialRow]:
    with backend.catalog.read() as session:
        return backend.catalog.trials(session, sweep)


def attempts(backend: Backend, sweep: str, trial: int = 0) -> list[AttemptRow]:
    """A trial's history, oldest first."""
    with backend.catalog.read() as session:
        query = select(AttemptRow).where(AttemptRow.sweep == sweep, AttemptRow.trial == trial)
        return list(session.scalars(query.order_by(AttemptRow.attempt)))


def pod_of(attempt: AttemptRow) -> str:
    """The pod of an attempt's worker."""
    assert attempt.worker
    return attempt.worker.rpartition(":")[0]


def pods_of(backend: Backend, sweep: str) -> set[str]:
    """The pods in which a sweep's attempts had their workers."""
    history = [
        attempt for trial in trials(backend, sweep) for attempt in attempts(backend, sweep, trial.number)
    ]
    return {pod_of(attempt) for attempt in history if attempt.worker}
