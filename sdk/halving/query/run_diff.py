"""What differs between runs: params, code with its uncommitted changes, environment, packages, metrics."""

from collections.abc import Callable, Sequence
from typing import Any

from halving.errors import NotFound
from halving.query.curve_stats import fill_last
from halving.query.run_details import as_dict, code_of, environment_of
from halving.query.runs import RunInfo, in_threads, read_run
from halving.store.store import Store, blob_name

MAX_PATCH_BYTES = 1 << 20
"""A longer patch of a run is cut."""
_ABSENT = object()
_Values = dict[str, Any]


def read_for_diff(store: Store, runs: Sequence[tuple[str, str]]) -> list[RunInfo]:
    """Read runs, each named by its project and id, with the last value of each metric.

    Raises:
        NotFound: no such run.
        StoreError: a file of a run cannot be read, or is damaged.
    """
    return fill_last(store, in_threads(lambda pair: read_run(store, *pair), runs))


def diff_of(infos: Sequence[RunInfo]) -> dict[str, Any]:
    """Compare runs, as ``halving compare --json`` prints it.

    Returns:
        ``{"runs": [...], "params", "code", "environment", "packages", "metrics"}``; each of the five
        (:data:`SECTIONS`) is ``{name: {"differs": bool, "values": [one for each run, in order; None where it
        has none]}}``, with the names that differ first. A metric's value is its last.
    """
    sections = {name: _section([values(info) for info in infos]) for name, values in _VALUES.items()}
    return {"runs": [as_dict(info) for info in infos], **sections}


def patch_of(store: Store, info: RunInfo) -> str | None:
    """The uncommitted changes of the newest attempt's code, as a unified diff; None without a patch.

    Raises:
        StoreError: the store cannot be read.
    """
    digest = (info.provenance.get("git") or {}).get("patch")
    if not digest:
        return None
    try:
        with store.open_file(blob_name(digest)) as file:
            patch = bytes(file.read(MAX_PATCH_BYTES + 1))
    except NotFound:
        return None
    if len(patch) <= MAX_PATCH_BYTES:
        return patch.decode(errors="replace")
    whole_lines = patch[:MAX_PATCH_BYTES].rpartition(b"\n")[0]
    return (
        whole_lines.decode(errors="replace")
        + f"\n… and more: the whole is {blob_name(digest)} in the store\n"
    )


def _section(columns: list[_Values]) -> dict[str, Any]:
    """Each name's values, those that differ first and otherwise in order of appearance."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = {name: [column.get(name, _ABSENT) for column in columns] for name in names}
    section = {
        name: {
            "differs": any(not _same(value, values[0]) for value in values),
            "values": [None if value is _ABSENT else value for value in values],
        }
        for name, values in rows.items()
    }
    return dict(sorted(section.items(), key=lambda item: not item[1]["differs"]))


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) or (value != value and other != other)  # NaN equals NaN here.


def _origin(info: RunInfo) -> _Values:
    """The facts that identify the code; two modified checkouts with equal patches are the same code."""
    own = {
        name: info.parent[name]
        for name in ("trainable", "trainable_sha256", "dataset", "snapshot")
        if name in info.parent
    }
    return {
        name: value for name, value in code_of(info).items() if name not in ("command", "left out of it")
    } | own


def _environment(info: RunInfo) -> _Values:
    newest = info.starts.get(info.attempts[-1].number, info.record)
    return environment_of(info) | {"seed": info.seed} | (newest.get("determinism") or {})


_VALUES: dict[str, Callable[[RunInfo], _Values]] = {
    "params": lambda info: info.flat_params,
    "code": _origin,
    "environment": _environment,
    "packages": lambda info: info.provenance.get("packages") or {},
    "metrics": lambda info: {key: info.summary[key] for key in sorted(info.summary)},
}
SECTIONS = tuple(_VALUES)
