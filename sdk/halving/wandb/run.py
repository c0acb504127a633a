"""A run with W&B's names, around a :class:`halving.Run`."""

import os
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from halving.wandb import current
from halving.wandb.alerts import check_level, fit, wait_seconds
from halving.wandb.config import Config
from halving.wandb.defined_metrics import Metric, define
from halving.wandb.errors import NotSupported, UsageError
from halving.wandb.history import History
from halving.wandb.missing_calls import MissingCalls
from halving.wandb.recorded_changes import RecordedChanges
from halving.wandb.run_facts import RunFacts
from halving.wandb.run_labels import Labels, link_of
from halving.wandb.summary import Summary

if TYPE_CHECKING:
    from halving.run.run import Run as HalvingRun
    from halving.wandb.settings import Settings


class Run(RunFacts, MissingCalls):
    """A run as ``wandb.init`` returns it.

    Attributes:
        config, summary: see :class:`halving.wandb.config.Config` and :class:`halving.wandb.summary.Summary`.
    """

    def __init__(
        self,
        run: "HalvingRun | None",
        settings: "Settings",
        config: Config,
        labels: Labels,
        *,
        first_step: int = 0,
        resumed: bool = False,
        earlier_params: Collection[str] = (),
    ) -> None:
        self._run = run
        self._settings = settings
        self._config = config
        self._labels = labels
        self._resumed = resumed
        self._first_step = first_step
        self._process = os.getpid()
        self._start_time = time.time()
        self._is_finished = False
        self._is_stopped = False  # by the sweep whose trial it is
        self._history = History(run, first_step)
        self._writer: Any = None
        if run is not None:
            self._writer = run._writer
        self._summary = Summary(self._read_summary, self._write_summary)
        self._resume_file: Path | None = None
        self._is_detached = False
        self._changes: RecordedChanges | None = None
        if run is not None:
            self._changes = RecordedChanges(
                run.store, run.records.folder, run.id, labels.recorded, earlier_params
            )
            run.before_end(self._record_end)

    def __repr__(self) -> str:
        return f"<wandb.Run {self.path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it is a run that says there is none, because that has no part in this one's."""
        return _detached, (self._settings.as_dict(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: Any = None
    ) -> None:
        """Record values at a step.

        Without ``step`` they belong to the current one, which then ends, unless ``commit`` is False. With
        ``step`` a smaller one than the current is dropped, with a warning.

        Raises:
            TypeError: ``data`` is no dict of names, or ``step`` no whole number.
            ValueError: ``step`` has more than 63 bits.
            UsageError: the run is finished.
        """
        history = self._history
        if commit is None and self._writer is not None:
            with history.lock:
                at = history.step
                after = at + 1
                if type(step) is int and step >= at:
                    at = after = step
                if step is None or at == step:
                    try:
                        if history.takes_fast(data) and self._writer.appender.fast(data, at):
                            # This is the hot path: the names of the last call again, with plain numbers.
                            history.step = after
                            history.note(data)
                            return
                    except Exception:  # noqa: BLE001
                        # The history takes other names, other types, and what a full log segment has no room
                        # for.
                        pass
        self._check_open("log")
        history.log(data, step, commit)

    def define_metric(
        self,
        name: str,
        step_metric: str | Metric | None = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | None = None,
        overwrite: bool | None = None,
        goal: str | None = None,
    ) -> Metric:
        """Say what the x axis of a metric is, and what of it the summary has.

        Raises:
            Error: an argument is not accepted.
        """
        self._check_open("define_metric")
        metric = define(name, step_metric, step_sync, hidden, summary, overwrite, goal)
        self._history.define(metric, overwrite=bool(overwrite))
        self._note_change("defined_metrics", self._history.defined.as_record)
        self._note_change("summary", self._assigned_summary)
        return metric

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run: ``finished``, or ``failed`` with an exit code other than 0."""
        if self._is_finished or os.getpid() != self._process:
            return
        status = "finished"
        if exit_code:
            status = "failed"
        if self._is_stopped:
            status = "stopped"
        if self._run is not None:
            self._run.finish(status)
        self._is_finished = True
        self._writer = None
        if self._resume_file is not None and not exit_code:
            self._resume_file.unlink(missing_ok=True)
        current.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self._is_stopped:
            traceback.print_exception(kind, error, trace)
        self.finish(int(kind is not None))

    @property
    def config(self) -> Config:
        return self._config

    @property
    def summary(self) -> Summary:
        return self._summary

    @property
    def step(self) -> int:
        """The step that the next values belong to."""
        return self._history.step

    def alert(
        self,
        title: str,
        text: str = "",
        level: Any = None,
        wait_duration: float | timedelta | None = None,
    ) -> None:
        """Record an alert with the run, unless one of this title was within ``wait_duration`` (a minute).

        Raises:
            ValueError: a level that is none of INFO, WARN and ERROR.
            TypeError: ``wait_duration`` is no number and no timedelta.
        """
        self._check_open("alert")
        level_name = check_level(level)
        seconds = wait_seconds(wait_duration)
        if self._run is not None:
            line, more = fit(title, text)
            self._run.alert(line, more, level=level_name, wait_seconds=seconds)

    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live") -> Any:
        """Keep files with the run: see :func:`halving.wandb.artifacts.save_files`."""
        from halving.wandb.artifacts import save_files

        self._check_open("save")
        return save_files(self, glob_str, base_path=base_path, policy=policy)

    def log_artifact(
        self,
        artifact_or_path: Any,
        name: str | None = None,
        type: str | None = None,
        aliases: Any = None,
        tags: Any = None,
    ) -> Any:
        """Log an artifact: see :func:`halving.wandb.artifacts.log_artifact`."""
        from halving.wandb.artifacts import log_artifact

        self._check_open("log_artifact")
        return log_artifact(self, artifact_or_path, name=name, type=type, aliases=aliases, tags=tags)

    def use_artifact(
        self, artifact_or_name: Any, type: str | None = None, aliases: Any = None, use_as: Any = None
    ) -> Any:
        """Use an artifact: see :func:`halving.wandb.artifacts.use_artifact`."""
        from halving.wandb.artifacts import use_artifact

        self._check_open("use_artifact")
        return use_artifact(self, artifact_or_name, type=type, aliases=aliases)

    def log_model(self, path: Any, name: str | None = None, aliases: Any = None) -> Any:
        """Log a file or a folder as an artifact of the type ``model``."""
        return self.log_artifact(path, name or f"run-{self.id}-{Path(path).name}", "model", aliases)

    def watch(
        self,
        models: Any,
        criterion: Any = None,
        log: str | None = "gradients",
        log_freq: int = 1000,
        idx: int | None = None,
        log_graph: bool = False,
    ) -> Any:
        """Log histograms of gradients and parameters: see :func:`halving.wandb.watching.watch`."""
        from halving.wandb.watching import watch

        self._check_open("watch")
        return watch(self, models, criterion, log, log_freq, idx, log_graph)

    def unwatch(self, models: Any = None) -> None:
        """Stop :meth:`watch`."""
        from halving.wandb.watching import unwatch

        unwatch(self, models)

    def mark_preempting(self) -> None:
        """Do nothing: an attempt that is cut off is recorded as ``terminated`` or ``crashed`` by itself."""
        self._check_open("mark_preempting")

    def log_code(
        self,
        root: str | None = ".",
        name: str | None = None,
        include_fn: Any = None,
        exclude_fn: Any = None,
    ) -> None:
        """Keep the code's files as artifacts below ``code/``, by default those that end in ``.py``.

        The commit and the changes since it are in the run's provenance in any case.
        """
        from halving.wandb.code_files import log_code

        self._check_open("log_code")
        log_code(self, root, include_fn, exclude_fn)

    def display(self, height: int = 420, hidden: bool = False) -> bool:
        """Show nothing: there is no page inside of a notebook. Returns False, as W&B does in a script."""
        return False

    def to_html(self, height: int = 420, hidden: bool = False) -> str:
        """A link to the run's page, or its path."""
        return link_of(self)

    def restore(
        self, name: str, run_path: str | None = None, replace: bool = False, root: str | None = None
    ) -> Any:
        """Download a file of a run: see :func:`halving.wandb.session.restore`."""
        from halving.wandb.session import restore

        return restore(name, run_path or self.path, replace, root or self.dir)

    def write_logs(self, text: str) -> None:
        """Write a line to standard output, which is where Halving leaves a script's own text."""
        print(text.rstrip("\n"))

    def _label(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: frameworks tell W&B by it which of them logs."""

    def _check_open(self, call: str) -> None:
        if self._is_detached:
            raise NotSupported(
                f"run.{call}() of run {self.id} in another process is not there in Halving: open a run in "
                "that process, with the same group"
            )
        if self._is_finished and not self.disabled:
            raise UsageError(
                f"Run ({self.id}) is finished. The call to `{call}` will be ignored."
                " Please make sure that you are using an active run."
            )

    def _read_summary(self) -> dict[str, Any]:
        return self._history.summary()

    def _write_summary(self, names: tuple[str, ...], value: Any) -> None:
        self._check_open("summary")
        self._history.assign(names, value)
        self._note_change("summary", self._assigned_summary)

    def _assigned_summary(self) -> dict[str, Any]:
        attempt = 1
        if self._run is not None:
            attempt = self._run.attempt
        return {"attempt": attempt, "values": self._history.assigned_numbers()}

    def _note_labels(self) -> None:
        self._note_change("tags", self._labels.as_tags)

    def _note_config(self) -> None:
        self._check_open("config")
        self._note_change("params", self._config.as_dict)

    def _note_change(self, field: str, read: Callable[[], Any]) -> None:
        if self._changes is not None:
            self._changes.note(field, read)

    def _record_end(self) -> None:
        """Write what is not recorded yet, before the run's end, however it ends."""
        self._writer = None
        if self._changes is not None:
            self._changes.close()
        if self._run is not None:
            self._run.summarize(self._history.numbers())


def _detached(fields: dict[str, Any]) -> Run:
    """The run of another process, which has its name and records nothing."""
    from halving.wandb.settings import Settings

    settings = Settings(**fields)
    run = Run(None, settings, Config(), Labels.of(settings))
    run._is_detached = True
    return run


def _renew_locks_in_child() -> None:
    for run in current.open_runs():
        run._history.renew_locks()


os.register_at_fork(after_in_child=_renew_locks_in_child)
