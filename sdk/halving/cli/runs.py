"""``halving runs``: the runs that a filter chooses, in a table."""

import argparse
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from halving.cli.output import console, names_of, print_json, print_table
from halving.errors import InvalidInput
from halving.query.curve_stats import fill_last, keys_of
from halving.query.run_details import as_dict
from halving.query.run_filter import Field, InvalidFilter, RunFilter
from halving.query.run_filter_match import RunValues, match_runs
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import RunInfo, describe_choices, in_threads, list_runs
from halving.store.store import Store
from halving.text import duration, local_time

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
        understand: replaces a filter, where the application knows more of its fields than records say.
        with_outcomes: replaces runs, where the application knows more of how they ended than records say.

    JSON: ``{"store", "total", "runs": [{"project", "run", "status", "lifecycle", "started", "ended",
    "seconds", "attempt", "epoch", "params", "parent", "tags", "metrics"}], "problems"}``; ``total`` counts
    all runs that the filter chooses, whatever ``--limit`` is; nested params are ``optimizer.lr``;
    ``problems`` names the damaged records, whose runs are left out.

    Raises:
        InvalidInput: the filter is not accepted; the message points at the place.
    """
    store = Store(arguments.root)
    metrics = names_of(arguments.metrics)
    text = arguments.filter or ""
    problems: list[str] = []
    try:
        wanted = parse_filter(text)
        if understand is not None:
            wanted = understand(store, wanted)
        listed = list_runs(store, arguments.project, problems)
        if with_outcomes is not None:
            listed = with_outcomes(store, listed)
        chosen = match_runs(store, listed, wanted)
    except InvalidFilter as error:
        raise InvalidInput(f"{error}\n{point_at(text, error.column)}") from None
    infos = chosen[: arguments.limit or None]
    view_columns: tuple[Field, ...] = getattr(
        arguments, "columns", ()
    )  # of a view that the application knows
    named = [
        field
        for field in dict.fromkeys([*view_columns, *wanted.fields])
        if not (field.kind == "run" and field.name in (*_COLUMNS, "seconds"))
    ]
    if view_columns and metrics is None:
        metrics = []
    filter_metrics = [field.name for field in named if _is_last(field)]
    columns = None
    if metrics is not None:
        columns = list(dict.fromkeys([*metrics, *filter_metrics]))
    infos = fill_last(store, infos, columns)
    if arguments.json:
        print_json(
            {
                "store": store.root,
                "total": len(chosen),
                "runs": [_as_dict(info, metrics) for info in infos],
                "problems": sorted(problems),
            }
        )
        return 0
    out = console()
    if not listed:
        out.print(_nothing(store))
    elif not infos:
        out.print("no run matches; halving runs lists all")
    else:
        others = [field for field in named if not _is_last(field)]
        keys = columns
        if keys is None:
            keys = _key_metrics(infos, filter_metrics)
        values = in_threads(lambda info: _values(store, info, others), infos)
        rows = [
            [*_facts(info), *own, *(info.summary.get(key) for key in keys)]
            for info, own in zip(infos, values, strict=True)
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
        if len(chosen) > len(infos):
            out.print(f"{len(infos)} of {len(chosen)} runs; --limit 0 shows all", style="dim")
    if listed:
        for line in _lines_on_missing_names(store, listed, wanted):
            out.print(line, style="dim")
    for problem in sorted(problems):
        out.print(
            f"a run is left out: {problem}", style="yellow", highlight=False, markup=False, soft_wrap=True
        )
    return 0


def point_at(text: str, column: int) -> str:
    """Quote a filter in one line with a caret below a column; a long filter is cut."""
    unprintable = {character for character in text if not character.isprintable()}
    line = text.translate(dict.fromkeys(map(ord, unprintable), " "))
    start = max(0, min(column - 1 - _WIDTH // 2, len(line) - _WIDTH))
    before = "…" * (start > 0)
    behind = "…" * (start + _WIDTH < len(line))
    left = before + line[start : column - 1]
    return f"  {before}{line[start : start + _WIDTH]}{behind}\n  {' ' * sum(map(_cells, left))}^"


def _as_dict(info: RunInfo, metrics: list[str] | None) -> dict[str, Any]:
    values: dict[str, Any] = dict(info.summary)
    if metrics is not None:
        values = {key: info.summary.get(key) for key in metrics}
    return {**as_dict(info), "params": info.dotted_params, "metrics": values}


def _facts(info: RunInfo) -> list[Any]:
    return [
        info.run,
        info.project,
        info.status,
        local_time(info.started),
        duration(info.seconds),
        info.attempts[-1].number,
    ]


def _values(store: Store, info: RunInfo, fields: list[Field]) -> list[Any]:
    """A run's values of fields, for a table."""
    values = RunValues(store, info, fields)
    return [_table_value(field, values.of(field)) for field in fields]


def _table_value(field: Field, value: Any) -> Any:
    if field.type == "time":
        return local_time(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _is_last(field: Field) -> bool:
    return field.kind == "metrics" and field.part == "last"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cells(character: str) -> int:
    """Columns that a terminal needs for a character."""
    if unicodedata.combining(character):
        return 0
    return 1 + (unicodedata.east_asian_width(character) in "WF")


def _key_metrics(infos: list[RunInfo], first: list[str]) -> list[str]:
    """The ``first`` metrics, and after them those that most runs have, system metrics excepted."""
    counts = Counter(
        key for info in infos for key in info.summary if not key.startswith("system/") and key not in first
    )
    common = sorted(counts, key=lambda key: (-counts[key], key))
    return [*first, *common[: max(0, _KEY_METRICS - len(first))]]


def _lines_on_missing_names(store: Store, runs: list[RunInfo], wanted: RunFilter) -> Iterator[str]:
    """A line for each name in a filter that no run has.

    It is no error, because a run may have the name tomorrow.
    """
    for kind in ("params", "metrics", "tags"):
        names = {name for info in runs for name in _names(info, kind)}
        missing = [field.name for field in wanted.fields if field.kind == kind and field.name not in names]
        if missing and kind == "metrics":
            unsummarized = [info for info in runs if not info.summarized]
            names = names.union(
                *in_threads(lambda info: keys_of(store, info.project, info.run), unsummarized)
            )
        for name in dict.fromkeys(missing):
            if name not in names:
                yield f"no run has {kind}.{name}; {describe_choices(kind, name, sorted(names))}"


def _names(info: RunInfo, kind: str) -> Iterable[str]:
    if kind == "params":
        return info.flat_params
    if kind == "tags":
        return info.tags
    return info.summary


def _nothing(store: Store) -> str:
    return (
        f"there are no runs in {store.root} yet: halving.init(project=…) in a training script starts one "
        "(--root looks elsewhere)"
    )
