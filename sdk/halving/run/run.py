"""A training run: its record, its metric stream, its checkpoints, and the loop over granted epochs."""

import contextlib
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from halving.checkpoints import restoring, rng_state, serialization
from halving.checkpoints.large_model import find_trained, is_large, is_worth_a_copy
from halving.checkpoints.misses import as_record
from halving.checkpoints.ranks import retry_together
from halving.checkpoints.saver import Saver
from halving.checkpoints.sharded.saver import AsyncSaver, Part
from halving.data.dataset import Dataset
from halving.data.loader_states import LoaderStates
from halving.distributed.joining import device_of
from halving.distributed.ranks import ALONE, Ranks
from halving.errors import InvalidInput, StoreError
from halving.identifiers import check_name
from halving.ingest.forwarding import Forwarded, ForwardingWriter, of_rank
from halving.ingest.metric_writer import MetricWriter
from halving.ingest.recovery import recover_run
from halving.ingest.validation import Validator
from halving.ingest.values import sort_values
from halving.records import provenance
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.run import signals
from halving.run.alerts import Alerts
from halving.run.artifacts import files_of
from halving.run.determinism import determinism_flags, make_deterministic
from halving.run.epoch_loop import Progress
from halving.run.gang_progress import GangProgress
from halving.run.grace_period import GracePeriod
from halving.run.loader_entry import LoaderEntry
from halving.run.machines import machines_of
from halving.run.system_metrics import SystemMetrics, Throughput, check_interval
from halving.run.time_shares import TimeShares
from halving.store.deadline import Deadline
from halving.store.json_files import now
from halving.store.retry import retry_while_unavailable, warn
from halving.store.store import Store
from halving.trial.context import Controller, TrialContext

if TYPE_CHECKING:
    import torch
    from torch import nn

    from halving.distributed.training import Training

_END_SECONDS = 20.0  # that the end of a run waits for an unavailable store
_TRIAL_END_SECONDS = 90.0  # the same for a trial, because the journal on its pod's disk is lost with the pod
_MIN_END_SECONDS = 2.0  # even after the grace period


class Run:
    """One attempt at a training run.

    Get one from :func:`halving.init`; inside a trial the platform passes it in.

    Attributes:
        project, id: the run's name.
        attempt: 1 for a new run, and one more each time it is continued.
        params: the hyperparameters; changing them here changes nothing that is recorded.
        seed: the seed of the random generators; None if they were not seeded.
        store, records: where the run is stored.
        rank, world_size, local_rank: the number of this process, the number of processes, and the number of
            this process on its node; 0, 1 and 0 in a training of one process.

    Where a training has several processes, each has its ``Run``. Only that of rank 0 has a record, a metric
    stream and a connection to the platform. :meth:`epochs`, :meth:`report`, :meth:`save`, :meth:`restore` and
    :attr:`stopping` are collective: all ranks call them, in the same order, and get the same result. Calls of
    :meth:`log` and :meth:`log_artifact` on other ranks are not recorded.
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
        trial: TrialContext | None = None,
        controller: Controller | None = None,
        captured: dict[str, Any] | None = None,
        strict: bool = False,
        system_metrics: float | None = 30.0,
        deterministic: bool = False,
        recorded: Mapping[str, Any] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        if system_metrics is not None:
            check_interval(system_metrics)
        self.store = store
        self.project = check_name("project", project)
        self.id = check_name("run id", run_id)
        self.params = dict(params)
        self.seed = seed
        self._ranks = ranks
        self.rank = ranks.rank
        self.world_size = ranks.world_size
        self.local_rank = ranks.local_rank
        self._dataset: Dataset | None = None
        self._end_seconds = _END_SECONDS
        self._grace = GracePeriod(math.inf)
        max_epochs = None
        if trial is not None:
            self._dataset = Dataset(store, trial.dataset_name, trial.dataset_digest, trial.train_on)
            self._end_seconds = _TRIAL_END_SECONDS
            self._grace = GracePeriod(trial.grace_seconds)
            max_epochs = trial.max_epochs
        if deterministic:
            make_deterministic()
        if seed is not None:
            rng_state.seed_everything(seed)
        self.records = RunRecords(store, project, run_id)
        self._alerts = Alerts(store, self.records.folder, lambda: self.attempt)
        self._rerun_of: str | None = (parent or {}).get("rerun_of")
        self._progress: Progress | GangProgress
        self._finished = False
        self._summary: dict[str, float] = {}
        self._before_end: list[Callable[[], None]] = []
        self._process = os.getpid()
        self._is_trial = trial is not None
        self._ends_together = ranks.world_size > 1 and trial is None
        self._training: Training | None = None
        self._restored = self._has_saved = False
        machines = machines_of(ranks)

        def begin() -> int:
            began = {
                "provenance": captured
                or retry_while_unavailable(store, f"run {run_id}", partial(provenance.capture, store)),
                "seed": seed,
                "determinism": {"deterministic": deterministic, **determinism_flags()},
                "started": now(),
                # The record differs from any that another process writes in the same millisecond.
                "token": secrets.token_hex(8),
                **(recorded or {}),
                **machines,
            }
            return retry_while_unavailable(
                store, f"run {run_id}", partial(self.records.start, self.params, parent or {}, attempt, began)
            )

        self.attempt = ranks.together("the run's begin", begin)
        if not ranks.leads:
            self._follow(max_epochs, system_metrics)
            return
        try:
            self._saver: Saver | AsyncSaver
            if ranks.world_size == 1:
                self._saver = self._open_saver(Saver)
            else:
                self._saver = self._open_saver(AsyncSaver, ranks)
            progress = Progress(self._saver, self.attempt, trial, controller, self._grace, stop=self._stop)
            self._progress = progress
            if ranks.world_size > 1:
                self._progress = GangProgress(ranks, progress, max_epochs)
            if self._dataset is not None:
                self._dataset.deadline = self._grace
            self._loaders = self._loader_entry()
            self._throughput = Throughput()
            if system_metrics is None:
                self._throughput = Throughput(self.log)
            self._system: SystemMetrics | None = None
            self._forwarded: Forwarded | None = None
            # Attempts that were killed on this machine have left their journals here.
            recover_run(store, project, run_id)
            self._writer = MetricWriter(store, project, run_id, self.attempt)
            self._validator = Validator(self._writer, run_id, strict=strict)
            ranks.together("the run's last checkpoint", partial(self._find_resume, trial))
            if system_metrics is not None:
                self._system = self._start_system_metrics(
                    self.log, system_metrics, lambda: self._saver.interval.seconds
                )
            if ranks.world_size > 1:
                self._forwarded = Forwarded(ranks.connect(), self.log)
            signals.register(self)
        except BaseException:
            # Also after Ctrl-C the recorded attempt needs an end, without which it would seem to be running.
            self._abandon()
            raise

    def _follow(self, max_epochs: int | None, system_metrics: float | None) -> None:
        """Open the run of a rank that is not the first; only rank 0 writes to the store."""
        self._part = Part(self.store, self._ranks)
        self._progress = GangProgress(self._ranks, None, max_epochs, self._part)
        self._loaders = self._loader_entry()
        self._system = None
        self._throughput = Throughput()
        forwarding: Any = ForwardingWriter(self._ranks.connect())
        self._writer = forwarding
        self._validator = Validator(forwarding, self.id, strict=False)
        resume = self._ranks.together("the run's last checkpoint", dict)
        self._resume_from = SavedCheckpoint(**resume["from"]) if resume["from"] else None
        self._resumes_itself = resume["own"]
        if system_metrics is not None:
            self._system = self._start_system_metrics(partial(self.log, all_ranks=True), system_metrics, None)
        signals.register(self)

    def _start_system_metrics(
        self, log: Callable[..., object], interval: float, saving: Callable[[], float] | None
    ) -> SystemMetrics:
        """Start sampling this rank's own GPU, and the machine if it is the first rank there."""
        shares = TimeShares(saving, self._ranks.share_waited)
        gpu = None
        if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1 and self.world_size > 1:
            gpu = self.local_rank
        return SystemMetrics(
            log,
            interval,
            throughput=self._throughput,
            shares=shares.read,
            machine=self.local_rank == 0,
            gpu=gpu,
            name=self.id,
        )

    def _find_resume(self, trial: TrialContext | None) -> dict[str, Any]:
        """Find the checkpoint for :meth:`restore`, and whether it is this run's own."""
        self._resume_from = retry_while_unavailable(
            self.store, f"run {self.id}", self.records.latest_checkpoint
        )
        self._resumes_itself = self._resume_from is not None
        if self._resume_from is None and trial and trial.start_from:
            self._resume_from = SavedCheckpoint(**trial.start_from)
        return {"from": self._resume_from and self._resume_from._asdict(), "own": self._resumes_itself}

    def _loader_entry(self) -> LoaderEntry:
        loaders = LoaderStates()
        if self._dataset is not None:
            loaders = self._dataset.loader_states
        return LoaderEntry(loaders, lambda: self._progress.current)

    def __repr__(self) -> str:
        return f"Run({self.project}/{self.id}, attempt {self.attempt})"

    def log(self, values: Mapping[str, Any], *, step: int, all_ranks: bool = False) -> None:
        """Record values at a step.

        They are copied into mapped memory now, and a background thread writes them as Parquet a few seconds
        later. What is logged survives the death of the process; only the death of the machine may lose the
        last seconds.

        Args:
            values: name to number. Accepted are int, float and bool, numpy scalars, 0-d tensors (training
                does not wait for one on a GPU), ``halving.Image``, ``Table``, ``Histogram`` and ``Text``, and
                dicts of these, whose names are joined by ``/``. Numbers are kept as float64, including NaN
                and infinities.
            step: the x axis: any integer that suits you (batch, epoch, sample).
            all_ranks: in a trial of several processes, record each rank's numbers, as ``NAME/rank.K``
                (``rank.0`` in one process). Without it only those of rank 0 are recorded, and the call of any
                other rank does nothing. The numbers of other ranks are sent to rank 0 about once a second;
                those of its last second are lost with a rank that is killed.

        Raises:
            InvalidInput: a name, value or step is not accepted, in a run with ``strict=True``. Otherwise it
                is left out, counted, and warned about once for each name.
        """
        if all_ranks:
            if isinstance(values, Mapping):
                values = of_rank(values, self.rank)
            self._validator.take(values, step)
            return
        try:
            if self._writer.appender.fast(values, step):
                # This is the hot path: the names of the last call again, with plain numbers.
                return
        except Exception:  # noqa: BLE001
            # The validator takes other names, other types, and what a full log segment has no room for.
            pass
        self._validator.take(values, step)

    def throughput(self, samples: int) -> None:
        """Count samples (images, tokens, rows) that were trained on, for ``system/throughput`` per second."""
        try:
            self._throughput.add(samples)
        except InvalidInput as error:
            self._validator.reject({"throughput()": str(error)})

    def report(self, **metrics: float) -> None:
        """Report this epoch's results, among them the objective. They are also logged, at ``step=epoch``.

        In a trial the objectives and the metrics that the sweep bounds must be finite, and each metric within
        the bounds that the sweep's ``divergence`` sets for it.

        Raises:
            InvalidInput: a value is not a number. This is raised whether or not the run is strict, because
                decisions depend on it.
            Diverged: a metric is not finite or out of bounds; it ends the trial, which keeps its last good
                checkpoint.
        """
        sorted_values = sort_values(metrics)
        for problem in sorted_values.wrong.values():
            raise InvalidInput(problem)
        if sorted_values.media:
            raise InvalidInput(f"report({', '.join(sorted_values.media)}) is not accepted: give numbers")
        numbers = sorted_values.numbers | {name: float(value) for name, value in sorted_values.device.items()}
        self.log(numbers, step=self._progress.current)
        self._progress.report(numbers)

    def epochs(self, total: int | None = None) -> Iterator[int]:
        """Yield the numbers of the epochs to train, from the first untrained one up to the granted budget.

        Inside a trial the sweep grants the budget, and decides at each rung whether to continue. When the
        trial is paused the loop simply ends; a later attempt continues from the last checkpoint. In your own
        script give ``total``.

        A SIGTERM in the middle of a trial's epoch ends the process with status 143 where the trial can be
        resumed: at the next :meth:`save`, or at the end of the epoch.

        Raises:
            ObjectiveMissing, CheckpointMissing: the epoch ends a rung and had no ``report`` or ``save``.
        """
        return self._progress.epochs(total)

    def distribute(
        self, model: "nn.Module", optimizer: "torch.optim.Optimizer", **options: Any
    ) -> "Training":
        """Prepare a model for training on all ranks, or on the only one; call it before :meth:`restore`.

        The model is trained by ``training.step(loss, *batch)`` on the result. The options are those of
        :func:`halving.distributed.training.distribute`: ``precision``, ``accumulate``, ``micro_batch``,
        ``clip``, ``shard``, ``blocks``, ``activation_checkpointing``, ``compile``, ``exact``,
        ``unused_parameters``, ``skips``, ``out_of_memory``. The model is changed in
        place, and remains the one to evaluate and save; give the result to :meth:`save` and :meth:`restore`,
        too.

        Raises:
            InvalidInput: an option is not accepted, a model was distributed before, or something was restored
                or saved before.
        """
        from halving.distributed.out_of_memory import MemoryNotes
        from halving.distributed.training import distribute

        calls = {
            "run.restore()": self._restored,
            "run.save()": self._has_saved,
            "run.distribute()": self._training is not None,
        }
        for call, was_made in calls.items():
            if was_made:
                raise InvalidInput(
                    f"run.distribute() after {call} is not accepted: distribute the one model that is "
                    "trained, then restore and save it"
                )
        notes = MemoryNotes(self.records, self.attempt, self._rerun_of)
        self._training = distribute(
            self._ranks, self.device, model, optimizer, seed=self.seed, notes=notes, log=self.log, **options
        )
        self._expect_saves(model, optimizer)
        return self._training

    def save(self, **state: Any) -> str | None:
        """Save a checkpoint, and return its digest where it is stored already.

        None is returned where the checkpoint is written while training goes on (see below), and where it was
        skipped, because none is due or the store is unavailable.

        Torch modules, optimizers and anything else with ``state_dict`` are saved by it, together with the
        states of the random generators and the positions of the loaders of :attr:`dataset`. Inside
        :meth:`epochs` a checkpoint counts once its epoch is complete, so that it belongs together with what
        was reported, and an epoch that diverges leaves none. In your own loop it counts at once.

        Call it in every epoch, after :meth:`report`. Inside :meth:`epochs` it writes in the first epoch, in
        the last of a rung or of the loop, in the best so far where the best one counts, under SIGTERM, and in
        between only as often as is worth its cost (at most 5 % of the time, at least every 10 minutes). A
        skipped call takes microseconds. If the checkpoint turns out to be needed at the end of the epoch, the
        objects are written as they are then, so do not change them after the call.

        An unavailable store delays training once, by 2 s: there is a warning, checkpoints are skipped, and
        the first ``save`` after the store is back writes one. (Where the store becomes unavailable in the
        middle of an upload, that call takes up to 32 s to notice.) Where the run may stop after the
        checkpoint (at a rung, in the last epoch, under SIGTERM) it waits for the store, up to ten minutes or
        most of the grace period.

        Where a training has several processes, each saves its part of the tensors. There, a checkpoint that
        is not waited for is copied and written while training goes on; so it is in one process whose first
        save has 32 MiB or more of tensors and arrays, and memory for a copy of them. This returns None then,
        and once it has begun to write, the objects may change at once. Outside of :meth:`epochs` it first
        waits for the checkpoint that is being written. :attr:`checkpoint` remains the previous one until the
        new one is written; call :meth:`flush` before you read it. The end of the run waits 20 s for it, and
        warns if it is not stored.

        Raises:
            InvalidInput: a value can't be saved, or the training of :meth:`distribute` is not among them; the
                message names it.
            StoreError: the checkpoint is needed, and the store refuses it or remains unavailable.
        """
        if serialization.LOADERS in state:
            raise InvalidInput(
                f"checkpoint entry {serialization.LOADERS!r} is not accepted: the name is taken, choose "
                "another"
            )
        self._check_training("save", state)
        if self.world_size == 1 and not self._has_saved:
            self._choose_saver(state)
        self._has_saved = True
        if self._loaders:
            state = {**state, serialization.LOADERS: self._loaders}
        return self._progress.save(state)

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` from the run's latest checkpoint, and continue counting epochs from there.

        The loaders of :attr:`dataset` continue behind the last row that counts, whether they are open already
        or are opened later: in the middle of an epoch that was saved there, otherwise with the next epoch. A
        loader with another seed begins an order of its own, unless the saved one was in the middle of an
        epoch.

        Returns:
            The values by name. Objects with ``state_dict`` are filled in place; plain values are those of the
            checkpoint. Without a checkpoint ``state`` is returned.

        Raises:
            CheckpointMismatch: the checkpoint lacks one of the names.
            InvalidInput: a loader has another seed than the one that was saved in the middle of an epoch of
                its split; where it is opened later, it is raised then. (A checkpoint of another run is taken
                where it fits, and never refused.) The training of :meth:`distribute` is not among the values.
            StoreError: it cannot be read, or the store was unavailable for ten minutes.
        """
        self._check_training("restore", state)
        is_first = not (self._has_saved or self._restored or self._training)
        if is_first and self.world_size == 1:
            trained = find_trained(state)
            if trained is not None:
                self._expect_saves(*trained)
        self._restored = True
        if self._resume_from is None:
            return state
        optional = {serialization.LOADERS: self._loaders}
        load = partial(
            restoring.restore,
            self.store,
            self._resume_from.digest,
            state,
            optional=optional,
            ranks=self._ranks,
        )
        restored = retry_together(self._ranks, self.store, "run.restore()", f"restore() of {self.id}", load)
        self._progress.resume(self._resume_from)
        self._loaders.bring_back(self._resume_from.epoch, own=self._resumes_itself)
        return restored

    def flush(self, deadline: float = 5.0) -> bool:
        """Write every logged point to the store, and finish the checkpoint that is being written.

        Returns:
            Whether that was done within ``deadline`` seconds.
        """
        end = Deadline.after(deadline)
        is_written = self._writer.flush(deadline)
        is_saved = not self._ranks.leads or self._saver.drain(max(0.0, end.remaining()))
        return is_saved and is_written

    def log_artifact(self, path: str | Path, name: str | None = None) -> str | None:
        """Store a file, or all files of a folder, and attach them to this run.

        Args:
            path: the file or folder; links are followed.
            name: the name of the file (default: its own), which may be a path: ``plots/loss.png``. The files
                of a folder are ``NAME/INNER/FILE``.

        Returns:
            The digest of a file's content, ``sha256:…``; None for a folder, and on a rank that is not the
            first, which stores nothing.

        Raises:
            InvalidInput: nothing is there; something is neither a file nor a folder; a name has a control
                character, or is no UTF-8. Nothing is stored then.
            AlreadyExists: the run has other content under that name.
            StoreError: the store refuses, or was unavailable for ten minutes (after a SIGTERM: for most of
                the grace period).
        """
        if not self._ranks.leads:
            return None
        digests = [self._store_artifact(*file) for file in files_of(path, name)]
        if Path(path).is_dir():
            return None
        return digests[0]

    def _store_artifact(self, name: str, source: Path) -> str:
        def store() -> str:
            digest = self.store.put_blob(source)
            self.records.add_artifact(name, digest, source.stat().st_size)
            return digest

        return retry_while_unavailable(self.store, f"artifact {name} of {self.id}", store, self._grace)

    def summarize(self, values: Mapping[str, Any]) -> None:
        """Set values of the whole run, such as the best accuracy, which tables and filters show as metrics.

        They are recorded with the attempt's end, beside the last value of each metric or instead of it. A
        second call adds to the first one. A killed process records none of them.

        Args:
            values: numbers by name, as :meth:`log` takes them.

        Raises:
            InvalidInput: a name or a value is not accepted, in a run with ``strict=True``. Otherwise it is
                left out, counted, and warned about.
        """
        accepted = sort_values(values)
        numbers = accepted.numbers | {name: float(value) for name, value in accepted.device.items()}
        wrong = accepted.wrong | {
            name: f"summary value {name!r} is not accepted: give a number" for name in accepted.media
        }
        if wrong:
            self._validator.reject(wrong)
        self._summary |= numbers

    def before_end(self, action: Callable[[], None]) -> None:
        """Have ``action`` called when the attempt ends, however it does, before its end is recorded.

        An error of it is a warning. It may call :meth:`log` and :meth:`summarize`.
        """
        self._before_end.append(action)

    def alert(self, title: str, text: str = "", level: str = "info", *, wait_seconds: float = 60.0) -> bool:
        """Record an alert: something that a person should know of, such as a loss that does not fall.

        It is a file of the run, durable when this returns.

        Args:
            title: a line of at most 200 characters.
            text: more of it, at most 10,000 characters.
            level: ``info``, ``warn`` or ``error``.
            wait_seconds: an alert of the same title within this time is left out.

        Returns:
            Whether it is recorded. It is not if there was one just now, on a rank that is not the first, or
            if the store is unavailable (with a warning, because training must not wait for it).

        Raises:
            InvalidInput: an argument is not accepted, in a run with ``strict=True``.
        """
        try:
            alert = self._alerts.check(title, text, level, wait_seconds)
        except InvalidInput as error:
            self._validator.reject({"alert()": str(error)})
            return False
        if not self._ranks.leads or self._finished or alert is None:
            return False
        return self._alerts.record(alert)

    def finish(self, status: str = "finished") -> None:
        """Write what is pending and record how the attempt ended; it does not raise.

        A second call, or one in a forked child, does nothing.

        It waits for an unavailable store: 20 s, in a trial 90 s or what is left of its grace period. After
        that the journal and the attempt's end stay on this machine until the run is opened again or ``halving
        recover`` writes them. In a script of several processes, a run that ends well ends on all of them
        together.
        """
        if self._finished or os.getpid() != self._process:
            return
        if status == "finished" and self._ends_together:
            self._ends_together = False
            with contextlib.suppress(Exception):  # If a rank is gone, the run ends without it.
                self._progress.end()
        while self._before_end:
            try:
                self._before_end.pop(0)()
            except Exception as error:  # noqa: BLE001
                # It is somebody else's code, and the end must be recorded all the same.
                warn(f"before the end of {self.id}: {type(error).__name__}: {error}")
        if self._finished:
            return  # The handler of a signal has finished it meanwhile.
        self._finished = self._progress.closed = True
        try:
            if self._ranks.leads:
                self._finish(status)
                self._begin_retention()
            else:
                self._finish_following()
        finally:
            signals.unregister(self)
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.finish("failed")
        else:
            self.finish()

    @property
    def dataset(self) -> Dataset:
        """The snapshot to train on.

        Raises:
            InvalidInput: outside of a trial there is none.
        """
        if self._dataset is None:
            raise InvalidInput(
                "run.dataset is not there outside of a trial: read your data yourself, or open "
                "halving.Dataset(…)"
            )
        return self._dataset

    @property
    def device(self) -> "torch.device":
        """The device that this rank computes on: the GPU of its number on its node, or the CPU."""
        return device_of(self.local_rank)

    @property
    def epoch(self) -> int:
        """Epochs completed, counting those before a resume."""
        return self._progress.epoch

    @property
    def max_epochs(self) -> int:
        """Epochs of the whole training if nothing stops it.

        In a trial they are those of the last rung, however few are granted so far, so that a learning-rate
        schedule over them is the same at every rung. In a script they are the argument of :meth:`epochs`.

        Raises:
            InvalidInput: in your own script, before ``epochs(n)``.
        """
        return self._progress.max_epochs

    @property
    def stopping(self) -> bool:
        """Whether the trial must end: a SIGTERM has begun its grace period, or the platform wants its place.

        Where an epoch takes longer than the grace period, check this between batches, and call :meth:`save`
        when it is True, with your position in the epoch among the values (a loader of :attr:`dataset` keeps
        its own): the process ends there. The checkpoint counts for the last complete epoch, and ``restore``
        returns the position.
        """
        return self._progress.look_at_stopping()

    @property
    def reported(self) -> Mapping[str, float]:
        """The results reported in this epoch; between epochs, those of the last complete one."""
        return self._progress.reported

    @property
    def checkpoint(self) -> SavedCheckpoint | None:
        """The newest checkpoint that counts: that of the last complete epoch that was saved."""
        return self._progress.checkpoint

    @property
    def is_stopping(self) -> bool:
        """Whether the trial must end. Unlike :attr:`stopping` it asks no other rank; for the platform."""
        return self._progress.is_stopping

    def end(self) -> None:
        """End the training after the trainable has returned. All ranks call it, last of all."""
        if not self._ranks.leads:
            if self._system is not None:
                self._system.stop()
            self._writer.flush()  # Its points must arrive before rank 0 finishes.
        self._progress.end()

    def terminate(self) -> bool:
        """Handle a SIGTERM; return True if this run will end the process itself, where it can be resumed."""
        continues = self._progress.ask_to_stop()
        if continues:
            self._writer.flush(0)  # This only begins the flush.
        return continues

    def ask_back(self) -> None:
        """End the process when its epoch is complete and saved, because the platform wants the trial's place.

        Any thread may call it.
        """
        self._progress.ask_back()

    @property
    def unsaved(self) -> StoreError | None:
        """The store's error, if the loop was left and its checkpoint could not be stored."""
        return self._progress.unsaved

    def _open_saver(self, kind: Callable[..., Any], *ranks: Ranks) -> Any:
        return kind(self.store, self.records, self._points_first, self._grace, *ranks)

    def _expect_saves(self, model: "nn.Module", optimizer: "torch.optim.Optimizer") -> None:
        """Prepare saves beside training before it begins, so that the first one is as quick as the others."""
        if self.world_size == 1 and isinstance(self._saver, Saver) and is_large(model):
            self._save_by(self._open_saver(AsyncSaver, self._ranks))
        saves = self._saver if self._ranks.leads else self._part
        if not isinstance(saves, Saver):
            saves.expect(model, optimizer)

    def _choose_saver(self, state: Mapping[str, Any]) -> None:
        """Choose the saver before the first save of one process: one beside training for a large state."""
        is_beside = isinstance(self._saver, AsyncSaver)
        is_wanted = is_worth_a_copy(state, self._saver.prepared_bytes)
        if is_wanted and not is_beside:
            self._save_by(self._open_saver(AsyncSaver, self._ranks))
        if is_beside and not is_wanted:
            self._save_by(self._open_saver(Saver))

    def _save_by(self, saver: Saver | AsyncSaver) -> None:
        assert isinstance(self._progress, Progress)
        self._saver = saver
        self._progress.save_by(saver)

    def _check_training(self, call: str, state: Mapping[str, Any]) -> None:
        """Check that the result of :meth:`distribute` is among the values.

        Its counts belong to a checkpoint: a training that is resumed without them would draw other random
        numbers, or scale anew.
        """
        if self._training is not None and not any(value is self._training for value in state.values()):
            names = ", ".join(f"{name}=…" for name in state)
            raise InvalidInput(
                f"run.{call}({names}) without what run.distribute() returned is not accepted: add "
                "training=training to it; it is where the training stands"
            )

    def _abandon(self) -> None:
        """End an attempt that could not be opened."""
        if "_writer" in vars(self):
            # The writer may have been opened, but not yet its validator.
            self._validator = Validator(self._writer, self.id, strict=False)
            self.finish("failed")
            return
        with contextlib.suppress(StoreError):
            self.records.end(self.attempt, {"status": "failed"})

    def _points_first(self) -> bool:
        """Write all that was logged; whether it is in the store, or in a journal on the same disk.

        In a forked child it is True, because the parent writes it. It takes one request where the store
        refuses, and the 5 s of a flush where it does not answer.
        """
        folder = self.store.folder
        on_same_disk = folder is not None and self._writer.folder.is_relative_to(folder)
        return os.getpid() != self._process or self._writer.flush(insist=False) or on_same_disk

    def _stop(self) -> NoReturn:
        self.finish("terminated")
        raise SystemExit(signals.STATUS)

    def _finish_following(self) -> None:
        """Finish the run of a rank that is not the first."""
        if self._system is not None:
            self._system.stop()
        self._validator.closed = True
        self._writer.close(_MIN_END_SECONDS)
        self._part.drain(self._end_seconds)

    def _begin_retention(self) -> None:
        """Begin once a day to delete what the policy does not keep; after a trial its sweep's job does it."""
        from halving.maintenance.daily import begin_after_run

        if not self._is_trial:
            begin_after_run(self.store)

    def _finish(self, status: str) -> None:
        if self._system is not None:
            self._system.stop()
        self._throughput.stop()
        if self._forwarded is not None:
            self._forwarded.close()
        self._validator.closed = True  # Only now, because the two above have logged a last time.
        seconds = max(_MIN_END_SECONDS, min(self._end_seconds, self._grace.remaining()))
        unsaved: StoreError | str | None = None
        if status != "failed":
            try:
                self._progress.make_up(seconds)
            except StoreError as error:
                unsaved = error
        self._saver.drain(seconds)
        unsaved = unsaved or self._saver.loss()
        if unsaved is not None:
            warn(f"the last checkpoint of {self.id} could not be stored: {unsaved}")
        complete = self._writer.close(seconds)
        drain = self._writer.drain
        ended = {
            "status": status,
            "epoch": self.epoch,
            "points": drain.points,
            "summary": drain.last | self._summary,
            "time": now(),
        }
        ended |= {"dropped_points": self._writer.dropped, "rejected_values": self._validator.rejected}
        ended["checkpoints"] = {
            **self._saver.interval.as_dict(),
            "missed": as_record(self._saver.misses.all()),
        }
        ended["weights"] = self._saver.newest and self._saver.newest.weights
        if complete:
            try:
                retry_while_unavailable(
                    self.store,
                    f"the end of {self.id}",
                    partial(self.records.end, self.attempt, ended),
                    longest=seconds,
                )
            except Exception:  # noqa: BLE001
                # Whatever the store raises, the end is kept for the recovery.
                complete = False
        kept = self._writer.release(None if complete else ended)
        self._saver.close()
        for loss in _losses(self, ended, complete, kept):
            warn(loss, stacklevel=4)


def _losses(run: Run, ended: Mapping[str, Any], complete: bool, kept: Path | None) -> list[str]:
    """Warnings about points and values that are not in the store when the run is over."""
    lost = []
    if not complete and kept is not None:
        advice = "`halving recover`, or the next attempt of this run on this machine, writes it"
        lost.append(
            f"the store {run.store.root} did not take everything of {run.id}; the rest is in {kept}: {advice}"
        )
    elif not complete:
        lost.append(
            f"the store {run.store.root} did not take the end of {run.id}, and no disk took its journal"
        )
    if ended["dropped_points"]:
        lost.append(f"{ended['dropped_points']} points of {run.id} found no room and were dropped")
    if ended["rejected_values"]:
        lost.append(f"{ended['rejected_values']} values of {run.id} were not accepted and were left out")
    return lost
