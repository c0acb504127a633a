"""``halving sweep``: run a sweep to its end on this machine."""

import argparse
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from commands.leaderboard import print_leaderboard
from commands.retention import clear_away
from commands.shared import backend_of, console_of, dagster_home, newest_sweep
from halving import InvalidInput, Store, StoreError
from halving.cli.output import print_json
from halving.cli.parser import add_command

if TYPE_CHECKING:
    from rich.console import Console

_REFRESH_SECONDS = 1.0
# Reading the progress takes at most this part of the time, because the cores are for the trials.
_MAX_SHARE = 1 / 20
# These are ALLOW_DEPRECATED, REFRESH and COMMAND of pipelines.jobs, whose import would take seconds.
_ALLOW_DEPRECATED = "halving/allow_deprecated"
_REFRESH = "halving/refresh"
_COMMAND = "halving/command"


def add_sweep_command(commands: Any) -> None:
    """Add ``halving sweep``."""
    run = add_command(
        commands,
        "sweep",
        "run a sweep to its end on this machine and show its progress",
        run_sweep,
        spec="a sweep spec, for example sweeps/digits.yaml",
    )
    run.add_argument(
        "--allow-deprecated", action="store_true", help="also on a dataset's snapshot that was deprecated"
    )
    run.add_argument(
        "--refresh",
        action="store_true",
        help="read all of the dataset's source again, also files that look as they were",
    )


def run_sweep(arguments: argparse.Namespace) -> int:
    """Run the job ``sweep`` by Dagster's own command, write its log to a file and show its progress.

    JSON: as ``halving leaderboard --json`` for the sweep, and ``error``, null unless the job failed; progress
    then goes to the standard error.
    """
    import yaml

    from resources.execution.concurrency import concurrency_of
    from resources.scheduling.gpu_hours import check_gpu_hours
    from resources.scheduling.sweeps import has_unfinished
    from resources.sweep_spec import load_spec
    from resources.sweep_spec.lint import lint

    spec = load_spec(arguments.spec)
    if arguments.refresh and spec.snapshot is not None:
        raise InvalidInput(
            f"--refresh is not accepted: the spec names the snapshot {spec.snapshot!r}, and that stays as "
            "it is"
        )
    concurrency_of(spec)  # It raises when a trial needs more than this machine or cluster has.
    backend = backend_of(arguments)
    console = console_of(arguments)
    goes_on = has_unfinished(backend.catalog, spec, "job")
    # It raises when too few GPU-hours are left.
    forecast = check_gpu_hours(backend.catalog, spec, goes_on=goes_on)
    home = _make_home(backend.store)
    log = home / "logs" / f"{spec.name}-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.log"
    log.parent.mkdir(exist_ok=True)
    # Dagster's own YAML reader takes 1e-4 and JSON's 1e-06 for texts, so it gets the checked spec in a form
    # that it understands.
    checked = log.with_suffix(".yaml")
    checked.write_text(yaml.safe_dump(json.loads(spec.canonical_json()), allow_unicode=True))
    command = secrets.token_hex(8)
    tags = {_COMMAND: command}
    if arguments.allow_deprecated:
        tags[_ALLOW_DEPRECATED] = "true"
    if arguments.refresh:
        tags[_REFRESH] = "true"
    console.print(f"[bold]{spec.name}[/]: {spec.objective.direction} {spec.objective.metric}, {spec.rungs}")
    if spec.resources.largest.gpus:
        console.print(str(forecast), highlight=False, markup=False)
    for warning in lint(spec):
        console.print(f"[yellow]note:[/] {warning}")
    console.print(f"Dagster's log: {log}", style="dim")
    previous = _ended_sweep(backend, spec)
    process = _start_job(backend.store, home, checked, tags, log)
    try:
        _show_progress(console, backend, spec, process, previous)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        console.print(
            f"\nstopped; the same command resumes the sweep: [bold]halving sweep {arguments.spec}[/]"
        )
        return 130
    failure = None
    if process.returncode:
        failure = f"failed: {_first_failure(home, command)}\nDagster's log has the rest: {log}"
    status = _conclude(console, backend, spec, arguments, failure, previous)
    clear_away(console, backend.store)
    return status


def _make_home(store: Store) -> Path:
    """Make the folder of Dagster's instance, unless it is there.

    Raises:
        StoreError: it cannot be written.
    """
    home = dagster_home(store)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the store {store.root} cannot be written: {error}; set HALVING_ROOT to another folder"
        ) from None
    return home


def _start_job(
    store: Store, home: Path, checked: Path, tags: dict[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    """Start the job ``sweep`` in a process of Dagster's command line, which ends with this command.

    Args:
        checked: the YAML file of the spec.
        tags: of Dagster's run.
        log: the file that gets what the process prints.
    """
    environment = {**os.environ, "DAGSTER_HOME": str(home.absolute()), "DAGSTER_DISABLE_TELEMETRY": "1"}
    environment["HALVING_ROOT"] = store.root
    # Dagster's own command line, which waits for other first sweeps on this instance.
    job = [sys.executable, "-m", "pipelines.dagster_storage", "job", "execute"]
    job += ["-m", "pipelines.definitions", "-j", "sweep", "-c", str(checked), "--tags", json.dumps(tags)]
    with log.open("w") as output:
        process = subprocess.Popen(
            job,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    # When the command is terminated or its terminal is closed, its job ends as by Ctrl-C. Under nohup it goes
    # on.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    return process


def _show_progress(
    console: "Console", backend: Any, spec: Any, process: "subprocess.Popen[bytes]", previous: str | None
) -> None:
    """Show progress until the job ends: on a terminal in one line, elsewhere a new line every ten seconds."""
    from rich.live import Live
    from rich.text import Text

    began = time.monotonic()
    last = 0.0
    display: Any = nullcontext()
    if console.is_terminal:
        display = Live(Text("starting"), console=console, refresh_per_second=4, transient=True)
    with display as live:
        while process.poll() is None:
            started = time.monotonic()
            line = f"{started - began:4.0f} s  {_progress(backend, spec, previous)}"
            seconds = time.monotonic() - started
            if live:
                live.update(Text(line))
            elif time.monotonic() - last >= 10:
                console.print(line, highlight=False)
                last = time.monotonic()
            time.sleep(max(_REFRESH_SECONDS, seconds / _MAX_SHARE))


def _progress(backend: Any, spec: Any, previous: str | None) -> str:
    """The progress of the spec's newest sweep in one line, unless that is the previous one."""
    from resources.analysis.summary import summarize

    sweep = newest_sweep(backend, spec)
    if sweep is None or sweep == previous:
        return "taking the dataset's snapshot"
    summary = summarize(backend.catalog, sweep)
    counts = summary.counts
    best = summary.best
    done = counts.get("completed", 0)
    trials = f"{counts.get('running', 0)} running, {counts.get('paused', 0)} paused, {done} done"
    if counts.get("failed"):
        trials += f", {counts['failed']} failed"
    if best:
        trials += f"; best {summary.objective} {best.objective:.4f} ({best.key}, {best.epochs} epochs)"
    phase = summary.status
    hint = ""
    if summary.status == "searching":
        started = sum(counts.values()) - counts.get("suggested", 0)
        phase = f"trials {started}/{summary.planned}"
        hints = {"pause": f"; paused, halving resume {sweep} continues it", "stop": "; being stopped"}
        hint = hints.get(summary.control, "")
    if summary.status == "searching" and summary.final:
        phase = f"final training {sum(trial.complete for trial in summary.final)}/{summary.final_seeds}"
        running = sum(trial.status == "running" for trial in summary.final)
        trials = ""
        if best:
            trials = f"{running} running, with the params of {best.key}"
    if summary.held_back:
        hint += f"; waits: {summary.held_back}"
    return f"{sweep}  {phase}: {trials}{hint}"


def _conclude(
    console: "Console",
    backend: Any,
    spec: Any,
    arguments: argparse.Namespace,
    failure: str | None,
    previous: str | None,
) -> int:
    from resources.analysis.summary import summarize
    from resources.registry.leaderboard import leaderboard_of

    sweep = newest_sweep(backend, spec)
    if sweep is None or sweep == previous:
        console.print(failure, style="red", highlight=False)
        return 1
    if arguments.json:
        print_json({**leaderboard_of(backend.store, backend.catalog, sweep), "error": failure})
    else:
        print_leaderboard(console, backend, sweep)
    if failure:
        console.print(failure, style="red", highlight=False)
        if summarize(backend.catalog, sweep).status == "evaluating":
            again = f"[bold]halving sweep {arguments.spec}[/]"
            console.print(
                f"The search is done and its results are kept. Correct this and run it again: {again} goes "
                "on with the evaluation."
            )
        return 1
    console.print(
        "Next: [bold]make serve[/] opens the page with this sweep; [bold]make dev[/] opens Dagster's UI "
        "beside it."
    )
    return 0


def _first_failure(home: Path, command: str) -> str:
    """Why the job that this command started failed, from Dagster's events of its run."""
    import dagster as dg

    from pipelines.dagster_storage import open_instance

    failures = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    try:
        with open_instance(home) as instance:
            for run in instance.get_runs(dg.RunsFilter(tags={_COMMAND: command})):
                for entry in instance.all_logs(run.run_id, of_type=failures):
                    return _message(entry.get_dagster_event())
    except Exception as error:  # noqa: BLE001
        # A wrong dagster.yaml, or its database, may raise anything; the job failed for the same reason.
        return f"Dagster's event log cannot be read: {error}; halving doctor says more"
    return "the job ended before its run began"


def _message(event: Any) -> str:
    """Why a step or run failed: the text of an expected failure, else the error that was raised first."""
    # Dagster refuses to give the data of another kind of event.
    if event.is_step_failure:
        failure: Any = event.step_failure_data
    else:
        failure = event.job_failure_data
    # A run that something else marked as failed, such as Dagster's daemon, has no data of its failure.
    error = getattr(failure, "error", None)
    expected = getattr(failure, "user_failure_data", None)
    if expected and expected.description:
        return str(expected.description)
    while error and error.cause:
        error = error.cause
    if error:
        return str(error.message).strip()
    return str(event.message or "the job failed").strip()


def _ended_sweep(backend: Any, spec: Any) -> str | None:
    """The newest sweep of this spec if it is over; this launch then starts another one."""
    from resources.scheduling.sweeps import OPEN

    sweep = newest_sweep(backend, spec)
    if sweep is None:
        return None
    with backend.catalog.read() as session:
        if backend.catalog.sweep(session, sweep).status in OPEN:
            return None
    return sweep


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Let the job's process end as by Ctrl-C when the command that started it is killed (Linux only).

    It is called in the job's process. Only the command sends it signals, so it ignores none of them, even if
    the command itself was started to ignore some.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGINT)
