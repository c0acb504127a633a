"""TensorBoard's event files: a run is a folder with such files in it, as in TensorBoard itself.

PyTorch's ``SummaryWriter.add_hparams`` writes into a folder of its own, named by the time, below the run's. Where there is one of these,
it is taken for a part of the run; TensorBoard shows the curves and the hyperparameters as two runs.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import ExtraMissing, InvalidInput
from halving.imports.foreign_run import ForeignRun, Piece, PieceBuilder, Position, Skipped, SourceUnreadable, iso, plain_name, run_name
from halving.imports.reading import Unreadable, files_below, readable
from halving.imports.tensorboard_values import Plugin, add_value
from halving.imports.tf_records import Record, records

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_EVENTS = "tfevents"
_TIME = re.compile(r"\d+\.\d+")  # the name of a folder that add_hparams has made
_HPARAMS = "_hparams_/session_start_info"


@dataclass
class _Folder:
    """A run's event files by the names that they have below its folder, in the order of their times."""

    name: str
    files: dict[str, Path]
    params: dict[str, Any] = field(default_factory=dict)


def read_runs(source: str, project: str | None, skipped: Skipped) -> Iterator[ForeignRun | Unreadable]:
    """The runs below a folder, or the run of one file.

    Args:
        source: a folder with event files in it or below it, or an event file.
        project: where they go (default: the folder's name).

    Raises:
        InvalidInput: there is no event file.
        ExtraMissing: TensorBoard, which reads what is in them, is not installed.
    """
    try:
        import tensorboard.compat.proto.event_pb2  # noqa: F401
    except ImportError:
        raise ExtraMissing("TensorBoard's files need the package tensorboard: pip install 'halving[tensorboard]'") from None
    top = Path(source).expanduser().resolve()
    unlisted: list[Path] = []
    below = [top] if top.is_file() else files_below(top, lambda error: unlisted.append(Path(error.filename)))
    paths = [path for path in below if _EVENTS in path.name and path.is_file()]
    if not paths and not unlisted:
        raise InvalidInput(f"source {source!r} is not accepted: give a folder with event files (events.out.tfevents.…) in it or below it")
    base = top.parent if top.is_file() else top
    for folder in _folders(base, paths, unlisted):
        yield readable(folder.name, partial(_foreign_run, folder, project or plain_name(base.name, otherwise="tensorboard"), base, skipped))


def _folders(base: Path, paths: list[Path], unlisted: list[Path]) -> list[_Folder]:
    """The files by run; those of add_hparams belong to the run above, if they say of which hyperparameters it was.

    A folder that cannot be listed stands for the files in it: its run, or the one above, cannot be read then.
    """
    by_folder: dict[Path, list[Path]] = {folder: [folder] for folder in unlisted}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    of_hparams: dict[Path, list[Path]] = {}
    for folder in by_folder:
        if _TIME.fullmatch(folder.name) and folder.parent in by_folder:
            of_hparams.setdefault(folder.parent, []).append(folder)
    joined = {only[0] for only in of_hparams.values() if len(only) == 1}
    found = []
    for folder, files in by_folder.items():
        if folder not in joined:
            own = [*files, *(path for child in joined if child.parent == folder for path in by_folder[child])]
            name = folder.relative_to(base).as_posix()
            found.append(_Folder(base.name if name == "." else name, {path.relative_to(folder).as_posix(): path for path in own}))
    return found


def _foreign_run(folder: _Folder, project: str, base: Path, skipped: Skipped) -> ForeignRun:
    params: dict[str, Any] = {}
    times: list[float] = []
    for path in folder.files.values():
        first, found = _look_through(path, skipped)
        params |= found
        times += first
    return ForeignRun(
        project=project,
        run=run_name(folder.name, f"{folder.name}\n{min(path.name for path in folder.files.values())}"),
        origin={"tool": "tensorboard", "run": folder.name, "path": str(base)},
        params=params,
        tags={},
        started=iso(min(times, default=0.0) * 1000),
        ended=None,
        status="finished",
        pieces=partial(_pieces, folder.files, skipped),
    )


def _look_through(path: Path, skipped: Skipped) -> tuple[list[float], dict[str, Any]]:
    """The time of the first event that has one, and the hyperparameters, which may come last."""
    first: list[float] = []
    params: dict[str, Any] = {}
    try:
        for record in records(path):
            if not first and math.isfinite(time := _event(path, record).wall_time):
                first = [time]
            if _HPARAMS.encode() in record.content:
                try:
                    params |= _hparams(path, record)
                except SourceUnreadable as error:
                    skipped.add(str(error))
    except SourceUnreadable:  # said when the points are read
        pass
    return first, params


def _hparams(path: Path, record: Record) -> dict[str, Any]:
    """
    Raises:
        SourceUnreadable: they are damaged.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found: dict[str, Any] = {}
    for value in _event(path, record).summary.value:
        if value.tag == _HPARAMS:
            try:
                data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
            except DecodeError:
                raise SourceUnreadable(f"hyperparameters in {path} are damaged before byte {record.end}") from None
            for name, given in data.session_start_info.hparams.items():
                kind = given.WhichOneof("kind")
                number = getattr(given, kind) if kind else None
                found[name] = int(number) if isinstance(number, float) and number.is_integer() and abs(number) < 2**53 else number
    return found


def _pieces(files: dict[str, Path], skipped: Skipped, position: Position) -> Iterator[Piece]:
    """What the files have after a position, which is ``[0, bytes]`` for each."""
    builder = PieceBuilder(skipped, position)
    for name, path in files.items():
        mark = hashlib.sha256(name.encode()).hexdigest()[:6]
        plugins: dict[str, Plugin] = {}  # of a name that the file has had: only its first value says it
        begin = position.get(name, [0, 0])[1]
        try:
            if 0 < begin < path.stat().st_size:
                _learn_plugins(path, begin, plugins)
            for record in records(path, begin):
                for place, value in enumerate((event := _event(path, record)).summary.value):
                    add_value(builder, f"{mark}-{record.end:012d}-{place:04d}", event, value, plugins, skipped)
                if event.HasField("graph_def") or event.HasField("meta_graph_def"):
                    skipped.add("graphs")
                builder.position[name] = [0, record.end]
                if builder.full:
                    yield builder.take()
        except SourceUnreadable as error:
            skipped.add(f"rest of a file: {error}")
    if len(builder):
        yield builder.take()


def _learn_plugins(path: Path, end: int, plugins: dict[str, Plugin]) -> None:
    for record in records(path):
        if record.end > end:
            return
        for value in _event(path, record).summary.value:
            if value.HasField("metadata") and value.metadata.plugin_data.plugin_name:
                plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)


def _event(path: Path, record: Record) -> "Event":
    """
    Raises:
        SourceUnreadable: the record's content is none.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    try:
        return Event.FromString(record.content)
    except DecodeError:
        raise SourceUnreadable(f"{path} is damaged before byte {record.end}") from None
