"""Rows that belong together, such as those of one customer: they are no independent evidence, so they are
resampled together or not at all.

The cluster bootstrap: Field & Welsh, "Bootstrapping clustered data", Journal of the Royal Statistical Society
B 69 (2007), section 2.
"""

import numpy as np
from numpy.typing import NDArray

Clusters = NDArray[np.int64]
"""Of each row the number of its cluster, from 0 without gaps. Shape (rows,)."""


def numbered(keys: NDArray[np.generic]) -> Clusters:
    """Rows of equal keys are one cluster."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def among(clusters: Clusters | None, rows: NDArray[np.int64]) -> Clusters | None:
    """Those of some of the rows, numbered anew; None where each row is one of its own, so that the rows are
    independent.
    """
    if clusters is None or not len(rows):
        return None
    numbers = numbered(clusters[rows])
    return numbers if numbers.max() + 1 < len(rows) else None


def count_of(clusters: Clusters) -> int:
    """How many there are."""
    return int(clusters.max()) + 1


def effective_count(clusters: Clusters) -> int:
    """How many clusters of one size tell as much: fewer where a few have most of the rows; downwards.

    Carter, Schnepel & Steigerwald, "Asymptotic behavior of a t-test robust to cluster heterogeneity", The
    Review of Economics and Statistics 99 (2017), for a mean of rows that are alike within a cluster.
    """
    sizes = np.bincount(clusters)
    return int(sizes.sum()) ** 2 // int((sizes**2).sum())


def totals(values: NDArray[np.float64], clusters: Clusters) -> NDArray[np.float64]:
    """The sum of the values over each cluster's rows. Shape (rows, …) to (clusters, …)."""
    summed = np.zeros((count_of(clusters), *values.shape[1:]))
    np.add.at(summed, clusters, values)
    return summed


def redrawn(clusters: Clusters, rng: np.random.Generator, size: int | None = None) -> NDArray[np.int64]:
    """The rows of as many clusters as there are, or of ``size``, drawn with replacement; a row occurs as
    often as its cluster was drawn.
    """
    count = count_of(clusters)
    times = np.bincount(rng.integers(0, count, size or count), minlength=count)
    return np.repeat(np.arange(len(clusters)), times[clusters])
