"""Suggests the points of a grid, in order."""

from collections.abc import Sequence
from typing import Any

from resources.search.suggestions.suggester import Suggestion, Tried
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.points import grid_point


class GridSuggester:
    """Gives each trial the point of the grid that has its number."""

    needs_history = False

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self.takes_long = bool(spec.constraints)

    def learn(self, trials: Sequence[Tried], sweep_attrs: dict[str, Any]) -> None:
        """Do nothing: a grid does not depend on results."""

    def suggest(self, number: int) -> Suggestion:
        """The grid's point with this number."""
        return Suggestion(grid_point(self._spec, number))
