"""A training run: its record, its metric stream, its checkpoints, and the loop over granted epochs."""

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic_ns
from types import TracebackType
from typing import Any, Self
from zlib import crc32

from halving import checkpoint, provenance, seeding, termination
from halving.dataset import Dataset
from halving.errors import CheckpointMissing, Diverged, InvalidInput, ObjectiveMissing
from halving.intake import Intake
from halving.journal import checksum
from halving.names import check_name
from halving.records import RunRecords, SavedCheckpoint, now
from halving.recovery import recover_run
from halving.store import Store
from halving.system import SystemMetrics, Throughput, check_interval
from halving.trial import Controller
from halving.values import sort_values
from halving.writer import MetricWriter


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
        strict: bool = False,
        system_metrics: float | None = 30.0,
    ) -> None:
        if system_metrics is not None:
            check_interval(system_metrics)
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
        recover_run(store, project, run_id)  # what an attempt that was killed on this machine left in its journal
        self._writer = MetricWriter(store, project, run_id, self.attempt)
        self._resume_from = self.records.latest_checkpoint()
        self.epoch = 0
        self._started_epoch: int | None = None
        self._unpublished: str | None = None  # digest saved in the epoch that is being trained
        self._checkpoint: SavedCheckpoint | None = None
        self._reported: dict[str, float] = {}
        self._intake = Intake(self._writer, run_id, strict=strict)
        self._finished = False
        self._process = os.getpid()
        self._system: SystemMetrics | None = None
        if system_metrics is None:
            self._throughput = Throughput(self.log)
        else:
            self._throughput = Throughput()
            self._system = SystemMetrics(self.log, system_metrics, throughput=self._throughput, name=run_id)
        termination.opened(self)

    def __repr__(self) -> str:
        return f"Run({self.project}/{self.id}, attempt {self.attempt})"

    def log(self, values: Mapping[str, Any], *, step: int) -> None:
        """Record values at a step: a copy into mapped memory here, Parquet a few seconds later on a background thread.

        What is logged survives the death of the process; only a machine that dies may lose the last seconds.

        Args:
            values: name to number. Accepted are int, float and bool, numpy scalars, 0-d tensors (one on a GPU is not waited
                for), ``halving.Image``, ``Table``, ``Histogram`` and ``Text``, and dicts of them, whose names are joined by ``/``.
                Numbers are kept as float64, NaN and infinities too.
            step: the x axis, any integer that suits you (batch, epoch, sample).

        Raises:
            InvalidInput: a name, value or step is not accepted, in a run with ``strict=True``. Otherwise it is left out, counted,
                and warned about once for each name.
        """
        try:
            # The hot path: the names of the last call again, with plain numbers. A sum of floats is a float and costs less
            # than to look at each type; of anything else (a tensor, a string) it is something else, or raises.
            lane = self._writer.lane
            width, pick, pack, head, write = lane.fast  # type: ignore[misc]
            if type(values) is dict and len(values) == width and type(sum(picked := pick(values), 0.0)) is float:
                body = pack(head, step, monotonic_ns() + lane.clock_offset, *picked)
                write(body + checksum(crc32(body)))
                return
        except Exception:  # noqa: BLE001  # other names, other types, a full piece: looked at below
            pass
        self._intake.take(values, step)

    def throughput(self, samples: int) -> None:
        """Count samples (images, tokens, rows) as trained: ``system/throughput`` is their number per second."""
        try:
            self._throughput.add(samples)
        except InvalidInput as error:
            self._intake.reject({"throughput()": str(error)})

    def report(self, **metrics: float) -> None:
        """Report this epoch's results, the objective among them; they are logged at ``step=epoch`` too.

        Raises:
            InvalidInput: a value is not a number, whether or not the run is strict: decisions are made of these.
            Diverged: the objective is NaN or infinite, which ends a trial with its last good checkpoint kept.
        """
        epoch = self._current_epoch
        found = sort_values(metrics)
        if found.wrong or found.media:
            raise InvalidInput(next(iter(found.wrong.values()), f"report({', '.join(found.media)}) is not accepted: give numbers"))
        numbers = found.numbers | {name: float(value) for name, value in found.device.items()}
        self.log(numbers, step=epoch)
        self._reported |= numbers  # an epoch may report in several calls
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
        """Write what is pending and close the attempt's record; doing it again, or in a forked child, does nothing.

        A store that is away does not make this raise: the journal and the attempt's end stay on this machine, for the next
        open of the run or ``halving recover``.
        """
        if self._finished or os.getpid() != self._process:
            return
        self._finished = self._intake.closed = True
        try:
            self._finish(status)
        finally:
            termination.closed(self)

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

    def _finish(self, status: str) -> None:
        if self._system is not None:
            self._system.stop()
        self._throughput.stop()
        complete = self._writer.close()
        ended = {"status": status, "epoch": self.epoch, "points": self._writer.points, "summary": self._writer.last, "time": now()}
        ended |= {"dropped_points": self._writer.dropped, "rejected_values": self._intake.rejected}
        if complete:
            try:
                self.records.end(self.attempt, ended)
            except Exception:  # noqa: BLE001  # the end is kept for the recovery, whatever the store says
                complete = False
        kept = self._writer.release(None if complete else ended)
        for told in _losses(self, ended, complete, kept):
            warnings.warn(f"halving: {told}", stacklevel=3)

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


def _losses(run: Run, ended: Mapping[str, Any], complete: bool, kept: Path | None) -> list[str]:
    """What a user has to know when the run is over."""
    told = []
    if not complete and kept is not None:
        advice = "`halving recover`, or the next attempt of this run on this machine, writes it"
        told.append(f"the store {run.store.root} did not take everything of {run.id}; the rest is in {kept}: {advice}")
    elif not complete:
        told.append(f"the store {run.store.root} did not take the end of {run.id}, and no disk took its journal")
    if ended["dropped_points"]:
        told.append(f"{ended['dropped_points']} points of {run.id} found no room and were dropped")
    if ended["rejected_values"]:
        told.append(f"{ended['rejected_values']} values of {run.id} were not accepted and were left out")
    return told
