"""The application's commands: ``halving sweep``, ``leaderboard``, ``models``, ``promote`` and ``archive``."""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving import StoreError

if TYPE_CHECKING:
    from rich.console import Console

_REFRESH_SECONDS = 1.0
_FAILURES = ("dagster._core.definitions.events.Failure", "dagster._core.errors.", "pipelines.config.InvalidSweepSpec")


def add_commands(commands: Any) -> None:
    """Add this application's commands to the ``halving`` command."""
    sweep = commands.add_parser("sweep", help="run a sweep to its end on this machine, showing progress")
    sweep.add_argument("spec", help="a sweep spec, for example sweeps/digits.yaml")
    sweep.set_defaults(run=_sweep)
    leaderboard = commands.add_parser("leaderboard", help="show a sweep's trials, best first, and what early stopping saved")
    leaderboard.add_argument("sweep", nargs="?", help="the sweep's id (default: the newest)")
    leaderboard.set_defaults(run=_leaderboard)
    models = commands.add_parser("models", help="list the registry's model versions")
    models.set_defaults(run=_models)
    promote = commands.add_parser("promote", help="make a version the champion")
    promote.add_argument("model")
    promote.add_argument("version", help="for example 1.0.1")
    promote.set_defaults(run=_promote)
    archive = commands.add_parser("archive", help="take a version out of use")
    archive.add_argument("model")
    archive.add_argument("version", help="for example 1.0.0")
    archive.set_defaults(run=_archive)


def _sweep(arguments: argparse.Namespace) -> int:
    """Run the job ``sweep`` as Dagster's own command does, with its log in a file and the progress here."""
    from resources.lab import Lab
    from resources.spec import load_spec

    spec = load_spec(arguments.spec)
    lab, console = Lab(), _console()
    home = Path(os.environ.get("DAGSTER_HOME") or f"{lab.store.root}/dagster")
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the store {lab.store.root} cannot be written: {error}; set HALVING_ROOT to another folder") from None
    environment = {**os.environ, "DAGSTER_HOME": str(home.absolute()), "DAGSTER_DISABLE_TELEMETRY": "1"}
    log = home / "logs" / f"{spec.name}-{datetime.now():%Y%m%d-%H%M%S}.log"
    log.parent.mkdir(exist_ok=True)
    # Dagster gets the checked spec: its own YAML reader takes 1e-4 for a text.
    checked = log.with_suffix(".json")
    checked.write_text(spec.canonical_json())
    job = [sys.executable, "-m", "dagster", "job", "execute", "-m", "pipelines.definitions", "-j", "sweep", "-c", str(checked)]
    console.print(f"[bold]{spec.name}[/]: {spec.objective.direction} {spec.objective.metric}, rungs at {list(spec.budgets)} epochs")
    console.print(f"Dagster's log: {log}", style="dim")
    known = _ended_sweep(lab, spec)
    with log.open("w") as output:
        process = subprocess.Popen(
            job, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True, preexec_fn=_end_with_parent
        )
        # A command that is terminated, or whose terminal is closed, ends its job as Ctrl-C does.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            _show_progress(console, lab, spec, process, known)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            console.print(f"\nstopped; the same command resumes the sweep: [bold]halving sweep {arguments.spec}[/]")
            return 130
    return _conclude(console, lab, spec, arguments.spec, process.returncode, log, known)


def _show_progress(console: "Console", lab: Any, spec: Any, process: "subprocess.Popen[bytes]", known: str | None) -> None:
    """One line that moves on a terminal, a line every ten seconds elsewhere."""
    from rich.live import Live
    from rich.text import Text

    began, last = time.monotonic(), 0.0
    with Live(Text("starting"), console=console, refresh_per_second=4, transient=True) if console.is_terminal else _NoLive() as live:
        while process.poll() is None:
            line = f"{time.monotonic() - began:4.0f} s  {_progress(lab, spec, known)}"
            live.update(Text(line))
            if not console.is_terminal and time.monotonic() - last >= 10:
                console.print(line, highlight=False)
                last = time.monotonic()
            time.sleep(_REFRESH_SECONDS)


class _NoLive:
    """Stands in for rich's Live where there is no terminal."""

    def __enter__(self) -> "_NoLive":
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, _: Any) -> None: ...


def _progress(lab: Any, spec: Any, known: str | None) -> str:
    from resources.summary import summarize

    sweep = newest_sweep(lab, spec)
    if sweep is None or sweep == known:
        return "taking the dataset's snapshot"
    summary = summarize(lab.catalog, sweep)
    counts = summary.counts
    done = counts.get("completed", 0)
    shown = f"{counts.get('running', 0)} running, {counts.get('paused', 0)} paused, {done} done"
    shown += f", {counts['failed']} failed" if counts.get("failed") else ""
    started = sum(counts.values())
    best = (
        f"; best {summary.objective} {summary.best.objective:.4f} ({summary.best.key}, {summary.best.epochs} epochs)"
        if summary.best
        else ""
    )
    phase = f"trials {started}/{summary.planned}" if summary.status == "searching" else summary.status
    return f"{sweep}  {phase}: {shown}{best}"


def _conclude(console: "Console", lab: Any, spec: Any, path: str, status: int, log: Path, known: str | None) -> int:
    from resources.summary import summarize

    sweep = newest_sweep(lab, spec)
    if sweep is None or sweep == known:
        console.print(_reason(log), style="red", highlight=False)
        return 1
    _print_leaderboard(console, lab, sweep)
    if status:
        console.print(_reason(log), style="red", highlight=False)
        if summarize(lab.catalog, sweep).status == "evaluating":
            console.print(
                f"The search is done and kept. Mend this and run it again: [bold]halving sweep {path}[/] goes on with the evaluation."
            )
        return 1
    console.print("Next: [bold]make dev[/] opens Dagster's UI with this sweep's assets; [bold]halving models[/] lists the registry.")
    return 0


def _reason(log: Path) -> str:
    """Why the job failed: the message of the first failure in Dagster's log, and where to read on."""
    lines = log.read_text(errors="replace").splitlines()
    said: list[str] = []
    for index, line in enumerate(lines):
        name, colon, message = line.partition(": ")
        if colon and name.startswith(_FAILURES):
            said = [message]
            for following in lines[index + 1 :]:
                if not following.strip() or following.startswith(("Stack Trace:", "Traceback")):
                    break
                said.append(following)
            break
    if not said:
        said = ["the job failed"]
    return "\n".join(["failed: " + said[0], *said[1:], f"Dagster's log has the rest: {log}"])


def _leaderboard(arguments: argparse.Namespace) -> int:
    from resources.lab import Lab

    lab, console = Lab(), _console()
    sweep = arguments.sweep or newest_sweep(lab)
    if sweep is None:
        console.print(f"there are no sweeps in {lab.store.root} yet: run [bold]halving sweep sweeps/digits.yaml[/]")
        return 1
    _print_leaderboard(console, lab, sweep)
    return 0


def _print_leaderboard(console: "Console", lab: Any, sweep: str, rows: int = 10) -> None:
    from rich.table import Table

    from resources.report import explain_failures, report_path
    from resources.report_page import duration, number
    from resources.summary import summarize

    summary = summarize(lab.catalog, sweep)
    console.print(f"[bold]{sweep}: {summary.status}[/]", highlight=False)
    for line in [explain_failures(summary.failed)] if summary.failed else []:
        console.print(line, style="red", highlight=False)
    if not summary.standings:
        console.print("no trial has a result yet" if summary.status == "searching" else "no trial has a result")
        return
    table = Table(title="best first, the highest rung before all", title_justify="left", title_style="dim")
    for name, justify in (("#", "right"), ("trial", "left"), (summary.objective, "right"), ("epochs", "right"), ("status", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    names = list(summary.standings[0].params)
    for name in names:
        table.add_column(name, justify="right")
    for place, standing in enumerate(summary.standings[:rows], start=1):
        status = "stopped" if standing.status == "paused" and summary.status != "searching" else standing.status
        values = [number(standing.params[name]) for name in names]
        table.add_row(str(place), standing.key, number(standing.objective), str(standing.epochs), status, *values)
    console.print(table)
    if len(summary.standings) > rows:
        console.print(f"and {len(summary.standings) - rows} more trials", style="dim")
    console.print(
        f"Early stopping: {summary.epochs_trained} of {summary.epochs_full} epochs trained, "
        f"{summary.saved:.0%} saved; {duration(summary.seconds)} of training in all."
    )
    _print_outcome(console, lab, sweep)
    if lab.store.exists(report_path(sweep)):
        console.print(f"Report: {lab.store.path(report_path(sweep))}")


def _print_outcome(console: "Console", lab: Any, sweep: str) -> None:
    from sqlalchemy import select

    from resources.catalog import ModelVersionRow, ReportRow
    from resources.report_page import number

    with lab.catalog.read() as session:
        report = session.get(ReportRow, sweep)
        version = session.scalar(select(ModelVersionRow).where(ModelVersionRow.sweep == sweep))
    if report:
        shown = [f"{name} {'not finite' if value is None else number(value)}" for name, value in report.metrics.items()]
        console.print(f"Test split: {', '.join(shown)}")
    if version:
        hint = f"; make it champion: halving promote {version.model} {version.version}" if version.stage == "staging" else ""
        console.print(f"Promoted: model {version.model} {version.version} is {version.stage}{hint}", highlight=False)


def _models(arguments: argparse.Namespace) -> int:
    from rich.table import Table

    from resources.lab import Lab
    from resources.registry import versions_of

    lab, console = Lab(), _console()
    with lab.catalog.read() as session:
        versions = versions_of(session)
    if not versions:
        console.print("there are no model versions yet: run [bold]halving sweep sweeps/digits.yaml[/]")
        return 0
    table = Table()
    for name in ("model", "version", "stage", "test metrics", "trial", "checkpoint"):
        table.add_column(name)
    for row in versions:
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in row.metrics.items())
        table.add_row(row.model, row.version, row.stage, metrics, row.run, row.checkpoint[:19])
    console.print(table)
    return 0


def _promote(arguments: argparse.Namespace) -> int:
    from resources.lab import Lab
    from resources.registry import promote

    row = promote(Lab().catalog, arguments.model, arguments.version)
    _console().print(f"model {row.model} {row.version} is champion", highlight=False)
    return 0


def _archive(arguments: argparse.Namespace) -> int:
    from resources.lab import Lab
    from resources.registry import archive

    row = archive(Lab().catalog, arguments.model, arguments.version)
    _console().print(f"model {row.model} {row.version} is archived", highlight=False)
    return 0


def newest_sweep(lab: Any, spec: Any = None) -> str | None:
    """The id of the sweep that was opened last, of all or of one spec."""
    from sqlalchemy import select

    from resources.catalog import SweepRow

    query = select(SweepRow.id).order_by(SweepRow.created_at.desc())
    query = query.where(SweepRow.spec_digest == spec.digest, SweepRow.driver == "job") if spec else query
    with lab.catalog.read() as session:
        found: str | None = session.scalar(query.limit(1))
    return found


def _ended_sweep(lab: Any, spec: Any) -> str | None:
    """The spec's newest sweep if it is over, so that this launch begins another."""
    sweep = newest_sweep(lab, spec)
    if sweep is None:
        return None
    with lab.catalog.read() as session:
        return None if lab.catalog.sweep(session, sweep).status in ("searching", "evaluating") else sweep


def _end_with_parent() -> None:
    """In the job's process: end, as by Ctrl-C, when the command that started it is killed (Linux)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGINT)


def _console() -> "Console":
    from rich.console import Console

    # soft_wrap: a path or a command that is longer than the terminal stays in one piece, to be copied.
    return Console(width=None if sys.stdout.isatty() else 140, soft_wrap=True)
