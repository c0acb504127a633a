"""MLflow's runs on this machine's disk: a SQLite database, or a folder ``mlruns`` of text files."""

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from halving.imports.foreign_run import SourceUnreadable
from halving.imports.mlflow_source import Entry, Experiment, MlflowFile, MlflowRun

_SCHEMES = ("", "file")
_STATUS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}  # as files have it; a database has the words


class Database:
    """A database, read without writing to it, while a server may work on it.

    Args:
        path: the database's file. Artifacts with relative addresses are looked for beside it.
    """

    schemes: Collection[str] = _SCHEMES

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def experiments(self) -> list[Experiment]:
        rows = self._rows("select experiment_id, name from experiments where lifecycle_stage = 'active' order by experiment_id")
        return [Experiment(str(row[0]), row[1]) for row in rows]

    def runs(self, experiment: Experiment) -> Iterator[MlflowRun]:
        asked = """select run_uuid, name, status, start_time, end_time, artifact_uri from runs
                   where experiment_id = ? and lifecycle_stage = 'active' order by start_time, run_uuid"""
        for run, name, status, started, ended, artifacts in self._rows(asked, int(experiment.id)):
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
                metrics=[row[0] for row in self._rows("select distinct key from metrics where run_uuid = ? order by key", run)],
                datasets=self._datasets(run),
            )

    def history(self, run: MlflowRun, metric: str) -> Iterator[Entry]:
        # By the order of logging, which a server does not give.
        asked = "select step, timestamp, value, is_nan from metrics where run_uuid = ? and key = ? order by rowid"
        for step, time, value, is_nan in self._rows(asked, run.id, metric):
            yield Entry(step, time, float("nan") if is_nan else float(value))

    def files(self, run: MlflowRun) -> Iterator[MlflowFile]:
        return files_at(run.artifact_uri, self._path.parent)

    def left_out(self) -> dict[str, int]:
        tables = {row[0] for row in self._rows("select name from sqlite_master where type = 'table'")}
        counts = {
            "deleted experiments": ("experiments", "where lifecycle_stage = 'deleted'"),
            "deleted runs": ("runs", "where lifecycle_stage = 'deleted'"),
            "registered models": ("registered_models", ""),
            "logged models": ("logged_models", ""),
            "traces": ("trace_info", ""),
        }
        found = {
            what: int(self._rows(f"select count(*) from {table} {where}")[0][0])
            for what, (table, where) in counts.items()
            if table in tables  # else the database is of an earlier MLflow
        }
        return {what: count for what, count in found.items() if count}

    def _datasets(self, run: str) -> list[str]:
        try:
            asked = "select d.name, d.digest from inputs i join datasets d on d.dataset_uuid = i.source_id where i.destination_id = ?"
            return [f"{name}@{digest}" for name, digest in self._rows(asked, run)]
        except SourceUnreadable:  # before MLflow 2.4 there were none
            return []

    def _rows(self, asked: str, *values: Any) -> list[Any]:
        """
        Raises:
            SourceUnreadable: it is no database of MLflow's.
        """
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True, timeout=60.0)) as connection:
                return connection.execute(asked, values).fetchall()
        except sqlite3.Error as error:
            raise SourceUnreadable(f"{self._path} is not a database of MLflow's that can be read: {error}") from None


class Folder:
    """A folder with an experiment in each folder, and a run in each folder of these."""

    schemes: Collection[str] = _SCHEMES

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def experiments(self) -> list[Experiment]:
        found = [_meta(path) for path in sorted(self._path.glob("*/meta.yaml"))]
        return [Experiment(meta["experiment_id"], meta["name"]) for meta in found if meta.get("lifecycle_stage") != "deleted"]

    def runs(self, experiment: Experiment) -> Iterator[MlflowRun]:
        metas = [(_meta(path), path.parent) for path in (self._path / experiment.id).glob("*/meta.yaml")]
        runs = [(meta, folder) for meta, folder in metas if "run_id" in meta or "run_uuid" in meta]
        for meta, folder in sorted(runs, key=lambda pair: int(pair[0].get("start_time") or 0)):
            if meta.get("lifecycle_stage") == "deleted":
                continue
            tags = _texts(folder / "tags")
            yield MlflowRun(
                id=meta.get("run_id") or meta["run_uuid"],
                name=tags.get("mlflow.runName") or meta.get("run_name") or "",
                status=_STATUS.get(int(meta.get("status") or 1), "RUNNING"),
                started=int(meta.get("start_time") or 0),
                ended=int(meta["end_time"]) if meta.get("end_time") else None,
                artifact_uri=str(folder / "artifacts"),  # where the folder is now: it may have been moved
                params=_texts(folder / "params"),
                tags=tags,
                metrics=sorted(_names(folder / "metrics")),
            )

    def history(self, run: MlflowRun, metric: str) -> Iterator[Entry]:
        path = Path(run.artifact_uri).parent / "metrics" / metric
        try:
            lines = path.read_text().splitlines(keepends=True)
        except OSError as error:
            raise SourceUnreadable(f"{path} cannot be read: {error}") from None
        for line in lines:
            parts = line.split()
            if line.endswith("\n") and len(parts) >= 2:  # else it is being written
                yield Entry(int(parts[2]) if len(parts) > 2 else 0, int(parts[0]), float(parts[1]))

    def files(self, run: MlflowRun) -> Iterator[MlflowFile]:
        return files_at(run.artifact_uri, self._path)

    def left_out(self) -> dict[str, int]:
        runs = sum(_meta(path).get("lifecycle_stage") == "deleted" for path in self._path.glob("[!.]*/*/meta.yaml"))
        experiments = len(list(self._path.glob(".trash/*/meta.yaml")))
        models = len(list(self._path.glob("models/*/meta.yaml")))
        found = {"deleted runs": runs, "deleted experiments": experiments, "registered models": models}
        return {what: count for what, count in found.items() if count}


def files_at(address: str, base: Path) -> Iterator[MlflowFile]:
    """The files below an artifact address that is on this machine's disk; none where it is elsewhere."""
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES:
        return
    folder = base / (unquote(parts.path) if parts.scheme else address)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield MlflowFile(path.relative_to(folder).as_posix(), partial(_there, path), path.stat().st_size)


def _there(path: Path) -> AbstractContextManager[bytes | Path]:
    return nullcontext(path)


def _meta(path: Path) -> dict[str, str]:
    """A file ``meta.yaml``, whose lines are ``name: value``, with quotes where YAML wants them."""
    found: dict[str, str] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise SourceUnreadable(f"{path} cannot be read: {error}") from None
    for line in lines:
        name, colon, value = line.partition(": ")
        if colon and not name.startswith((" ", "-")):
            found[name] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    if value.startswith("'") and value.endswith("'") and len(value) > 1:
        return value[1:-1].replace("''", "'")
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except ValueError:
            return value.strip('"')
    return "" if value == "null" else value


def _names(folder: Path) -> list[str]:
    """Names, which may have ``/`` in them, and so be in folders."""
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text(errors="replace") for name in _names(folder)}
