"""``halving trial``: one trial, its results and its attempts."""

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from halving.cli.output import NONE, duration, print_table
from pipelines.cli_views import answer, backend_of

if TYPE_CHECKING:
    from rich.console import Console

    from resources.analysis.time_spent import TimeSpent
    from resources.analysis.trial_history import TrialHistory


def run_trial(arguments: argparse.Namespace) -> int:
    """Show a trial.

    JSON: the fields of :class:`resources.analysis.trial_history.TrialHistory` (``trial``, ``status``, ``waiting``, ``params``,
    ``failures``, ``preemptions``, ``error``, ``results``, ``attempts``…), and ``time_spent``, those of
    :class:`resources.analysis.time_spent.TimeSpent`.
    """
    from resources.analysis.time_spent import time_spent
    from resources.analysis.trial_history import history_of

    backend = backend_of(arguments)
    found = history_of(backend.catalog, arguments.trial)
    spent = time_spent(backend.store, found.project, found.trial)
    shown = {**found.as_dict(), "time_spent": spent.as_dict() if spent else None}
    return answer(arguments, shown, lambda console: _print(console, found, spent))


def _print(console: "Console", found: "TrialHistory", spent: "TimeSpent | None") -> None:
    from rich.markup import escape

    from resources.evaluation.page import number

    kind = ", audited" if found.audited else f", seed {found.final + 1} of the final training" if found.final is not None else ""
    console.print(f"[bold]{found.trial}: {found.status}[/]{kind}", highlight=False)
    if found.waiting:
        console.print(f"waits: {escape(found.waiting)}", style="yellow", highlight=False)
    params = ", ".join(f"{name} {number(value)}" for name, value in found.params.items())
    console.print(f"params: {escape(params)}", highlight=False)
    console.print(f"{duration(found.seconds)} of training, {found.failures} failures, {found.preemptions} times preempted", highlight=False)
    if spent is not None:
        _print_time(console, spent)
    results, attempts = [], []
    for result in found.results:
        value = None if result.value is None else number(result.value)
        results.append([result.rung, result.epochs, value, result.decision, result.attempt, duration(result.seconds)])
    if results:
        of_rungs = ("rung", "epochs", found.metric, "decision", "attempt", "time")
        print_table(console, of_rungs, results, right=("rung", "epochs", found.metric, "attempt", "time"))
    for each in found.attempts:
        outcome, reason = each.outcome or "runs", _last_line(each.error)
        attempts.append([each.attempt, each.rung, each.worker, _moment(each.began), _moment(each.ended), outcome, reason])
    if attempts:
        of_attempts = ("attempt", "from rung", "worker", "began", "ended", "outcome", "reason")
        print_table(console, of_attempts, attempts, right=("attempt", "from rung"))
    if found.error and "\n" in found.error:
        console.print(f"the last error in full:\n{escape(found.error)}", style="red", highlight=False)


def _print_time(console: "Console", spent: "TimeSpent") -> None:
    from resources.analysis.time_spent import shares_text

    console.print(f"where its time went: {shares_text(spent)}", highlight=False)
    if spent.warning:
        console.print(spent.warning, style="yellow", highlight=False, markup=False)


def _moment(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else NONE


def _last_line(error: str | None) -> str:
    """The last line of a traceback, which has the error."""
    return error.strip().splitlines()[-1] if error and error.strip() else NONE
