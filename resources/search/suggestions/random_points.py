"""Suggests points at random, which other suggesters do as well where they find no point themselves."""

from collections.abc import Sequence
from random import Random
from typing import Any

from halving.errors import InvalidInput
from resources.search.suggestions.suggester import Suggestion, Tried
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.points import Params, sample, satisfies

MAX_ASKS = 20
"""How often a sampler is asked for a point that satisfies the constraints, before points are drawn."""

_MAX_DRAWS = 10_000


class RandomSuggester:
    """Draws independent points; each depends on the spec's seed and the trial's number alone."""

    needs_history = False

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self.takes_long = bool(spec.constraints)

    def learn(self, trials: Sequence[Tried], sweep_attrs: dict[str, Any]) -> None:
        """Do nothing: random points do not depend on results."""

    def suggest(self, number: int) -> Suggestion:
        """A random point that satisfies the constraints.

        Raises:
            InvalidInput: none was found.
        """
        return Suggestion(draw_point(self._spec, number))


def draw_point(spec: SweepSpec, number: int) -> Params:
    """A random point that satisfies the constraints, for the trial with this number.

    Raises:
        InvalidInput: none was found.
    """
    start = starting_point(spec, number)
    # The attempts before these are a sampler's, and their seeds are used up.
    for attempt in range(MAX_ASKS, MAX_ASKS + _MAX_DRAWS):
        params = sample(spec.space, Random(seed_of(spec, number, attempt)), start)
        if satisfies(spec, params):
            return params
    raise InvalidInput(
        f"constraints = {list(spec.constraints)} leave hardly a point of the space: none of "
        f"{_MAX_DRAWS} at random satisfies them; narrow the ranges to where they hold"
    )


def starting_point(spec: SweepSpec, number: int) -> Params:
    """The params that the spec wants the trial with this number to start from; empty if there are none."""
    if number < len(spec.start_from):
        return spec.start_from[number]
    return {}


def seed_of(spec: SweepSpec, number: int, attempt: int) -> int:
    """The seed of an attempt to find params for the trial with this number."""
    return (spec.seed * 1_000_003 + number + attempt * 7_919_317) % 2**32
