"""Clusters of rows, such as those of one customer, which are resampled together as they are not independent.

The cluster bootstrap: Field & Welsh, "Bootstrapping clustered data", Journal of the Royal Statistical Society
B 69 (2007), section 2.
"""

import numpy as np
from numpy.typing import NDArray

Clusters = NDArray[np.int64]
"""The number of each row's cluster, from 0 without gaps. Shape (rows,)."""


def number_clusters(keys: NDArray[np.generic]) -> Clusters:
    """Number the clusters, one for the rows of each distinct key."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def among(clusters: Clusters | None, rows: NDArray[np.int64]) -> Clusters | None:
    """The clusters of some of the rows, numbered anew; None if each row is a cluster of its own."""
    if clusters is None or not len(rows):
        return None
    numbers = number_clusters(clusters[rows])
    if numbers.max() + 1 == len(rows):
        return None
    return numbers


def count_clusters(clusters: Clusters) -> int:
    """The number of clusters."""
    return int(clusters.max()) + 1


def effective_count(clusters: Clusters) -> int:
    """The number of clusters of equal size that would tell as much, rounded down.

    It is small if a few clusters have most of the rows.

    Carter, Schnepel & Steigerwald, "Asymptotic behavior of a t-test robust to cluster heterogeneity", The
    Review of Economics and Statistics 99 (2017), for a mean of rows that are alike within a cluster.
    """
    sizes = np.bincount(clusters)
    return int(sizes.sum()) ** 2 // int((sizes**2).sum())


def totals(values: NDArray[np.float64], clusters: Clusters) -> NDArray[np.float64]:
    """The sum of the values over each cluster's rows. Shape (rows, …) to (clusters, …)."""
    summed = np.zeros((count_clusters(clusters), *values.shape[1:]))
    np.add.at(summed, clusters, values)
    return summed


def redraw(clusters: Clusters, rng: np.random.Generator, size: int | None = None) -> NDArray[np.int64]:
    """Draw ``size`` clusters with replacement (default: as many as there are), and give their rows.

    A row occurs as often as its cluster was drawn.
    """
    count = count_clusters(clusters)
    times = np.bincount(rng.integers(0, count, size or count), minlength=count)
    return np.repeat(np.arange(len(clusters)), times[clusters])
