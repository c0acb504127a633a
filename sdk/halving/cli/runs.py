"""``halving runs``: the store's runs in a table, those that a filter chooses."""

import argparse
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from halving.cli.output import console, duration, moment, names_of, print_json, print_table
from halving.errors import InvalidInput
from halving.query.curve_stats import fill_last, keys_of
from halving.query.run_details import as_dict
from halving.query.run_filter import Field, InvalidFilter, RunFilter
from halving.query.run_filter_match import RunValues, match_runs
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import RunInfo, in_threads, list_runs, there_are
from halving.store.store import Store

_KEY_METRICS = 4
_COLUMNS = ("run", "project", "status", "started", "duration", "attempt")
_WIDTH = 100  # characters of a filter that a message shows


def run_runs(
    arguments: argparse.Namespace,
    understand: Callable[[Store, RunFilter], RunFilter] | None = None,
    with_outcomes: Callable[[Store, list[RunInfo]], list[RunInfo]] | None = None,
) -> int:
    """List runs; archived and deleted ones only where the filter names ``lifecycle``.

    Args:
        understand: gives the filter that is meant by one, where the application knows more of it than records
            say.
        with_outcomes: gives the runs as they ended, where the application knows more of that than records
            say.

    JSON: ``{"store", "total", "runs": [{"project", "run", "status", "lifecycle", "started", "ended",
    "seconds", "attempt", "epoch", "params", "parent", "tags", "metrics"}], "problems"}``; ``total`` counts
    all runs that the filter chooses, whatever ``--limit`` is; nested params are ``optimizer.lr``;
    ``problems`` says which records are damaged, whose runs are left out.

    Raises:
        InvalidInput: the filter is not accepted; the message points at the place.
    """
    store = Store(arguments.root)
    metrics = names_of(arguments.metrics)
    text = arguments.filter or ""
    problems: list[str] = []
    try:
        wanted = parse_filter(text)
        wanted = understand(store, wanted) if understand is not None else wanted
        listed = list_runs(store, arguments.project, problems)
        listed = with_outcomes(store, listed) if with_outcomes is not None else listed
        chosen = match_runs(store, listed, wanted)
    except InvalidFilter as error:
        raise InvalidInput(f"{error}\n{pointed(text, error.column)}") from None
    found = chosen[: arguments.limit] if arguments.limit else chosen
    named = [
        field for field in wanted.fields if not (field.kind == "run" and field.name in (*_COLUMNS, "seconds"))
    ]
    asked = [field.name for field in named if _is_last(field)]
    found = fill_last(store, found, None if metrics is None else [*metrics, *asked])
    if arguments.json:
        print_json(
            {
                "store": store.root,
                "total": len(chosen),
                "runs": [_as_dict(info, metrics) for info in found],
                "problems": sorted(problems),
            }
        )
        return 0
    out = console()
    if not found:
        out.print("no run matches; halving runs lists all" if listed else _nothing(store))
    else:
        others = [field for field in named if not _is_last(field)]
        keys = _key_metrics(found, asked) if metrics is None else list(dict.fromkeys([*metrics, *asked]))
        values = in_threads(lambda info: _values(store, info, others), found)
        rows = [
            [*_facts(info), *own, *(info.summary.get(key) for key in keys)]
            for info, own in zip(found, values, strict=True)
        ]
        numbers = [
            str(field) for place, field in enumerate(others) if all(_is_number(own[place]) for own in values)
        ]
        print_table(
            out,
            [*_COLUMNS, *map(str, others), *keys],
            rows,
            right=("duration", "attempt", *numbers, *keys),
            first=True,
        )
        if len(chosen) > len(found):
            out.print(f"{len(found)} of {len(chosen)} runs; --limit 0 shows all", style="dim")
    for line in _unknown(store, listed, wanted) if listed else ():
        out.print(line, style="dim")
    for problem in sorted(problems):
        out.print(
            f"a run is left out: {problem}", style="yellow", highlight=False, markup=False, soft_wrap=True
        )
    return 0


def pointed(text: str, column: int) -> str:
    """The line of a filter with a caret below a column, cut where it is long."""
    line = "".join(character if character.isprintable() else " " for character in text)
    start = max(0, min(column - 1 - _WIDTH // 2, len(line) - _WIDTH))
    before = "…" * (start > 0)
    behind = "…" * (start + _WIDTH < len(line))
    left = before + line[start : column - 1]
    return f"  {before}{line[start : start + _WIDTH]}{behind}\n  {' ' * sum(map(_cells, left))}^"


def _as_dict(info: RunInfo, metrics: list[str] | None) -> dict[str, Any]:
    kept = info.summary if metrics is None else {key: info.summary.get(key) for key in metrics}
    return {**as_dict(info), "params": info.dotted_params, "metrics": kept}


def _facts(info: RunInfo) -> list[Any]:
    return [
        info.run,
        info.project,
        info.status,
        moment(info.started),
        duration(info.seconds),
        info.attempts[-1].number,
    ]


def _values(store: Store, info: RunInfo, fields: list[Field]) -> list[Any]:
    """What a run has of fields, as a table shows it."""
    values = RunValues(store, info, fields)
    return [_shown(field, values.of(field)) for field in fields]


def _shown(field: Field, value: Any) -> Any:
    if field.type == "time":
        return moment(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _is_last(field: Field) -> bool:
    return field.kind == "metrics" and field.part == "last"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cells(character: str) -> int:
    """How wide a terminal shows it."""
    return (
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
    )


def _key_metrics(found: list[RunInfo], first: list[str]) -> list[str]:
    """The metrics that most of these runs have, system metrics aside, behind those that come ``first``."""
    counts = Counter(
        key for info in found for key in info.summary if not key.startswith("system/") and key not in first
    )
    common = sorted(counts, key=lambda key: (-counts[key], key))
    return [*first, *common[: max(0, _KEY_METRICS - len(first))]]


def _unknown(store: Store, runs: list[RunInfo], wanted: RunFilter) -> Iterator[str]:
    """A line for each name in a filter that no run has.

    It is no error, because a run may have it tomorrow.
    """
    for kind in ("params", "metrics", "tags"):
        known = {name for info in runs for name in _names(info, kind)}
        missing = [field.name for field in wanted.fields if field.kind == kind and field.name not in known]
        if missing and kind == "metrics":
            known = known.union(
                *in_threads(
                    lambda info: [] if info.summarized else keys_of(store, info.project, info.run), runs
                )
            )
        for name in dict.fromkeys(missing):
            if name not in known:
                yield f"no run has {kind}.{name}; {there_are(kind, name, sorted(known))}"


def _names(info: RunInfo, kind: str) -> Iterable[str]:
    return info.flat_params if kind == "params" else info.tags if kind == "tags" else info.summary


def _nothing(store: Store) -> str:
    return (
        f"there are no runs in {store.root} yet: halving.init(project=…) in a training script starts one "
        "(--root looks elsewhere)"
    )
