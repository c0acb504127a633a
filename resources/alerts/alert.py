"""What an alert is, and of which events there are alerts."""

from dataclasses import dataclass
from typing import Literal

from halving.errors import InvalidInput
from halving.text import comma_list, did_you_mean

Level = Literal["info", "warn", "error"]

EVENTS: dict[str, str] = {
    "crashed": "a run's process died without an end",
    "out of memory": "a run ended because memory ran out",
    "failed": "a run ended with an error",
    "silent": "a running run has sent nothing for as long as its limit says",
    "diverged": "a metric became NaN or infinite, or left its bounds",
    "beyond bound": "a metric passed a bound of the project's rules",
    "logged": "a run raised an alert itself (halving.alert, wandb.alert)",
    "sweep finished": "a sweep has finished, with its winner",
    "sweep failed": "a sweep ended without a winner",
    "gate failed": "a version did not pass a gate",
    "promotion waits": "a version waits for a person's decision",
    "budget": "a project has used 80 or 100 % of its GPU-hours",
    "store short": "the disk or the store has little room left, or does not answer",
    "recovered": "what an earlier alert told of is over",
}
"""Each event with what it means."""


@dataclass(frozen=True)
class Alert:
    """Something that has happened, and that a person should hear of.

    Attributes:
        key: identifies what happened, such as ``run:digits/7f3a:2:crashed``. A second alert with the same key
            is not raised, so whoever notices it again, or again after a restart, may say it again.
        event: of :data:`EVENTS`.
        kind: what ``subject`` is: run, sweep, model, project or store.
        title: one line: what happened.
        text: what it means and what to do next, in Markdown; may be empty.
        project: None if it concerns all projects.
    """

    key: str
    event: str
    kind: str
    subject: str
    title: str
    text: str = ""
    level: Level = "warn"
    project: str | None = None


def check_event(event: str) -> None:
    """Check the name of an event.

    Raises:
        InvalidInput: there is none of this name.
    """
    if event not in EVENTS:
        hint = did_you_mean(event, EVENTS) or f": give {comma_list(EVENTS)}"
        raise InvalidInput(f"event = {event!r} is not accepted{hint}")
