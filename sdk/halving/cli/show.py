"""``halving show``: everything about one run."""

import argparse
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halving.cli.output import cell_text, console, print_json, print_pairs, print_table
from halving.query.curve_stats import Extremes
from halving.query.run_details import code_of, details_of, environment_of, verdict_of
from halving.query.runs import RunInfo, find_run, read_run
from halving.query.skipped_checkpoints import skipped_checkpoints
from halving.records.amendments import ACTIVE
from halving.records.run_record import SavedCheckpoint
from halving.store.store import Store
from halving.text import NONE, duration, local_time, size

if TYPE_CHECKING:
    from rich.console import Console

_KEY_PACKAGES = (
    "torch",
    "tensorflow",
    "jax",
    "keras",
    "lightning",
    "transformers",
    "scikit-learn",
    "xgboost",
    "numpy",
    "pyarrow",
)


def run_show(
    arguments: argparse.Namespace,
    with_outcomes: Callable[[Store, list[RunInfo]], list[RunInfo]] | None = None,
) -> int:
    """Show one run.

    Args:
        with_outcomes: replaces runs, where the application knows more of how they ended than records say.

    JSON: the fields of ``halving runs --json``, ``seed, determinism, provenance, attempts, metrics,
    artifacts, media, checkpoints, files``, and for a rerun its ``verdict``. ``metrics`` is ``{key: {"last",
    "min", "max", "points"}}`` of the stitched curve; all but ``last`` are null where retention has dropped
    the points.
    """
    store = Store(arguments.root)
    info = read_run(store, *find_run(store, arguments.run_name))
    if with_outcomes is not None:
        [info] = with_outcomes(store, [info])
    details = details_of(store, info)
    verdict = verdict_of(store, info)
    if verdict is not None:
        details["verdict"] = verdict
    if arguments.json:
        print_json({**details, "params": info.dotted_params})
        return 0
    _print(console(), info, details, arguments.packages)
    return 0


def _print(out: "Console", info: RunInfo, details: dict[str, Any], all_packages: bool) -> None:
    out.print(f"{info.project}/{info.run}: {info.status}", style="bold")
    if info.lifecycle != ACTIVE:
        since = ""
        if info.lifecycle_since:
            since = f" since {local_time(info.lifecycle_since)}"
        out.print(
            f"it is {info.lifecycle}{since}: halving runs restore {info.project}/{info.run} takes it back"
        )
    started = f"started {local_time(info.started)}, {duration(info.seconds)} of training"
    if len(info.attempts) > 1:
        started += f", {len(info.attempts)} attempts"
    out.print(started)
    if verdict := details.get("verdict"):
        out.print(f"trained again from {verdict['rerun_of']}: {verdict['verdict']}")
    print_pairs(out, "params", info.flat_params)
    print_pairs(out, "tags", info.tags)
    print_pairs(out, "defined metrics", info.defined_metrics)
    print_pairs(out, "belongs to", info.parent)
    print_pairs(out, "code", code_of(info))
    print_pairs(out, "environment", environment_of(info) | {"packages": _packages(info, all_packages)})
    print_pairs(out, "seeds", {"seed": info.seed, **details["determinism"]})
    _print_attempts(out, info)
    _print_metrics(out, details)
    _print_artifacts(out, details)
    _print_checkpoints(out, info, details["checkpoints"])
    _print_files(out, details["files"])


def _packages(info: RunInfo, every: bool) -> str:
    packages = info.provenance.get("packages") or {}
    if every:
        return "\n".join(f"{name} {version}" for name, version in packages.items())
    versions = "".join(f"{name} {packages[name]}, " for name in _KEY_PACKAGES if name in packages)
    return f"{versions}{len(packages)} in all (--packages)"


def _print_attempts(out: "Console", info: RunInfo) -> None:
    rows = []
    for attempt in info.attempts:
        lost = []
        if attempt.dropped_points:
            lost.append(f"{attempt.dropped_points} points dropped")
        if attempt.rejected_values:
            lost.append(f"{attempt.rejected_values} values rejected")
        facts = [
            attempt.number,
            attempt.status,
            local_time(attempt.started),
            duration(attempt.seconds),
            attempt.epoch,
        ]
        rows.append([*facts, ", ".join(lost) or "nothing"])
    columns = ("attempt", "ended as", "started", "duration", "epoch", "lost")
    print_table(out, columns, rows, right=("attempt", "duration", "epoch"), title="attempts")
    if info.attempts[-1].status == "unfinished":
        advice = "run halving recover on the machine that did, to save the points that are still there"
        out.print(f"no end is recorded and no process trains it: {advice}", style="dim")


def _print_metrics(out: "Console", details: dict[str, Any]) -> None:
    if details["metrics"]:
        columns = ("metric", *Extremes._fields)
        rows = [
            [key, *(value[name] for name in Extremes._fields)] for key, value in details["metrics"].items()
        ]
        print_table(out, columns, rows, right=Extremes._fields, title="metrics")
    else:
        out.print("no metrics")


def _print_artifacts(out: "Console", details: dict[str, Any]) -> None:
    if details["artifacts"]:
        rows = [[row["name"], size(row["bytes"]), row["file"]] for row in details["artifacts"]]
        print_table(out, ("artifact", "size", "file"), rows, right=("size",), title="artifacts")
    if details["media"]:
        groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for row in details["media"]:
            groups[row["key"], row["kind"]].append(row)
        rows = [
            [key, kind, len(group), group[-1].get("step"), group[-1]["file"]]
            for (key, kind), group in sorted(groups.items())
        ]
        print_table(
            out,
            ("media", "kind", "count", "last step", "last file"),
            rows,
            right=("count", "last step"),
            title="media",
        )


def _print_checkpoints(out: "Console", info: RunInfo, checkpoints: list[dict[str, Any]]) -> None:
    skipped = skipped_checkpoints(map(SavedCheckpoint.of, checkpoints), info.attempts)
    if not checkpoints and not skipped:
        return
    pairs: dict[str, Any] = {"count": len(checkpoints)}
    if checkpoints:
        newest = checkpoints[-1]
        pairs["newest"] = f"epoch {newest['epoch']}, attempt {newest['attempt']}"
        reported = [f"{name} {cell_text(value)}" for name, value in newest["reported"].items()]
        pairs["reported"] = ", ".join(reported) or NONE
        pairs["file"] = newest["file"]
    counts = [attempt.checkpoints for attempt in info.attempts if attempt.checkpoints]
    if counts:
        saves, left_out, seconds = (
            sum(count[name] for count in counts) for name in ("saves", "skipped", "seconds")
        )
        pairs["written"] = (
            f"{saves} in {duration(seconds)}; {left_out} skipped, because they were not due or the store did "
            "not take them"
        )
    if skipped:
        pairs["not taken"] = "\n".join(checkpoint.text for checkpoint in skipped)
    print_pairs(out, "checkpoints", pairs)


def _print_files(out: "Console", files: dict[str, Any]) -> None:
    segments = None
    if files["segments"]:
        segments = f"{len(files['segments'])} not compacted yet (halving compact)"
    pairs = {
        "store": files["store"],
        "record": files["record"],
        "points": files["full"],
        "rollups": files["rollup"],
        "segments": segments,
        "journals": ", ".join(files["journals"]) or None,
    }
    print_pairs(out, "files", {name: value for name, value in pairs.items() if value is not None})
