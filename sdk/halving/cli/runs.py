"""``halving runs``: the store's runs in a table."""

import argparse
import math
from collections import Counter
from typing import Any

from halving.cli.output import console, duration, moment, names_of, print_json, print_table
from halving.errors import InvalidInput
from halving.query.curve_stats import fill_last
from halving.query.runs import RunInfo, list_runs
from halving.store.store import Store

_KEY_METRICS = 4


def run_runs(arguments: argparse.Namespace) -> int:
    """List runs.

    JSON: ``{"store", "total", "runs": [{"project", "run", "status", "started", "ended", "seconds", "attempt", "epoch", "params",
    "parent", "tags", "metrics"}]}``; ``total`` counts all runs that match, whatever ``--limit`` is.
    """
    store = Store(arguments.root)
    metrics = names_of(arguments.metrics)
    found = [info for info in list_runs(store, arguments.project) if _matches(info, arguments)]
    total = len(found)
    if arguments.sort:
        found = _sorted(store, found, arguments.sort, arguments.descending)
    found = found[: arguments.limit] if arguments.limit else found
    found = fill_last(store, found, metrics)
    if arguments.json:
        print_json({"store": store.root, "total": total, "runs": [_as_dict(info, metrics) for info in found]})
        return 0
    out = console()
    if not found:
        out.print(_nothing(store, arguments))
        return 0
    keys = metrics if metrics is not None else _key_metrics(found, arguments.sort)
    columns = ["run", "project", "status", "started", "duration", "attempt", *keys]
    rows = [_row(info, keys) for info in found]
    print_table(out, columns, rows, right=("duration", "attempt", *keys), first=True)
    if total > len(found):
        out.print(f"{len(found)} of {total} runs; --limit 0 shows all", style="dim")
    return 0


def as_dict(info: RunInfo) -> dict[str, Any]:
    """What the JSON of every command has of a run."""
    newest = info.attempts[-1]
    return {
        "project": info.project,
        "run": info.run,
        "status": info.status,
        "started": info.started,
        "ended": newest.ended,
        "seconds": info.seconds,
        "attempt": newest.number,
        "epoch": newest.epoch,
        "params": info.params,
        "parent": info.parent,
        "tags": info.tags,
    }


def _as_dict(info: RunInfo, metrics: list[str] | None) -> dict[str, Any]:
    kept = info.summary if metrics is None else {key: info.summary.get(key) for key in metrics}
    return {**as_dict(info), "metrics": kept}


def _row(info: RunInfo, keys: list[str]) -> list[Any]:
    facts = [info.run, info.project, info.status, moment(info.started), duration(info.seconds), info.attempts[-1].number]
    return facts + [info.summary.get(key) for key in keys]


def _matches(info: RunInfo, arguments: argparse.Namespace) -> bool:
    statuses = names_of(arguments.status)
    if statuses is not None and info.status not in statuses:
        return False
    if arguments.sweep is not None and info.parent.get("sweep") != arguments.sweep:
        return False
    for tag in arguments.tag:
        name, equals, value = tag.partition("=")
        if name not in info.tags or (equals and str(info.tags[name]) != value):
            return False
    return True


def _sorted(store: Store, found: list[RunInfo], key: str, descending: bool) -> list[RunInfo]:
    """The runs by a metric's last value. Those without it, or with NaN, come last in either direction.

    Raises:
        InvalidInput: no run has the metric.
    """
    found = fill_last(store, found, [key])
    if found and not any(key in info.summary for info in found):
        known = sorted({name for info in found for name in info.summary})
        listed = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
        raise InvalidInput(f"--sort {key!r} is not accepted: no run has this metric; {f'there are {listed}' if known else 'none has any'}")

    def place(info: RunInfo) -> tuple[bool, float]:
        value = info.summary.get(key, math.nan)
        return math.isnan(value), 0.0 if math.isnan(value) else -value if descending else value

    return sorted(found, key=place)


def _key_metrics(found: list[RunInfo], first: str | None) -> list[str]:
    """The metrics that most of these runs have, system metrics aside."""
    counts = Counter(key for info in found for key in info.summary if not key.startswith("system/") and key != first)
    common = sorted(counts, key=lambda key: (-counts[key], key))
    return [*([first] if first else []), *common][:_KEY_METRICS]


def _nothing(store: Store, arguments: argparse.Namespace) -> str:
    if arguments.status or arguments.tag or arguments.sweep:
        return "no run matches; halving runs lists all"
    return f"there are no runs in {store.root} yet: halving.init(project=…) in a training script starts one (--root looks elsewhere)"
