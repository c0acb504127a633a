"""``halving leaderboard`` and ``halving replay``, and what all commands share."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving import InvalidInput, Store
from halving.cli.output import NONE, console, duration, print_json, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from resources.analysis.summary import SweepSummary
    from resources.backend import Backend


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
    hint = hints.get(summary.control, "") if searching else ""
    console.print(f"[bold]{sweep}: {summary.status}[/]{hint}", highlight=False)
    if summary.held_back:
        console.print(f"waits: {summary.held_back}", style="yellow", highlight=False, markup=False)
    if summary.failed:
        console.print(explain_failures(summary.failed), style="red", highlight=False, markup=False)
    _print_waiting(console, summary.waiting, rows)
    if not summary.standings:
        console.print("no trial has a result yet" if searching else "no trial has a result")
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
        reported = [number(standing.metrics[name]) if name in standing.metrics else NONE for name in others]
        values = [number(standing.params[name]) if name in standing.params else NONE for name in names]
        table.append(
            [place, standing.key, number(standing.objective), *reported, standing.epochs, status, *values]
        )
    columns = ("#", "trial", summary.objective, *others, "epochs", "status", *names)
    order = "within bounds, then highest rung, then result" if summary.bounds else "highest rung, then result"
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
    saved = f", {duration(summary.gpu_seconds_saved)} of GPU" if summary.gpu_seconds_saved else ""
    console.print(
        f"Early stopping: {summary.epochs_trained} of {summary.epochs_full} epochs trained, "
        f"{summary.saved:.0%} saved{saved}; {duration(summary.seconds)} of training in all."
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
        metrics = [
            f"{name} {'not finite' if value is None else number(value)}"
            for name, value in report.metrics.items()
        ]
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
            style = "red" if gate["outcome"] == FAIL else "yellow"
            console.print(
                f"Gate {gate['name']}: {gate['outcome']}: {gate['reason']}",
                style=style,
                highlight=False,
                markup=False,
            )


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay strategies on the curves of a sweep that is over.

    JSON: ``{"sweep", "objective", "direction", "trials", "workers", "itself": {...}, "replayed": [...]}``;
    each of those has ``strategy``, ``trials``, ``completed``, ``epochs``, ``seconds``, ``worker_seconds``,
    ``winner``, ``winner_epochs``, ``winner_objective``, ``place`` (among the sweep's own results, from 1);
    replayed ones have ``unknown_epochs`` and ``unknown_trials`` too.
    """
    from resources.analysis.strategy_replay import read_strategy, replay_sweep

    backend = backend_of(arguments)
    strategies = [read_strategy(text) for text in arguments.strategy]
    replay = replay_sweep(backend.store, backend.catalog, arguments.sweep, strategies)
    return answer(arguments, replay, lambda console: _print_replay(console, replay))


def _print_replay(console: "Console", replay: dict[str, Any]) -> None:
    from resources.evaluation.page import number

    rows = []
    for entry in [replay["itself"], *replay["replayed"]]:
        objective = NONE
        if entry["winner"]:
            objective = f"{number(entry['winner_objective'])} ({entry['winner_epochs']})"
        unknown = entry.get("unknown_epochs")  # None for the sweep itself
        unknown_text = f"{unknown} ({unknown / entry['epochs']:.0%})" if unknown else unknown
        name = "the sweep itself" if entry is replay["itself"] else strategy_text(entry["strategy"])
        rows.append(
            [
                name,
                entry["completed"],
                entry["epochs"],
                unknown_text,
                duration(entry["seconds"]),
                entry["winner"],
                objective,
                entry["place"],
            ]
        )
    columns = (
        "strategy",
        "to the end",
        "epochs",
        "unknown",
        "time",
        "winner",
        f"{replay['objective']} (epochs)",
        "place",
    )
    console.print(
        f"{replay['sweep']}: {replay['trials']} trials on {replay['workers']} workers", highlight=False
    )
    print_table(
        console,
        columns,
        rows,
        right=("to the end", "epochs", "unknown", "time", f"{replay['objective']} (epochs)", "place"),
    )
    console.print(
        "unknown: epochs beyond the end of a curve, which were never trained; such a trial counts with the "
        "last value of its curve.\n"
        "place: that of the winner among the sweep's own results. time: with as many workers as the sweep "
        "had; the sweep's own time "
        "includes starts and crashes.",
        style="dim",
        highlight=False,
    )


def strategy_text(strategy: dict[str, Any]) -> str:
    """A strategy in one line, with its budgets and the settings that differ from the defaults."""
    from resources.sweep_spec.strategy import Strategy

    (name, settings) = next(iter(strategy.items()))
    required = {"sampler": settings["sampler"]} if name == "optuna" else {}
    defaults = Strategy.model_validate({name: required}).chosen.model_dump()
    changed = [
        f"{key}: {value}"
        for key, value in settings.items()
        if value != defaults.get(key) or key in ("budget", "min_budget", "max_budget")
    ]
    return f"{name}: {{{', '.join(changed)}}}"


def answer(arguments: argparse.Namespace, data: Any, show: "Callable[[Console], None]") -> int:
    """Print the data as JSON with ``--json``, else call ``show``; returns the exit status 0."""
    if arguments.json:
        print_json(data)
    else:
        show(console_of(arguments))
    return 0


def backend_of(arguments: argparse.Namespace) -> "Backend":
    """The store of a command's ``--root``, and its catalog."""
    from resources.backend import Backend

    return Backend(root=arguments.root)


def existing_backend(arguments: argparse.Namespace) -> "Backend":
    """The store of a command's ``--root`` and its catalog; unlike :func:`backend_of` it makes no store.

    A command that only reads or deletes must not make a store where a root is misspelt.

    Raises:
        InvalidInput: there is no such folder.
    """
    backend = backend_of(arguments)
    folder = backend.store.folder
    if folder is not None and not folder.is_dir():
        root = backend.store.root
        raise InvalidInput(
            f"root = {root!r} is not accepted: there is no such folder; name a store by --root or "
            "HALVING_ROOT"
        )
    return backend


def dagster_home(store: Store) -> Path:
    """The folder of Dagster's instance: ``DAGSTER_HOME``, else in the store's folder."""
    return Path(os.environ.get("DAGSTER_HOME") or f"{store.root}/dagster")


def newest_sweep(backend: "Backend", spec: Any = None) -> str | None:
    """The id of the newest sweep, of all or of those that ``halving sweep`` launched of a spec."""
    from sqlalchemy import select

    from resources.catalog import SweepRow
    from resources.tenancy.projects import names_of

    query = select(SweepRow.id).order_by(SweepRow.created_at.desc()).limit(1)
    with backend.catalog.read() as session:
        if spec is not None:
            of_project = SweepRow.project.in_(names_of(session, spec.project))
            query = query.where(SweepRow.spec_digest == spec.digest, SweepRow.driver == "job", of_project)
        return session.scalar(query)


def console_of(arguments: argparse.Namespace) -> "Console":
    """The console for people, on the standard error when the standard output is for JSON."""
    return console(stderr=arguments.json, markup=True)
