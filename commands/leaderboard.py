"""``halving leaderboard``: a sweep's trials, best first, and what became of its winner."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commands.shared import backend_of, console_of, newest_sweep
from halving.cli.output import print_json, print_table
from halving.cli.parser import add_command
from halving.text import NONE, duration

if TYPE_CHECKING:
    from rich.console import Console

    from resources.analysis.summary import SweepSummary
    from resources.backend import Backend


def add_leaderboard_command(commands: Any) -> None:
    """Add ``halving leaderboard``."""
    description = "show a sweep's trials, best first, and what early stopping saved"
    leaderboard = add_command(commands, "leaderboard", description, run_leaderboard)
    leaderboard.add_argument("sweep", nargs="?", help="the sweep's id (default: the newest)")


def run_leaderboard(arguments: argparse.Namespace) -> int:
    """Show a sweep's trials, best first.

    JSON: the fields of :class:`resources.analysis.summary.SweepSummary` (``sweep``, ``status``,
    ``objective``, ``standings``, ``rungs``, ``failed``, ``epochs_trained``, ``audit_epochs``,
    ``gpu_seconds_saved``…), and ``saved``, ``final_scores`` (what the report says of the final training),
    ``test_metrics``, ``gates`` (their verdicts: ``name``, ``outcome``, ``reason``, ``figure``, ``needed``…),
    ``promoted``, ``report``.
    """
    from resources.registry.leaderboard import leaderboard_of

    backend = backend_of(arguments)
    console = console_of(arguments)
    sweep = arguments.sweep or newest_sweep(backend)
    if sweep is None:
        console.print(
            f"there are no sweeps in {backend.store.root} yet: run [bold]halving sweep sweeps/digits.yaml[/]"
        )
        return 1
    if arguments.json:
        print_json(leaderboard_of(backend.store, backend.catalog, sweep))
    else:
        print_leaderboard(console, backend, sweep)
    return 0


def print_leaderboard(console: "Console", backend: "Backend", sweep: str, rows: int = 10) -> None:
    """Print a sweep's best trials, what early stopping saved, the final training, and the promotion."""
    from resources.analysis.summary import outcome, summarize
    from resources.evaluation.page import number
    from resources.evaluation.report import explain_failures, report_path

    summary = summarize(backend.catalog, sweep)
    searching = summary.status == "searching"
    hints = {"pause": f" (paused: halving resume {sweep} continues it)", "stop": " (being stopped)"}
    hint = ""
    if searching:
        hint = hints.get(summary.control, "")
    console.print(f"[bold]{sweep}: {summary.status}[/]{hint}", highlight=False)
    if summary.held_back:
        console.print(f"waits: {summary.held_back}", style="yellow", highlight=False, markup=False)
    if summary.failed:
        console.print(explain_failures(summary.failed), style="red", highlight=False, markup=False)
    _print_waiting(console, summary.waiting, rows)
    if not summary.standings:
        message = "no trial has a result"
        if searching:
            message += " yet"
        console.print(message)
        return
    others = [objective["metric"] for objective in summary.objectives[1:]]
    others += [metric for metric in summary.bounds if metric not in (summary.objective, *others)]
    names = list(dict.fromkeys(name for standing in summary.standings for name in standing.params))
    table = []
    for place, standing in enumerate(summary.standings[:rows], start=1):
        status = outcome(standing.status, audited=standing.audited, searching=searching)
        if standing.on_front:
            status += ", on the front"
        if standing.violation > 0:
            status += ", out of bounds"
        reported = [_number_of(standing.metrics, name) for name in others]
        values = [_number_of(standing.params, name) for name in names]
        table.append(
            [place, standing.key, number(standing.objective), *reported, standing.epochs, status, *values]
        )
    columns = ("#", "trial", summary.objective, *others, "epochs", "status", *names)
    order = "highest rung, then result"
    if summary.bounds:
        order = f"within bounds, then {order}"
    print_table(
        console,
        columns,
        table,
        right=[*{*columns} - {"trial", "status"}],
        title=f"ranked by {order}",
        first=True,
    )
    if len(summary.standings) > rows:
        console.print(f"and {len(summary.standings) - rows} more trials", style="dim")
    saved = f"{summary.saved:.0%} saved"
    if summary.gpu_seconds_saved:
        saved += f", {duration(summary.gpu_seconds_saved)} of GPU"
    console.print(
        f"Early stopping: {summary.epochs_trained} of {summary.epochs_full} epochs trained, {saved}; "
        f"{duration(summary.seconds)} of training in all."
    )
    if summary.audited:
        console.print(
            f"Audit of pruning: {summary.audit_epochs} more epochs, {duration(summary.audit_seconds)}.",
            highlight=False,
        )
    _print_final(console, backend, summary)
    _print_outcome(console, backend, sweep)
    if backend.store.exists(report_path(sweep)):
        console.print(f"Report: {backend.store.address(report_path(sweep))}")


def _number_of(values: Mapping[str, Any], name: str) -> str:
    """The cell of a metric or param, which a trial may not have."""
    from resources.evaluation.page import number

    if name not in values:
        return NONE
    return number(values[name])


def _print_final(console: "Console", backend: "Backend", summary: "SweepSummary") -> None:
    """Print the final trainings of the winner's params, if there are any, with their scores."""
    from resources.evaluation.page import number
    from resources.registry.leaderboard import outcome_of, report_data

    if not summary.final_seeds:
        return
    report, _ = outcome_of(backend.catalog, summary.sweep)
    scores = report_data(backend.store, report).get("final") or {"promotable": None, "seeds": []}
    metrics = {seed["key"]: seed["metrics"] for seed in scores["seeds"] if seed["metrics"]}
    title = (
        f"Final training: {sum(trial.complete for trial in summary.final)} of {summary.final_seeds} seeds "
        "complete"
    )
    spent = "none has begun"
    if summary.final:
        spent = f"{duration(sum(trial.seconds for trial in summary.final))} of training"
    console.print(f"{title}; {spent}.", highlight=False)
    for trial in summary.final:
        line = f"  {trial.key}  seed {trial.seed + 1}: {trial.status}"
        if trial.epochs is not None:
            line += f", {trial.epochs} epochs"
        line += "".join(f", {name} {number(value)}" for name, value in metrics.get(trial.key, {}).items())
        if trial.key == scores["promotable"]:
            line += ", the median"
        console.print(line, highlight=False)
    if len(metrics) > 1:
        spread = [
            f"{name} {number(mean)} ± {number(scores['std'][name])}" for name, mean in scores["mean"].items()
        ]
        console.print(f"  mean ± standard deviation: {', '.join(spread)}", highlight=False)


def _print_waiting(console: "Console", waiting: list[dict[str, Any]], rows: int) -> None:
    """Print the trials whose pods have not started, with the cluster's reason."""
    from rich.markup import escape

    for trial in waiting[:rows]:
        console.print(
            f"{trial['key']} waits for its pod: {escape(trial['reason'])}", style="yellow", highlight=False
        )
    if len(waiting) > rows:
        console.print(
            f"and {len(waiting) - rows} more trials wait for their pods", style="yellow", highlight=False
        )


def _print_outcome(console: "Console", backend: "Backend", sweep: str) -> None:
    from resources.evaluation.page import number
    from resources.registry.leaderboard import outcome_of, report_data

    report, version = outcome_of(backend.catalog, sweep)
    if report:
        metrics = []
        for name, value in report.metrics.items():
            text = "not finite"
            if value is not None:
                text = number(value)
            metrics.append(f"{name} {text}")
        console.print(f"Test split: {', '.join(metrics)}")
        _print_gates(console, report_data(backend.store, report).get("gates") or [])
    if version:
        text = f"Promoted: model {version.model} {version.version} is {version.stage}"
        if version.stage == "staging":
            text += f"; make it champion: halving promote {version.model} {version.version}"
        console.print(text, highlight=False)


def _print_gates(console: "Console", gates: list[dict[str, Any]]) -> None:
    """Print the gates that the winner has passed, and why it has not passed the others."""
    from resources.registry.gates.verdict import FAIL, PASS

    passed = list(dict.fromkeys(gate["name"] for gate in gates if gate["outcome"] == PASS))
    if passed:
        console.print(f"Gates passed: {', '.join(passed)}", highlight=False)
    for gate in gates:
        if gate["outcome"] != PASS:
            style = "yellow"
            if gate["outcome"] == FAIL:
                style = "red"
            console.print(
                f"Gate {gate['name']}: {gate['outcome']}: {gate['reason']}",
                style=style,
                highlight=False,
                markup=False,
            )
