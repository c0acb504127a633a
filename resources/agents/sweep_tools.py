"""Tools about sweeps that are there: where each stands, and its controls."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.text import duration
from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk
from resources.agents.marking import clean, number, pairs
from resources.analysis.summary import SweepSummary, outcome, summarize
from resources.analysis.sweep_list import SweepLine, list_sweeps
from resources.catalog import IntentRow, SweepRow
from resources.scheduling import intents
from resources.scheduling.sweeps import MAX_TRIALS, extend_sweep, pause_sweep, resume_sweep

MAX_SWEEPS = 200
_ACTIONS = ("pause", "resume", "stop", "extend")


def sweep_status(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """List sweeps, or say where one stands with its best trials first."""
    offset = asked_for["offset"]
    if not asked_for["sweep"]:
        projects = desk.agent.visible_projects
        if asked_for["project"]:
            desk.agent.check(asked_for["project"], f"project {asked_for['project']!r}")
            projects = [asked_for["project"]]
        lines = list_sweeps(desk.catalog, projects=projects, limit=MAX_SWEEPS)
        reply.add(f"{len(lines)} sweeps, newest first")
        rows = [_line_of(line) for line in lines[offset:]]
        reply.add_rows(rows, "sweeps", lambda added: f"ask with offset={offset + added}")
        return
    row = row_of(desk, asked_for["sweep"])
    if isinstance(row, IntentRow):
        reply.add(f"{row.sweep} is not open: {clean(intents.why_not_open(row), 150)}")
        return
    summary = summarize(desk.catalog, row.id)
    _describe(reply, row, summary)
    searching = row.status == "searching"
    rows = [
        f"  #{standing.trial} {outcome(standing.status, audited=standing.audited, searching=searching)} "
        f"{number(standing.objective)} epochs={standing.epochs} {pairs(standing.params, 15)}"
        for standing in summary.standings[offset:]
    ]
    reply.add(
        f"trials by {clean(summary.objective)} ({summary.direction}), run = {row.project}/{row.id}.NNNN:"
    )
    reply.add_rows(rows, "trials", lambda added: f"ask with offset={offset + added}")


def control_sweep(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Pause, resume, stop or extend a sweep, in one transaction with its entry in the write log."""
    desk.agent.check_writes("control_sweep")
    action = asked_for["action"]
    extends = action == "extend"
    if extends != (asked_for["max_trials"] > 0):
        raise InvalidInput(
            f"max_trials = {asked_for['max_trials']} is not accepted with {action}: it is for extend alone, "
            "which needs how many trials the sweep may start in all"
        )
    row = row_of(desk, asked_for["sweep"])
    sweep = asked_for["sweep"]
    actor = desk.agent.actor
    if isinstance(row, IntentRow) and action != "stop":
        raise intents.NotOpen(intents.why_not_open(row))
    controls: dict[str, Callable[[Session], SweepRow | IntentRow]] = {
        "pause": lambda session: pause_sweep(desk.catalog, sweep, session, actor=actor),
        "resume": lambda session: resume_sweep(desk.catalog, sweep, session, actor=actor),
        "stop": lambda session: intents.stop_sweep(desk.catalog, sweep, actor, session),
        "extend": lambda session: extend_sweep(
            desk.catalog, sweep, asked_for["max_trials"], session, actor=actor
        ),
    }
    with desk.catalog.write() as session:
        changed = controls[action](session)
        desk.note_write(session, "control_sweep", f"{sweep}/{action}")
        if isinstance(changed, IntentRow):
            line = f"{sweep} was not open yet, and never will be: {changed.status}"
        else:
            line = f"{sweep} status={changed.status} control={changed.control}"
            if changed.max_trials:
                line += f" max_trials={changed.max_trials}"
    if action == "stop" and isinstance(row, SweepRow) and row.driver == "api":
        desk.loops(sweep).settle()  # its loops may never ask again
    reply.add(line)


def row_of(desk: Desk, sweep: str) -> SweepRow | IntentRow:
    """A sweep's row, or the intent that is to become it, if the agent may see it.

    Raises:
        NotFound: there is none, or it is of another project.
    """
    with desk.catalog.read() as session:
        row = session.get(SweepRow, sweep)
    if row is not None:
        desk.agent.check(row.project, f"sweep {sweep!r}")
        return row
    intent = intents.of_sweep(desk.catalog, sweep)
    if intent is None or not desk.agent.sees(intents.project_of(intent)):
        raise NotFound(f"no sweep {sweep!r}; sweep_status without one lists them")
    return intent


def _describe(reply: Reply, row: SweepRow, summary: SweepSummary) -> None:
    reply.add(f"{row.id} project={row.project} status={row.status} control={row.control} driver={row.driver}")
    counts = " ".join(f"{status}={count}" for status, count in sorted(summary.counts.items()))
    reply.add(f"trials: {counts or 'none'} of {summary.planned} planned")
    if summary.held_back:
        reply.add(f"held back: {clean(summary.held_back, 80)}")
    reply.add(
        f"epochs: {summary.epochs_trained} trained of {summary.epochs_full} without early stopping, "
        f"took {duration(summary.seconds)}, gpu-hours {summary.gpu_seconds / 3600:.3g}"
    )
    for rung in summary.rungs[:8]:
        reply.add(
            f"rung {rung.epochs} epochs: reached={rung.reached} promoted={rung.promoted} "
            f"paused={rung.paused} stopped={rung.stopped} failed={rung.failed} best={number(rung.best)}"
        )
    errors = [f"failed #{failure['trial']}: {clean(failure['error'], 60)}" for failure in summary.failed]
    if errors:
        reply.add_rows(
            errors[:5],
            "failed trials",
            lambda _: "find_runs lists them, describe_run has the errors",
            share=0.3,
            total=len(errors),
        )


def _line_of(line: SweepLine) -> str:
    words = [line.id, f"project={line.project}", line.status]
    if line.status == "searching":
        words.append(line.control)
    if line.objective:
        words.append(f"{line.direction} {clean(line.objective)} best={number(line.best)}")
    started = sum(line.counts.values())
    words.append(f"trials={started}/{line.trials}")
    if line.waiting or line.problem:
        words.append(f"waits: {clean(line.waiting or line.problem, 40)}")
    return " ".join(words)


TOOLS = (
    Tool(
        "sweep_status",
        "Without sweep: all sweeps. With: status, rungs, failures, trials best first.",
        (
            Argument("sweep", default=""),
            Argument("project", default=""),
            Argument("offset", "integer", default=0),
        ),
        sweep_status,
    ),
    Tool(
        "control_sweep",
        "Pause, resume, stop (final) or extend a sweep. Deletes nothing.",
        (
            Argument("sweep"),
            Argument("action", choices=_ACTIONS),
            Argument("max_trials", "integer", "extend: trials in all", default=0, high=MAX_TRIALS),
        ),
        control_sweep,
        effect="writes",
        destructive=True,
    ),
)
