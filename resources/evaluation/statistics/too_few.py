"""Evidence from which nothing is concluded, because too few rows tell anything."""

from dataclasses import dataclass
from math import ceil, inf, nan

from resources.evaluation.statistics.evidence import ALPHA

LEAST_TELLING = 10
"""Rows: where fewer differ from all the others, resamples hardly vary, and a bootstrap would take that for
certainty.
"""

LEAST_ROWS = 20
"""Of fewer rows, or clusters, the bootstrap says nothing: they show too little of what the distribution
is.
"""

FEW_TELLING = 100
"""Rows: where fewer differ, a bootstrap claims no more than Student's t of so many."""


@dataclass(frozen=True)
class TooFew:
    """An estimate with no tests; see :class:`resources.evaluation.statistics.evidence.Evidence`.

    Attributes:
        n: all rows.
        telling: of a comparison the rows on which both differ, of a single metric those that differ from most
            of them; or the clusters with such rows.
        clusters: how many there are; None: each row stands for itself.
    """

    estimate: float
    n: int
    telling: int
    standard_error: float = nan
    step: float = 0.0
    clusters: int | None = None

    def p_above(self, threshold: float) -> float:
        return 1.0

    def p_below(self, threshold: float) -> float:
        return 1.0

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        return -inf, inf

    @property
    def rows_to_tell(self) -> int | None:
        """Of how many rows as many are expected to tell as it takes, and how many it takes at all; None where
        no row tells so far.
        """
        units = self.n if self.clusters is None else self.clusters
        return ceil(self.n * max(LEAST_TELLING / self.telling, LEAST_ROWS / units)) if self.telling else None
