"""TensorBoard's event files, where a run is a folder with such files in it, as in TensorBoard itself.

PyTorch's ``SummaryWriter.add_hparams`` writes into a folder of its own, named by the time, below the run's.
If there is only one such folder, it is taken for a part of the run; TensorBoard shows the curves and the
hyperparameters as two runs.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import ExtraMissing, InvalidInput
from halving.identifiers import sanitize_name
from halving.imports.foreign_run import (
    ForeignRun,
    Piece,
    PieceBuilder,
    Position,
    Skipped,
    SourceUnreadable,
    iso,
    run_name,
)
from halving.imports.reading import Unreadable, files_below, readable
from halving.imports.tensorboard_restarts import Discarded, Restart, discarded_of
from halving.imports.tensorboard_values import Plugin, add_value, learn_plugin
from halving.imports.tf_records import Record, records

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_EVENTS = "tfevents"
_TIME = re.compile(r"\d+\.\d+")  # the name of a folder that add_hparams has made
_HPARAMS = "_hparams_/session_start_info"
_NOTHING = [0, 0]
_NOT_TAKEN = {
    "graph_def": "graphs",
    "meta_graph_def": "graphs",
    "tagged_run_metadata": "profiles of steps",
    "log_message": "log messages",
}
_DISCARDED_SINCE = (
    "values that a restart has discarded since they were copied: what is copied never changes here"
)
_PROFILES = "profiles (files beside those of events)"
_PROJECTOR = "projector_config.pbtxt"
_PYTORCH_PROFILE = ".pt.trace.json"


@dataclass
class _Folder:
    """A run's event files by their names below its folder, in the order of their times."""

    name: str
    files: dict[str, Path]
    params: dict[str, Any] = field(default_factory=dict)


@dataclass
class _FileFacts:
    """The facts of a file that are read before its points.

    Attributes:
        times: the time of the first event that has one.
        params: the hyperparameters, which may come last.
        restarts: where the run began again.
        until: where the last whole record ended; what is written later comes with the next import.
    """

    times: list[float] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    restarts: list[Restart] = field(default_factory=list)
    until: int = 0


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
        raise ExtraMissing(
            "TensorBoard's files need the package tensorboard: pip install 'halving[tensorboard]'"
        ) from None
    top = Path(source).expanduser().resolve()
    unlisted: list[Path] = []
    if top.is_file():
        base = top.parent
        below = [top]
    else:
        base = top
        below = files_below(top, lambda error: unlisted.append(Path(error.filename)))
    paths = [path for path in below if _EVENTS in path.name and path.is_file()]
    if not paths and not unlisted:
        raise InvalidInput(
            f"source {source!r} is not accepted: give a folder with event files (events.out.tfevents.…) in "
            "it or below it"
        )
    _count_other_files(below, skipped)
    project = project or sanitize_name(base.name, otherwise="tensorboard")
    for folder in _folders(base, paths, unlisted):
        yield readable(folder.name, partial(_foreign_run, folder, project, base, skipped))


def _count_other_files(paths: list[Path], skipped: Skipped) -> None:
    """Count what TensorBoard shows of other files: the projector's embeddings, and profiles."""
    embeddings = 0
    profiles = set[Path]()
    for path in paths:
        if path.name == _PROJECTOR:
            with suppress(OSError):
                embeddings += path.read_bytes().count(b"embeddings {")
        elif "/plugins/profile/" in path.as_posix():  # a folder for each, with several files
            profiles.add(path.parent)
        elif path.name.removesuffix(".gz").endswith(_PYTORCH_PROFILE):
            profiles.add(path)
    for reason, count in (("embeddings of the projector", embeddings), (_PROFILES, len(profiles))):
        if count:
            skipped.add(reason, count)


def _folders(base: Path, paths: list[Path], unlisted: list[Path]) -> list[_Folder]:
    """Group the files by run.

    Those of add_hparams belong to the run above if it is clear whose hyperparameters they are. A folder that
    cannot be listed stands for the files in it, so that its run, or the one above, cannot be read.
    """
    by_folder: dict[Path, list[Path]] = {folder: [folder] for folder in unlisted}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    of_hparams: dict[Path, list[Path]] = {}
    for folder in by_folder:
        if _TIME.fullmatch(folder.name) and folder.parent in by_folder:
            of_hparams.setdefault(folder.parent, []).append(folder)
    joined = {only[0] for only in of_hparams.values() if len(only) == 1}
    runs = []
    for folder, files in by_folder.items():
        if folder not in joined:
            own = sorted(files, key=_by_numbers)
            own += [
                path
                for child in joined
                if child.parent == folder
                for path in sorted(by_folder[child], key=_by_numbers)
            ]
            name = base.name
            if folder != base:
                name = folder.relative_to(base).as_posix()
            runs.append(_Folder(name, {path.relative_to(folder).as_posix(): path for path in own}))
    return runs


def _by_numbers(path: Path) -> tuple[list[str | int], str]:
    """A sort key of event files, whose names have a second and a number, of which 10 comes after 9."""
    parts: list[str | int] = []
    for place, part in enumerate(re.split(r"([0-9]+)", path.name)):
        parts.append(part)
        if place % 2:  # Every second part is a number.
            parts[-1] = int(part)
    return parts, str(path)


def _foreign_run(folder: _Folder, project: str, base: Path, skipped: Skipped) -> ForeignRun:
    facts = {name: _look_through(path, skipped) for name, path in folder.files.items()}
    if not any(file.until for file in facts.values()):
        paths = ", ".join(str(path) for path in folder.files.values())
        raise SourceUnreadable(
            f"no event can be read: what is in {paths} is damaged from its beginning, or has not been "
            "written yet"
        )
    return ForeignRun(
        project=project,
        run=run_name(folder.name, f"{folder.name}\n{min(folder.files.values(), key=_by_numbers).name}"),
        origin={"tool": "tensorboard", "run": folder.name, "path": str(base)},
        params={name: value for file in facts.values() for name, value in file.params.items()},
        tags={},
        started=iso(min((time for file in facts.values() for time in file.times), default=0.0) * 1000),
        ended=None,
        status="finished",
        pieces=partial(_pieces, folder.files, facts, skipped),
    )


def _look_through(path: Path, skipped: Skipped) -> _FileFacts:
    """Read a file once before its points, for the facts that may come last in it.

    Damaged hyperparameters are counted.
    """
    from tensorboard.compat.proto.event_pb2 import SessionLog

    facts = _FileFacts()
    try:
        for record in records(path):
            event = _event(path, record)
            if not facts.times and math.isfinite(event.wall_time):
                facts.times = [event.wall_time]
            if event.session_log.status == SessionLog.START:
                facts.restarts.append(Restart(record.end, event.step))
            if _HPARAMS.encode() in record.content:
                try:
                    facts.params |= _hparams(path, record)
                except SourceUnreadable as error:
                    skipped.add(str(error))
            facts.until = record.end
    except SourceUnreadable:  # reported when the points are read
        pass
    return facts


def _hparams(path: Path, record: Record) -> dict[str, Any]:
    """Read the hyperparameters of a record.

    Raises:
        SourceUnreadable: they are damaged.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    params: dict[str, Any] = {}
    for value in _event(path, record).summary.value:
        if value.tag == _HPARAMS:
            try:
                data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
            except DecodeError:
                raise SourceUnreadable(
                    f"hyperparameters in {path} are damaged before byte {record.end}"
                ) from None
            for name, hparam in data.session_start_info.hparams.items():
                kind = hparam.WhichOneof("kind")
                param = None
                if kind:
                    param = getattr(hparam, kind)
                if isinstance(param, float) and param.is_integer() and abs(param) < 2**53:
                    param = int(param)
                params[name] = param
    return params


def _pieces(
    files: dict[str, Path], facts: dict[str, _FileFacts], skipped: Skipped, position: Position
) -> Iterator[Piece]:
    """Read what the files have after a position.

    A position is ``[bytes searched for restarts, bytes taken]`` for each file.
    """
    builder = PieceBuilder(skipped, position)
    builder.position |= {name: [file.until, position.get(name, _NOTHING)[1]] for name, file in facts.items()}
    restarts = {name: file.restarts for name, file in facts.items()}
    restarts_before = {
        name: [restart for restart in own if restart.end <= position.get(name, _NOTHING)[0]]
        for name, own in restarts.items()
    }
    discarded = discarded_of(restarts)
    discarded_before = discarded_of(restarts_before)
    for name, path in files.items():
        mark = hashlib.sha256(name.encode()).hexdigest()[:6]
        plugins: dict[str, Plugin] = {}  # by name; only the first value of a name has its plugin
        until, begin = builder.position[name]
        try:
            if begin and (begin < until or restarts_before != restarts):
                _look_back(path, begin, plugins, discarded[name], discarded_before[name], skipped)
            for record in records(path, begin):
                event = _event(path, record)
                if record.end > until:
                    break
                if discarded[name].has(record.end, event.step):
                    _pass_over(event, plugins, skipped, "values that a restart discarded (purge_step)")
                else:
                    for place, value in enumerate(event.summary.value):
                        add_value(
                            builder, f"{mark}-{record.end:012d}-{place:04d}", event, value, plugins, skipped
                        )
                kind = event.WhichOneof("what")
                if kind in _NOT_TAKEN:
                    skipped.add(_NOT_TAKEN[kind])
                builder.position[name] = [until, record.end]
                if builder.full:
                    yield builder.take()
        except SourceUnreadable as error:
            skipped.add(f"rest of a file: {error}")
    if len(builder):
        yield builder.take()


def _look_back(
    path: Path, end: int, plugins: dict[str, Plugin], now: Discarded, before: Discarded, skipped: Skipped
) -> None:
    """Learn the plugins of the values that an earlier import took.

    Values of it that a restart has discarded since are counted.
    """
    for record in records(path):
        if record.end > end:
            return
        event = _event(path, record)
        reason = None
        if now.has(record.end, event.step) and not before.has(record.end, event.step):
            reason = _DISCARDED_SINCE
        _pass_over(event, plugins, skipped, reason)


def _pass_over(event: "Event", plugins: dict[str, Plugin], skipped: Skipped, reason: str | None) -> None:
    """Learn the plugins of an event without taking its values; count them if there is a reason."""
    for value in event.summary.value:
        learn_plugin(value, plugins)
        if reason and not value.tag.startswith("_hparams_/"):
            skipped.add(reason)


def _event(path: Path, record: Record) -> "Event":
    """Parse an event.

    Raises:
        SourceUnreadable: the record's content is none.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    try:
        return Event.FromString(record.content)
    except DecodeError:
        raise SourceUnreadable(f"{path} is damaged before byte {record.end}") from None
