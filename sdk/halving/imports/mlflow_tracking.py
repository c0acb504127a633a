"""MLflow's runs, from a tracking server, a SQLite database, or a folder ``mlruns``.

MLflow's own client is not used: its stores refuse databases of other versions, and it brings a server's
dependencies. The requests made here (experiments, runs, histories, artifacts) have been the same since MLflow
1.
"""

import struct
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from halving.errors import InvalidInput
from halving.identifiers import sanitize_name
from halving.imports.foreign_run import Artifact, ForeignRun, Piece, PieceBuilder, Position, Skipped, iso
from halving.imports.mlflow_source import Experiment, MlflowRun, MlflowSource
from halving.imports.reading import LEFT_BEHIND, Unreadable, is_left_behind, readable
from halving.records.redaction import without_password
from halving.records.typed_text import parse_text

_ACCEPTED = "give a server (http://host:5000), a database (sqlite:///mlflow.db) or a folder (./mlruns)"
_STATUS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "terminated"}
_NOTHING = [0, 0, 0]
_ENDED = ""  # the place in a position that says when a run ended; no metric has this name
_TAGS = {  # MLflow's own tags that are kept, and their names here
    "mlflow.note.content": "notes",
    "mlflow.parentRunId": "parent_run",
    "mlflow.source.name": "source",
    "mlflow.user": "user",
}
_GIT = {
    "commit": "mlflow.source.git.commit",
    "branch": "mlflow.source.git.branch",
    "remote": "mlflow.source.git.repoURL",
}
_TAKEN_TAGS = {"mlflow.runName", *_TAGS, *_GIT.values()}


def read_runs(source: str, project: str | None, skipped: Skipped) -> Iterator[ForeignRun | Unreadable]:
    """The runs of a server or a store that are not deleted.

    Args:
        source: a tracking URI. A server's user and password may be in it, or in ``MLFLOW_TRACKING_USERNAME``
            and ``MLFLOW_TRACKING_PASSWORD``, or a token in ``MLFLOW_TRACKING_TOKEN``.
        project: where they go (default: their experiment's name).

    Raises:
        InvalidInput: the URI is of another kind, or there is nothing.
        SourceUnreadable: the server does not answer, or refuses.
    """
    mlflow = _source(source)
    for reason, count in mlflow.left_out().items():
        skipped.add(reason, count)
    for experiment in mlflow.experiments():
        if isinstance(experiment, Unreadable):
            yield experiment
            continue
        for run in mlflow.runs(experiment):
            if isinstance(run, Unreadable):
                yield run
            else:
                yield readable(
                    run.id, partial(_foreign_run, mlflow, source, experiment, run, project, skipped)
                )


def _source(source: str) -> MlflowSource:
    try:
        scheme = urlsplit(source).scheme
    except ValueError as error:  # such as brackets without an IPv6 address
        raise InvalidInput(
            f"source {without_password(source)!r} is not accepted: {error}; {_ACCEPTED}"
        ) from None
    if scheme in ("http", "https"):
        from halving.imports.mlflow_server import Server

        return Server(source)
    if scheme == "sqlite":
        from halving.imports.mlflow_folder import Database

        file = Path(source.partition("://")[2].removeprefix("/"))
        if not file.is_file():
            raise InvalidInput(
                f"source {source!r} is not accepted: there is no file {str(file)!r}; {_ACCEPTED}"
            )
        return Database(file)
    if scheme in ("", "file"):
        from halving.imports.mlflow_folder import Folder, folders_with_meta

        path = source
        if scheme:
            path = unquote(source.removeprefix("file:").removeprefix("//"))
        folder = Path(path).expanduser()
        if not folders_with_meta(folder):
            raise InvalidInput(
                f"source {source!r} is not accepted: no experiment is in that folder (*/meta.yaml); "
                f"{_ACCEPTED}"
            )
        return Folder(folder)
    if scheme.split("+")[0] in ("postgresql", "mysql", "mssql"):
        advice = (
            "start MLflow's server on it (mlflow server --backend-store-uri …) and give the server's address"
        )
        raise InvalidInput(f"source {scheme}://… is not accepted: {advice}")
    raise InvalidInput(f"source {without_password(source)!r} is not accepted: {_ACCEPTED}")


def _foreign_run(
    mlflow: MlflowSource,
    source: str,
    experiment: Experiment,
    run: MlflowRun,
    project: str | None,
    skipped: Skipped,
) -> ForeignRun:
    facts_by_tag = {ours: run.tags[theirs] for theirs, ours in _TAGS.items() if theirs in run.tags}
    facts = {"name": run.name, "datasets": ", ".join(run.datasets)}
    facts_by_tag |= {name: value for name, value in facts.items() if value}
    others = {name: value for name, value in run.tags.items() if not name.startswith("mlflow.")}
    if covered := [name for name, value in others.items() if facts_by_tag.get(name, value) != value]:
        skipped.add("tags with the name of another fact of the run (name, notes, user, …)", len(covered))
    if own := [name for name in run.tags if name.startswith("mlflow.") and name not in _TAKEN_TAGS]:
        skipped.add("MLflow's own tags (mlflow.…)", len(own))
    if run.contexts:
        skipped.add("contexts of datasets (for what a run used them)", run.contexts)
    git = {ours: run.tags[theirs] for ours, theirs in _GIT.items() if run.tags.get(theirs)}
    provenance = {}
    if "commit" in git:
        provenance["git"] = git
    ended = None
    if run.ended is not None:
        ended = iso(run.ended)
    return ForeignRun(
        project=project or sanitize_name(experiment.name, otherwise=f"experiment-{experiment.id}"),
        run=sanitize_name(run.id, otherwise="run"),
        origin={
            "tool": "mlflow",
            "run": run.id,
            "uri": without_password(source),
            "experiment": experiment.name,
        },
        params={name: parse_text(text) for name, text in run.params.items()},
        tags=others | facts_by_tag,
        started=iso(run.started),
        ended=ended,
        status=_STATUS.get(run.status),
        provenance=provenance,
        pieces=partial(_pieces, mlflow, run, skipped),
        artifacts=partial(_artifacts, mlflow, run, skipped),
    )


def _pieces(mlflow: MlflowSource, run: MlflowRun, skipped: Skipped, position: Position) -> Iterator[Piece]:
    """Read what the histories have after a position.

    A position is ``[0, number of values, their checksum]`` for each metric. MLflow sorts a history by the
    values' times, so a value that was logged late with an earlier time moves the others. The checksum detects
    that, and it is counted.
    """
    ended = [0, run.ended or 0]
    if run.status in _STATUS and position.get(_ENDED) == ended:
        return
    builder = PieceBuilder(skipped, position)
    for metric in run.metrics:
        _, begin, checksum_before = position.get(metric, _NOTHING)
        checksum = 0
        moved = 0
        for number, entry in enumerate(mlflow.history(run, metric), start=1):
            checksum = zlib.crc32(struct.pack("<qqd", *entry), checksum)
            if number == begin and checksum != checksum_before:
                moved = 1
            elif moved:
                moved += 1
            elif number > begin:
                builder.add(metric, entry.step, entry.time, entry.value)
                builder.position[metric] = [0, number, checksum]
            if builder.full:
                yield builder.take()
        if moved > 1:
            skipped.add(
                "new values of metrics that got values with earlier times since they were copied", moved - 1
            )
    if run.status in _STATUS:
        builder.position[_ENDED] = ended
    if len(builder):
        yield builder.take()


def _artifacts(mlflow: MlflowSource, run: MlflowRun, skipped: Skipped) -> Iterator[Artifact]:
    has_files = False
    for file in mlflow.files(run):
        if is_left_behind(file.path):
            skipped.add(LEFT_BEHIND)
            continue
        has_files = True
        yield Artifact(file.path, file.open, file.size)
    if urlsplit(run.artifact_uri).scheme not in mlflow.schemes and not has_files:
        skipped.add(f"runs whose artifacts are elsewhere ({urlsplit(run.artifact_uri).scheme}://)")
