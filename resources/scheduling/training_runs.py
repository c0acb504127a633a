"""Single training runs: each is a sweep of one trial with constant params.

So it has everything that a trial has: attempts, retries, checkpoints, pods, a pause and a stop.
"""

from contextlib import suppress
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving import Store
from halving.errors import HalvingError, InvalidInput, NotFound
from halving.identifiers import check_name
from halving.records.run_record import RunRecords
from resources.catalog import Catalog, IntentRow, SweepRow, TrialRow
from resources.catalog.trial_key import parse_trial_key, trial_key
from resources.datasets.snapshot_catalog import Snapshot, dataset_of
from resources.scheduling import intents
from resources.scheduling.sweeps import stop_sweep
from resources.search.rules import max_trials
from resources.sweep_spec import SweepSpec, parse_spec, stored_spec

# Fields that make no sense for one trial, or that would start something by themselves.
_OF_A_SEARCH = (
    "warm_start",
    "start_from",
    "constraints",
    "auto_promote",
    "concurrency",
    "max_failed_trials",
    "training",
    "final",
)
_MAX_TRIAL_NUMBER = 2**31  # The database keeps trial numbers as 32-bit integers.


class NotOnItsOwn(HalvingError, RuntimeError):
    """The run is a trial of a larger sweep, which decides about it."""


def spec_of(
    snapshot: Snapshot, *, project: str, params: dict[str, Any], epochs: int, **fields: Any
) -> SweepSpec:
    """The spec of a training run on a snapshot.

    Args:
        fields: other fields of the spec as they are (trainable, objective, resources…); those that are None
            are left out.

    Raises:
        InvalidInput: a field is not accepted.
    """
    if not params:
        raise InvalidInput(
            "params = {} is not accepted: give at least one, such as the seed of the model's weights"
        )
    return parse_spec(
        {
            "name": project,
            "dataset": dataset_of(snapshot),
            "snapshot": snapshot.digest,
            **_one_trial(params, epochs),
            **{name: value for name, value in fields.items() if value is not None},
        }
    )


def spec_of_restored(
    catalog: Catalog, store: Store, project: str, run: str, epoch: int, epochs: int | None
) -> SweepSpec:
    """The spec of a training run that starts from a trial's checkpoint, with its params and data.

    Args:
        epochs: to train in all (default: as many as the trial's sweep).

    Raises:
        NotFound: no such trial, or it has no checkpoint of this epoch.
        InvalidInput: there is nothing left to train.
    """
    with catalog.read() as session:
        sweep, trial = _trial(catalog, session, project, run)
        snapshot = catalog.snapshot(session, sweep.snapshot)
    saved = [
        checkpoint
        for checkpoint in RunRecords(store, project, run).checkpoints()
        if store.has_blob(checkpoint.digest)
    ]
    of_epoch = [checkpoint for checkpoint in saved if checkpoint.epoch == epoch]
    if not of_epoch:
        raise NotFound(
            f"run {project}/{run} has no checkpoint of epoch {epoch}; it has "
            f"{sorted({checkpoint.epoch for checkpoint in saved})}"
        )
    spec = stored_spec(sweep.spec)
    total = epochs or spec.budgets[-1]
    if total <= epoch:
        raise InvalidInput(
            f"epochs = {total} is not accepted: the checkpoint is of epoch {epoch}; give more epochs than "
            "that, in all"
        )
    kept = {name: value for name, value in sweep.spec.items() if name not in _OF_A_SEARCH}
    if len(spec.resources.by_rung) > 1:  # The run has one rung, and gets what the trial would have got there.
        resources = spec.resources.at(total)
        elastic = None
        if spec.elastic and resources.nodes > 1:
            elastic = {"min_nodes": spec.fewest_nodes(total)}
        kept |= {"resources": resources.model_dump(mode="json"), "elastic": elastic}
    restored = {"project": project, "run": run, "epoch": epoch, "checkpoint": of_epoch[-1].digest}
    return parse_spec(
        {**kept, "snapshot": snapshot.digest, **_one_trial(trial.params, total), "restored_from": restored}
    )


def cancel(catalog: Catalog, project: str, run: str, actor: str, session: Session) -> None:
    """End a training run, which saves a checkpoint; nothing happens if it is over.

    Raises:
        NotFound: no such run.
        NotOnItsOwn: it is a trial of a larger sweep.
    """
    sweep_id = sweep_of_run(run)
    sweep = session.get(SweepRow, sweep_id, with_for_update=True)
    intent = session.scalar(select(IntentRow.payload).where(IntentRow.sweep == sweep_id)) or {}
    spec: dict[str, Any] = intent.get("spec", {})
    if sweep:
        spec = sweep.spec
    exists = (
        run == first_run(sweep_id) or session.get(TrialRow, (sweep_id, parse_trial_key(run)[1])) is not None
    )
    if spec.get("project", spec.get("name")) != project or not exists:
        raise no_training_run(project, run)
    if ((sweep and sweep.max_trials) or max_trials(stored_spec(spec))) > 1:
        raise NotOnItsOwn(
            f"run {project}/{run} is a trial of the sweep {sweep_id}, which decides about it; stop that, "
            "or let it go on"
        )
    if (
        intents.withdraw(catalog, sweep_id, actor, session) is None
        and catalog.sweep(session, sweep_id, lock=True).status == "searching"
    ):
        stop_sweep(catalog, sweep_id, session, actor=actor)


def first_run(sweep: str) -> str:
    """The id of the run of a sweep of one."""
    return trial_key(sweep, 0)


def sweep_of_run(run: str) -> str:
    """The sweep that a run belongs to, by the run's id.

    Raises:
        NotFound: the id is not that of a trial.
    """
    with suppress(ValueError):
        sweep, number = parse_trial_key(check_name("run", run))
        if trial_key(sweep, number) == run and number < _MAX_TRIAL_NUMBER:
            return sweep
    raise NotFound(f"no training run {run!r}: the platform's runs are named like digits-7f3a.0000")


def no_training_run(project: str, run: str) -> NotFound:
    """The error for a run that the catalog does not have.

    It names no other project or run, because the caller may have access to this project alone.
    """
    return NotFound(f"no training run {run!r} in project {project!r} of the catalog")


def _one_trial(params: dict[str, Any], epochs: int) -> dict[str, Any]:
    space = {name: {"constant": value} for name, value in params.items()}
    return {"space": space, "strategy": {"random": {"budget": epochs}}, "max_trials": 1, "concurrency": 1}


def _trial(catalog: Catalog, session: Session, project: str, run: str) -> tuple[SweepRow, TrialRow]:
    sweep = session.get(SweepRow, sweep_of_run(run))
    trial = None
    if sweep:
        trial = session.get(TrialRow, (sweep.id, parse_trial_key(run)[1]))
    if sweep is None or trial is None or sweep.project != project:
        raise no_training_run(project, run)
    return sweep, trial
