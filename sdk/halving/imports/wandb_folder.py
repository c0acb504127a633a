"""W&B's folders of runs: ``offline-run-DATE_TIME-ID/run-ID.wandb``, or ``run-…`` where it was online.

The run's files are beside the log. A run that was resumed has a folder for each time; together they are one
run here, too.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from halving.errors import InvalidInput
from halving.imports.foreign_run import ForeignRun, Skipped
from halving.imports.reading import Unreadable, files_below, readable
from halving.imports.wandb_facts import Facts
from halving.imports.wandb_messages import record_class
from halving.imports.wandb_run import Log, describe, identify, learn

_NAMED = re.compile(r"(?:offline-)?run-(?:\d{8}_\d{6}-)?(.+?)(?:\.wandb)?")
NAMELESS = "files that end before they say which run they are of"
ACCEPTED = "give a folder that has W&B's runs (offline-run-…/run-ID.wandb), one of them, or its .wandb file"


def read_runs(source: str, project: str | None, skipped: Skipped) -> Iterator[ForeignRun | Unreadable]:
    """The runs of a folder, or of one file.

    Args:
        source: a folder ``wandb``, a run's folder in it, or a ``.wandb`` file.
        project: where they go (default: their project in W&B).

    Raises:
        InvalidInput: nothing is there that W&B wrote.
        ExtraMissing: Protocol Buffers is not installed.
    """
    record_class()
    top = Path(source).expanduser()
    unread: dict[str, Unreadable] = {}

    def note(path: Path, error: object) -> None:
        run = run_of(path)
        unread.setdefault(run, Unreadable(run, f"{path} cannot be read: {error}"))

    if top.is_file():
        paths = [top.resolve()]
    else:
        below = files_below(top, lambda error: note(Path(error.filename), error.strerror))
        paths = sorted({path.resolve() for path in below if path.suffix == ".wandb" and path.is_file()})
    if not paths and not unread:
        raise InvalidInput(f"source {source!r} is not accepted: {ACCEPTED}")
    logs: dict[str, tuple[int, Log]] = {}
    for path in paths:
        try:
            size = path.stat().st_size
            log = identify(path)
        except InvalidInput as error:
            if top.is_file():
                raise InvalidInput(f"source {source!r} is not accepted: {error}; {ACCEPTED}") from None
            skipped.add(not_wandbs(path, error))
        except (OSError, ValueError) as error:  # ValueError: texts that are not UTF-8
            note(path, getattr(error, "strerror", None) or error)
        else:
            if log is None:
                skipped.add(NAMELESS)
            elif log.mark not in logs or size > logs[log.mark][0]:
                # Of copies of a file the one that has most counts.
                logs[log.mark] = (size, log)
    runs: dict[tuple[str, str, str], list[Log]] = {}
    for _, log in sorted(logs.values(), key=lambda sized: sized[1].order):
        runs.setdefault(log.whose, []).append(log)
    for (_, _, run), own in runs.items():
        if run in unread:
            yield unread[run]
        else:
            yield readable(run, partial(_foreign_run, own, project, skipped))
    copied = {run for _, _, run in runs}
    yield from (unreadable for run, unreadable in unread.items() if run not in copied)


def not_wandbs(path: Path, error: InvalidInput) -> str:
    """The reason why a file that is named like W&B's is not taken."""
    return f"files, such as {path.name}: {error}"


def run_of(path: Path) -> str:
    """The id of the run that a path belongs to, by W&B's names.

    A part of a run that cannot be read makes the run unreadable.
    """
    matches = (_NAMED.fullmatch(part) for part in reversed(path.parts))
    return next((match[1] for match in matches if match), path.name)


def _foreign_run(logs: list[Log], project: str | None, skipped: Skipped) -> ForeignRun:
    facts = Facts()
    return describe([learn(facts, log) for log in logs], facts, project, skipped)
