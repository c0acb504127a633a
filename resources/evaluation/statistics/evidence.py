"""The protocol of an estimate with its tests; a verdict needs no more of it."""

from typing import Protocol

ALPHA = 0.025
"""The level of each one-sided test: how often, at most, it passes what it should not.

At 0.025 a one-sided test agrees with the interval at 95 %: it passes if the whole interval is on the right
side of the threshold. Trials of medicines use the same level (ICH E9, "Statistical principles for clinical
trials" (1998), section 5.5).
"""


class Evidence(Protocol):
    """An estimate with its one-sided tests.

    Attributes:
        estimate: the estimated quantity, such as the gain over the champion; higher is better.
        standard_error: the standard error of the estimate; 0 if nothing varies.
        n: the number of rows, or of seeds, that the estimate is made of.
        step: the smallest change of ``n * estimate``: 1 for counts, whose tests are cautious because of it;
            0 for continuous values.
    """

    @property
    def estimate(self) -> float: ...
    @property
    def standard_error(self) -> float: ...
    @property
    def n(self) -> int: ...
    @property
    def step(self) -> float: ...

    def p_above(self, threshold: float) -> float:
        """The p-value of "the quantity is at most the threshold"; small if it is above."""
        ...

    def p_below(self, threshold: float) -> float:
        """The p-value of "the quantity is at least the threshold"; small if it is below."""
        ...

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """The interval with a confidence of ``1 - 2 * alpha``, 95 % by default: low and high."""
        ...
