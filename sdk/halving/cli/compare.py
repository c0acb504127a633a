"""``halving compare``: what differs between runs, side by side."""

import argparse
from typing import Any

from halving.cli.output import console, print_json, print_table
from halving.errors import InvalidInput
from halving.query.run_diff import SECTIONS, diff_of, read_for_diff
from halving.query.runs import find_run
from halving.store.store import Store


def run_compare(arguments: argparse.Namespace) -> int:
    """Show what differs between runs, side by side.

    JSON: ``{"runs": [...], "params", "code", "environment", "packages", "metrics"}``; each of the five is
    ``{name: {"differs": bool, "values": [one for each run, in order; null where it has none]}}``, with the
    names that differ first. It is complete with or without ``--all``. A metric's value is its last.
    """
    store = Store(arguments.root)
    pairs = list(dict.fromkeys(find_run(store, name) for name in arguments.run_names))
    if len(pairs) < 2:
        raise InvalidInput(
            f"RUN {' '.join(arguments.run_names)!r} is not accepted: give at least two different runs"
        )
    runs = read_for_diff(store, pairs)
    diff = diff_of(runs)
    if arguments.json:
        print_json(diff)
        return 0
    out = console()
    heads = [info.run for info in runs]
    if len({info.project for info in runs}) > 1:
        heads = [f"{info.project}/{info.run}" for info in runs]
    states: dict[str, list[Any]] = {
        "status": [info.status for info in runs],
        "attempts": [len(info.attempts) for info in runs],
    }
    print_table(out, ("run", *heads), [[name, *values] for name, values in states.items()], first=True)
    equal = {}
    for name in SECTIONS:
        section = diff[name]
        rows = [[key, *row["values"]] for key, row in section.items() if row["differs"] or arguments.all]
        if rows and name == "metrics":
            print_table(out, (name, *heads), rows, right=heads)
        elif rows:
            print_table(out, (name, *heads), rows)
        equal[name] = sum(not row["differs"] for row in section.values())
    hidden = ", ".join(f"{name} {count}" for name, count in equal.items() if count)
    if hidden and not arguments.all:
        out.print(f"equal and not shown: {hidden}; --all shows them", style="dim")
    return 0
