"""Runs of Neptune, whose service is gone, from the Parquet files and files that neptune-exporter saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from halving.errors import InvalidInput
from halving.identifiers import sanitize_name
from halving.imports.foreign_run import (
    Artifact,
    ForeignRun,
    Piece,
    PieceBuilder,
    Position,
    Skipped,
    iso,
    run_name,
)
from halving.imports.neptune_files import FILE_TYPES, Files
from halving.imports.neptune_parts import (
    Batch,
    Export,
    Part,
    RunKey,
    find_exports,
    open_part,
    read_rows,
    read_runs_of,
)
from halving.imports.neptune_values import PARAM_TYPES, SeriesValues, StepScale, is_console, param_of
from halving.imports.reading import Unreadable, readable

_TAGS = {
    "sys/name": "name",
    "sys/description": "notes",
    "sys/owner": "user",
    "sys/id": "id",
    "sys/custom_run_id": "custom_run_id",
    "sys/experiment/name": "experiment",
}
_LABELS = ("sys/tags", "sys/group_tags")
_FORKS = "sys/forking/"
_TIMES = ("sys/creation_time", "sys/ping_time", "sys/modification_time")
_USED = (*_LABELS, *_TIMES, "sys/failed")
# Suffix of a part's mark in positions. Its numbers are how many absent files came later, and the rows of the
# files that are still absent.
_ABSENT = "-absent"


@dataclass
class _Facts:
    """The facts of a run that are read from its rows before its points.

    Attributes:
        params: params by name; Neptune's own, ``sys/…``, are in ``own``.
        first: the time of the earliest point, in ms since 1970.
        groups: the row groups with rows of the run, by the place of their part and their own. ``files`` are
            those with files, and ``consoles`` those of each series that the run printed.
    """

    params: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    first: int | None = None
    scale: StepScale = field(default_factory=StepScale)
    groups: set[tuple[int, int]] = field(default_factory=set)
    files: set[tuple[int, int]] = field(default_factory=set)
    consoles: dict[str, set[tuple[int, int]]] = field(default_factory=dict)

    def learn(self, batch: Batch, skipped: Skipped) -> None:
        """Add what a batch of the run's rows says, and count the params that are not taken."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = batch.rows
        place = (batch.part, batch.group)
        kinds = rows.column("attribute_type")
        self.groups.add(place)
        if pc.any(pc.is_in(kinds, pa.array(FILE_TYPES))).as_py():
            self.files.add(place)
        for path in pc.unique(
            rows.filter(pc.equal(kinds, "string_series")).column("attribute_path")
        ).to_pylist():
            if path is not None and is_console(path):
                self.consoles.setdefault(path, set()).add(place)
        self.scale.learn(rows.column("step"))
        time = pc.min(rows.column("timestamp")).as_py()
        if time is not None and (self.first is None or time < self.first):
            self.first = time
        for row in rows.filter(pc.is_in(kinds, pa.array(PARAM_TYPES))).to_pylist():
            self._learn_param(row, skipped)

    def _learn_param(self, row: dict[str, Any], skipped: Skipped) -> None:
        path = row["attribute_path"]
        try:
            value = param_of(row)
        except ValueError as error:
            skipped.add(f"params with {error}")
            return
        if value is None:
            return
        if not path:
            skipped.add("params without a name")
        elif not path.startswith("sys/"):
            self.params[path] = value
        else:
            self.own[path] = value
            if path in _TIMES and row["attribute_type"] == "datetime":
                self.times[path] = row["datetime_value"]

    @property
    def started(self) -> int:
        """When the run began, in ms since 1970."""
        return self.times.get("sys/creation_time", self.first or 0)

    @property
    def ended(self) -> int | None:
        """The last sign of life, in ms since 1970; a run's tags may have been modified years later."""
        return self.times.get("sys/ping_time", self.times.get("sys/modification_time"))

    def tags(self, skipped: Skipped) -> dict[str, str]:
        """The run's tags, and the facts of Neptune's own that become tags; the others are counted."""
        facts = {tag: _text(self.own[path]) for path, tag in _TAGS.items() if path in self.own}
        facts |= {
            path.removeprefix("sys/"): _text(value)
            for path, value in self.own.items()
            if path.startswith(_FORKS)
        }
        labels = [label for path in _LABELS for label in self.own.get(path, []) if label]
        if taken := facts.keys() & set(labels):
            skipped.add("tags with the name of another fact of the run (name, notes, user, …)", len(taken))
        if others := [
            path for path in self.own if path not in (*_TAGS, *_USED) and not path.startswith(_FORKS)
        ]:
            skipped.add("facts of Neptune's own (sys/…)", len(others))
        return dict.fromkeys(labels, "true") | facts


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def read_runs(
    source: str, project: str | None, skipped: Skipped, files: str | None = None
) -> Iterator[ForeignRun | Unreadable]:
    """The runs below a folder, or of one file.

    Args:
        source: the folder that the exporter wrote, its folder ``data``, a project's in it, or a Parquet file
            of a run.
        project: where they go (default: their project in Neptune).
        files: the folder with the exporter's files (default: ``files`` beside its folder ``data``).

    Raises:
        InvalidInput: nothing is there that the exporter wrote, or ``files`` is no folder.
    """
    apart = None
    if files:
        apart = Path(files).expanduser().resolve()
        if not apart.is_dir():
            raise InvalidInput(
                f"--files {files!r} is not accepted: give the folder with the files that neptune-exporter "
                "has downloaded"
            )
    unlisted: list[Unreadable] = []
    exports = find_exports(
        source,
        apart,
        lambda error: unlisted.append(
            Unreadable(str(error.filename), f"{error.filename} cannot be read: {error.strerror}")
        ),
    )
    for export in exports:
        runs = readable(export.name, partial(_read_export, export, project, apart, skipped))
        if isinstance(runs, Unreadable):
            yield runs
        else:
            yield from runs
    yield from unlisted


def _read_export(
    export: Export, project: str | None, apart: Path | None, skipped: Skipped
) -> list[ForeignRun]:
    paths = export.paths()
    parts = [open_part(path) for path in paths]
    facts: dict[RunKey, _Facts] = {}
    for key, batch in read_runs_of(parts):
        facts.setdefault(key, _Facts()).learn(batch, skipped)
    folders = _folders_of_files(paths[0], apart)
    return [
        _foreign_run(key, own, parts, project, Files(folders, skipped), skipped) for key, own in facts.items()
    ]


def _folders_of_files(part: Path, apart: Path | None) -> list[Path]:
    """The folders in which the files of a part's runs may be: below their project's name, or above it."""
    # The folder of files is beside the folder of data, which has the part's project.
    beside = (folder / "files" for folder in list(part.parents)[2::-1])
    top = apart or next((folder for folder in beside if folder.is_dir()), None)
    if top is None:
        return []
    return [top / part.parent.name, top]


def _foreign_run(
    key: RunKey, facts: _Facts, parts: list[Part], project: str | None, files: Files, skipped: Skipped
) -> ForeignRun:
    origin: dict[str, Any] = {"tool": "neptune", "run": "/".join(key), "path": str(parts[0].path.parent)}
    if facts.scale.factor > 1:
        origin["step_scale"] = facts.scale.factor
    ended = None
    if facts.ended is not None:
        ended = iso(facts.ended)
    return ForeignRun(
        project=project or sanitize_name(key.project, otherwise="neptune"),
        run=run_name(key.run, "\n".join(key)),
        origin=origin,
        params=facts.params,
        tags=facts.tags(skipped),
        started=iso(facts.started),
        ended=ended,
        status="failed" if facts.own.get("sys/failed") else "finished",
        pieces=partial(_pieces, key, facts, parts, files, skipped),
        artifacts=partial(_artifacts, key, facts, parts, files, skipped),
    )


def _pieces(
    key: RunKey, facts: _Facts, parts: list[Part], files: Files, skipped: Skipped, position: Position
) -> Iterator[Piece]:
    """Read what the parts have after a position, which is ``[0, rows]`` for each part's mark.

    The exporter writes a run's rows in any order, so a position in other parts says nothing about these.
    """
    if any(name.removesuffix(_ABSENT) not in {part.mark for part in parts} for name in position):
        skipped.add(
            "runs that were exported again since they were copied (--project NAME takes them into another "
            "project)"
        )
        return
    own = [parts[number] for number in sorted({number for number, _ in facts.groups})]
    is_read = all(position.get(part.mark, [0, 0])[1] == part.rows for part in own)
    absent_before = {part.mark: position.get(f"{part.mark}{_ABSENT}", [0]) for part in own}
    if is_read and not any(rows for _, *rows in absent_before.values()):
        return
    builder = PieceBuilder(skipped, position)
    values = SeriesValues(builder, files, facts.scale, facts.started, skipped)
    if facts.scale.factor > 1 and not is_read:
        skipped.add(
            "steps with fractions: all steps of such a run are multiplied (halving show RUN has the "
            "step_scale)"
        )
    absent = {mark: set(rows) for mark, (_, *rows) in absent_before.items()}

    def reach(mark: str, end: int) -> None:
        arrived, *before = absent_before[mark]
        builder.position[mark] = [0, max(end, position.get(mark, [0, 0])[1])]
        if before or absent[mark]:
            builder.position[f"{mark}{_ABSENT}"] = [
                arrived + len(set(before) - absent[mark]),
                *sorted(absent[mark]),
            ]

    for batch in read_rows(parts, key, facts.groups):
        part = parts[batch.part]
        for number in values.add_rows(
            batch, part.mark, position.get(part.mark, [0, 0])[1], absent[part.mark]
        ):
            if builder.full:
                reach(part.mark, number + 1)
                yield builder.take()
        reach(part.mark, batch.numbers[-1] + 1)
    for part in own:
        reach(part.mark, part.rows)
    if len(builder) or not is_read:
        yield builder.take()


def _artifacts(
    key: RunKey, facts: _Facts, parts: list[Part], files: Files, skipped: Skipped
) -> Iterator[Artifact]:
    for path in sorted(facts.consoles):
        name = f"{path.removesuffix('.log')}.log"
        yield Artifact(name, partial(_console, key, path, facts, parts), None)
    names: set[str] = set()
    for batch in read_rows(parts, key, facts.files):
        columns = (
            batch.rows.column(name) for name in ("attribute_path", "attribute_type", "step", "file_value")
        )
        for name, kind, step, value in zip(*columns, strict=True):
            if kind.as_py() not in FILE_TYPES:
                continue
            file = value.as_py()
            if not file or file["path"] is None:
                continue
            for artifact in files.artifacts(name.as_py() or "", kind.as_py(), file["path"], step.as_py()):
                if artifact.name in names:
                    skipped.add("files with the name of another file of the run")
                else:
                    names.add(artifact.name)
                    yield artifact


@contextmanager
def _console(key: RunKey, path: str, facts: _Facts, parts: list[Part]) -> Iterator[Path]:
    """Write the lines that a run printed to a file that lasts as long as the block."""
    with TemporaryDirectory(prefix="halving-import-") as folder:
        log = Path(folder, "console.log")
        with log.open("w", encoding="utf-8", newline="") as file:
            for batch in read_rows(parts, key, facts.consoles[path]):
                columns = (
                    batch.rows.column(name).to_pylist()
                    for name in ("attribute_path", "attribute_type", "string_value")
                )
                for name, kind, line in zip(*columns, strict=True):
                    if name == path and kind == "string_series" and line is not None:
                        file.write(line.removesuffix("\n") + "\n")
        yield log
