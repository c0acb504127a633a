"""MLflow's runs on this machine's disk: in a SQLite database, or in a folder ``mlruns`` of text files."""

import math
from collections.abc import Collection, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from halving.errors import ExtraMissing
from halving.imports.foreign_run import SourceUnreadable
from halving.imports.mlflow_source import Entry, Experiment, MlflowFile, MlflowRun
from halving.imports.reading import Unreadable, files_below, is_left_behind, local_file, readable, reading
from halving.imports.sqlite_file import SqliteFile

_SCHEMES = ("", "file")
_EXPERIMENT_HAS = ("lifecycle_stage", "name")
_MODELS = "models"  # the folder of registered models; in an experiment's folder that of logged ones
# The numbers that files have; a database has the words.
_STATUS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}


class Database:
    """A SQLite database, read without writing to it, also while a server works on it.

    Args:
        path: the database's file. Artifacts with relative addresses are looked for beside it.
    """

    schemes: Collection[str] = _SCHEMES

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._rows = SqliteFile(self._path, "MLflow's").rows

    def experiments(self) -> list[Experiment | Unreadable]:
        """The experiments that are not deleted."""
        rows = self._rows(
            "select experiment_id, name from experiments where lifecycle_stage = 'active' order by "
            "experiment_id"
        )
        return [Experiment(str(row[0]), row[1]) for row in rows]

    def runs(self, experiment: Experiment) -> Iterator[MlflowRun | Unreadable]:
        """The runs of an experiment that are not deleted, by the time of their start."""
        query = """select run_uuid, name, status, start_time, end_time, artifact_uri from runs
                   where experiment_id = ? and lifecycle_stage = 'active' order by start_time, run_uuid"""
        for run, name, status, started, ended, artifacts in self._rows(query, int(experiment.id)):
            tags = dict(self._rows("select key, value from tags where run_uuid = ?", run))
            yield MlflowRun(
                id=run,
                name=tags.get("mlflow.runName") or name or "",
                status=status or "RUNNING",
                started=started or 0,
                ended=ended,
                artifact_uri=artifacts or "",
                params=dict(self._rows("select key, value from params where run_uuid = ?", run)),
                tags=tags,
                metrics=[
                    row[0]
                    for row in self._rows(
                        "select distinct key from metrics where run_uuid = ? order by key", run
                    )
                ],
                datasets=self._datasets(run),
                contexts=self._contexts(run),
            )

    def history(self, run: MlflowRun, metric: str) -> Iterator[Entry]:
        """All values of a metric, in the order of logging, which a server does not give."""
        query = (
            "select step, timestamp, value, is_nan from metrics where run_uuid = ? and key = ? order by rowid"
        )
        for step, time, value, is_nan in self._rows(query, run.id, metric):
            if is_nan:
                value = math.nan
            yield Entry(step, time, float(value))

    def files(self, run: MlflowRun) -> Iterator[MlflowFile]:
        """All artifacts of a run."""
        return files_at(run.artifact_uri, self._path.parent)

    def left_out(self) -> dict[str, int]:
        """Count what is in the database and is not copied, by its name in plain words."""
        tables = {row[0] for row in self._rows("select name from sqlite_master where type = 'table'")}
        counts = {
            "deleted experiments": ("experiments", "where lifecycle_stage = 'deleted'"),
            "deleted runs": ("runs", "where lifecycle_stage = 'deleted'"),
            "registered models": ("registered_models", ""),
            "logged models": ("logged_models", ""),
            "traces": ("trace_info", ""),
            "tags of experiments": (
                "experiment_tags",
                (
                    "where experiment_id in (select experiment_id from experiments where lifecycle_stage = "
                    "'active')"
                ),
            ),
        }
        numbers = {
            reason: int(self._rows(f"select count(*) from {table} {where}")[0][0])
            for reason, (table, where) in counts.items()
            if table in tables  # an earlier MLflow's database lacks some
        }
        return {reason: count for reason, count in numbers.items() if count}

    def _datasets(self, run: str) -> list[str]:
        try:
            query = (
                "select d.name, d.digest from inputs i join datasets d on d.dataset_uuid = i.source_id "
                "where i.destination_id = ?"
            )
            return [f"{name}@{digest}" for name, digest in self._rows(query, run)]
        except SourceUnreadable:  # before MLflow 2.4 there were none
            return []

    def _contexts(self, run: str) -> int:
        try:
            query = (
                "select count(*) from input_tags t join inputs i on i.input_uuid = t.input_uuid where "
                "i.destination_id = ?"
            )
            return int(self._rows(query, run)[0][0])
        except SourceUnreadable:  # before MLflow 2.4 there were none
            return 0


class Folder:
    """A folder with a folder for each experiment, in which there is a folder for each run.

    Raises:
        ExtraMissing: PyYAML is not installed.
    """

    schemes: Collection[str] = _SCHEMES

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        _yaml()

    def experiments(self) -> list[Experiment | Unreadable]:
        """The experiments that are not deleted."""
        metas = [
            (folder, readable(folder.name, partial(_meta, folder, _EXPERIMENT_HAS)))
            for folder in folders_with_meta(self._path)
        ]
        experiments: list[Experiment | Unreadable] = []
        for folder, meta in metas:
            if isinstance(meta, Unreadable):
                experiments.append(meta)
            elif meta["lifecycle_stage"] != "deleted":
                experiments.append(Experiment(folder.name, meta["name"]))
        return experiments

    def runs(self, experiment: Experiment) -> Iterator[MlflowRun | Unreadable]:
        """The runs of an experiment that are not deleted, by the time of their start."""
        folders = readable(experiment.name, partial(folders_with_meta, self._path / experiment.id))
        if isinstance(folders, Unreadable):
            yield folders
            return
        metas = []
        for folder in folders:
            meta = readable(folder.name, partial(_run_meta, folder))
            if isinstance(meta, Unreadable):
                yield meta
            elif meta["lifecycle_stage"] != "deleted":
                metas.append((meta, folder))
        for meta, folder in sorted(metas, key=lambda pair: int(pair[0]["start_time"] or 0)):
            yield readable(folder.name, partial(_run, meta, folder))

    def history(self, run: MlflowRun, metric: str) -> Iterator[Entry]:
        """All values of a metric, in the order of the file's lines."""
        path = Path(run.artifact_uri).parent / "metrics" / metric
        with reading(path):
            for line in path.read_text().splitlines(keepends=True):
                parts = line.split()
                if line.endswith("\n") and len(parts) >= 2:  # else it is being written
                    time, value, step = (*parts, "0")[:3]
                    yield Entry(int(step), int(time), float(value))

    def files(self, run: MlflowRun) -> Iterator[MlflowFile]:
        """All artifacts of a run."""
        return files_at(run.artifact_uri, self._path)

    def left_out(self) -> dict[str, int]:
        """Count what is in the folder and is not copied, by its name in plain words."""
        metas = [readable("", partial(_meta, path.parent)) for path in self._path.glob("[!.]*/*/meta.yaml")]
        runs = sum(
            not isinstance(meta, Unreadable) and meta.get("lifecycle_stage") == "deleted" for meta in metas
        )
        tags = [readable("", partial(_names, folder)) for folder in self._path.glob("[!.]*/tags")]
        experiments = len(list(self._path.glob(".trash/*/meta.yaml")))
        registered = list(self._path.glob(f"{_MODELS}/*/meta.yaml"))
        logged = [
            path
            for path in self._path.glob(f"[!.]*/{_MODELS}/*/meta.yaml")
            if path.parents[2].name != _MODELS
        ]
        inputs = [
            readable("", partial(_meta, path.parent))
            for path in self._path.glob("[!.]*/*/inputs/*/meta.yaml")
        ]
        datasets = sum(
            not isinstance(meta, Unreadable) and meta.get("source_type") != "MODEL" for meta in inputs
        )
        numbers = {
            "deleted runs": runs,
            "deleted experiments": experiments,
            "registered models": len(registered),
            "logged models": len(logged),
            "traces": len(list(self._path.glob("[!.]*/traces/*/trace_info.yaml"))),
            "tags of experiments": sum(len(names) for names in tags if not isinstance(names, Unreadable)),
            "datasets that runs used": datasets,
        }
        return {reason: count for reason, count in numbers.items() if count}


def folders_with_meta(folder: Path) -> list[Path]:
    """List the folders in a folder that have a ``meta.yaml``, or may have one that cannot be seen.

    If there is no such folder, there are none.

    Raises:
        SourceUnreadable: it cannot be listed.
    """
    with reading(folder):
        try:
            return sorted(
                path for path in folder.iterdir() if not is_left_behind(path.name) and _may_have_meta(path)
            )
        except (FileNotFoundError, NotADirectoryError):
            return []


def _may_have_meta(folder: Path) -> bool:
    try:
        (folder / "meta.yaml").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # reported when it is read
        return True
    return True


def files_at(address: str, base: Path) -> Iterator[MlflowFile]:
    """The files below an artifact address on this machine's disk; none where it is elsewhere."""
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES:
        return
    folder = base / address
    if parts.scheme:
        folder = base / unquote(parts.path)
    with reading(folder):
        for path in (path for path in files_below(folder, left_behind=True) if path.is_file()):
            yield MlflowFile(
                path.relative_to(folder).as_posix(), partial(local_file, path), path.stat().st_size
            )


def _meta(folder: Path, fields: Collection[str] = ()) -> dict[str, str]:
    """Read a folder's ``meta.yaml``, with its values as text.

    Raises:
        SourceUnreadable: it cannot be read, or lacks one of ``fields``, as while it is being written.
    """
    path = folder / "meta.yaml"
    yaml = _yaml()
    with reading(path):
        text = path.read_text()
        if text and not text.endswith("\n"):
            raise SourceUnreadable(f"{path} cannot be read: its last line has no end, or not yet")
        try:
            # Both loaders are safe; the one in C is seven times as fast.
            loaded = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, RecursionError) as error:
            raise SourceUnreadable(f"{path} cannot be read: {str(error).partition(chr(10))[0]}") from None
        meta = {}
        if isinstance(loaded, dict):
            meta = {str(name): _text(value) for name, value in loaded.items()}
    if missing := [field for field in fields if field not in meta]:
        raise SourceUnreadable(f"{path} cannot be read: it has no {', '.join(missing)}, or not yet")
    return meta


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value)


def _yaml() -> Any:
    """Import PyYAML.

    Raises:
        ExtraMissing: PyYAML is not installed.
    """
    try:
        return import_module("yaml")
    except ImportError:
        raise ExtraMissing(
            "a folder of MLflow's needs the package pyyaml: pip install 'halving[mlflow]'"
        ) from None


def _run_meta(folder: Path) -> dict[str, str]:
    """Read a run's ``meta.yaml`` and check that its numbers are numbers."""
    meta = _meta(folder, ("status", "start_time", "lifecycle_stage"))
    with reading(folder / "meta.yaml"):
        meta["run_id"] = meta.get("run_id") or meta["run_uuid"]
        for field in ("status", "start_time", "end_time"):
            int(meta.get(field) or 0)
    return meta


def _run(meta: dict[str, str], folder: Path) -> MlflowRun:
    tags = _texts(folder / "tags")
    ended = None
    if meta.get("end_time"):
        ended = int(meta["end_time"])
    return MlflowRun(
        id=meta["run_id"],
        name=tags.get("mlflow.runName") or meta.get("run_name") or "",
        status=_STATUS.get(int(meta["status"] or 1), "RUNNING"),
        started=int(meta["start_time"] or 0),
        ended=ended,
        artifact_uri=str(folder / "artifacts"),  # where the folder is now: it may have been moved
        params=_texts(folder / "params"),
        tags=tags,
        metrics=_names(folder / "metrics"),
    )


def _names(folder: Path) -> list[str]:
    """The names of the files below a folder, with ``/`` between the folders in them."""
    return [path.relative_to(folder).as_posix() for path in files_below(folder)]


def _texts(folder: Path) -> dict[str, str]:
    # Read as bytes, which keeps the ends of lines as they are.
    return {name: (folder / name).read_bytes().decode(errors="replace") for name in _names(folder)}
