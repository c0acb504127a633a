"""Evidence from which nothing is concluded, because too few rows differ."""

from dataclasses import dataclass
from math import ceil, inf, nan

from resources.evaluation.statistics.evidence import ALPHA

MIN_TELLING = 10
"""The number of differing rows that a bootstrap needs: with fewer, resamples hardly vary, as if certain."""

MIN_ROWS = 20
"""The number of rows or clusters that a bootstrap needs to conclude anything."""

FEW_TELLING = 100
"""The number of differing rows below which a bootstrap claims no more than Student's t of so many."""


@dataclass(frozen=True)
class TooFew:
    """An estimate with no tests; see :class:`resources.evaluation.statistics.evidence.Evidence`.

    Attributes:
        n: the number of rows.
        telling: for a comparison the number of rows on which both differ, for a single metric the number of
            rows that differ from the most frequent value; with clusters, the number of clusters that have
            such rows.
        clusters: the number of clusters; None if rows are independent.
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
        """The number of rows of which enough are expected to differ; None if none of these does."""
        if not self.telling:
            return None
        units = self.n if self.clusters is None else self.clusters
        return ceil(self.n * max(MIN_TELLING / self.telling, MIN_ROWS / units))
