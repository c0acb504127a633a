"""A run of W&B's, made of its log files: one for each time that it was started or resumed."""

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from halving.identifiers import sanitize_name
from halving.imports.foreign_run import Artifact, ForeignRun, Piece, PieceBuilder, Position, Skipped, iso
from halving.imports.reading import LEFT_BEHIND, files_below, is_left_behind, local_file
from halving.imports.step_values import LogPosition, number_of, parse_json
from halving.imports.wandb_facts import Facts, logged_at
from halving.imports.wandb_log import LogRecord, read_log
from halving.imports.wandb_messages import NoMessage, milliseconds, parse
from halving.imports.wandb_values import HistoryValues, tree_of
from halving.query.liveness import RECENT_SECONDS

_NO_PROJECT = "uncategorized"  # what W&B calls it
# Types of artifacts that W&B makes of a history's tables, and of the history itself.
_OWN_ARTIFACTS = frozenset({"run_table", "wandb-history"})
_UNREAD = {
    "alert": "alerts",
    "tbrecord": "TensorBoard folders that were synced (import these)",
    "use_artifact": "artifacts that runs used",
}


class Log(NamedTuple):
    """A log file of a run.

    Attributes:
        mark: identifies the content, wherever the file is moved: a digest of its first record of the run.
        run: the run's id; ``entity``, ``project`` and ``started`` (ms since 1970) are as this file says.
        until: where the last whole record ended that was looked at; 0 before any was.
    """

    path: Path
    mark: str
    run: str
    entity: str
    project: str
    started: int
    until: int = 0

    @property
    def files(self) -> Path:
        """The folder with the run's files, beside the log."""
        return self.path.parent / "files"

    @property
    def order(self) -> tuple[int, str]:
        """By which the logs of a run are sorted."""
        return self.started, self.mark

    @property
    def whose(self) -> tuple[str, str, str]:
        """Names the run: its entity, project and id in W&B."""
        return self.entity, self.project, self.run


def identify(path: Path) -> Log | None:
    """Find the run that a file is of, without reading further; None if the file does not say so yet.

    Raises:
        InvalidInput: it is not W&B's.
        OSError: it cannot be read.
    """
    for record in read_log(path, Skipped()):
        with contextlib.suppress(NoMessage):  # counted when the run's points are read
            message = parse(record.data)
            if message.HasField("run"):
                run = message.run
                mark = hashlib.sha256(record.data).hexdigest()[:16]
                started = milliseconds(run.start_time)
                return Log(path, mark, run.run_id, run.entity, run.project, started)
    return None


def learn(facts: Facts, log: Log) -> Log:
    """Add what a log says after the place up to which it was looked at; return the log up to its end.

    Raises:
        OSError: it, or a file beside it, cannot be read.
    """
    until = log.until
    if not until:
        facts.exit_code = None  # the run went on after an earlier file's exit
    for record in read_log(log.path, Skipped(), until):
        until = record.end
        with contextlib.suppress(NoMessage):
            facts.learn(parse(record.data))
    facts.learn_files(log.files)
    return log._replace(until=until)


def describe(logs: Sequence[Log], facts: Facts, project: str | None, skipped: Skipped) -> ForeignRun:
    """The run that its logs, in the order of their times, and their facts are of."""
    run = facts.run
    theirs = run.project or _NO_PROJECT
    tags = {
        "name": run.display_name,
        "group": run.run_group,
        "job_type": run.job_type,
        "notes": run.notes,
        "entity": run.entity,
        "wandb_sweep": run.sweep_id,
    }
    facts_by_tag = {name: value for name, value in tags.items() if value}
    ended = None
    if facts.last:
        ended = iso(facts.last)
    if taken := facts_by_tag.keys() & set(run.tags):
        skipped.add("tags with the name of another fact of the run (name, group, job_type, …)", len(taken))
    return ForeignRun(
        project=project or sanitize_name(theirs, otherwise=_NO_PROJECT),
        run=sanitize_name(logs[0].run, otherwise="run"),
        origin={
            "tool": "wandb",
            "run": "/".join(part for part in (run.entity, theirs, logs[0].run) if part),
            "path": str(logs[0].path.parent),
        },
        params=facts.params(skipped),
        tags={tag: "true" for tag in run.tags if tag} | facts_by_tag,
        started=iso(facts.started),
        ended=ended,
        status=_status(logs[-1].path, facts.exit_code),
        pieces=partial(read_pieces, logs, facts.started, skipped),
        provenance=facts.provenance(),
        artifacts=partial(_artifacts, logs, skipped),
        summary=facts.summary_values(skipped),
    )


def _status(log: Path, exit_code: int | None) -> str | None:
    """How a run ended: without an exit code it has crashed, or goes on (None) if it was written just now."""
    if exit_code == 0:
        return "finished"
    if exit_code is not None:
        return "failed"
    if time.time() - log.stat().st_mtime < RECENT_SECONDS:
        return None
    return "crashed"


def read_pieces(logs: Sequence[Log], started: int, skipped: Skipped, position: Position) -> Iterator[Piece]:
    """Read what the files have after a position, which is ``[0, bytes]`` for each file's mark.

    A file's exit makes a piece even without points, because a run that was copied while it ran has ended
    since.
    """
    builder = PieceBuilder(skipped, position)
    exited = False
    for log in logs:
        time_ms = log.started
        begin = position.get(log.mark, [0, 0])[1]
        if begin >= log.until:
            continue
        for record, message in _messages(log.path, skipped, begin, log.until):
            if message.HasField("history"):
                history = message.history
                time_ms = logged_at(history) or time_ms
                place = LogPosition(f"{log.mark}-{record.start:012d}", step_of(history), time_ms)
                HistoryValues(builder, place, log.files, skipped).add(tree_of(history.item))
            elif message.HasField("stats"):
                _add_stats(builder, message.stats, started, skipped)
            elif reason := _not_taken(message):
                skipped.add(reason)
            exited = exited or message.HasField("exit")
            builder.position[log.mark] = [0, record.end]
            if builder.full:
                yield builder.take()
                exited = False
    if len(builder) or exited:
        yield builder.take()


def _messages(
    path: Path, skipped: Skipped, start: int = 0, until: int | None = None
) -> Iterator[tuple[LogRecord, Any]]:
    for record in read_log(path, skipped, start, until):
        try:
            message = parse(record.data)
        except NoMessage:
            skipped.add("records that are not of W&B's form")
        else:
            yield record, message


def _not_taken(record: Any) -> str | None:
    """The reason why a record that W&B shows is not taken; None if it is not of that kind."""
    if record.HasField("artifact") and record.artifact.type not in _OWN_ARTIFACTS:
        return "artifacts logged with log_artifact (their files are not in the run's folder)"
    if record.HasField("metric") and record.metric.step_metric and not record.metric.expanded_from_glob:
        return "x axes of their own (define_metric with step_metric; the values are taken)"
    return next((reason for kind, reason in _UNREAD.items() if record.HasField(kind)), None)


def step_of(history: Any) -> int:
    """The step of a record of a history."""
    for item in history.item:
        if (list(item.nested_key) or [item.key]) == ["_step"]:
            step = item.integer
            if item.value_json:
                step = parse_json(item.value_json)
            if isinstance(step, int):
                return step
            break
    return int(history.step.num)


def _add_stats(builder: PieceBuilder, stats: Any, started: int, skipped: Skipped) -> None:
    """Add metrics of the machine, by whole seconds since the run's start."""
    time_ms = milliseconds(stats.timestamp)
    for item in stats.item:
        number = number_of(parse_json(item.value_json))
        if number is None:
            skipped.add("system metrics that are no numbers")
        else:
            builder.add(f"system/{item.key}", max(0, (time_ms - started) // 1000), time_ms, number)


def _artifacts(logs: Sequence[Log], skipped: Skipped) -> Iterator[Artifact]:
    """The files that W&B keeps with the run, except the media of its history.

    Those of a folder that resumed the run are named below that folder's name.
    """
    for log in logs:
        for path in files_below(log.files, left_behind=True):
            inner = path.relative_to(log.files).as_posix()
            if inner.startswith("media/"):
                continue
            if is_left_behind(inner):
                skipped.add(LEFT_BEHIND)
                continue
            if not path.is_file():  # W&B links to files that were saved; they may be gone
                skipped.add("saved files that are gone")
                continue
            name = inner
            if log is not logs[0]:
                name = f"{log.path.parent.name}/{inner}"
            yield Artifact(name, partial(local_file, path), path.stat().st_size)
