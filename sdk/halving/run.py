"""A training run: its record, its metric stream, its checkpoints, and the loop over granted epochs."""

import atexit
import contextlib
import math
import os
import secrets
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from halving import checkpoint, provenance, seeding
from halving.dataset import Dataset
from halving.errors import CheckpointMissing, Diverged, InvalidInput, NotFound, ObjectiveMissing
from halving.names import check_name
from halving.records import RunRecords, SavedCheckpoint, now
from halving.store import Store
from halving.trial import Controller, TrialContext
from halving.writer import MetricWriter, Record


class Run:
    """One attempt at a training run. Get one from :func:`halving.init`; inside a trial the platform passes it in.

    Attributes:
        project, id, attempt: whose points these are; ``attempt`` counts resumes, from 1.
        params: the hyperparameters, read-only.
        seed: what the random generators were seeded with, or None if that was left to you.
        epoch: epochs completed, counting those before a resume.
    """

    def __init__(
        self,
        store: Store,
        *,
        project: str,
        run_id: str,
        params: Mapping[str, Any],
        seed: int | None,
        parent: dict[str, Any] | None = None,
        attempt: int | None = None,
        dataset: Dataset | None = None,
        controller: Controller | None = None,
        captured: dict[str, Any] | None = None,
    ) -> None:
        self.store, self.project, self.id = store, check_name("project", project), check_name("run id", run_id)
        self.params, self.seed, self._dataset = dict(params), seed, dataset
        self._controller = controller
        if seed is not None:
            seeding.seed_everything(seed)
        self.records = RunRecords(store, project, run_id)
        began = {
            "provenance": captured or provenance.capture(store),
            "seed": seed,
            "determinism": seeding.determinism_flags(),
            "started": now(),
        }
        self.attempt = self.records.start(self.params, parent or {}, attempt, began)
        self._writer = MetricWriter(store, project, run_id, self.attempt)
        self._resume_from = self.records.latest_checkpoint()
        self.epoch = 0
        self._started_epoch: int | None = None
        self._unpublished: str | None = None  # digest saved in the epoch that is being trained
        self._checkpoint: SavedCheckpoint | None = None
        self._reported: dict[str, float] = {}
        self._last: dict[str, Any] = {}
        self._finished = False
        self._process = os.getpid()
        atexit.register(self._finish_at_exit)

    def __repr__(self) -> str:
        return f"Run({self.project}/{self.id}, attempt {self.attempt})"

    def log(self, values: Mapping[str, Any], *, step: int) -> None:
        """Record scalars at a step: a list append here, Parquet a few seconds later on a background thread.

        Args:
            values: name to number; a 0-d tensor on a GPU is accepted and is not waited for.
            step: the x axis, any integer that suits you (batch, epoch, sample).

        Raises:
            InvalidInput: a name is not a string or a value not a number (the message names it), or the step is no int64.
        """
        if not hasattr(step, "__index__") or not -(2**63) <= step < 2**63:
            raise InvalidInput(f"step {step!r:.80} is not accepted: give an integer of at most 63 bits")
        checked = {key: _scalar(key, value) for key, value in values.items()}
        self._writer.append(Record(int(step), time.time_ns() // 1_000_000, checked))
        self._last.update(checked)

    def report(self, **metrics: float) -> None:
        """Report this epoch's results, the objective among them; they are logged at ``step=epoch`` too.

        Raises:
            Diverged: the objective is NaN or infinite, which ends a trial with its last good checkpoint kept.
        """
        epoch = self._current_epoch
        self.log(metrics, step=epoch)
        self._reported |= {name: float(value) for name, value in metrics.items()}  # an epoch may report in several calls
        objective = self._controller.objective if self._controller else None
        if objective in self._reported and not math.isfinite(self._reported[objective]):
            self._unpublished = None
            raise Diverged(f"objective {objective!r} became {self._reported[objective]} at epoch {epoch}")

    def epochs(self, total: int | None = None) -> Iterator[int]:
        """Yield epoch numbers from the first untrained one up to the granted budget.

        Inside a trial the sweep grants the budget, and at each rung it decides whether to go on; when the trial is
        paused the loop simply ends, and a later attempt goes on behind the last checkpoint. In a script of your own
        give ``total``.

        Raises:
            ObjectiveMissing, CheckpointMissing: a rung was reached without ``report`` or ``save`` in that epoch.
        """
        if self._controller is None and total is None:
            raise InvalidInput("epochs(total=None) is not accepted outside of a trial: give the number of epochs")
        if self._controller and self.epoch and self.epoch == self._controller.granted:
            # Killed between the rung's checkpoint and its decision: the checkpoint knows what was reported.
            self._controller.granted = self._ask(self._controller)
        while self.epoch < (self._controller.granted if self._controller else int(total or 0)):
            self._started_epoch, self._reported, self._unpublished = self.epoch + 1, {}, None
            try:
                yield self._started_epoch
            except GeneratorExit:  # the loop was left early; an epoch that had reported and saved is complete
                if self._reported and self._unpublished is not None:
                    self._complete_epoch(self._started_epoch)
                self._started_epoch = self._unpublished = None
                raise
            self._complete_epoch(self._started_epoch)
            if self._controller and self.epoch == self._controller.granted:
                self._controller.granted = self._ask(self._controller)

    def save(self, **state: Any) -> str:
        """Save a checkpoint, durably, and return its digest.

        Torch modules, optimizers and whatever else has ``state_dict`` are saved by it; the random generators' states
        go along. Inside :meth:`epochs` the checkpoint counts once its epoch is complete, so that a checkpoint and
        what was reported belong together and an epoch that diverges leaves none. In a loop of your own it counts at once.

        Raises:
            InvalidInput: a value can't be saved; the message names it.
            StoreError: the store cannot be written.
        """
        digest = self.store.put_blob(checkpoint.pack(state))
        if self._started_epoch is None:
            self._publish(SavedCheckpoint(self.epoch, self.attempt, digest, dict(self._reported)))
        else:
            self._unpublished = digest
        return digest

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` from the run's latest checkpoint and continue counting epochs there.

        Returns:
            The values by name: objects with ``state_dict`` are filled in place; plain values come back from the
            checkpoint, or as they were given when there is none yet.

        Raises:
            CheckpointMismatch: the checkpoint lacks one of the names.
        """
        if self._resume_from is None:
            return state
        restored = checkpoint.unpack(self.store.get_blob(self._resume_from.digest), state)
        self._checkpoint, self.epoch, self._reported = self._resume_from, self._resume_from.epoch, dict(self._resume_from.reported)
        return restored

    def flush(self, deadline: float = 5.0) -> bool:
        """Write every point logged so far; says whether that was done within ``deadline`` seconds."""
        return self._writer.flush(deadline)

    def log_artifact(self, path: str | Path, name: str | None = None) -> str:
        """Store a file by content and attach it to this run under ``name`` (default: the file's name).

        Returns:
            The digest, ``sha256:…``.

        Raises:
            InvalidInput: there is no such file.
            AlreadyExists: the run has other content under that name already.
        """
        source = Path(path)
        if not source.is_file():
            raise InvalidInput(f"artifact path {str(path)!r} is not accepted: give an existing file")
        name = check_name("artifact name", name or source.name)
        digest = self.store.put_blob(source)
        self.records.add_artifact(name, digest, source.stat().st_size)
        return digest

    def finish(self, status: str = "finished") -> None:
        """Write what is pending and close the attempt's record; doing it again, or in a forked child, does nothing."""
        if self._finished or os.getpid() != self._process:
            return
        self._finished = True
        atexit.unregister(self._finish_at_exit)
        dropped = self._writer.close()
        self.records.end(self.attempt, {"status": status, "epoch": self.epoch, "dropped_points": dropped, "summary": _summary(self._last)})
        if dropped:
            warnings.warn(f"halving: {dropped} metric points of {self.id} could not be written and were dropped", stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.finish("failed" if kind is not None else "finished")

    @property
    def dataset(self) -> Dataset:
        """The snapshot to train on.

        Raises:
            InvalidInput: outside of a trial nobody chose one.
        """
        if self._dataset is None:
            raise InvalidInput("run.dataset is not there outside of a trial: read your data yourself, or open halving.Dataset(…)")
        return self._dataset

    @property
    def reported(self) -> Mapping[str, float]:
        """What the last :meth:`report` said."""
        return self._reported

    @property
    def _current_epoch(self) -> int:
        return self._started_epoch if self._started_epoch is not None else self.epoch

    @property
    def checkpoint(self) -> SavedCheckpoint | None:
        """The newest checkpoint that counts: of the last complete epoch that was saved."""
        return self._checkpoint

    def _complete_epoch(self, epoch: int) -> None:
        self.epoch, self._started_epoch = epoch, None
        if self._unpublished is not None:
            self._publish(SavedCheckpoint(self.epoch, self.attempt, self._unpublished, dict(self._reported)))
            self._unpublished = None

    def _publish(self, saved: SavedCheckpoint) -> None:
        # Points first: a resume behind this checkpoint then finds every point up to it.
        self._writer.flush()
        self.records.add_checkpoint(saved)
        self._checkpoint = saved

    def _ask(self, controller: Controller) -> int:
        if controller.objective not in self._reported:
            heard = f"it reported {sorted(self._reported)}" if self._reported else "it reported nothing"
            raise ObjectiveMissing(
                f"objective {controller.objective!r} was not reported in epoch {self.epoch}: {heard}; "
                f"call run.report({controller.objective}=…) in every epoch, or name another objective.metric in the sweep"
            )
        if self._checkpoint is None or self._checkpoint.epoch != self.epoch:
            raise CheckpointMissing(
                f"epoch {self.epoch} ends a rung and has no checkpoint; call run.save(model=…, optimizer=…) in every epoch"
            )
        return controller.reached(self.epoch, self._reported[controller.objective], self._checkpoint.digest)

    def _finish_at_exit(self) -> None:
        # The interpreter sets last_value when an uncaught exception ended the script.
        self.finish("failed" if getattr(sys, "last_value", None) is not None else "finished")


def init(
    project: str,
    config: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    *,
    id: str | None = None,
    seed: int | None = None,
    tags: Mapping[str, str] | None = None,
) -> Run:
    """Start a run, or the next attempt of the run ``id``. Its record is complete and durable when this returns.

    Args:
        project: a name that groups runs.
        config: the hyperparameters; they never change afterwards. A run that is continued by ``id`` brings its own.
        root: the store (default: ``HALVING_ROOT``, then ``./.halving``).
        id: continue this run: its latest checkpoint is what ``restore`` gives.
        seed: seed random, numpy and torch with it, and record it.
        tags: free labels, recorded.

    Raises:
        InvalidInput: a name or a param is not accepted.
        AlreadyExists: the run ``id`` exists with other params.
        StoreError: the store cannot be written.
    """
    run_id = id or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    store, parent = Store(root), {"tags": dict(tags)} if tags else {}
    if config is None and id is not None:
        with contextlib.suppress(NotFound):
            config = RunRecords(store, check_name("project", project), check_name("run id", id)).read()["params"]
    return Run(store, project=project, run_id=run_id, params=config or {}, seed=seed, parent=parent)


def open_trial(context: TrialContext, controller: Controller) -> Run:
    """The run of a trial's attempt, as the platform opens it in the trial's process."""
    store = Store(context.root)
    return Run(
        store,
        project=context.project,
        run_id=context.run,
        params=context.params,
        seed=context.seed,
        parent=context.parent,
        attempt=context.attempt,
        dataset=Dataset(store, context.dataset_name, context.dataset_digest),
        controller=controller,
        captured=context.provenance,
    )


def _scalar(key: str, value: Any) -> Any:
    """A number as it is, a device tensor detached (the drain thread fetches it), anything else refused by name."""
    if not isinstance(key, str):
        raise InvalidInput(f"metric name {key!r:.80} is not accepted: give a string")
    if isinstance(value, (int, float)):
        return value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        if getattr(getattr(value, "device", None), "type", "cpu") != "cpu":
            return value.detach().clone()
        number = value.item()
        if isinstance(number, (int, float)):
            return number
    raise InvalidInput(f"metric {key!r} = {value!r:.80} is not accepted: give a number, a numpy scalar or a 0-d tensor")


def _summary(last: dict[str, Any]) -> dict[str, float]:
    summary = {}
    for key, value in last.items():
        with contextlib.suppress(OverflowError, RuntimeError):  # too large for a float; on a device that is gone
            summary[key] = float(value)
    return summary
