"""A training run: its record, its metric stream, its checkpoints, and the loop over granted epochs."""

import contextlib
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, Self

from halving.checkpoints import rng_state, serialization
from halving.checkpoints.saver import Saver
from halving.data.dataset import Dataset
from halving.errors import InvalidInput, StoreError
from halving.identifiers import check_name
from halving.ingest.metric_writer import MetricWriter
from halving.ingest.recovery import recover_run
from halving.ingest.validation import Validator
from halving.ingest.values import sort_values
from halving.records import provenance
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.run import signals
from halving.run.epoch_loop import Progress
from halving.run.system_metrics import SystemMetrics, Throughput, check_interval
from halving.store.json_files import now
from halving.store.retry import retry_while_away, tell
from halving.store.store import Store
from halving.trial.context import Controller, TrialContext

_END_SECONDS = 20.0  # that the end of a run waits for a store that is away
_TRIAL_END_SECONDS = 90.0  # of a trial, whose pod takes its disk along
_LAST_SECONDS = 2.0  # after the grace period: whoever gave it ends the process now, or lets the last of it be written


class Run:
    """One attempt at a training run. Get one from :func:`halving.init`; inside a trial the platform passes it in.

    Attributes:
        project, id, attempt: whose points these are; ``attempt`` counts resumes, from 1.
        params: the hyperparameters, read-only.
        seed: what the random generators were seeded with, or None if that was left to you.
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
        trial: TrialContext | None = None,
        controller: Controller | None = None,
        captured: dict[str, Any] | None = None,
        strict: bool = False,
        system_metrics: float | None = 30.0,
    ) -> None:
        if system_metrics is not None:
            check_interval(system_metrics)
        self.store, self.project, self.id = store, check_name("project", project), check_name("run id", run_id)
        self.params, self.seed, self._dataset = dict(params), seed, dataset
        if seed is not None:
            rng_state.seed_everything(seed)
        self.records = RunRecords(store, project, run_id)
        began = {
            "provenance": captured or retry_while_away(store, f"run {run_id}", partial(provenance.capture, store)),
            "seed": seed,
            "determinism": rng_state.determinism_flags(),
            "started": now(),
            "token": secrets.token_hex(8),  # tells apart what two processes write in the same millisecond
        }
        self.attempt = retry_while_away(store, f"run {run_id}", partial(self.records.start, self.params, parent or {}, attempt, began))
        try:
            self._finished, self._process = False, os.getpid()
            self._saver = Saver(store, self.records, self._points_first, lambda: self._progress.give_up_at())
            self._progress = Progress(self._saver, self.attempt, trial, controller, stop=self._stop)
            if dataset is not None:
                dataset.give_up_at = self._progress.give_up_at
            self._throughput = Throughput(self.log if system_metrics is None else None)
            self._system: SystemMetrics | None = None
            recover_run(store, project, run_id)  # what an attempt that was killed on this machine left in its journal
            self._writer = MetricWriter(store, project, run_id, self.attempt)
            self._validator = Validator(self._writer, run_id, strict=strict)
            self._resume_from = retry_while_away(store, f"run {run_id}", self.records.latest_checkpoint)
            if system_metrics is not None:
                self._system = SystemMetrics(self.log, system_metrics, throughput=self._throughput, name=run_id)
            signals.opened(self)
        except BaseException:  # also Ctrl-C: the attempt is on record, and would look as if it were running
            self._abandon()
            raise

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
            if self._writer.appender.fast(values, step):  # the hot path: the names of the last call again, with plain numbers
                return
        except Exception:  # noqa: BLE001  # other names, other types, a full log segment: looked at below
            pass
        self._validator.take(values, step)

    def throughput(self, samples: int) -> None:
        """Count samples (images, tokens, rows) as trained: ``system/throughput`` is their number per second."""
        try:
            self._throughput.add(samples)
        except InvalidInput as error:
            self._validator.reject({"throughput()": str(error)})

    def report(self, **metrics: float) -> None:
        """Report this epoch's results, the objective among them; they are logged at ``step=epoch`` too.

        In a trial the objectives and the metrics that the sweep bounds must be finite, and every metric within the bounds that the
        sweep's ``divergence`` gives it.

        Raises:
            InvalidInput: a value is not a number, whether or not the run is strict: decisions are made of these.
            Diverged: a metric is not what it must be, which ends a trial with its last good checkpoint kept.
        """
        found = sort_values(metrics)
        if found.wrong or found.media:
            raise InvalidInput(next(iter(found.wrong.values()), f"report({', '.join(found.media)}) is not accepted: give numbers"))
        numbers = found.numbers | {name: float(value) for name, value in found.device.items()}
        self.log(numbers, step=self._progress.current)
        self._progress.report(numbers)

    def epochs(self, total: int | None = None) -> Iterator[int]:
        """Yield epoch numbers from the first untrained one up to the granted budget.

        Inside a trial the sweep grants the budget, and at each rung it decides whether to go on; when the trial is
        paused the loop simply ends, and a later attempt goes on behind the last checkpoint. In a script of your own
        give ``total``.

        A SIGTERM that comes in the middle of a trial's epoch ends the process with status 143 where the trial can be resumed: at the
        next :meth:`save`, or at the end of the epoch.

        Raises:
            ObjectiveMissing, CheckpointMissing: a rung was reached without ``report`` or ``save`` in that epoch.
        """
        return self._progress.epochs(total)

    def save(self, **state: Any) -> str | None:
        """Save a checkpoint, durably, and return its digest; or None when it was skipped: none is due, or the store is away.

        Torch modules, optimizers and whatever else has ``state_dict`` are saved by it; the random generators' states
        go along. Inside :meth:`epochs` the checkpoint counts once its epoch is complete, so that a checkpoint and
        what was reported belong together and an epoch that diverges leaves none. In a loop of your own it counts at once.

        Call it in every epoch, after :meth:`report`. Inside :meth:`epochs` it writes only as often as is worth its cost (at most 5 %
        of the time, at most 10 minutes apart), in the first epoch, in the last of a rung or of the loop, in one that is the best so far
        where the best counts, and under SIGTERM. A call that is skipped costs microseconds. When it turns out at the end of the epoch
        that its checkpoint is needed after all, it is written then, of what the given objects hold then: leave them as they are.

        A store that is away holds training up for 2 s, once: you are told, checkpoints are skipped, and the first ``save`` after it is back
        writes. (One that goes away in the middle of a checkpoint's upload is noticed when that call gives up, after 32 s at most.) Where
        the run may stop behind the checkpoint (at a rung, in the last epoch, under SIGTERM) the store is waited for, up to ten minutes or
        most of the grace period.

        Raises:
            InvalidInput: a value can't be saved; the message names it.
            StoreError: the checkpoint is needed, and the store refuses it or stays away.
        """
        return self._progress.save(state)

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` from the run's latest checkpoint and continue counting epochs there.

        Returns:
            The values by name: objects with ``state_dict`` are filled in place; plain values come back from the
            checkpoint, or as they were given when there is none yet.

        Raises:
            CheckpointMismatch: the checkpoint lacks one of the names.
            StoreError: it cannot be read; a store that is away is waited for, up to ten minutes.
        """
        if self._resume_from is None:
            return state
        load = partial(serialization.restore, self.store, self._resume_from.digest, state)
        restored = retry_while_away(self.store, f"restore() of {self.id}", load)
        self._progress.resume(self._resume_from)
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
            StoreError: the store refuses, or is away for ten minutes; in a trial that was told to end, for most of its grace period.
        """
        source = Path(path)
        if not source.is_file():
            raise InvalidInput(f"artifact path {str(path)!r} is not accepted: give an existing file")
        name = check_name("artifact name", name or source.name)

        def store() -> str:
            digest = self.store.put_blob(source)
            self.records.add_artifact(name, digest, source.stat().st_size)
            return digest

        return retry_while_away(self.store, f"artifact {name} of {self.id}", store, self._progress.give_up_at)

    def finish(self, status: str = "finished") -> None:
        """Write what is pending and close the attempt's record; doing it again, or in a forked child, does nothing.

        A store that is away is waited for: 20 s, in a trial 90 s, or what is left of its grace period. Then the journal and the
        attempt's end stay on this machine, for the next open of the run or ``halving recover``; this does not raise.
        """
        if self._finished or os.getpid() != self._process:
            return
        self._finished = self._progress.closed = True
        try:
            self._finish(status)
        finally:
            signals.closed(self)

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
    def epoch(self) -> int:
        """Epochs completed, counting those before a resume."""
        return self._progress.epoch

    @property
    def max_epochs(self) -> int:
        """Epochs of the whole training if nothing stops it: of a trial's last rung, however few are granted yet; else what
        :meth:`epochs` was given. A learning-rate schedule that is stretched over these is the same at every rung.

        Raises:
            InvalidInput: in a script of your own, before ``epochs(n)``.
        """
        return self._progress.max_epochs

    @property
    def stopping(self) -> bool:
        """Whether a SIGTERM has come and the trial is to end within its grace period.

        Where an epoch takes longer than that, look at it between batches, and call :meth:`save` when it is True, with your place in the
        epoch among the values: the process ends there. The checkpoint counts for the last complete epoch, and ``restore`` gives it back.
        """
        return self._progress.look_at_stopping()

    @property
    def reported(self) -> Mapping[str, float]:
        """What the last :meth:`report` said."""
        return self._progress.reported

    @property
    def checkpoint(self) -> SavedCheckpoint | None:
        """The newest checkpoint that counts: of the last complete epoch that was saved."""
        return self._saver.newest

    def terminate(self) -> bool:
        """A SIGTERM has come. True: this run ends the process itself, where it can be resumed."""
        going_on = self._progress.ask_to_stop()
        if going_on:
            self._writer.flush(0)  # begins it; the machine may be reclaimed after the grace period
        return going_on

    @property
    def unsaved(self) -> StoreError | None:
        """Why the loop was left without the checkpoint that it should have: the store was away. None where it has it."""
        return self._progress.unsaved

    def _abandon(self) -> None:
        """End an attempt that could not be opened."""
        if "_writer" in vars(self):
            self._validator = Validator(self._writer, self.id, strict=False)  # it may have come to the writer and not to this
            self.finish("failed")
            return
        with contextlib.suppress(StoreError):
            self.records.end(self.attempt, {"status": "failed"})

    def _points_first(self) -> bool:
        """Whether all that was logged is in the store, or in a journal that is as safe. (A forked child's parent writes it.)

        A store that refuses holds this up for one request, one that is silent for the 5 s of a flush.
        """
        folder = self.store.folder
        beside = folder is not None and self._writer.folder.is_relative_to(folder)
        return os.getpid() != self._process or self._writer.flush(insist=False) or beside

    def _stop(self) -> NoReturn:
        self.finish("terminated")
        raise SystemExit(signals.STATUS)

    def _finish(self, status: str) -> None:
        if self._system is not None:
            self._system.stop()
        self._throughput.stop()
        self._validator.closed = True  # not before: those two log a last time
        seconds = min(_TRIAL_END_SECONDS if self._progress.is_trial else _END_SECONDS, self._progress.give_up_at() - monotonic())
        seconds = max(_LAST_SECONDS, seconds)
        if status != "failed":
            try:
                self._progress.make_up(seconds)
            except StoreError as error:
                tell(f"the last checkpoint of {self.id} is not in the store: {error}")
        complete = self._writer.close(seconds)
        ended = {"status": status, "epoch": self.epoch, "points": self._writer.points, "summary": self._writer.last, "time": now()}
        ended |= {"dropped_points": self._writer.dropped, "rejected_values": self._validator.rejected}
        ended["checkpoints"] = self._saver.interval.as_dict()
        if complete:
            try:
                retry_while_away(self.store, f"the end of {self.id}", partial(self.records.end, self.attempt, ended), longest=seconds)
            except Exception:  # noqa: BLE001  # the end is kept for the recovery, whatever the store says
                complete = False
        kept = self._writer.release(None if complete else ended)
        self._saver.close()
        for told in _losses(self, ended, complete, kept):
            warnings.warn(f"halving: {told}", stacklevel=3)


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
