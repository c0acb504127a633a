"""Ten questions, and a scripted client that answers each from at most three calls of the tools.

The script reads the tools' text as an agent would, and knows nothing of the store but what it is told there.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from benchmarks.agents_store import (
    DIVERGED_AT,
    GRADIENT_AT,
    NOTE,
    OUT_OF_MEMORY,
    Prepared,
)

MAX_CALLS = 3
Call = Callable[..., Awaitable[str]]
"""Calls a tool by its name with arguments, and returns its text."""


@dataclass
class Client:
    """Counts the calls of one question."""

    call_tool: Call
    calls: int = 0
    texts: list[str] = field(default_factory=list)

    async def ask(self, tool: str, **arguments: object) -> str:
        self.calls += 1
        text = await self.call_tool(tool, **arguments)
        self.texts.append(text)
        return text


async def why_it_diverged(client: Client, _: Prepared) -> tuple[object, object]:
    failed = await client.ask("find_runs", filter="project = vision and status = failed and sweep is null")
    [run] = re.findall(r"^(vision/\S+) failed", failed, re.MULTILINE)
    curves = await client.ask("curve_summary", runs=run)
    since = re.search(r"train/loss: .*NaN/inf since (\d+)", curves)
    spike = re.search(r"grad_norm: .*top [^@]*@(\d+)", curves)
    differs = await client.ask("compare_runs", runs=f"{run}, vision/healthy", part="params")
    rates = re.search(r"^ +lr: (\S+) \| (\S+)", differs, re.MULTILINE)
    assert None not in (since, spike, rates), client.texts
    step = int(spike[1])  # type: ignore[index]
    answer = int(since[1]), GRADIENT_AT <= step < GRADIENT_AT + 3, rates.groups()  # type: ignore[index, union-attr]
    return answer, (DIVERGED_AT, True, ("0.5", "0.001"))


async def where_the_spike_is(client: Client, prepared: Prepared) -> tuple[object, object]:
    curve = await client.ask("curve_summary", runs="vision/long", metrics="train/loss")
    step = int(re.findall(r"1 spike, top [^@]*@(\d+)", curve)[0])
    points = await client.ask("points", run="vision/long", metric="train/loss", low=step - 1, high=step + 1)
    return (step, f"{step}:0.9" in points), (prepared.spike, True)


async def which_curve_is_best_and_falls(client: Client, prepared: Prepared) -> tuple[object, object]:
    curves = await client.ask("curve_summary", runs="project = lm", metrics="val_loss")
    return re.findall(r"^(lm/\S+): .*end falling", curves, re.MULTILINE)[0], prepared.best_falling


async def what_differs(client: Client, _: Prepared) -> tuple[object, object]:
    text = await client.ask("compare_runs", runs="vision/diverged,vision/healthy", part="params")
    return re.findall(r"^ +(\S+): (\S+) \| (\S+)", text, re.MULTILINE), [("lr", "0.5", "0.001")]


async def extend_the_sweep(client: Client, prepared: Prepared) -> tuple[object, object]:
    listed = await client.ask("sweep_status", project="vision")
    [sweep] = re.findall(r"^(vision-\S+) .*searching", listed, re.MULTILINE)
    # Asked again, it can only be extended by more.
    planned = int(re.findall(rf"^{re.escape(sweep)} .*trials=\d+/(\d+)", listed, re.MULTILINE)[0])
    most_trials = max(planned + 1, 40)
    await client.ask("control_sweep", sweep=sweep, action="extend", max_trials=most_trials)
    text = await client.ask("sweep_status", sweep=sweep)
    return (sweep, f"of {most_trials} planned" in text), (prepared.sweep, True)


async def why_the_trial_failed(client: Client, prepared: Prepared) -> tuple[object, object]:
    failed = await client.ask("find_runs", filter="status = failed and sweep is not null")
    [run] = re.findall(r"^(\S+) failed", failed, re.MULTILINE)
    text = await client.ask("describe_run", run=run)
    return OUT_OF_MEMORY in text, True


async def which_trial_leads(client: Client, prepared: Prepared) -> tuple[object, object]:
    text = await client.ask("sweep_status", sweep=prepared.sweep)
    return int(re.findall(r"^ +#(\d+) ", text, re.MULTILINE)[0]), prepared.best_trial


async def which_optimizer_is_better(client: Client, prepared: Prepared) -> tuple[object, object]:
    query = (
        "SELECT p.value, round(avg(m.value), 3) mean FROM metrics m JOIN params p USING (project, run) "
        "WHERE m.project = 'opt' AND m.key = 'accuracy' AND m.step = 49 AND p.name = 'optimizer' "
        "GROUP BY 1 ORDER BY 2 DESC"
    )
    text = await client.ask("sql", query=query)
    return re.findall(r"^(\w+) \| ([\d.]+)$", text, re.MULTILINE)[0], (prepared.optimizer, "0.867")


async def why_it_is_not_champion(client: Client, _: Prepared) -> tuple[object, object]:
    text = await client.ask("models", model="vision")
    champion = re.findall(r"^(\S+) champion", text, re.MULTILINE)
    return (champion, "gate non_inferior did not pass: accuracy is 0.07 below" in text), (["1.0.0"], True)


async def what_ada_noted(client: Client, _: Prepared) -> tuple[object, object]:
    text = await client.ask("journal", about="vision/diverged", since="1d")
    return re.findall(r"note run:vision/diverged by ada - (.*)$", text, re.MULTILINE), [NOTE]


QUESTIONS = {
    "Why did the run diverge?": why_it_diverged,
    "At which step is the spike in a long curve?": where_the_spike_is,
    "Which of twenty curves is the best that still falls?": which_curve_is_best_and_falls,
    "What differs between these two runs?": what_differs,
    "Extend that sweep to 40 trials.": extend_the_sweep,
    "Why did a trial fail?": why_the_trial_failed,
    "Which trial leads the sweep?": which_trial_leads,
    "Which optimizer has the better mean accuracy?": which_optimizer_is_better,
    "Which version is the champion, and why not the newest?": why_it_is_not_champion,
    "What did Ada note on the run?": what_ada_noted,
}
