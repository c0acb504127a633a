"""``halving trial``: one trial, its results, its attempts and why each ended."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of
from halving.cli.output import print_table
from halving.cli.parser import add_command
from halving.errors import NotFound
from halving.text import duration, local_time

if TYPE_CHECKING:
    from rich.console import Console

    from resources.analysis.attempts import Attempt
    from resources.analysis.skips import Skips
    from resources.analysis.time_spent import TimeSpent
    from resources.analysis.trial_history import TrialHistory


def add_trial_command(commands: Any) -> None:
    """Add ``halving trial``."""
    description = "show a trial: its params, why it waits, its results, and why each of its attempts ended"
    trial = add_command(
        commands, "trial", description, run_trial, trial="the trial's name, for example digits-7f3a.0007"
    )
    trial.add_argument(
        "--attempt",
        type=int,
        metavar="N",
        help="show this attempt alone, with all that is recorded of its end",
    )


def run_trial(arguments: argparse.Namespace) -> int:
    """Show a trial.

    JSON: the fields of :class:`resources.analysis.trial_history.TrialHistory` (``trial``, ``status``,
    ``waiting``, ``params``, ``failures``, ``preemptions``, ``error``, ``reason``, ``results``,
    ``attempts``…); ``time_spent``, those of :class:`resources.analysis.time_spent.TimeSpent`; and ``skips``,
    those of :class:`resources.analysis.skips.Skips`, null where the store does not say. With ``--attempt`` it
    is that attempt alone, of ``attempts``.
    """
    from resources.analysis.skips import COUNTED, skips_of
    from resources.analysis.system_points import read_system_points
    from resources.analysis.time_spent import SAMPLED, time_spent
    from resources.analysis.trial_history import history_of

    backend = backend_of(arguments)
    history = history_of(backend.catalog, arguments.trial)
    if arguments.attempt is not None:
        attempt = _attempt(history, arguments.attempt)
        return answer(arguments, asdict(attempt), lambda console: _print_whole(console, attempt))
    points = read_system_points(backend.store, history.project, history.trial, (SAMPLED, COUNTED))
    data: dict[str, Any] = {**history.as_dict(), "time_spent": None, "skips": None}
    spent = None
    skips = None
    if points is not None:
        spent = time_spent(points)
        skips = skips_of(backend.store, history.project, history.trial, points)
    if spent is not None:
        data["time_spent"] = spent.as_dict()
    if skips is not None:
        data["skips"] = skips.as_dict()
    return answer(arguments, data, lambda console: _print(console, history, spent, skips))


def _attempt(history: "TrialHistory", number: int) -> "Attempt":
    for attempt in history.attempts:
        if attempt.attempt == number:
            return attempt
    numbers = ", ".join(str(attempt.attempt) for attempt in history.attempts) or "none yet"
    raise NotFound(f"no attempt {number} at trial {history.trial}: its attempts are {numbers}")


def _print(
    console: "Console", history: "TrialHistory", spent: "TimeSpent | None", skips: "Skips | None"
) -> None:
    from rich.markup import escape

    from resources.evaluation.page import number

    kind = ""
    if history.audited:
        kind = ", audited"
    elif history.final is not None:
        kind = f", seed {history.final + 1} of the final training"
    console.print(f"[bold]{history.trial}: {history.status}[/]{kind}", highlight=False)
    if history.waiting:
        console.print(f"waits: {escape(history.waiting)}", style="yellow", highlight=False)
    params = ", ".join(f"{name} {number(value)}" for name, value in history.params.items())
    console.print(f"params: {escape(params)}", highlight=False)
    trained = f"{duration(history.seconds)} of training"
    console.print(
        f"{trained}, {history.failures} failures, {history.preemptions} times preempted", highlight=False
    )
    if spent is not None:
        _print_time(console, spent)
    if skips is not None:
        for text in skips.texts:
            console.print(text, style="yellow", highlight=False, markup=False)
    _print_results(console, history)
    _print_attempts(console, history)


def _print_time(console: "Console", spent: "TimeSpent") -> None:
    from resources.analysis.time_spent import shares_text

    console.print(f"where its time went: {shares_text(spent)}", highlight=False)
    if spent.warning:
        console.print(spent.warning, style="yellow", highlight=False, markup=False)


def _print_results(console: "Console", history: "TrialHistory") -> None:
    from resources.evaluation.page import number

    rows = []
    for result in history.results:
        value = None
        if result.value is not None:
            value = number(result.value)
        rows.append(
            [result.rung, result.epochs, value, result.decision, result.attempt, duration(result.seconds)]
        )
    if rows:
        columns = ("rung", "epochs", history.metric, "decision", "attempt", "time")
        print_table(console, columns, rows, right=("rung", "epochs", history.metric, "attempt", "time"))


def _print_attempts(console: "Console", history: "TrialHistory") -> None:
    """Print a line for each attempt, and the whole error of the last that has more than its reason."""
    from rich.markup import escape

    rows = []
    for attempt in history.attempts:
        rows.append(
            [
                attempt.attempt,
                attempt.rung,
                attempt.worker,
                attempt.ran_on,
                local_time(attempt.began),
                local_time(attempt.ended),
                attempt.outcome or "runs",
                attempt.reason,
            ]
        )
    if rows:
        columns = ("attempt", "from rung", "worker", "on", "began", "ended", "outcome", "reason")
        print_table(console, columns, rows, right=("attempt", "from rung"))
    with_more = [
        attempt for attempt in history.attempts if attempt.error and attempt.error.strip() != attempt.reason
    ]
    if not with_more:
        return
    *earlier, last = with_more
    console.print(
        f"\nattempt {last.attempt} in full:\n{escape(last.error or '')}", style="red", highlight=False
    )
    if earlier:
        numbers = ", ".join(str(attempt.attempt) for attempt in earlier)
        noun = "attempt"
        if len(earlier) > 1:
            noun = "attempts"
        console.print(
            f"{noun} {numbers} in full: halving trial {history.trial} --attempt {earlier[-1].attempt}",
            style="dim",
            highlight=False,
        )


def _print_whole(console: "Console", attempt: "Attempt") -> None:
    """Print one attempt with all that is recorded of its end."""
    when = f"{local_time(attempt.began)} to {local_time(attempt.ended)}"
    console.print(f"attempt {attempt.attempt}: {attempt.outcome or 'runs'}", style="bold", highlight=False)
    console.print(
        f"{when}, on {attempt.ran_on}, by {attempt.worker or 'no worker yet'}", highlight=False, markup=False
    )
    console.print(
        attempt.error or "no reason is recorded, as for every attempt that went well",
        highlight=False,
        markup=False,
    )
