"""A training run: its record, its metric stream, its checkpoints, and the loop over granted epochs."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from halving.checkpoints import restoring, rng_state, serialization
from halving.checkpoints.large_model import is_large, is_worth_a_copy, trained_in
from halving.checkpoints.misses import as_record
from halving.checkpoints.ranks import retry_together
from halving.checkpoints.saver import Saver
from halving.checkpoints.sharded.saver import AsyncSaver, Part
from halving.data.dataset import Dataset
from halving.data.loader_states import LoaderStates, loaders_of
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
from halving.run.artifacts import files_of
from halving.run.determinism import determinism_flags, make_deterministic
from halving.run.epoch_loop import Progress
from halving.run.gang_progress import GangProgress
from halving.run.loader_entry import LoaderEntry
from halving.run.machines import machines_of
from halving.run.system_metrics import SystemMetrics, Throughput, check_interval
from halving.run.time_shares import TimeShares
from halving.store.json_files import now
from halving.store.retry import retry_while_unavailable, warn
from halving.store.store import Store
from halving.trial.context import Controller, TrialContext

if TYPE_CHECKING:
    import torch
    from torch import nn

    from halving.distributed.training import Training

_END_SECONDS = 20.0  # for which the end of a run waits for an unavailable store
_TRIAL_END_SECONDS = 90.0  # the same for a trial: when its pod ends, the journal on the pod's disk is lost
_LAST_SECONDS = 2.0  # the least, also after the grace period


class Run:
    """One attempt at a training run.

    Get one from :func:`halving.init`; inside a trial the platform passes it in.

    Attributes:
        project, id: the run's name.
        attempt: 1 for a new run, and one more each time it is continued.
        params: the hyperparameters; changing them here changes nothing that is recorded.
        seed: what the random generators were seeded with; None if they were not.
        store, records: where the run is stored.
        rank, world_size, local_rank: which process of how many this is, and its number on its node; 0, 1 and
            0 where there is one.

    Where a training has several processes, each has its run. Rank 0's alone has a record, a metric stream and
    the platform to ask; :meth:`epochs`, :meth:`report`, :meth:`save`, :meth:`restore` and :attr:`stopping`
    are collective: all ranks call them, in the same order, and get the same answer. What the others give to
    :meth:`log` and :meth:`log_artifact` is not recorded.
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
        self._dataset = (
            Dataset(store, trial.dataset_name, trial.dataset_digest, trial.train_on) if trial else None
        )
        self._end_seconds = _TRIAL_END_SECONDS if trial else _END_SECONDS
        if deterministic:
            make_deterministic()
        if seed is not None:
            rng_state.seed_everything(seed)
        self.records = RunRecords(store, project, run_id)
        self._rerun_of: str | None = (parent or {}).get("rerun_of")
        self._progress: Progress | GangProgress
        self._finished = False
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
                # makes the record differ from any that another process writes in the same millisecond
                "token": secrets.token_hex(8),
                **(recorded or {}),
                **machines,
            }
            return retry_while_unavailable(
                store, f"run {run_id}", partial(self.records.start, self.params, parent or {}, attempt, began)
            )

        self.attempt = ranks.together("the run's begin", begin)
        if not ranks.leads:
            self._follow(trial, system_metrics)
            return
        try:
            self._saver: Saver | AsyncSaver = (
                self._open_saver(Saver) if ranks.world_size == 1 else self._open_saver(AsyncSaver, ranks)
            )
            progress = Progress(self._saver, self.attempt, trial, controller, stop=self._stop)
            self._progress = (
                progress
                if ranks.world_size == 1
                else GangProgress(ranks, progress, trial.max_epochs if trial else None)
            )
            if self._dataset is not None:
                self._dataset.give_up_at = self._progress.give_up_at
            self._loaders = self._loader_entry()
            self._throughput = Throughput(self.log if system_metrics is None else None)
            self._system: SystemMetrics | None = None
            self._forwarded: Forwarded | None = None
            recover_run(store, project, run_id)  # the journals of attempts that were killed on this machine
            self._writer = MetricWriter(store, project, run_id, self.attempt)
            self._validator = Validator(self._writer, run_id, strict=strict)
            ranks.together("the run's last checkpoint", partial(self._find_resume, trial))
            if system_metrics is not None:
                self._system = self._sampled(self.log, system_metrics, lambda: self._saver.interval.seconds)
            if ranks.world_size > 1:
                self._forwarded = Forwarded(ranks.connect(), self.log)
            signals.opened(self)
        except BaseException:
            # also Ctrl-C: the attempt is recorded, and without an end it would seem to be running
            self._abandon()
            raise

    def _follow(self, trial: TrialContext | None, system_metrics: float | None) -> None:
        """Open the run of a rank that is not the first: what goes to the store is rank 0's."""
        self._part = Part(self.store, self._ranks)
        self._progress = GangProgress(self._ranks, None, trial.max_epochs if trial else None, self._part)
        self._loaders = self._loader_entry()
        self._system = None
        self._throughput = Throughput()
        forwarding: Any = ForwardingWriter(self._ranks.connect())
        self._writer = forwarding
        self._validator = Validator(forwarding, self.id, strict=False)
        found = self._ranks.together("the run's last checkpoint", dict)
        self._resume_from = SavedCheckpoint(**found["from"]) if found["from"] else None
        self._resumes_itself = found["own"]
        if system_metrics is not None:
            self._system = self._sampled(partial(self.log, all_ranks=True), system_metrics, None)
        signals.opened(self)

    def _sampled(
        self, log: Callable[..., object], interval: float, saving: Callable[[], float] | None
    ) -> SystemMetrics:
        """The system metrics of this rank: of the machine those of its first one, and of its GPUs its own."""
        shares = TimeShares(saving, self._ranks.share_waited)
        own = (
            self.local_rank
            if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1 and self.world_size > 1
            else None
        )
        first = self.local_rank == 0
        return SystemMetrics(
            log,
            interval,
            throughput=self._throughput,
            shares=shares.read,
            machine=first,
            gpu=own,
            name=self.id,
        )

    def _find_resume(self, trial: TrialContext | None) -> dict[str, Any]:
        """Where :meth:`restore` continues, and whether that is a checkpoint of this run."""
        self._resume_from = retry_while_unavailable(
            self.store, f"run {self.id}", self.records.latest_checkpoint
        )
        self._resumes_itself = self._resume_from is not None
        if self._resume_from is None and trial and trial.start_from:
            self._resume_from = SavedCheckpoint(**trial.start_from)
        return {
            "from": self._resume_from._asdict() if self._resume_from else None,
            "own": self._resumes_itself,
        }

    def _loader_entry(self) -> LoaderEntry:
        loaders = LoaderStates() if self._dataset is None else loaders_of(self._dataset)
        return LoaderEntry(loaders, lambda: self._progress.current)

    def __repr__(self) -> str:
        return f"Run({self.project}/{self.id}, attempt {self.attempt})"

    def log(self, values: Mapping[str, Any], *, step: int, all_ranks: bool = False) -> None:
        """Record values at a step: copied into mapped memory now, written as Parquet a few seconds later by a
        background thread.

        What is logged survives the death of the process; only the death of the machine may lose the last
        seconds.

        Args:
            values: name to number. Accepted are int, float and bool, numpy scalars, 0-d tensors (training
                does not wait for one on a GPU), ``halving.Image``, ``Table``, ``Histogram`` and ``Text``, and
                dicts of these, whose names are joined by ``/``. Numbers are kept as float64, including NaN
                and infinities.
            step: the x axis: any integer that suits you (batch, epoch, sample).
            all_ranks: of a trial in several processes, record each rank's numbers, as ``NAME/rank.K``
                (``rank.0`` in one process). Without it those of rank 0 are, and the call of any other rank
                does nothing. The numbers of other ranks are sent to rank 0 about once a second; a rank that
                is killed takes its last second along.

        Raises:
            InvalidInput: a name, value or step is not accepted, in a run with ``strict=True``. Otherwise it
                is left out, counted, and warned about once for each name.
        """
        if all_ranks:
            self._validator.take(of_rank(values, self.rank) if isinstance(values, Mapping) else values, step)
            return
        try:
            if self._writer.appender.fast(values, step):
                # the hot path: the names of the last call again, with plain numbers
                return
        except Exception:  # noqa: BLE001
            # other names, other types, a full log segment: the validator takes them
            pass
        self._validator.take(values, step)

    def throughput(self, samples: int) -> None:
        """Count samples (images, tokens, rows) that were trained on; ``system/throughput`` is logged in
        samples per second.
        """
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
        found = sort_values(metrics)
        if found.wrong or found.media:
            raise InvalidInput(
                next(
                    iter(found.wrong.values()),
                    f"report({', '.join(found.media)}) is not accepted: give numbers",
                )
            )
        numbers = found.numbers | {name: float(value) for name, value in found.device.items()}
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
        """Train a model on all ranks, or on the one that there is, by ``training.step(loss, *batch)``; call
        it before :meth:`restore`.

        The options are those of :func:`halving.distributed.training.distribute`: ``precision``,
        ``accumulate``, ``micro_batch``, ``clip``, ``shard``, ``blocks``, ``activation_checkpointing``,
        ``compile``, ``exact``, ``unused_parameters``, ``skips``, ``out_of_memory``. The model is changed in
        place, and remains what is evaluated and saved; give what is returned here to :meth:`save` and
        :meth:`restore`, too.

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
        if earlier := [call for call, has_been_made in calls.items() if has_been_made]:
            raise InvalidInput(
                f"run.distribute() after {earlier[0]} is not accepted: distribute the one model that is "
                "trained, then restore and save it"
            )
        notes = MemoryNotes(self.records, self.attempt, self._rerun_of)
        self._training = distribute(
            self._ranks, self.device, model, optimizer, seed=self.seed, notes=notes, log=self.log, **options
        )
        self._expect_saves(model, optimizer)
        return self._training

    def save(self, **state: Any) -> str | None:
        """Save a checkpoint.

        Returns its digest where it is stored already; None where it is written beside training (of many
        processes, or of a large model: below), or was skipped, because none is due or the store is
        unavailable.

        Torch modules, optimizers and anything else with ``state_dict`` are saved by it, and with them the
        states of the random generators. Inside :meth:`epochs` a checkpoint counts once its epoch is complete,
        so that it belongs together with what was reported, and an epoch that diverges leaves none. In your
        own loop it counts at once. What the loaders of :attr:`dataset` have handed out is saved, too.

        Call it in every epoch, after :meth:`report`. Inside :meth:`epochs` it writes in the first epoch, in
        the last of a rung or of the loop, in the best so far where the best one counts, under SIGTERM, and in
        between only as often as is worth its cost (at most 5 % of the time, at least every 10 minutes). A
        skipped call takes microseconds. If it turns out at the end of the epoch that the checkpoint is needed
        after all, it is written then from what the given objects hold then, so do not change them after the
        call.

        An unavailable store delays training once, by 2 s: there is a warning, checkpoints are skipped, and
        the first ``save`` after the store is back writes one. (Where the store becomes unavailable in the
        middle of an upload, that call takes up to 32 s to notice.) Where the run may stop after the
        checkpoint (at a rung, in the last epoch, under SIGTERM) it waits for the store, up to ten minutes or
        most of the grace period.

        Where a training has several processes, each saves its part of the tensors. There, and in one process
        whose first save has 32 MiB of tensors and arrays or more and memory for a copy of them, a checkpoint
        that is not waited for is copied, and written while training goes on: this returns None, and where it
        has begun to write, the given objects may change at once. Outside of :meth:`epochs` it waits for the
        one that is being written. :attr:`checkpoint` is the former one until the new one is written: call
        :meth:`flush` before you read it. The end of the run waits for it, 20 s, and says if it is not stored.

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
        return self._progress.save(
            {**state, serialization.LOADERS: self._loaders} if self._loaders else state
        )

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` from the run's latest checkpoint, and continue counting epochs from there.

        The loaders of :attr:`dataset` continue with the row behind the last one that counts, whether they are
        open already or are opened later: in the middle of an epoch that was saved there, otherwise with the
        next epoch. A loader with another seed begins an order of its own, unless the one that was saved is in
        the middle of an epoch.

        Returns:
            The values by name. Objects with ``state_dict`` are filled in place; plain values are those of the
            checkpoint. Without a checkpoint everything is returned as it was given.

        Raises:
            CheckpointMismatch: the checkpoint lacks one of the names.
            InvalidInput: a loader has another seed than the one that was saved in the middle of an epoch of
                its split; where it is opened later, it is raised then. (A checkpoint of another run is taken
                where it fits, and never refused.) The training of :meth:`distribute` is not among the values.
            StoreError: it cannot be read, or the store was unavailable for ten minutes.
        """
        self._check_training("restore", state)
        is_first = not (self._has_saved or self._restored or self._training)
        if self.world_size == 1 and is_first and (trained := trained_in(state)) is not None:
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
        """Write every point logged so far to the store, and wait for the checkpoint that is being written
        beside training, which counts then; return whether that was done within ``deadline`` seconds.
        """
        ends = monotonic() + deadline
        is_written = self._writer.flush(deadline)
        return (not self._ranks.leads or self._saver.drain(max(0.0, ends - monotonic()))) and is_written

    def log_artifact(self, path: str | Path, name: str | None = None) -> str | None:
        """Store a file, or all files of a folder, and attach them to this run.

        Args:
            path: links are what they lead to.
            name: a file's (default: its own), which may be a path: ``plots/loss.png``. A folder's files are
                ``NAME/INNER/FILE``.

        Returns:
            The digest of a file's content, ``sha256:…``; None of a folder, and on a rank that is not the
            first: nothing is stored there.

        Raises:
            InvalidInput: there is nothing; something is neither a file nor a folder; a name has a control
                character, or is no UTF-8. Nothing is stored then.
            AlreadyExists: the run has other content under that name.
            StoreError: the store refuses, or was unavailable for ten minutes (after a SIGTERM: for most of
                the grace period).
        """
        if not self._ranks.leads:
            return None
        digests = [self._store_artifact(*file) for file in files_of(path, name)]
        return None if Path(path).is_dir() else digests[0]

    def _store_artifact(self, name: str, source: Path) -> str:
        def store() -> str:
            digest = self.store.put_blob(source)
            self.records.add_artifact(name, digest, source.stat().st_size)
            return digest

        return retry_while_unavailable(
            self.store, f"artifact {name} of {self.id}", store, self._progress.give_up_at
        )

    def finish(self, status: str = "finished") -> None:
        """Write what is pending and record how the attempt ended.

        A second call, or one in a forked child, does nothing.

        It waits for an unavailable store: 20 s, in a trial 90 s or what is left of its grace period. After
        that the journal and the attempt's end stay on this machine until the run is opened again or ``halving
        recover`` writes them. It does not raise. Of a script in several processes, a run that ends well ends
        on all of them together.
        """
        if self._finished or os.getpid() != self._process:
            return
        if status == "finished" and self._ends_together:
            self._ends_together = False
            with contextlib.suppress(Exception):  # a rank that is gone: the run ends without it
                self._progress.end()
        self._finished = self._progress.closed = True
        try:
            if self._ranks.leads:
                self._finish(status)
                self._begin_retention()
            else:
                self._finish_following()
        finally:
            signals.closed(self)
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish("failed" if kind is not None else "finished")

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
        """Epochs of the whole training if nothing stops it: in a trial those of the last rung, however few
        are granted so far; else the number given to :meth:`epochs`.

        A learning-rate schedule over these is the same at every rung.

        Raises:
            InvalidInput: in your own script, before ``epochs(n)``.
        """
        return self._progress.max_epochs

    @property
    def stopping(self) -> bool:
        """Whether the trial is to end: a SIGTERM has come, so that it must within its grace period, or its
        place is wanted.

        Where an epoch takes longer than that, check this between batches, and call :meth:`save` when it is
        True, with your position in the epoch among the values (a loader of :attr:`dataset` keeps its own):
        the process ends there. The checkpoint counts for the last complete epoch, and ``restore`` gives the
        position back.
        """
        return self._progress.look_at_stopping()

    @property
    def reported(self) -> Mapping[str, float]:
        """What this epoch has reported so far; between epochs, what the last complete one reported."""
        return self._progress.reported

    @property
    def checkpoint(self) -> SavedCheckpoint | None:
        """The newest checkpoint that counts: that of the last complete epoch that was saved."""
        return self._progress.checkpoint

    @property
    def is_stopping(self) -> bool:
        """As :attr:`stopping`, for the platform: it is no collective, and no look of the trainable's."""
        return self._progress.is_stopping

    def end(self) -> None:
        """The trainable has returned. A collective, as the last of a training."""
        if not self._ranks.leads:
            if self._system is not None:
                self._system.stop()
            self._writer.flush()  # before rank 0 finishes
        self._progress.end()

    def terminate(self) -> bool:
        """A SIGTERM has come. True: this run will end the process itself, where it can be resumed."""
        continues = self._progress.ask_to_stop()
        if continues:
            self._writer.flush(0)  # only begins it
        return continues

    def ask_back(self) -> None:
        """The platform wants the trial's place: this run ends the process when its epoch is complete and
        saved.

        Any thread may call it.
        """
        self._progress.ask_back()

    @property
    def unsaved(self) -> StoreError | None:
        """Where the loop was left and its checkpoint could not be stored, the store's error; else None."""
        return self._progress.unsaved

    def _open_saver(self, kind: Callable[..., Any], *ranks: Ranks) -> Any:
        return kind(self.store, self.records, self._points_first, lambda: self._progress.give_up_at(), *ranks)

    def _expect_saves(self, model: "nn.Module", optimizer: "torch.optim.Optimizer") -> None:
        """Prepare, before training begins, for saves beside it: the first one then takes no longer than the
        others.
        """
        if self.world_size == 1 and isinstance(self._saver, Saver) and is_large(model):
            self._save_by(self._open_saver(AsyncSaver, self._ranks))
        saves = self._saver if self._ranks.leads else self._part
        if not isinstance(saves, Saver):
            saves.expect(model, optimizer)

    def _choose_saver(self, state: Mapping[str, Any]) -> None:
        """Before the first save of one process: write what is large beside training, as many processes do,
        and the rest at once.
        """
        is_beside = isinstance(self._saver, AsyncSaver)
        prepared = self._saver.prepared_bytes if isinstance(self._saver, AsyncSaver) else 0
        is_wanted = is_worth_a_copy(state, prepared)
        if is_wanted and not is_beside:
            self._save_by(self._open_saver(AsyncSaver, self._ranks))
        if is_beside and not is_wanted:
            self._save_by(self._open_saver(Saver))

    def _save_by(self, saver: Saver | AsyncSaver) -> None:
        assert isinstance(self._progress, Progress)
        self._saver = saver
        self._progress.save_by(saver)

    def _check_training(self, call: str, state: Mapping[str, Any]) -> None:
        """What a training counts belongs to its checkpoint: without it a resumed one would draw other random
        numbers, or scale anew.
        """
        if self._training is not None and not any(value is self._training for value in state.values()):
            names = ", ".join(f"{name}=…" for name in state)
            raise InvalidInput(
                f"run.{call}({names}) without what run.distribute() returned is not accepted: add "
                "training=training to it; "
                "it is where the training stands"
            )

    def _abandon(self) -> None:
        """End an attempt that could not be opened."""
        if "_writer" in vars(self):
            # it may have come to the writer and not to this
            self._validator = Validator(self._writer, self.id, strict=False)
            self.finish("failed")
            return
        with contextlib.suppress(StoreError):
            self.records.end(self.attempt, {"status": "failed"})

    def _points_first(self) -> bool:
        """Whether all that was logged is in the store, or in a journal on the same disk.

        (In a forked child: the parent writes it.)

        It takes one request where the store refuses, and the 5 s of a flush where it does not answer.
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
        self._writer.close(_LAST_SECONDS)
        self._part.drain(self._end_seconds)

    def _begin_retention(self) -> None:
        """Have what the policy does not keep deleted beside what comes next, once a day; after a trial its
        sweep's job does.
        """
        from halving.maintenance.daily import begin_after_run

        if not self._is_trial:
            begin_after_run(self.store)

    def _finish(self, status: str) -> None:
        if self._system is not None:
            self._system.stop()
        self._throughput.stop()
        if self._forwarded is not None:
            self._forwarded.close()
        self._validator.closed = True  # only now: these two have logged a last time
        seconds = max(_LAST_SECONDS, min(self._end_seconds, self._progress.give_up_at() - monotonic()))
        unsaved: StoreError | str | None = None
        if status != "failed":
            try:
                self._progress.make_up(seconds)
            except StoreError as error:
                unsaved = error
        self._saver.drain(seconds)
        if (unsaved := unsaved or self._saver.loss()) is not None:
            warn(f"the last checkpoint of {self.id} could not be stored: {unsaved}")
        complete = self._writer.close(seconds)
        drain = self._writer.drain
        ended = {
            "status": status,
            "epoch": self.epoch,
            "points": drain.points,
            "summary": drain.last,
            "time": now(),
        }
        ended |= {"dropped_points": self._writer.dropped, "rejected_values": self._validator.rejected}
        ended["checkpoints"] = {
            **self._saver.interval.as_dict(),
            "missed": as_record(self._saver.misses.all()),
        }
        ended["weights"] = self._saver.newest.weights if self._saver.newest else None
        if complete:
            try:
                retry_while_unavailable(
                    self.store,
                    f"the end of {self.id}",
                    partial(self.records.end, self.attempt, ended),
                    longest=seconds,
                )
            except Exception:  # noqa: BLE001  # whatever the store raises: the end is kept for the recovery
                complete = False
        kept = self._writer.release(None if complete else ended)
        self._saver.close()
        for lost in _losses(self, ended, complete, kept):
            warn(lost, stacklevel=4)


def _losses(run: Run, ended: Mapping[str, Any], complete: bool, kept: Path | None) -> list[str]:
    """What a user must know when the run is over."""
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
