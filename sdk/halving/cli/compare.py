"""``halving compare``: what differs between runs, side by side."""

import argparse
from collections.abc import Callable
from typing import Any

from halving.cli.output import console, print_json, print_table
from halving.cli.runs import as_dict
from halving.cli.show import code_of, environment_of
from halving.errors import InvalidInput
from halving.query.curve_stats import fill_last
from halving.query.runs import RunInfo, find_run, in_threads, read_run
from halving.store.store import Store

_ABSENT = object()
_Values = dict[str, Any]


def run_compare(arguments: argparse.Namespace) -> int:
    """Compare runs.

    JSON: ``{"runs": [...], "params", "code", "environment", "packages", "metrics"}``; each of the five is
    ``{name: {"differs": bool, "values": [one for each run, in order; null where it has none]}}``, what differs first.
    It is complete with or without ``--all``. A metric's value is its last.
    """
    store = Store(arguments.root)
    found = list(dict.fromkeys(find_run(store, name) for name in arguments.run_names))
    if len(found) < 2:
        raise InvalidInput(f"RUN {' '.join(arguments.run_names)!r} is not accepted: give at least two different runs")
    runs = fill_last(store, in_threads(lambda pair: read_run(store, *pair), found))
    sections = {name: _section([values(info) for info in runs]) for name, values in _SECTIONS.items()}
    if arguments.json:
        print_json({"runs": [as_dict(info) for info in runs], **sections})
        return 0
    out = console()
    several = len({info.project for info in runs}) > 1
    heads = [f"{info.project}/{info.run}" if several else info.run for info in runs]
    states: dict[str, list[Any]] = {"status": [info.status for info in runs], "attempts": [len(info.attempts) for info in runs]}
    print_table(out, ("run", *heads), [[name, *values] for name, values in states.items()], first=True)
    equal = {}
    for name, section in sections.items():
        rows = [[key, *row["values"]] for key, row in section.items() if row["differs"] or arguments.all]
        if rows:
            print_table(out, (name, *heads), rows, right=heads if name == "metrics" else ())
        equal[name] = sum(not row["differs"] for row in section.values())
    hidden = ", ".join(f"{name} {count}" for name, count in equal.items() if count)
    if hidden and not arguments.all:
        out.print(f"equal and not shown: {hidden}; --all shows them", style="dim")
    return 0


def _section(columns: list[_Values]) -> dict[str, Any]:
    """Each name's values, what differs first and otherwise in order of appearance."""
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


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)  # NaN is the same as NaN here


def _origin(info: RunInfo) -> _Values:
    """Everything that identifies the code: two modified checkouts with equal patches are the same code."""
    own = {name: info.parent[name] for name in ("trainable", "trainable_sha256", "dataset", "snapshot") if name in info.parent}
    return {name: value for name, value in code_of(info).items() if name not in ("command", "left out of it")} | own


def _environment(info: RunInfo) -> _Values:
    newest = info.starts.get(info.attempts[-1].number, info.record)
    return environment_of(info) | {"seed": info.seed} | (newest.get("determinism") or {})


_SECTIONS: dict[str, Callable[[RunInfo], _Values]] = {
    "params": lambda info: info.flat_params,
    "code": _origin,
    "environment": _environment,
    "packages": lambda info: info.provenance.get("packages") or {},
    "metrics": lambda info: {key: info.summary[key] for key in sorted(info.summary)},
}
