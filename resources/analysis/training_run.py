"""The state of a training run: its status, why it waits, its attempts and its checkpoints.

A run has a state even before Dagster has begun it.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from halving import Store
from halving.errors import NotFound, StoreError
from halving.metrics.points import Points
from halving.records.run_record import RunRecords, SavedCheckpoint
from resources.analysis.attempts import Attempt
from resources.analysis.reasons import short_reason
from resources.analysis.skips import COUNTED, skips_of
from resources.analysis.system_points import KeptSystemPoints, read_system_points
from resources.analysis.time_spent import SAMPLED, time_spent
from resources.analysis.trial_history import TrialHistory, history_of
from resources.catalog import Catalog, IntentRow, SweepRow, utcnow
from resources.catalog.trial_key import trial_key
from resources.scheduling import intents
from resources.scheduling.training_runs import no_training_run, sweep_of_run
from resources.search.rules import max_trials
from resources.search.state import Control, Status
from resources.sweep_spec import stored_spec

SYSTEM_METRICS = (SAMPLED, COUNTED)
"""Patterns of the metrics of a run whose points are read."""
_STATUS = {
    Status.SUGGESTED: "waiting",
    Status.QUEUED: "waiting",
    Status.RUNNING: "running",
    Status.PAUSED: "paused",
    Status.COMPLETED: "finished",
    Status.STOPPED: "stopped",
    Status.FAILED: "failed",
}


@dataclass(frozen=True)
class TrainingRun:
    """A run that the platform trains.

    Attributes:
        status: waiting, running, paused (it may be promoted), finished, stopped, failed, canceling or
            canceled.
        on_its_own: whether it is the only trial of its sweep, so that it can be canceled; a larger sweep
            decides about its trials.
        error: why its last attempt failed or was preempted, or why it never began.
        reason: the error in one line.
        waiting: why it does not train now; None while it trains, and when it is over.
        epochs: the number of epochs that it trains in all, unless its sweep ends it earlier.
        epoch: the epoch of its newest checkpoint; 0 without one.
        checkpoints: oldest first, each with ``epoch``, ``attempt``, ``digest`` and ``reported``.
        unavailable: why its checkpoints cannot be read now; None if they can.
        time_spent: where its time went (:meth:`resources.analysis.time_spent.TimeSpent.as_dict`); None if
            that is not known.
        skips: the steps and checkpoints that it skipped (:meth:`resources.analysis.skips.Skips.as_dict`);
            None if that is not known.
        restored_from: the checkpoint that it began with; None if it began without one.
    """

    id: str
    project: str
    run: str
    sweep: str
    on_its_own: bool
    status: str
    waiting: str | None
    error: str | None
    reason: str | None
    params: dict[str, Any]
    epochs: int
    epoch: int
    seconds: float
    snapshot: str | None
    dataset: str
    created_at: datetime
    finished_at: datetime | None
    intent: str | None
    restored_from: dict[str, Any] | None
    attempts: list[Attempt]
    checkpoints: list[dict[str, Any]]
    unavailable: str | None
    time_spent: dict[str, Any] | None
    skips: dict[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        """The state as plain data, for the API."""
        return asdict(self)


def training_run(
    catalog: Catalog, store: Store, project: str, run: str, kept: KeptSystemPoints | None = None
) -> TrainingRun:
    """Find a training run by its project and id.

    Args:
        kept: a cache of the points of :data:`SYSTEM_METRICS`; None: all points are read.

    Raises:
        NotFound: no such run.
    """
    sweep_id = sweep_of_run(run)
    intent = intents.of_sweep(catalog, sweep_id)
    with catalog.read() as session:
        sweep = session.get(SweepRow, sweep_id)
    origin = sweep or intent
    if origin is None:
        raise no_training_run(project, run)
    content: dict[str, Any] = origin.spec if isinstance(origin, SweepRow) else origin.payload["spec"]
    history = _history(catalog, run, sweep)
    is_of_project = content.get("project", content.get("name")) == project
    if not is_of_project or (history is None and run != trial_key(sweep_id, 0)):
        raise no_training_run(project, run)
    status, waiting = _standing(intent, sweep, history)
    spec = stored_spec(content)
    saved: list[SavedCheckpoint] = []
    unavailable = None
    points = None
    if history and history.attempts:
        saved, unavailable = _checkpoints(store, project, run)
        if not unavailable:
            points = _system_points(store, project, run, kept)
    time_data = None
    skip_data = None
    if points is not None:
        if spent := time_spent(points):
            time_data = spent.as_dict()
        if skips := skips_of(store, project, run, points, saved):
            skip_data = skips.as_dict()
    error = None
    seconds = 0.0
    attempts: list[Attempt] = []
    if history:
        error = history.error
        params = history.params
        seconds = history.seconds
        attempts = history.attempts
    else:
        params = {name: parameter.get("constant") for name, parameter in content["space"].items()}
        if intent and sweep is None:
            error = intent.error
    epoch = 0
    if saved:
        epoch = saved[-1].epoch
    snapshot = content.get("snapshot")
    finished_at = None
    if sweep:
        snapshot = sweep.snapshot
        finished_at = sweep.finished_at
    intent_id = None
    if intent:
        intent_id = intent.id
    return TrainingRun(
        id=f"{project}/{run}",
        project=project,
        run=run,
        sweep=sweep_id,
        on_its_own=((sweep and sweep.max_trials) or max_trials(spec)) == 1,
        status=status,
        waiting=waiting,
        error=error,
        reason=short_reason(error),
        params=params,
        epochs=spec.budgets[-1],
        epoch=epoch,
        seconds=seconds,
        snapshot=snapshot,
        dataset=content["dataset"]["name"],
        created_at=origin.created_at,
        finished_at=finished_at,
        intent=intent_id,
        restored_from=content.get("restored_from"),
        attempts=attempts,
        checkpoints=[
            {
                "epoch": checkpoint.epoch,
                "attempt": checkpoint.attempt,
                "digest": checkpoint.digest,
                "reported": dict(checkpoint.reported),
            }
            for checkpoint in saved
        ],
        unavailable=unavailable,
        time_spent=time_data,
        skips=skip_data,
    )


def _system_points(
    store: Store, project: str, run: str, kept: KeptSystemPoints | None
) -> dict[str, Points] | None:
    if kept is not None:
        return kept.of(project, run)
    return read_system_points(store, project, run, SYSTEM_METRICS)


def _checkpoints(store: Store, project: str, run: str) -> tuple[list[SavedCheckpoint], str | None]:
    """The run's checkpoints; none, and the reason, while the store cannot be read.

    The rest of the run is still worth seeing then.
    """
    try:
        return RunRecords(store, project, run).checkpoints(), None
    except StoreError as error:
        return [], str(error)


def _history(catalog: Catalog, run: str, sweep: SweepRow | None) -> TrialHistory | None:
    if not sweep:
        return None
    try:
        return history_of(catalog, run)
    except NotFound:  # its sweep has only just been opened
        return None


def _standing(
    intent: IntentRow | None, sweep: SweepRow | None, history: TrialHistory | None
) -> tuple[str, str | None]:
    """The run's status, and why it waits."""
    if sweep is None:
        assert intent is not None
        if intent.status in (intents.FAILED, intents.CANCELED):
            return intent.status, None
        return "waiting", intents.waits_for(intent, utcnow())
    canceled = sweep.control == Control.STOP
    if history is None:
        if canceled:
            return "canceled", None
        if sweep.status != "searching":
            return "failed", None
        return "waiting", "for the sensor start_trials, which looks every few seconds"
    if canceled and history.status not in (Status.COMPLETED, Status.FAILED):
        if sweep.status == "searching":
            return "canceling", None
        return "canceled", None
    if history.status == Status.PAUSED and sweep.status != "searching":
        return "stopped", None  # it will not go on
    status = _STATUS[Status(history.status)]
    if status == "running" and history.waiting:
        status = "waiting"
    return status, history.waiting
