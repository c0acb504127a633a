"""What every estimate of a quantity has to offer, so that a verdict needs not know how it was made."""

from typing import Protocol

ALPHA = 0.025
"""Of each one-sided test, so that a verdict says whether an interval at 95 % lies on one side of a threshold:
at most so often it passes what it should not.

Trials of medicines are held to it, too (ICH E9, "Statistical principles for clinical trials" (1998), section
5.5).
"""


class Evidence(Protocol):
    """An estimate with its one-sided tests.

    Attributes:
        estimate: of the quantity, for example the gain over the champion; higher is better.
        standard_error: of the estimate; 0 where nothing varies.
        n: what it was made of: rows, or seeds.
        step: by how much ``n`` times the estimate changes at least: 1 for counts, which makes their tests
            cautious; 0 for numbers.
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
        """The p-value of the hypothesis that the quantity is at most the threshold: small where it is
        above.
        """
        ...

    def p_below(self, threshold: float) -> float:
        """The p-value of the hypothesis that the quantity is at least the threshold: small where it is
        below.
        """
        ...

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Both one-sided bounds at ``1 - alpha``: an interval with a confidence of ``1 - 2 alpha``, 95 % by
        default.
        """
        ...
