"""The record files that a run's own process writes.

Which names there are, and what must be in the files so that everybody can read them.
"""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from halving.errors import AlreadyExists, InvalidInput
from halving.identifiers import artifact_record, check_artifact_name, check_name
from halving.ingest.values import is_key
from halving.records.amendments import PREFIX, newest_amendment, number_of
from halving.run.alerts import LEVELS, MAX_TEXT, MAX_TITLE
from halving.store.store import Store, blob_name

_NAMED = re.compile(
    r"(?:(?:runs|artifact-versions)/project=([^/]*)/([^/]*)|metrics/project=([^/]*)/run=([^/]*))(?:/(.*))?",
    re.DOTALL,
)
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
_MAX_STATUS = 64
_MAX_NESTED = 50
_MAX_ATTEMPT = 2**31 - 1  # what a database keeps
# NUL, and half of a surrogate pair: what databases and JSON in UTF-8 do not take
_UNKNOWN = re.compile("[\0\ud800-\udfff]")
# Fields of an amendment: those that a run's process may change, and those that it must keep.
_AMENDED = {"params", "tags", "defined_metrics", "summary"}
_KEPT = {"lifecycle", "since", "by", "status", "attempt", "facts"}
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


class RunFile(NamedTuple):
    """A file's run, and its name in the run's folder; empty for the folder itself.

    Of a version of an artifact (:mod:`halving.wandb.artifact_versions`) ``run`` is the artifact's name.
    """

    project: str
    run: str
    rest: str


Check = Callable[[dict[str, Any], RunFile], None]


def run_file(name: str) -> RunFile:
    """Parse the name of a run's file or folder in the store.

    Raises:
        InvalidInput: it is no such name.
    """
    match = _NAMED.fullmatch(name)
    if match is None:
        raise InvalidInput(
            f"name {name!r:.200} is not accepted: give runs/project=PROJECT/RUN/… or "
            "metrics/project=PROJECT/run=RUN/…"
        )
    project = match[1] or match[3] or ""
    run = match[2] or match[4] or ""
    rest = match[5] or ""
    check_name("project", project)
    check_name("run id", run)
    if rest and not all(_PART.fullmatch(part) for part in rest.split("/")):
        raise InvalidInput(
            f"name {name!r:.200} is not accepted: each part begins with a letter or digit, and has no "
            "others than . _ @ + -"
        )
    return RunFile(project, run, rest)


def check_record(name: str, content: bytes) -> None:
    """Refuse a record that a run's process does not write, or that others could not read.

    Raises:
        InvalidInput: the message names the field, the value, and what is accepted.
    """
    file = run_file(name)
    checks = _CHECKS_OF.get(name.partition("/")[0], [])
    check = next((check for pattern, check in checks if pattern.fullmatch(file.rest)), None)
    if check is None:
        raise InvalidInput(f"name {name!r:.200} is not accepted: no run's process writes such a file")
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file.rest} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise InvalidInput(f"{file.rest} is not accepted: give a JSON object")
    check(record, file)


def create_record(store: Store, name: str, content: bytes) -> None:
    """Create a record that :func:`check_record` has accepted.

    Raises:
        InvalidInput: an amendment changes what no run's process changes, such as whether the run is deleted.
        AlreadyExists: there is another file of that name.
        StoreError: the store refuses.
    """
    file = run_file(name)
    if file.rest.startswith(PREFIX):
        folder = name.removesuffix(f"/{file.rest}")
        names = store.names(folder)
        newest = max((number_of(other) for other in names if other.startswith(PREFIX)), default=-1)
        if number_of(file.rest) < newest:
            # It was made from an older one, whose lifecycle may be another.
            raise AlreadyExists(f"{file.rest} is not accepted: amendment {newest} is newer")
        before = newest_amendment(store, folder, names)
        record = json.loads(content)
        for field in sorted(_KEPT):
            if record.get(field) != before.get(field):
                raise InvalidInput(
                    f"{field} = {record.get(field)!r:.80} is not accepted: it is {before.get(field)!r:.80}, "
                    "and no run's process changes it"
                )
    store.create(name, content)


def check_status(value: Any) -> str:
    """Check the status with which an attempt ended: mostly ``finished`` or ``failed``.

    Raises:
        InvalidInput: it is no such word.
    """
    if not isinstance(value, str) or not _PART.fullmatch(value) or len(value) > _MAX_STATUS:
        raise InvalidInput(
            f"status = {value!r:.80} is not accepted: give finished, failed, or another word of at most "
            f"{_MAX_STATUS} letters"
        )
    return value


def check_storable(value: Any, field: str) -> None:
    """Refuse JSON, such as params, that others could not store or show.

    Raises:
        InvalidInput: a text has NUL or half of a surrogate pair, a number is no float64, or it is nested too
            deep.
    """
    _check_nested(value, field)
    level = [value]
    while level:
        for part in level:
            texts = part if isinstance(part, dict) else (part,)
            if any(isinstance(text, str) and _UNKNOWN.search(text) for text in texts):
                raise InvalidInput(f"{field} is not accepted: a text has NUL or half of a surrogate pair")
            if type(part) is int and not _is_number(part):
                raise InvalidInput(f"{field} is not accepted: a number is larger than float64 holds")
        level = _below(level)


def _check_run(record: dict[str, Any], file: RunFile) -> None:
    for field, value in (("project", file.project), ("run", file.run)):
        if record.get(field) != value:
            raise InvalidInput(
                f"{field} = {record.get(field)!r:.80} is not accepted: the file's name says {value!r}"
            )
    check_storable(_object(record, "params"), "params")
    parent = _object(record, "parent")
    check_storable(parent, "parent")
    _check_texts(parent.get("tags", {}), "parent.tags")
    _check_attempt(record, file)


def _check_attempt(record: dict[str, Any], file: RunFile) -> None:
    _check_count(record, "attempt", minimum=1, maximum=_MAX_ATTEMPT)
    _check_time(record, "started")
    if record.get("seed") is not None and type(record["seed"]) is not int:
        raise InvalidInput(f"seed = {record['seed']!r:.80} is not accepted: give an integer or null")
    for field in ("provenance", "determinism"):
        if record.get(field) is not None:
            _check_nested(_object(record, field), field)
    _check_git((record.get("provenance") or {}).get("git"))


def _check_git(value: Any) -> None:
    is_valid = value is None or (
        isinstance(value, dict)
        and all(
            isinstance(value.get(field), str | None)
            for field in ("commit", "branch", "remote", "error", "patch")
        )
        and isinstance(value.get("dirty"), bool | None)
        and isinstance(value.get("left_out", []), list | None)
        and type(value.get("left_out_count", 0)) is int
    )
    if not is_valid:
        raise InvalidInput(
            f"provenance.git = {value!r:.80} is not accepted: give an object as the SDK writes it, or null"
        )


def _check_end(record: dict[str, Any], file: RunFile) -> None:
    check_status(record.get("status"))
    _check_time(record, "time")
    summary = record.get("summary") or {}
    if not isinstance(summary, dict) or not all(
        is_key(key) and _is_number(value) for key, value in summary.items()
    ):
        raise InvalidInput("summary is not accepted: give an object of metrics' names to their last values")
    for field in ("points", "epoch", "dropped_points", "rejected_values"):
        if record.get(field) is not None:
            _check_count(record, field)


def _check_checkpoint(record: dict[str, Any], file: RunFile) -> None:
    _check_count(record, "epoch")
    _check_count(record, "attempt", minimum=1, maximum=_MAX_ATTEMPT)
    _check_digest(record)
    reported = record.get("reported")
    if not isinstance(reported, dict) or not all(_is_number(value) for value in reported.values()):
        raise InvalidInput("reported is not accepted: give an object of metrics' names to numbers")


def _check_artifact(record: dict[str, Any], file: RunFile) -> None:
    name = check_artifact_name("artifact name", record.get("name", ""))
    if file.rest != f"artifacts/{artifact_record(name)}.json":
        message = (
            f"the file's name is {file.rest!r}, and that of such an artifact is "
            f"{f'artifacts/{artifact_record(name)}.json'!r}"
        )
        raise InvalidInput(f"name = {name!r:.200} is not accepted: {message}")
    _check_digest(record)
    _check_count(record, "bytes")


def _check_medium(record: dict[str, Any], file: RunFile) -> None:
    if not is_key(record.get("key")):
        raise InvalidInput(f"key = {record.get('key')!r:.80} is not accepted: give a metric's name")
    step = record.get("step")
    if type(step) is not int or not -(2**63) <= step < 2**63:
        raise InvalidInput(f"step = {step!r:.80} is not accepted: give an integer of at most 63 bits")
    _check_count(record, "attempt", minimum=1, maximum=_MAX_ATTEMPT)
    _check_time(record, "wall_time")
    _check_digest(record)
    _check_count(record, "bytes")
    for field in ("kind", "media_type"):
        if not isinstance(record.get(field), str):
            raise InvalidInput(f"{field} = {record.get(field)!r:.80} is not accepted: give a string")


def _check_amendment(record: dict[str, Any], file: RunFile) -> None:
    """Check an amendment by itself; :func:`create_record` compares it with the one before."""
    if others := record.keys() - _AMENDED - _KEPT:
        raise InvalidInput(f"{sorted(others)} are not accepted in {file.rest}: no run's process writes these")
    for field in ("params", "defined_metrics", "summary"):
        if field in record:
            check_storable(_object(record, field), field)
    _check_texts(record.get("tags", {}), "tags")
    check_storable(record.get("tags", {}), "tags")
    for metric in record.get("defined_metrics", {}).values():
        _check_defined_metric(metric)
    summary = record.get("summary", {})
    if "attempt" in summary:
        _check_count(summary, "attempt", minimum=1, maximum=_MAX_ATTEMPT)
    values = summary.get("values", {})
    if not isinstance(values, dict) or not all(
        is_key(key) and _is_number(value) for key, value in values.items()
    ):
        raise InvalidInput("summary.values is not accepted: give an object of names to numbers")


def _check_defined_metric(metric: Any) -> None:
    kinds = {"step_metric": str, "summary": list, "hidden": bool, "goal": str}
    if not isinstance(metric, dict) or not all(
        name in kinds and isinstance(value, kinds[name]) for name, value in metric.items()
    ):
        raise InvalidInput(
            f"defined_metrics has {metric!r:.80}, which is not accepted: give step_metric and goal as texts, "
            "summary as a list of texts, and hidden as true or false"
        )
    if not all(isinstance(operation, str) for operation in metric.get("summary", [])):
        raise InvalidInput(
            f"defined_metrics has summary = {metric['summary']!r:.80}, which is not accepted: give a list of "
            "texts"
        )


def _check_alert(record: dict[str, Any], file: RunFile) -> None:
    for field, length in (("title", MAX_TITLE), ("text", MAX_TEXT)):
        if not isinstance(record.get(field), str) or len(record[field]) > length:
            raise InvalidInput(
                f"{field} = {record.get(field)!r:.80} is not accepted: give a text of at most {length:,} "
                "characters"
            )
    check_storable({"title": record["title"], "text": record["text"]}, "alert")
    if record.get("level") not in LEVELS:
        raise InvalidInput(f"level = {record.get('level')!r:.80} is not accepted: give {', '.join(LEVELS)}")
    _check_count(record, "attempt", minimum=1, maximum=_MAX_ATTEMPT)
    _check_time(record, "time")


_CHECKS: list[tuple[re.Pattern[str], Check]] = [
    (re.compile(r"record\.json"), _check_run),
    (re.compile(r"start-\d{4,9}\.json"), _check_attempt),
    (re.compile(r"end-\d{4,9}\.json"), _check_end),
    (re.compile(r"amend-\d{6,9}\.json"), _check_amendment),
    (re.compile(r"alert-\d{4,9}-\d{6,9}-[0-9a-f]{8}\.json"), _check_alert),
    (re.compile(r"checkpoints/\d{8,}-\d{4,9}-\d{6,}\.json"), _check_checkpoint),
    (re.compile(r"artifacts/[^/]+\.json"), _check_artifact),
    (re.compile(r"media/[^/]+\.json"), _check_medium),
]


def _check_version(record: dict[str, Any], file: RunFile) -> None:
    _check_count(record, "number", maximum=_MAX_ATTEMPT)
    if file.rest != f"v{record['number']:06d}.json":
        raise InvalidInput(f"number = {record['number']} is not accepted: the file's name is {file.rest!r}")
    check_name("run", record.get("run", ""))
    for field in ("type", "content", "created"):
        if not isinstance(record.get(field), str):
            raise InvalidInput(f"{field} = {record.get(field)!r:.80} is not accepted: give a string")
    blob_name(str(record.get("manifest")))
    _check_count(record, "size")


def _check_version_change(record: dict[str, Any], file: RunFile) -> None:
    _check_count(record, "version", maximum=_MAX_ATTEMPT)
    for field in ("aliases", "removed"):
        names = record.get(field, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidInput(f"{field} = {names!r:.80} is not accepted: give a list of strings")
    check_storable(record, "the change")


_CHECKS_OF: dict[str, list[tuple[re.Pattern[str], Check]]] = {
    "runs": _CHECKS,
    "artifact-versions": [
        (re.compile(r"v\d{6,9}\.json"), _check_version),
        (re.compile(r"change-\d{6,9}\.json"), _check_version_change),
        (re.compile(r"use-\d{6,9}-[^/]+\.json"), _check_version_change),
    ],
}


def _object(record: dict[str, Any], field: str) -> dict[str, Any]:
    value = record.get(field)
    if not isinstance(value, dict):
        raise InvalidInput(f"{field} = {value!r:.80} is not accepted: give an object")
    return value


def _check_texts(value: Any, field: str) -> None:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidInput(f"{field} = {value!r:.80} is not accepted: give an object of names to texts")


def _check_count(record: dict[str, Any], field: str, minimum: int = 0, maximum: int = 2**63 - 1) -> None:
    value = record.get(field)
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidInput(
            f"{field} = {value!r:.80} is not accepted: give an integer from {minimum} to {maximum}"
        )


def _check_nested(value: Any, field: str) -> None:
    level = [value]
    for _ in range(_MAX_NESTED + 1):
        level = _below(level)
    if level:
        raise InvalidInput(f"{field} is not accepted: it is nested deeper than {_MAX_NESTED}")


def _below(level: list[Any]) -> list[Any]:
    """The members of the objects and lists of one level."""
    members: list[Any] = []
    for part in level:
        if isinstance(part, dict):
            members += part.values()
        elif isinstance(part, list):
            members += part
    return members


def _check_time(record: dict[str, Any], field: str) -> None:
    value = record.get(field)
    try:
        time = None
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or not _FIRST <= time <= _LAST:
        raise InvalidInput(
            f"{field} = {value!r:.80} is not accepted: give a time from 1970 to 9999 with its zone, such "
            "as 2026-11-20T12:00:00.000+00:00"
        )


def _check_digest(record: dict[str, Any]) -> None:
    value = record.get("digest")
    if not isinstance(value, str):
        raise InvalidInput(f"digest = {value!r:.80} is not accepted: give sha256:<64 lowercase hex digits>")
    blob_name(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)
