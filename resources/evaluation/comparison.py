"""Comparison of two checkpoints on the same rows: the evidence for which is better by a metric."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resources.evaluation.measures import EXTREMES, Confusion, RowMean, measure
from resources.evaluation.predictions import Predictions
from resources.evaluation.ranked import Ranked
from resources.evaluation.resampling import SEED, Resampled
from resources.evaluation.statistics.bootstrap import (
    Bootstrapped,
    bootstrap,
    bootstrap_counts,
    bootstrap_mean,
    bootstrap_totals,
    bootstrap_weights,
)
from resources.evaluation.statistics.clusters import Clusters, among, count_clusters, effective_count
from resources.evaluation.statistics.evidence import Evidence
from resources.evaluation.statistics.proportions import PairedProportions, Proportion
from resources.evaluation.statistics.too_few import FEW_TELLING, MIN_TELLING, TooFew
from resources.sweep_spec.metrics import CLASS_SCORERS, PROBABILITY_SCORERS, higher_is_better

_MAX_CELLS = 200_000  # kinds of rows times cells of confusion matrices
_MAX_OF_KINDS = 20_000_000  # rows times kinds of them: 160 MB
_SUPPOSED = 2
"""Supposed rows of each kind of error; see :func:`_with_supposed_errors`."""


def gain_of(
    ours: Predictions,
    theirs: Predictions,
    metric: str,
    rows: NDArray[np.int64] | None = None,
    *,
    higher: bool | None = None,
) -> Evidence:
    """How much better our predictions are by a metric: above 0 if better, whichever way the metric goes.

    Accuracy, and any other score of only zeros and ones, is compared by the rows on which only one of the two
    is right. The mean of a value of each row is compared by the differences of these values. Any other metric
    is compared by both values on the same resampled rows. For a metric of classes the resamples contain some
    more errors than there were; for other metrics nothing is concluded if hardly a row differs. Rows in
    clusters are resampled by whole clusters for every metric, because the exact tests need independent rows.

    Args:
        rows: the positions of the rows that count (default: all).
        higher: whether higher is better (default: as the metric's name says, or as an evaluator says of its
            own scores).

    Raises:
        InvalidInput: the metric does not fit the predictions.
    """
    if rows is None:
        rows = np.arange(ours.rows)
    if higher is None:
        higher = higher_is_better(metric)
    sign = 1
    if not higher:
        sign = -1
    clusters = among(ours.clusters, rows)
    a = measure(ours, metric)
    b = measure(theirs, metric)
    estimate = sign * (a.on(rows) - b.on(rows))
    if metric in EXTREMES:
        return Bootstrapped(estimate, np.nan, len(rows), np.zeros(0), 0.0)
    of_classes = metric in CLASS_SCORERS - PROBABILITY_SCORERS and ours.target is not None
    exact = clusters is None or not of_classes
    if exact and isinstance(a, RowMean) and isinstance(b, RowMean) and a.is_mean and b.is_mean:
        return _gain_of_means(sign * a.values[rows], sign * b.values[rows], clusters)
    if of_classes:
        supposed, with_supposed = _with_supposed_errors([ours, theirs], rows, clusters)
        a, b = (measure(predictions, metric) for predictions in supposed)
        gain = _resampled_gain(a, b, sign, np.arange(a.rows), with_supposed)
        return _move_to(gain, estimate, len(rows), clusters)
    telling = _telling(_differing(ours, theirs, rows), clusters)
    if telling < MIN_TELLING:
        return TooFew(estimate, len(rows), telling, clusters=_count(clusters))
    return _not_certain(_resampled_gain(a, b, sign, rows, clusters), telling)


def _gain_of_means(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], clusters: Clusters | None
) -> Evidence:
    difference = ours - theirs
    if clusters is None and _is_share(np.abs(ours)) and _is_share(np.abs(theirs)):
        # Absolute values, because those of errors are negative.
        return PairedProportions(int(np.sum(difference > 0)), int(np.sum(difference < 0)), len(difference))
    telling = _telling(difference != 0, clusters)
    if telling < MIN_TELLING:
        return TooFew(_mean(difference), len(difference), telling, clusters=_count(clusters))
    return _not_certain(bootstrap_mean(difference, clusters, seed=SEED), telling)


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of values; NaN if there are none."""
    if not len(values):
        return np.nan
    return float(values.mean())


def _telling(differing: NDArray[np.bool_], clusters: Clusters | None) -> int:
    """The number of rows that differ, or of clusters with such rows."""
    if clusters is None:
        return int(np.sum(differing))
    return len(np.unique(clusters[differing]))


def _resampled_gain(
    a: Resampled, b: Resampled, sign: int, rows: NDArray[np.int64], clusters: Clusters | None
) -> Bootstrapped:
    if isinstance(a, Confusion) and isinstance(b, Confusion) and len(rows):
        pairs, kinds, counts = np.unique(
            np.column_stack([a.cells[rows], b.cells[rows]]), axis=0, return_inverse=True, return_counts=True
        )
        if len(pairs) * (a.classes**2 + b.classes**2) <= _MAX_CELLS:
            ours_of = _on_counts(a, pairs[:, 0])
            theirs_of = _on_counts(b, pairs[:, 1])

            def gain(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
                return sign * (ours_of(drawn) - theirs_of(drawn))

            if clusters is None:
                return bootstrap_counts(gain, counts.astype(np.float64), seed=SEED)
            if len(rows) * len(pairs) <= _MAX_OF_KINDS:
                return bootstrap_totals(gain, np.eye(len(pairs))[kinds.ravel()], clusters, seed=SEED)
    if isinstance(a, RowMean) and isinstance(b, RowMean) and clusters is not None:
        ours, theirs = (measured.values[rows].reshape(len(rows), -1) for measured in (a, b))

        def of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
            means = sums[..., :-1] / sums[..., -1:]
            our_value = a.of_means(means[..., : ours.shape[1]])
            their_value = b.of_means(means[..., ours.shape[1] :])
            return np.asarray(sign * (our_value - their_value))

        values = np.column_stack([ours, theirs, np.ones(len(rows))])
        return bootstrap_totals(of_sums, values, clusters, seed=SEED)
    if isinstance(a, Ranked) and isinstance(b, Ranked):
        first = a.among(rows)
        second = b.among(rows)
        return bootstrap_weights(
            lambda times: sign * (first.at_weights(times) - second.at_weights(times)),
            len(rows),
            clusters,
            seed=SEED,
        )
    return bootstrap(
        lambda drawn: sign * (a.on(rows[drawn]) - b.on(rows[drawn])), len(rows), clusters, seed=SEED
    )


def _on_counts(
    measured: Confusion, cells: NDArray[np.int64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """A metric as a function of the number of rows of each kind; each kind is in one cell of the matrix."""
    placed = np.zeros((len(cells), measured.classes**2))
    placed[np.arange(len(cells)), cells] = 1
    return lambda counts: measured.of_counts(
        (counts @ placed).reshape(*counts.shape[:-1], measured.classes, measured.classes)
    )


def value_of(predictions: Predictions, metric: str) -> Evidence:
    """The evidence on the value of a metric.

    Recall is a share of the rows of its class alone.
    """
    measured = measure(predictions, metric)
    every = np.arange(predictions.rows)
    clusters = among(predictions.clusters, every)
    of_classes = metric in CLASS_SCORERS - PROBABILITY_SCORERS and predictions.target is not None
    if metric in EXTREMES:
        return Bootstrapped(measured.on(every), np.nan, predictions.rows, np.zeros(0), 0.0)
    if isinstance(measured, RowMean) and measured.is_mean and (clusters is None or not of_classes):
        values = measured.values
        if clusters is None and _is_share(values):
            return Proportion(int(values.sum()), len(values))
        usual, counts = np.unique(values, return_counts=True)
        telling = 0
        if len(values):
            telling = _telling(values != usual[counts.argmax()], clusters)
        if telling < MIN_TELLING:
            return TooFew(_mean(values), len(values), telling, clusters=_count(clusters))
        return _not_certain(bootstrap_mean(values, clusters, seed=SEED), telling)
    if metric == "recall" and of_classes and clusters is None and predictions.classes is not None:
        positive = np.asarray(predictions.target) == predictions.classes[-1]
        if positive.any():
            right = np.asarray(predictions.prediction)[positive] == predictions.classes[-1]
            return Proportion(int(right.sum()), int(positive.sum()))
    if of_classes:
        (supposed,), with_supposed = _with_supposed_errors([predictions], every, clusters)
        greatest = 1.0
        if "likelihood" in metric:
            greatest = np.inf
        bootstrapped = bootstrap(measure(supposed, metric).on, supposed.rows, with_supposed, seed=SEED)
        return _move_to(bootstrapped, measured.on(every), len(every), clusters, greatest)
    return _not_certain(bootstrap(measured.on, predictions.rows, clusters, seed=SEED))


def _with_supposed_errors(
    models: Sequence[Predictions], rows: NDArray[np.int64], clusters: Clusters | None
) -> tuple[list[Predictions], Clusters | None]:
    """Add supposed rows on which one model errs and the other, if any, does not; return also the clusters.

    Resamples of rows without an error have no error either, however few rows there are, although about 3.7 in
    ``n`` may be wrong if none of them is (at 97.5 %). The added rows are pseudo-counts (Agresti & Min,
    "Simple improved confidence intervals for comparing matched proportions", Statistics in Medicine 24
    (2005)). Half of them are of the smallest class, where an error weighs most, and are taken for the largest
    class; the other half are of the largest class, and are taken for the smallest. With four in a class the
    interval is as wide as the exact one for rows without an error.

    If rows come in clusters, whole clusters are added, each with the average number of rows that clusters
    have of its class.
    """
    target = np.asarray(models[0].target)[rows]
    present, counts = np.unique(target, return_counts=True)
    labels = [
        *present[np.argsort(counts, kind="stable")],
        *(label for label in models[0].classes or () if label not in present),
    ]
    if not len(present) or len(labels) < 2:
        return [_rows_of(model, target, rows) for model in models], clusters
    rarest = labels[0]
    other = labels[max(1, len(present) - 1)]
    rows_of_kind = 2 * _SUPPOSED // len(models)
    kinds = [
        (truth, wrong, erring)
        for truth, wrong in ((rarest, other), (other, rarest))
        for erring in range(len(models))
    ]
    kinds = [kind for kind in kinds if kind[0] in present for _ in range(rows_of_kind)]
    sizes = [1] * len(kinds)
    if clusters is not None:
        sizes = [_rows_of_class(target == truth, clusters) for truth, _, _ in kinds]
    truths = np.concatenate([target, np.repeat(np.array([truth for truth, _, _ in kinds]), sizes)])
    made = []
    for place, model in enumerate(models):
        predicted = np.asarray(model.prediction)[rows]
        added = np.array([wrong if erring == place else truth for truth, wrong, erring in kinds])
        with_added = np.concatenate([predicted, np.repeat(added, sizes)])
        made.append(Predictions(truths, with_added, classes=model.classes))
    if clusters is None:
        return made, None
    return made, np.concatenate(
        [clusters, count_clusters(clusters) + np.repeat(np.arange(len(kinds)), sizes)]
    )


def _rows_of_class(is_class: NDArray[np.bool_], clusters: Clusters) -> int:
    """The average number of a class's rows in the clusters that have any, rounded up."""
    return -(-int(is_class.sum()) // len(np.unique(clusters[is_class])))


def _rows_of(predictions: Predictions, target: NDArray[Any], rows: NDArray[np.int64]) -> Predictions:
    return Predictions(target, np.asarray(predictions.prediction)[rows], classes=predictions.classes)


def _move_to(
    evidence: Bootstrapped, estimate: float, n: int, clusters: Clusters | None, limit: float = np.inf
) -> Evidence:
    """Center the resamples of a statistic on another estimate, of ``n`` rows, but none above ``limit``."""
    replicates = np.minimum(evidence.replicates + (estimate - evidence.estimate), limit)
    effective = None
    if clusters is not None:
        effective = effective_count(clusters)
    return _not_certain(
        replace(
            evidence,
            estimate=estimate,
            n=n,
            replicates=replicates,
            clusters=_count(clusters),
            effective=effective,
        )
    )


def _count(clusters: Clusters | None) -> int | None:
    return None if clusters is None else count_clusters(clusters)


def _not_certain(evidence: Bootstrapped, telling: int | None = None) -> Evidence:
    """Weaken evidence from few telling rows; if no resample differs, nothing is concluded."""
    if evidence.standard_error == 0:
        return TooFew(evidence.estimate, evidence.n, 0, clusters=evidence.clusters)
    if telling is not None and telling < FEW_TELLING:
        return replace(evidence, telling=telling)
    return evidence


def _is_share(values: NDArray[np.float64]) -> bool:
    return values.ndim == 1 and bool(np.isin(values, (0.0, 1.0)).all())


def _differing(ours: Predictions, theirs: Predictions, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each row, whether the two predictions differ. Shape (rows,)."""
    if ours.probabilities is not None and theirs.probabilities is not None:
        return np.asarray((ours.probabilities[rows] != theirs.probabilities[rows]).any(axis=1))
    return np.asarray(np.asarray(ours.prediction)[rows] != np.asarray(theirs.prediction)[rows])
