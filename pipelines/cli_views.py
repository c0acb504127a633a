"""Commands that show the catalog or change a version's stage: ``halving leaderboard``, ``replay``, ``models``,
``promote``, ``archive``; and ``retention``, which the catalog protects runs from."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halving.cli.output import NONE, console, duration, print_json, print_table, size
from halving.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from resources.backend import Backend


def run_leaderboard(arguments: argparse.Namespace) -> int:
    """Show a sweep's trials, best first.

    JSON: the fields of :class:`resources.analysis.summary.SweepSummary` (``sweep``, ``status``, ``objective``, ``standings``, ``rungs``,
    ``failed``, ``epochs_trained``, ``audit_epochs``, ``gpu_seconds_saved``…), and ``saved``, ``test_metrics``, ``promoted``, ``report``.
    """
    from resources.registry.leaderboard import leaderboard_of

    backend, console = backend_of(arguments), console_of(arguments)
    sweep = arguments.sweep or newest_sweep(backend)
    if sweep is None:
        console.print(f"there are no sweeps in {backend.store.root} yet: run [bold]halving sweep sweeps/digits.yaml[/]")
        return 1
    if arguments.json:
        print_json(leaderboard_of(backend.store, backend.catalog, sweep))
    else:
        print_leaderboard(console, backend, sweep)
    return 0


def print_leaderboard(console: "Console", backend: "Backend", sweep: str, rows: int = 10) -> None:
    """Print the leading trials, what early stopping saved, and whether the winner was promoted."""
    from resources.analysis.summary import outcome, summarize
    from resources.evaluation.page import number
    from resources.evaluation.report import explain_failures, report_path

    summary = summarize(backend.catalog, sweep)
    searching = summary.status == "searching"
    hints = {"pause": f" (paused: halving resume {sweep} continues it)", "stop": " (being stopped)"}
    asked = hints.get(summary.control, "") if searching else ""
    console.print(f"[bold]{sweep}: {summary.status}[/]{asked}", highlight=False)
    if summary.failed:
        console.print(explain_failures(summary.failed), style="red", highlight=False)
    _print_waiting(console, summary.waiting, rows)
    if not summary.standings:
        console.print("no trial has a result yet" if searching else "no trial has a result")
        return
    others = [objective["metric"] for objective in summary.objectives[1:]]
    others += [metric for metric in summary.bounds if metric not in (summary.objective, *others)]
    names, table = list(dict.fromkeys(name for standing in summary.standings for name in standing.params)), []
    for place, standing in enumerate(summary.standings[:rows], start=1):
        status = outcome(standing.status, audited=standing.audited, searching=searching)
        status += ", on the front" if standing.on_front else ""
        status += ", out of bounds" if standing.violation > 0 else ""
        reported = [number(standing.metrics[name]) if name in standing.metrics else NONE for name in others]
        values = [number(standing.params[name]) if name in standing.params else NONE for name in names]
        table.append([place, standing.key, number(standing.objective), *reported, standing.epochs, status, *values])
    columns = ("#", "trial", summary.objective, *others, "epochs", "status", *names)
    order = "within bounds, then highest rung, then result" if summary.bounds else "highest rung, then result"
    print_table(console, columns, table, right=[*{*columns} - {"trial", "status"}], title=f"ranked by {order}", first=True)
    if len(summary.standings) > rows:
        console.print(f"and {len(summary.standings) - rows} more trials", style="dim")
    saved = f", {duration(summary.gpu_seconds_saved)} of GPU" if summary.gpu_seconds_saved else ""
    console.print(
        f"Early stopping: {summary.epochs_trained} of {summary.epochs_full} epochs trained, "
        f"{summary.saved:.0%} saved{saved}; {duration(summary.seconds)} of training in all."
    )
    if summary.audited:
        console.print(f"Audit of pruning: {summary.audit_epochs} more epochs, {duration(summary.audit_seconds)}.", highlight=False)
    _print_outcome(console, backend, sweep)
    if backend.store.exists(report_path(sweep)):
        console.print(f"Report: {backend.store.address(report_path(sweep))}")


def _print_waiting(console: "Console", waiting: list[dict[str, Any]], rows: int) -> None:
    """Print the trials whose pods have not started, with the cluster's reason."""
    from rich.markup import escape

    for trial in waiting[:rows]:
        console.print(f"{trial['key']} waits for its pod: {escape(trial['reason'])}", style="yellow", highlight=False)
    if len(waiting) > rows:
        console.print(f"and {len(waiting) - rows} more trials wait for their pods", style="yellow", highlight=False)


def _print_outcome(console: "Console", backend: "Backend", sweep: str) -> None:
    from resources.evaluation.page import number
    from resources.registry.leaderboard import outcome_of

    report, version = outcome_of(backend.catalog, sweep)
    if report:
        shown = [f"{name} {'not finite' if value is None else number(value)}" for name, value in report.metrics.items()]
        console.print(f"Test split: {', '.join(shown)}")
    if version:
        hint = f"; make it champion: halving promote {version.model} {version.version}" if version.stage == "staging" else ""
        console.print(f"Promoted: model {version.model} {version.version} is {version.stage}{hint}", highlight=False)


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay strategies on the curves of a sweep that is over.

    JSON: ``{"sweep", "objective", "direction", "trials", "workers", "itself": {...}, "replayed": [...]}``; each of those has
    ``strategy``, ``trials``, ``completed``, ``epochs``, ``seconds``, ``worker_seconds``, ``winner``, ``winner_epochs``,
    ``winner_objective``, ``place`` (among the sweep's own results, from 1); replayed ones have ``unknown_epochs`` and
    ``unknown_trials`` too.
    """
    from resources.analysis.strategy_replay import read_strategy, replay_sweep

    backend = backend_of(arguments)
    strategies = [read_strategy(text) for text in arguments.strategy]
    found = replay_sweep(backend.store, backend.catalog, arguments.sweep, strategies)
    return answer(arguments, found, lambda console: _print_replay(console, found))


def _print_replay(console: "Console", found: dict[str, Any]) -> None:
    from resources.evaluation.page import number

    rows = []
    for one in [found["itself"], *found["replayed"]]:
        objective = f"{number(one['winner_objective'])} ({one['winner_epochs']})" if one["winner"] else NONE
        unknown = one.get("unknown_epochs")  # None for the sweep itself
        guessed = f"{unknown} ({unknown / one['epochs']:.0%})" if unknown else unknown
        name = "the sweep itself" if one is found["itself"] else strategy_text(one["strategy"])
        rows.append([name, one["completed"], one["epochs"], guessed, duration(one["seconds"]), one["winner"], objective, one["place"]])
    columns = ("strategy", "to the end", "epochs", "unknown", "time", "winner", f"{found['objective']} (epochs)", "place")
    console.print(f"{found['sweep']}: {found['trials']} trials on {found['workers']} workers", highlight=False)
    print_table(console, columns, rows, right=("to the end", "epochs", "unknown", "time", f"{found['objective']} (epochs)", "place"))
    console.print(
        "unknown: epochs beyond the end of a curve, which were never trained; such a trial counts with the last value of its curve.\n"
        "place: that of the winner among the sweep's own results. time: with as many workers as the sweep had; the sweep's own time "
        "includes starts and crashes.",
        style="dim",
        highlight=False,
    )


def strategy_text(strategy: dict[str, Any]) -> str:
    """A strategy in one line, with its budgets and the settings that differ from the defaults."""
    from resources.sweep_spec.strategy import Strategy

    (name, settings) = next(iter(strategy.items()))
    defaults = Strategy.model_validate({name: {"sampler": settings["sampler"]} if name == "optuna" else {}}).chosen.model_dump()
    shown = {key: value for key, value in settings.items() if value != defaults.get(key) or key in ("budget", "min_budget", "max_budget")}
    return f"{name}: {{{', '.join(f'{key}: {value}' for key, value in shown.items())}}}"


def run_models(arguments: argparse.Namespace) -> int:
    """List model versions.

    JSON: ``{"models": [{"model", "version", "number", "stage", "metrics", "project", "run", "sweep", "trial", "checkpoint", "snapshot",
    "framework", "source", "description", "tags", "created_at", "features"}]}``, newest last. Of a version that a client registered the
    sweep, trial, checkpoint and snapshot are null, of others the source.
    """
    from resources.catalog.models import versions_of
    from resources.registry.versions import as_dict

    backend, console = backend_of(arguments), console_of(arguments)
    with backend.catalog.read() as session:
        versions = versions_of(session)
        data = [as_dict(session, row) for row in versions]
    if arguments.json:
        print_json({"models": data})
        return 0
    if not versions:
        console.print("there are no model versions yet: run [bold]halving sweep sweeps/digits.yaml[/]")
        return 0
    rows = []
    for row, version in zip(versions, data, strict=True):
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in row.metrics.items())
        features = ", ".join(version["features"]) or NONE
        rows.append([row.model, row.version, row.stage, metrics, row.run or "", (row.checkpoint or row.source or "")[:19], features])
    print_table(console, ("model", "version", "stage", "test metrics", "run", "checkpoint", "features"), rows, first=True)
    return 0


def run_change_of_stage(arguments: argparse.Namespace) -> int:
    """Make a version champion, or take it out of use. JSON: the version, as ``halving models --json`` has it."""
    from resources.registry.versions import archive, as_dict, promote

    change = promote if arguments.command == "promote" else archive
    catalog = backend_of(arguments).catalog
    row = change(catalog, arguments.model, arguments.version)
    with catalog.read() as session:
        data = as_dict(session, row)
    message = f"model {row.model} {row.version} is {row.stage}"
    return answer(arguments, data, lambda console: console.print(message, highlight=False))


def run_retention(arguments: argparse.Namespace) -> int:
    """List what is old enough to be deleted, and with ``--apply`` delete it.

    JSON: ``{"dry_run", "catalog", "protected_runs", "bytes", "drops": [{"project", "run", "what", "points", "bytes", "digest"}]}``;
    ``what`` is ``full``, ``system``, ``rollup``, ``checkpoint`` or ``orphan files``.
    """
    from halving.query.runs import list_names
    from resources.catalog import masked
    from resources.registry.retention_protection import retain

    limits = {"days": arguments.full_days, **{name: getattr(arguments, name) for name in ("system_days", "rollup_days", "checkpoint_days")}}
    if all(days is None for days in limits.values()):
        raise InvalidInput("no limit was given, so nothing is too old: give --full-days, --system-days, --rollup-days or --checkpoint-days")
    backend = backend_of(arguments)
    if arguments.project is not None:
        list_names(backend.store, arguments.project)  # raises for a misspelt name
    done, kept = retain(backend.store, backend.catalog, **limits, project=arguments.project, dry_run=not arguments.apply)
    catalog = masked(backend.catalog.url)
    if arguments.json:
        drops = [vars(drop) for drop in done.drops]
        print_json({"dry_run": done.dry_run, "catalog": catalog, "protected_runs": len(kept.runs), "bytes": done.bytes, "drops": drops})
        return 0
    console = console_of(arguments)
    rows = [[drop.run, drop.project, drop.what, drop.points, size(drop.bytes)] for drop in done.drops]
    if rows:
        print_table(console, ("run", "project", "what", "points", "size"), rows, right=("points", "size"), first=True)
    console.print(f"{len(kept.runs)} runs are protected by {catalog}", style="dim", highlight=False)
    total = f"{size(done.bytes)} would be deleted; --apply deletes it" if done.dry_run else f"{size(done.bytes)} deleted"
    console.print(total if rows else "nothing is old enough to be deleted", highlight=False)
    return 0


def answer(arguments: argparse.Namespace, data: Any, show: "Callable[[Console], None]") -> int:
    """Print the data as JSON if that was asked for, else have it shown to people; gives the command's exit status."""
    if arguments.json:
        print_json(data)
    else:
        show(console_of(arguments))
    return 0


def backend_of(arguments: argparse.Namespace) -> "Backend":
    """The store that the command was given, and its catalog."""
    from resources.backend import Backend

    return Backend(root=arguments.root)


def newest_sweep(backend: "Backend", spec: Any = None) -> str | None:
    """The id of the newest sweep, of all sweeps or of those that ``halving sweep`` launched of one spec."""
    from sqlalchemy import select

    from resources.catalog import SweepRow

    query = select(SweepRow.id).order_by(SweepRow.created_at.desc())
    query = query.where(SweepRow.spec_digest == spec.digest, SweepRow.driver == "job") if spec else query
    with backend.catalog.read() as session:
        return session.scalar(query.limit(1))


def console_of(arguments: argparse.Namespace) -> "Console":
    """The console for people: on the standard error when the standard output is for JSON."""
    return console(stderr=arguments.json, markup=True)
