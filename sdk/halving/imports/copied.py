"""What the store has already of a run of another tool."""

import json
import re
from typing import Any, NamedTuple

from halving.errors import AlreadyExists, NotFound
from halving.imports.foreign_run import ForeignRun, Position, Skipped
from halving.metrics.manifest import run_files
from halving.metrics.position import position_in_store
from halving.records.amendments import amend, newest_amendment
from halving.records.run_record import RunRecords
from halving.records.typed_text import typed_params
from halving.store.json_files import to_json
from halving.store.store import Store

_TRIES = 10  # at reading a run's files while compactions replace them
_ATTEMPT_FILE = re.compile(r"^(start|end)-(\d{4,})\.json$", re.MULTILINE)  # and no amend-000000.json


class Progress(NamedTuple):
    """How much of a run the store has.

    It is the last attempt, its next segment, how far the source was read, and whether the attempt has its
    end.
    """

    attempt: int
    sequence: int
    position: Position
    ended: bool


def read_record(records: RunRecords, run: ForeignRun) -> dict[str, Any] | None:
    """Read the run's record, if there is one.

    Raises:
        AlreadyExists: it is the record of another run.
    """
    try:
        record = records.read()
    except NotFound:
        return None
    origin = record["parent"].get("imported")
    if not origin or any(origin.get(field) != run.origin[field] for field in ("tool", "run")):
        owner = "a run that was trained here"
        if origin:
            owner = f"{origin['tool']}'s run {origin['run']!r}"
        raise AlreadyExists(
            f"run {run.run!r} of project {run.project!r} is {owner} already; take another project with "
            "--project NAME"
        )
    return record


def compare_facts(
    records: RunRecords, record: dict[str, Any], run: ForeignRun, skipped: Skipped, *, amending: bool
) -> None:
    """Take params and tags that have changed since the run was copied, or count them where they stay."""
    amended = newest_amendment(records.store, records.folder, records.store.names(records.folder))
    params = typed_params(amended.get("params", record["params"]), record["parent"])
    tags = amended.get("tags", record["parent"].get("tags", {}))
    changes: dict[str, Any] = {}
    if to_json(params) != to_json(run.params):
        # They are compared as text, in which NaN equals itself.
        if amending:
            changes["params"] = run.params
        else:
            skipped.add("runs' later changes of params: a run's params never change here")
    if tags != run.tags:
        if amending and tags.items() <= run.tags.items():
            changes["tags"] = run.tags
        else:
            skipped.add("runs' later changes of tags: what a run began with never changes here")
    if changes:
        amend(records.store, records.folder, lambda before: before | changes)


def read_progress(store: Store, records: RunRecords) -> Progress:
    files = _ATTEMPT_FILE.findall("\n".join(store.names(records.folder)))
    last = max((int(number) for kind, number in files if kind == "start"), default=1)
    ends = [int(number) for kind, number in files if kind == "end"]
    position: Position = {}
    for number in ends:
        position |= json.loads(store.read(f"{records.folder}/end-{number:04d}.json")).get("imported", {})
    sequence, later = _position_of(store, last, records)
    return Progress(
        last,
        sequence,
        {part: max(later.get(part, []), position.get(part, [])) for part in position | later},
        last in ends,
    )


def _position_of(store: Store, attempt: int, records: RunRecords) -> tuple[int, Position]:
    for tries_left in reversed(range(_TRIES)):
        try:
            return position_in_store(store, attempt, run_files(store, records.project, records.run))
        except NotFound:  # the last segment was compacted meanwhile
            if not tries_left:
                raise
    raise RuntimeError("no try was made")
