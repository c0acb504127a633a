"""Evidence from which nothing is concluded, because too few rows tell anything."""

from dataclasses import dataclass
from math import ceil, inf, nan

from resources.evaluation.statistics.evidence import ALPHA

MIN_TELLING = 10
"""Rows; if fewer differ from all others, resamples hardly vary, and a bootstrap would seem certain."""

MIN_ROWS = 20
"""Rows or clusters; from fewer the bootstrap concludes nothing, as they show too little."""

FEW_TELLING = 100
"""Rows; if fewer differ, a bootstrap claims no more than Student's t of so many."""


@dataclass(frozen=True)
class TooFew:
    """An estimate with no tests; see :class:`resources.evaluation.statistics.evidence.Evidence`.

    Attributes:
        n: the number of rows.
        telling: for a comparison the rows on which both differ, for a single metric the rows that differ from
            the usual value; or the clusters with such rows.
        clusters: the number of clusters; None: each row stands for itself.
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
        """The number of rows of which enough are expected to tell; None if no row tells so far."""
        if not self.telling:
            return None
        units = self.n if self.clusters is None else self.clusters
        return ceil(self.n * max(MIN_TELLING / self.telling, MIN_ROWS / units))
