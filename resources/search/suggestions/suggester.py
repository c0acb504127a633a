"""The protocol of whatever suggests params, and the values that go in and come out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from resources.search.state import Result, TrialState
from resources.sweep_spec.points import Params


@dataclass(frozen=True)
class Suggestion:
    """Params of a new trial, and the sampler's notes on the trial and on the sweep."""

    params: Params
    trial_attrs: dict[str, Any] = field(default_factory=dict)
    sweep_attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tried:
    """A trial of this sweep, for the sampler."""

    params: Params
    state: TrialState
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Earlier:
    """A finished trial of an earlier sweep, with its params mapped to the space of this one."""

    params: Params
    epochs: int
    result: Result


class Suggester(Protocol):
    """Chooses the params of a sweep's new trials.

    Attributes:
        needs_history: whether suggestions depend on results.
        takes_long: whether params are to be chosen ahead of time, outside of any transaction.
    """

    needs_history: bool
    takes_long: bool

    def learn(self, trials: Sequence[Tried], sweep_attrs: dict[str, Any]) -> None:
        """Take note of the sweep's trials.

        Args:
            trials: all of them, by number.
            sweep_attrs: the sampler's notes on the sweep, as its newest suggestion has them.
        """

    def suggest(self, number: int) -> Suggestion:
        """Choose the params of the trial with this number, the next one that has none.

        Raises:
            InvalidInput: no point that satisfies the constraints was found.
        """
