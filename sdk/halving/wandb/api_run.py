"""A run as ``wandb.Api`` gives it: to be read, and never changed."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from functools import cached_property
from typing import Any

from halving.wandb.api_files import File, is_manifest, is_of_artifact, refusal
from halving.wandb.api_history import history_rows, sampled
from halving.wandb.errors import NotSupported, UsageError
from halving.wandb.errors.term import termwarn
from halving.wandb.recorded_runs import RecordedRun, RecordedRuns
from halving.wandb.run_query import labels_of, state_of, time_of

SYSTEM = "system/"
_MIN_STEP = 0
_MAX_STEP = 2**63 - 1


class SummaryValues(dict[str, Any]):
    """Last values by name; ``summary["val"]["loss"]`` is that of ``val/loss``."""

    def __missing__(self, name: str) -> Any:
        below = {
            key.removeprefix(f"{name}/"): value for key, value in self.items() if key.startswith(f"{name}/")
        }
        if not below:
            raise KeyError(name)
        return SummaryValues(below)

    def update(self, *arguments: Any, **values: Any) -> None:
        """Refuse: what is recorded is changed by ``wandb.init(id=…, resume="must")``.

        Raises:
            NotSupported: always.
        """
        raise refusal("summary.update()")


class Run:
    """A recorded run."""

    def __init__(self, runs: RecordedRuns, record: RecordedRun, entity: str) -> None:
        self._runs = runs
        self._record = record
        self._entity = entity

    def __repr__(self) -> str:
        return f"<Run {'/'.join(self.path)} ({self.state})>"

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        """The name that it was given, or the id."""
        return labels_of(self._record).name or self.id

    display_name = name

    @property
    def project(self) -> str:
        return self._record.project

    @property
    def entity(self) -> str:
        """The entity that the path named, or the run recorded; it has no meaning here."""
        return self._entity or labels_of(self._record).entity or ""

    @property
    def path(self) -> list[str]:
        return [self.entity, self.project, self.id]

    @property
    def state(self) -> str:
        """``running``, ``finished``, ``failed``, ``crashed``, ``killed``, ``preempted``, or another."""
        return state_of(self._record)

    @property
    def tags(self) -> list[str]:
        return list(labels_of(self._record).tags)

    @property
    def group(self) -> str | None:
        return labels_of(self._record).group

    @property
    def job_type(self) -> str | None:
        return labels_of(self._record).job_type

    @property
    def notes(self) -> str | None:
        return labels_of(self._record).notes

    description = notes

    @property
    def sweep_name(self) -> str | None:
        """The id of the sweep whose trial it is."""
        name = labels_of(self._record).sweep or self._record.parent.get("sweep")
        if name is None:
            return None
        return str(name)

    @property
    def created_at(self) -> str:
        """When it began: ``2026-11-28T14:00:00Z``."""
        return _timestamp(self._record.started)

    @property
    def heartbeat_at(self) -> str:
        """When it ended; when it began, if it has no end."""
        return _timestamp(self._record.ended or self._record.started)

    @property
    def url(self) -> str | None:
        """The address of its page; None where it is in a store without a server."""
        root = str(self._runs.store.root)
        if not root.startswith(("http://", "https://")):
            return None
        return f"{root.rstrip('/')}/runs/{self.project}/{self.id}"

    @cached_property
    def config(self) -> dict[str, Any]:
        return {name: value for name, value in self._record.params.items() if not name.startswith("_")}

    @property
    def rawconfig(self) -> dict[str, Any]:
        """The config with what begins with an underscore."""
        return dict(self._record.params)

    @cached_property
    def summary(self) -> SummaryValues:
        """Last values of what was logged and of what was assigned, and ``_runtime`` and ``_timestamp``."""
        own = {key: value for key, value in self._record.summary.items() if not key.startswith(SYSTEM)}
        own["_timestamp"] = time_of(self._record.ended or self._record.started).timestamp()
        if self._record.seconds is not None:
            own["_runtime"] = self._record.seconds
        return SummaryValues(own)

    @property
    def summary_metrics(self) -> dict[str, Any]:
        return dict(self.summary)

    @property
    def system_metrics(self) -> dict[str, float]:
        """Last values of the machine's metrics."""
        return {key: value for key, value in self._record.summary.items() if key.startswith(SYSTEM)}

    @property
    def metadata(self) -> dict[str, Any]:
        """Code, packages and machine, as Halving records them."""
        return dict(self._record.provenance)

    @property
    def lastHistoryStep(self) -> int:  # noqa: N802  # W&B's name
        """The greatest step of its history; -1 without any."""
        steps = [row["_step"] for row in self.scan_history()]
        return max(steps, default=-1)

    def history(
        self,
        samples: int = 500,
        keys: Sequence[str] | None = None,
        x_axis: str = "_step",
        pandas: bool = True,
        stream: str = "default",
    ) -> Any:
        """At most ``samples`` rows of what was logged, by step: a DataFrame, or a list of dicts.

        Args:
            keys: only these, and only rows with all of them; without ``keys`` all that was logged.
            x_axis: a metric that each row has and is ordered by.
            stream: ``system`` for the machine's metrics, whose step is the time in seconds.

        Raises:
            UsageError: an argument is not accepted.
        """
        _check_keys(keys)
        if stream not in ("default", "system"):
            raise UsageError(f"stream = {stream!r:.80} is not accepted: give default or system")
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise UsageError(f"samples = {samples!r:.80} is not accepted: give a whole number from 1 on")
        rows = self._rows(keys, x_axis, _MIN_STEP, _MAX_STEP, system=stream == "system")
        rows = sampled(rows, samples)
        if not pandas:
            return rows
        try:
            from pandas import DataFrame
        except ImportError:
            termwarn("Unable to load pandas, call history with pandas=False")
            return rows
        return DataFrame.from_records(rows)

    def scan_history(
        self,
        keys: Sequence[str] | None = None,
        page_size: int = 1_000,
        min_step: int | None = None,
        max_step: int | None = None,
        use_cache: bool = True,
    ) -> Iterator[dict[str, Any]]:
        """Every row of what was logged, by step.

        Args:
            keys: as in :meth:`history`.
            min_step, max_step: the first step, and the one after the last.
        """
        _check_keys(keys)
        low = _MIN_STEP if min_step is None else min_step
        high = _MAX_STEP if max_step is None else max_step - 1
        yield from self._rows(keys, "_step", low, high, system=False)

    def files(self, names: Sequence[str] | None = None, per_page: int = 50, **options: Any) -> list[File]:
        """The files that it has saved, without those of artifacts."""
        files = [
            File(self._runs, self._record, record)
            for record in self._artifacts
            if not is_of_artifact(str(record["name"]))
        ]
        return [file for file in files if not names or file.name in names]

    def file(self, name: str) -> File:
        """One of its files.

        Raises:
            ValueError: there is none of this name.
        """
        for record in self._artifacts:
            if record["name"] == name:
                return File(self._runs, self._record, record)
        raise ValueError(
            f"file {name!r} is not there: run {self.id} has {[file.name for file in self.files()]!r:.300}"
        )

    def logged_artifacts(self, per_page: int = 100) -> list[Any]:
        """The artifacts that it has logged."""
        names = [str(record["name"]) for record in self._artifacts]
        manifests = [name.removesuffix(".json") for name in names if is_manifest(name)]
        return [self._artifact(name) for name in sorted(manifests)]

    def used_artifacts(self, per_page: int = 100) -> list[Any]:
        """The artifacts that it has used."""
        names = [str(record["name"]) for record in self._artifacts]
        return [self._artifact(name.removeprefix("used/")) for name in names if name.startswith("used/")]

    def load(self, force: bool = False) -> "Run":
        """Read the run again, and return it."""
        self._record = self._runs.run(self.project, self.id)
        for name in ("config", "summary", "_artifacts"):
            self.__dict__.pop(name, None)
        return self

    def wait_until_finished(self) -> None:
        """Wait until the run has ended."""
        from time import sleep

        while self.state == "running":
            sleep(1.0)
            self.load()

    def update(self) -> None:
        """Refuse; runs that were recorded are read here.

        Raises:
            NotSupported: always.
        """
        raise refusal("run.update()")

    def delete(self, delete_artifacts: bool = False) -> None:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(
            f"run.delete() is not there in Halving: `halving runs delete {self.project}/{self.id}` or "
            "halving.delete_run moves it to the trash"
        )

    save = update

    @cached_property
    def _artifacts(self) -> tuple[dict[str, Any], ...]:
        if self._record.artifacts is not None:
            return self._record.artifacts
        return self._runs.run(self.project, self.id).artifacts or ()

    def _artifact(self, name: str) -> Any:
        from halving.wandb.artifacts import find_artifact

        return find_artifact(self._runs.store, self.project, name)

    def _rows(
        self, keys: Sequence[str] | None, x_axis: str, low: int, high: int, *, system: bool
    ) -> list[dict[str, Any]]:
        wanted = list(keys or ())
        if not wanted:
            wanted = [
                key for key in self._runs.keys(self.project, self.id) if key.startswith(SYSTEM) == system
            ]
        began = time_of(self._record.started).timestamp()
        curves = {}
        for key in dict.fromkeys([*wanted, x_axis]):
            if not key.startswith("_") or key in self._record.summary:
                curves[key] = self._runs.curve(self.project, self.id, key, low, high)
        rows = history_rows(curves, began)
        needed = []
        if keys:
            needed = list(keys)
        if x_axis != "_step":
            needed.append(x_axis)
        rows = [row for row in rows if all(name in row for name in needed)]
        if x_axis != "_step":
            rows.sort(key=lambda row: row[x_axis])
        if keys:
            columns = {*needed, x_axis}
            rows = [{name: value for name, value in row.items() if name in columns} for row in rows]
        return rows


def _check_keys(keys: Any) -> None:
    if keys is None:
        return
    if not isinstance(keys, (list, tuple)) or not all(isinstance(key, str) for key in keys):
        raise UsageError(f"keys = {keys!r:.80} is not accepted: give a list of names")


def _timestamp(text: str) -> str:
    return time_of(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
