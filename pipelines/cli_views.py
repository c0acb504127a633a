"""Commands that show the catalog or change a version's stage: ``halving leaderboard``, ``replay``, ``models``,
``promote``, ``archive``; and ``retention``, which the catalog protects runs from."""

import argparse
from typing import TYPE_CHECKING, Any

from halving.cli.output import console, duration, print_json, print_table, size
from halving.errors import InvalidInput

_NOTHING = "-"  # in a table, where there is no value

if TYPE_CHECKING:
    from rich.console import Console

    from resources.catalog import ModelVersionRow, ReportRow


def run_leaderboard(arguments: argparse.Namespace) -> int:
    """Show a sweep's trials, best first.

    JSON: the fields of :class:`resources.analysis.summary.SweepSummary` (``sweep``, ``status``, ``objective``, ``standings``, ``rungs``,
    ``failed``, ``epochs_trained``, ``audit_epochs``, ``gpu_seconds_saved``…), and ``saved``, ``test_metrics``, ``promoted``, ``report``.
    """
    from resources.backend import Backend

    backend, console = Backend(root=arguments.root), console_of(arguments)
    sweep = arguments.sweep or newest_sweep(backend)
    if sweep is None:
        console.print(f"there are no sweeps in {backend.store.root} yet: run [bold]halving sweep sweeps/digits.yaml[/]")
        return 1
    if arguments.json:
        print_json(leaderboard_of(backend, sweep))
    else:
        print_leaderboard(console, backend, sweep)
    return 0


def leaderboard_of(backend: Any, sweep: str) -> dict[str, Any]:
    """What the leaderboard shows, complete and as data."""
    from resources.analysis.summary import summarize
    from resources.evaluation.report import report_path

    summary = summarize(backend.catalog, sweep)
    report, version = _outcome(backend, sweep)
    return {
        **summary.as_dict(),
        "saved": summary.saved,
        "test_metrics": report.metrics if report else None,
        "promoted": {"model": version.model, "version": version.version, "stage": version.stage} if version else None,
        "report": backend.store.address(report_path(sweep)) if backend.store.exists(report_path(sweep)) else None,
    }


def print_leaderboard(console: "Console", backend: Any, sweep: str, rows: int = 10) -> None:
    """Print the leading trials, what early stopping saved, and whether the winner was promoted."""
    from resources.analysis.summary import outcome, summarize
    from resources.evaluation.page import number
    from resources.evaluation.report import explain_failures, report_path

    summary = summarize(backend.catalog, sweep)
    searching = summary.status == "searching"
    hints = {"pause": f" (paused: halving resume {sweep} continues it)", "stop": " (being stopped)"}
    asked = hints.get(summary.control, "") if searching else ""
    console.print(f"[bold]{sweep}: {summary.status}[/]{asked}", highlight=False)
    for line in [explain_failures(summary.failed)] if summary.failed else []:
        console.print(line, style="red", highlight=False)
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
        reported = [number(standing.metrics[name]) if name in standing.metrics else _NOTHING for name in others]
        values = [number(standing.params[name]) if name in standing.params else _NOTHING for name in names]
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


def _print_outcome(console: "Console", backend: Any, sweep: str) -> None:
    from resources.evaluation.page import number

    report, version = _outcome(backend, sweep)
    if report:
        shown = [f"{name} {'not finite' if value is None else number(value)}" for name, value in report.metrics.items()]
        console.print(f"Test split: {', '.join(shown)}")
    if version:
        hint = f"; make it champion: halving promote {version.model} {version.version}" if version.stage == "staging" else ""
        console.print(f"Promoted: model {version.model} {version.version} is {version.stage}{hint}", highlight=False)


def _outcome(backend: Any, sweep: str) -> "tuple[ReportRow | None, ModelVersionRow | None]":
    from sqlalchemy import select

    from resources.catalog import ModelVersionRow, ReportRow

    with backend.catalog.read() as session:
        return session.get(ReportRow, sweep), session.scalar(select(ModelVersionRow).where(ModelVersionRow.sweep == sweep))


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay strategies on the curves of a sweep that is over.

    JSON: ``{"sweep", "objective", "direction", "trials", "workers", "itself": {...}, "replayed": [...]}``; each of those has
    ``strategy``, ``trials``, ``completed``, ``epochs``, ``seconds``, ``worker_seconds``, ``winner``, ``winner_epochs``,
    ``winner_objective``, ``place`` (among the sweep's own results, from 1); replayed ones have ``unknown_epochs`` and
    ``unknown_trials`` too.
    """
    from resources.analysis.strategy_replay import read_strategy, replay_sweep
    from resources.backend import Backend

    backend = Backend(root=arguments.root)
    strategies = [read_strategy(text) for text in arguments.strategy]
    found = replay_sweep(backend.store, backend.catalog, arguments.sweep, strategies)
    if arguments.json:
        print_json(found)
    else:
        _print_replay(console_of(arguments), found)
    return 0


def _print_replay(console: "Console", found: dict[str, Any]) -> None:
    from resources.evaluation.page import number

    rows = []
    for one in [found["itself"], *found["replayed"]]:
        objective = f"{number(one['winner_objective'])} ({one['winner_epochs']})" if one["winner"] else _NOTHING
        unknown = one.get("unknown_epochs")
        guessed = _NOTHING if unknown is None else f"{unknown} ({unknown / one['epochs']:.0%})" if unknown else "0"
        taken = _NOTHING if one["seconds"] is None else duration(one["seconds"])
        name = "the sweep itself" if one is found["itself"] else strategy_text(one["strategy"])
        rows.append([name, one["completed"], one["epochs"], guessed, taken, one["winner"] or _NOTHING, objective, one["place"] or _NOTHING])
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

    JSON: ``{"models": [{"model", "version", "stage", "metrics", "sweep", "trial", "run", "checkpoint", "snapshot", "framework",
    "created_at"}]}``, newest last.
    """
    from resources.backend import Backend
    from resources.catalog.models import versions_of

    backend, console = Backend(root=arguments.root), console_of(arguments)
    with backend.catalog.read() as session:
        versions = versions_of(session)
    if arguments.json:
        print_json({"models": [_version(row) for row in versions]})
        return 0
    if not versions:
        console.print("there are no model versions yet: run [bold]halving sweep sweeps/digits.yaml[/]")
        return 0
    rows = []
    for row in versions:
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in row.metrics.items())
        rows.append([row.model, row.version, row.stage, metrics, row.run, row.checkpoint[:19]])
    print_table(console, ("model", "version", "stage", "test metrics", "trial", "checkpoint"), rows, first=True)
    return 0


def run_promote(arguments: argparse.Namespace) -> int:
    """Make a version champion. JSON: the version, as ``halving models --json`` has it."""
    from resources.backend import Backend
    from resources.registry.versions import promote

    row = promote(Backend(root=arguments.root).catalog, arguments.model, arguments.version)
    return _say(arguments, row, "is champion")


def run_archive(arguments: argparse.Namespace) -> int:
    """Take a version out of use. JSON: the version, as ``halving models --json`` has it."""
    from resources.backend import Backend
    from resources.registry.versions import archive

    row = archive(Backend(root=arguments.root).catalog, arguments.model, arguments.version)
    return _say(arguments, row, "is archived")


def _say(arguments: argparse.Namespace, row: "ModelVersionRow", outcome: str) -> int:
    if arguments.json:
        print_json(_version(row))
    else:
        console_of(arguments).print(f"model {row.model} {row.version} {outcome}", highlight=False)
    return 0


def _version(row: "ModelVersionRow") -> dict[str, Any]:
    names = ("model", "version", "stage", "metrics", "sweep", "trial", "run", "checkpoint", "snapshot", "framework", "created_at")
    return {name: getattr(row, name) for name in names}


def run_retention(arguments: argparse.Namespace) -> int:
    """List what is old enough to be deleted, and with ``--apply`` delete it.

    JSON: ``{"dry_run", "catalog", "protected_runs", "bytes", "drops": [{"project", "run", "what", "points", "bytes", "digest"}]}``;
    ``what`` is ``full``, ``system``, ``rollup``, ``checkpoint`` or ``orphan files``.
    """
    from halving.maintenance.retention import apply_retention
    from halving.query.runs import list_names
    from resources.backend import Backend
    from resources.catalog import masked
    from resources.registry.retention_protection import protected

    days = {name: getattr(arguments, f"{name}_days") for name in ("full", "system", "rollup", "checkpoint")}
    if all(value is None for value in days.values()):
        raise InvalidInput("no limit was given, so nothing is too old: give --full-days, --system-days, --rollup-days or --checkpoint-days")
    backend = Backend(root=arguments.root)
    if arguments.project is not None:
        list_names(backend.store, arguments.project)  # raises for a misspelt name
    kept = protected(backend.store, backend.catalog)
    done = apply_retention(
        backend.store,
        protected=kept.runs,
        keep_blobs=kept.blobs,
        days=days.pop("full"),
        **{f"{name}_days": value for name, value in days.items()},
        project=arguments.project,
        dry_run=not arguments.apply,
    )
    catalog = masked(backend.catalog.url)
    if arguments.json:
        drops = [vars(drop) for drop in done.drops]
        print_json({"dry_run": done.dry_run, "catalog": catalog, "protected_runs": len(kept.runs), "bytes": done.bytes, "drops": drops})
        return 0
    console = console_of(arguments)
    columns = ("run", "project", "what", "points", "size")
    rows = [[drop.run, drop.project, drop.what, drop.points, size(drop.bytes)] for drop in done.drops]
    if rows:
        print_table(console, columns, rows, right=("points", "size"), first=True)
    console.print(f"{len(kept.runs)} runs are protected by {catalog}", style="dim", highlight=False)
    total = f"{size(done.bytes)} would be deleted; --apply deletes it" if done.dry_run else f"{size(done.bytes)} deleted"
    console.print(total if rows else "nothing is old enough to be deleted", highlight=False)
    return 0


def newest_sweep(backend: Any, spec: Any = None) -> str | None:
    """The id of the newest sweep, of all sweeps or of those that ``halving sweep`` launched of one spec."""
    from sqlalchemy import select

    from resources.catalog import SweepRow

    query = select(SweepRow.id).order_by(SweepRow.created_at.desc())
    query = query.where(SweepRow.spec_digest == spec.digest, SweepRow.driver == "job") if spec else query
    with backend.catalog.read() as session:
        found: str | None = session.scalar(query.limit(1))
    return found


def console_of(arguments: argparse.Namespace) -> "Console":
    """The console for people: on the standard error when the standard output is for JSON."""
    return console(stderr=arguments.json, markup=True)
