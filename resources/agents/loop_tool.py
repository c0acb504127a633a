"""The tool ``ask_tell``: an agent is the external loop of a study, and sees what its sampler knows."""

import math
import re
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from halving.errors import InvalidInput
from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk
from resources.agents.marking import clean, number, pairs
from resources.agents.sweep_tools import row_of
from resources.analysis.summary import summarize
from resources.catalog import IntentRow
from resources.execution.external_loops import LEASE_SECONDS, TrialToTrain, Verdict
from resources.scheduling import intents
from resources.search.decide import Finish
from resources.sweep_spec import stored_spec

_ACTIONS = ("state", "ask", "tell", "heartbeat", "fail", "release")
_MAX_NUMBER = 2**31 - 1
_VALUE = re.compile(r"\s*([^=]+?)\s*=\s*(\S+)\s*")


def ask_tell(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Do one step of an external loop, and add the sampler's state."""
    action = asked_for["action"]
    if action != "state":
        desk.agent.check_writes("ask_tell")
    row = row_of(desk, asked_for["sweep"])
    if isinstance(row, IntentRow):
        raise intents.NotOpen(intents.why_not_open(row))
    if action == "ask":
        _ask(desk, reply, row.id)
    elif action != "state":
        _say(reply, _report(desk, row.id, action, asked_for))
    _add_state(desk, reply, row.id)


def _ask(desk: Desk, reply: Reply, sweep: str) -> None:
    loop = desk.loops(sweep)
    work = loop.ask(f"{desk.agent.actor} {token_hex(16)}", LEASE_SECONDS, again=False)
    if isinstance(work, TrialToTrain):
        reply.add(
            f"train trial={work.trial} attempt={work.attempt} from epoch {work.epoch} to {work.epochs} "
            f"seed={work.seed}"
        )
        rows = [f"  {pairs({name: value}, 60)}" for name, value in work.params.items()]
        reply.add_rows(rows, "params", lambda _: f"describe_run {sweep}.{work.trial:04d}", share=0.8)
        reply.note("then tell trial, attempt, epoch and values within 10 minutes, or heartbeat")
        return
    if isinstance(work, Finish):
        reply.add("the search is over")
        return
    reply.add("nothing to train now: ask again in a second")
    if loop.held_back:
        reply.add(f"held back: {clean(loop.held_back, 80)}")


def _report(desk: Desk, sweep: str, action: str, asked_for: Mapping[str, Any]) -> Verdict:
    trial = asked_for["trial"]
    attempt = asked_for["attempt"]
    loop = desk.loops(sweep)
    if action == "tell":
        return loop.tell(trial, attempt, asked_for["epoch"], parse_values(asked_for["values"]))
    if action == "heartbeat":
        return loop.heartbeat(trial, attempt)
    if action == "release":
        return loop.release(trial, attempt)
    if not asked_for["error"]:
        raise InvalidInput("error is missing: say why the trial has failed")
    return loop.fail(trial, attempt, asked_for["error"][:20_000], final=False)


def parse_values(text: str) -> dict[str, float]:
    """Metrics from ``val_loss=0.31, accuracy=0.9``.

    Raises:
        InvalidInput: it is no list of names with numbers.
    """
    values: dict[str, float] = {}
    for part in filter(str.strip, text.split(",")):
        match = _VALUE.fullmatch(part)
        try:
            values[match[1]] = float(match[2])  # type: ignore[index]
        except (TypeError, ValueError):
            raise InvalidInput(
                f"values = {part!r:.80} is not accepted: give NAME=NUMBER, with commas"
            ) from None
    return values


def _say(reply: Reply, verdict: Verdict) -> None:
    line = f"{verdict.decision} epochs={verdict.epochs}"
    if verdict.reason:
        line += f": {clean(verdict.reason, 80)}"
    reply.add(line)


def _add_state(desk: Desk, reply: Reply, sweep: str) -> None:
    """Add what the sampler goes by: how many results, what is in flight, and the best so far."""
    with desk.catalog.read() as session:
        row = desk.catalog.sweep(session, sweep)
        spec = stored_spec(row.spec)
        trials = desk.catalog.trials(session, sweep)
    summary = summarize(desk.catalog, sweep)
    sampler, options = spec.sampler
    reply.add(
        f"sampler {clean(sampler)} {pairs(options, 10)}; {spec.objective.direction} "
        f"{clean(spec.objective.metric)}; {len(summary.standings)} trials told, {len(trials)} of "
        f"{summary.planned} begun; {row.status} {row.control}"
    )
    if summary.best is not None and math.isfinite(summary.best.objective):
        best = summary.best
        reply.add(
            f"best: trial {best.trial} {number(best.objective)} at epoch {best.epochs} "
            f"{pairs(best.params, 15)}"
        )
    flying = [
        f"  in flight: trial {trial.number} attempt {trial.attempt} {pairs(trial.params, 10)}"
        for trial in trials
        if trial.status == "running"
    ]
    reply.add_rows(flying, "trials in flight", lambda _: "sweep_status counts them")


TOOLS = (
    Tool(
        "ask_tell",
        "Be the training loop of a sweep with driver api: ask for a trial, tell its values at the granted "
        "epoch, obey the decision. state: sampler, best, in flight.",
        (
            Argument("sweep"),
            Argument("action", default="state", choices=_ACTIONS),
            Argument("trial", "integer", default=0, high=_MAX_NUMBER),
            Argument("attempt", "integer", default=1, low=1, high=_MAX_NUMBER),
            Argument("epoch", "integer", default=1, low=1, high=_MAX_NUMBER),
            Argument("values", about="val_loss=0.31,acc=0.9", default=""),
            Argument("error", default=""),
        ),
        ask_tell,
        effect="may write",
    ),
)
