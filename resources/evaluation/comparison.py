"""Two checkpoints on the same rows of a split: the evidence for which of them is better by a metric."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resources.evaluation.measures import EXTREMES, Confusion, RowMean, measure
from resources.evaluation.predictions import Predictions, higher_is_better
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
from resources.evaluation.statistics.clusters import Clusters, among, count_of, effective_count
from resources.evaluation.statistics.evidence import Evidence
from resources.evaluation.statistics.proportions import PairedProportions, Proportion
from resources.evaluation.statistics.too_few import FEW_TELLING, LEAST_TELLING, TooFew
from resources.sweep_spec.metrics import CLASS_SCORERS, PROBABILITY_SCORERS

_MOST_CELLS = 200_000  # kinds of rows times cells of confusion matrices
_MOST_OF_KINDS = 20_000_000  # rows times kinds of them: 160 MB
_SUPPOSED = 2
"""Rows of each kind of error that a resample may contain although none was seen: see
:func:`_with_supposed_errors`.
"""


def gain_of(
    ours: Predictions,
    theirs: Predictions,
    metric: str,
    rows: NDArray[np.int64] | None = None,
    *,
    higher: bool | None = None,
) -> Evidence:
    """How much better we are by a metric, above 0 where we are better, whichever way the metric goes.

    Accuracy, and any other score of only zeros and ones, is compared by the rows on which just one has it.
    The mean of something that each row has is compared by its differences, any other metric by both values on
    the same resampled rows. Of a metric of classes the resamples contain some errors more than were seen; of
    what is no such metric nothing is concluded where hardly a row differs. Where rows come in clusters, these
    are resampled as a whole, for every metric: the exact tests are of independent rows.

    Args:
        rows: the positions of those that count (default: all).
        higher: whether higher is better (default: as the metric's name says; an evaluator's own scores go as
            it says).

    Raises:
        InvalidInput: the metric does not fit the predictions.
    """
    rows = np.arange(ours.rows) if rows is None else rows
    sign = 1 if (higher_is_better(metric) if higher is None else higher) else -1
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
        a, b = (measure(one, metric) for one in supposed)
        return _moved(
            _resampled_gain(a, b, sign, np.arange(a.rows), with_supposed), estimate, len(rows), clusters
        )
    differing = _differing(ours, theirs, rows)
    if (telling := _telling(differing, clusters)) < LEAST_TELLING:
        return TooFew(estimate, len(rows), telling, clusters=_count(clusters))
    return _not_certain(_resampled_gain(a, b, sign, rows, clusters), telling)


def _gain_of_means(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], clusters: Clusters | None
) -> Evidence:
    difference = ours - theirs
    if clusters is None and _is_share(np.abs(ours)) and _is_share(np.abs(theirs)):
        # of errors, too, whose sign is turned
        return PairedProportions(int(np.sum(difference > 0)), int(np.sum(difference < 0)), len(difference))
    if (telling := _telling(difference != 0, clusters)) < LEAST_TELLING:
        return TooFew(
            float(difference.mean()) if len(difference) else np.nan,
            len(difference),
            telling,
            clusters=_count(clusters),
        )
    return _not_certain(bootstrap_mean(difference, clusters, seed=SEED), telling)


def _telling(differing: NDArray[np.bool_], clusters: Clusters | None) -> int:
    """How many rows differ, or clusters with such rows."""
    return int(np.sum(differing)) if clusters is None else len(np.unique(clusters[differing]))


def _resampled_gain(
    a: Resampled, b: Resampled, sign: int, rows: NDArray[np.int64], clusters: Clusters | None
) -> Bootstrapped:
    if isinstance(a, Confusion) and isinstance(b, Confusion) and len(rows):
        pairs, kinds, counts = np.unique(
            np.column_stack([a.cells[rows], b.cells[rows]]), axis=0, return_inverse=True, return_counts=True
        )
        if len(pairs) * (a.classes**2 + b.classes**2) <= _MOST_CELLS:
            ours_of, theirs_of = (_on_counts(of, pairs[:, place]) for place, of in enumerate((a, b)))

            def gain(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
                return sign * (ours_of(drawn) - theirs_of(drawn))

            if clusters is None:
                return bootstrap_counts(gain, counts.astype(np.float64), seed=SEED)
            if len(rows) * len(pairs) <= _MOST_OF_KINDS:
                return bootstrap_totals(gain, np.eye(len(pairs))[kinds.ravel()], clusters, seed=SEED)
    if isinstance(a, RowMean) and isinstance(b, RowMean) and clusters is not None:
        ours, theirs = (one.values[rows].reshape(len(rows), -1) for one in (a, b))

        def of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
            means = sums[..., :-1] / sums[..., -1:]
            return np.asarray(
                sign * (a.of_means(means[..., : ours.shape[1]]) - b.of_means(means[..., ours.shape[1] :]))
            )

        return bootstrap_totals(
            of_sums, np.column_stack([ours, theirs, np.ones(len(rows))]), clusters, seed=SEED
        )
    if isinstance(a, Ranked) and isinstance(b, Ranked):
        first = a.among(rows)
        second = b.among(rows)
        return bootstrap_weights(
            lambda times: sign * (first.weighted(times) - second.weighted(times)),
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
    """A metric from how many rows there are of each kind, where each kind is in one cell of the confusion
    matrix.
    """
    placed = np.zeros((len(cells), measured.classes**2))
    placed[np.arange(len(cells)), cells] = 1
    return lambda counts: measured.of_counts(
        (counts @ placed).reshape(*counts.shape[:-1], measured.classes, measured.classes)
    )


def value_of(predictions: Predictions, metric: str) -> Evidence:
    """A metric by itself, as it is: whichever way it goes.

    Recall is the share of the rows of its class that are found: it is of those.
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
        telling = _telling(values != usual[counts.argmax()], clusters) if len(values) else 0
        if telling < LEAST_TELLING:
            return TooFew(
                float(values.mean()) if len(values) else np.nan,
                len(values),
                telling,
                clusters=_count(clusters),
            )
        return _not_certain(bootstrap_mean(values, clusters, seed=SEED), telling)
    if metric == "recall" and of_classes and clusters is None and predictions.classes is not None:
        positive = np.asarray(predictions.target) == predictions.classes[-1]
        if positive.any():
            return Proportion(
                int(np.sum(np.asarray(predictions.prediction)[positive] == predictions.classes[-1])),
                int(positive.sum()),
            )
    if of_classes:
        (supposed,), with_supposed = _with_supposed_errors([predictions], every, clusters)
        greatest = np.inf if "likelihood" in metric else 1.0
        found = bootstrap(measure(supposed, metric).on, supposed.rows, with_supposed, seed=SEED)
        return _moved(found, measured.on(every), len(every), clusters, greatest)
    return _not_certain(bootstrap(measured.on, predictions.rows, clusters, seed=SEED))


def _with_supposed_errors(
    models: Sequence[Predictions], rows: NDArray[np.int64], clusters: Clusters | None
) -> tuple[list[Predictions], Clusters | None]:
    """Predictions of these rows, and of some more on which each model errs while the other, if there is one,
    does not; with the clusters.

    Resamples of rows without an error have none, however few the rows are, although up to about 3.7 in ``n``
    may be wrong where none was seen (at 97.5 %). What is added are pseudo-counts (Agresti & Min, "Simple
    improved confidence intervals for comparing matched proportions", Statistics in Medicine 24 (2005)), in
    the class that has the fewest rows, where an error weighs most, and as many rows of the greatest class
    that are taken for it. With four in a class the interval is as wide as the exact one where no error was
    seen.

    Where rows come in clusters, what was not seen are clusters: each added one has as many rows as clusters
    have of its class on average.
    """
    target = np.asarray(models[0].target)[rows]
    present, counts = np.unique(target, return_counts=True)
    labels = [
        *present[np.argsort(counts, kind="stable")],
        *(label for label in models[0].classes or () if label not in present),
    ]
    if not len(present) or len(labels) < 2:
        return [_rows_of(one, target, rows) for one in models], clusters
    rarest = labels[0]
    other = labels[len(present) - 1] if len(present) > 1 else labels[1]
    each = 2 * _SUPPOSED // len(models)
    kinds = [
        (truth, wrong, who)
        for truth, wrong in ((rarest, other), (other, rarest))
        for who in range(len(models))
    ]
    kinds = [kind for kind in kinds if kind[0] in present for _ in range(each)]
    sizes = (
        [1] * len(kinds)
        if clusters is None
        else [_rows_of_class(target == truth, clusters) for truth, _, _ in kinds]
    )
    truths = np.concatenate([target, np.repeat(np.array([truth for truth, _, _ in kinds]), sizes)])
    made = []
    for place, one in enumerate(models):
        given = np.asarray(one.prediction)[rows]
        added = np.array([wrong if who == place else truth for truth, wrong, who in kinds])
        made.append(
            Predictions(truths, np.concatenate([given, np.repeat(added, sizes)]), classes=one.classes)
        )
    if clusters is None:
        return made, None
    return made, np.concatenate([clusters, count_of(clusters) + np.repeat(np.arange(len(kinds)), sizes)])


def _rows_of_class(is_class: NDArray[np.bool_], clusters: Clusters) -> int:
    """How many rows of a class a cluster has that has any, on average, upwards."""
    return -(-int(is_class.sum()) // len(np.unique(clusters[is_class])))


def _rows_of(predictions: Predictions, target: NDArray[Any], rows: NDArray[np.int64]) -> Predictions:
    return Predictions(target, np.asarray(predictions.prediction)[rows], classes=predictions.classes)


def _moved(
    evidence: Bootstrapped, estimate: float, n: int, clusters: Clusters | None, most: float = np.inf
) -> Evidence:
    """The spread of one statistic around another's estimate, of ``n`` rows; it is never above ``most``."""
    replicates = np.minimum(evidence.replicates + (estimate - evidence.estimate), most)
    effective = None if clusters is None else effective_count(clusters)
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
    return None if clusters is None else count_of(clusters)


def _not_certain(evidence: Bootstrapped, telling: int | None = None) -> Evidence:
    """Nothing that is resampled is certain: where no resample differs, too few rows tell anything, and where
    few tell, they tell less.
    """
    if evidence.standard_error == 0:
        return TooFew(evidence.estimate, evidence.n, 0, clusters=evidence.clusters)
    return replace(evidence, telling=telling) if telling is not None and telling < FEW_TELLING else evidence


def _is_share(values: NDArray[np.float64]) -> bool:
    return values.ndim == 1 and bool(np.isin(values, (0.0, 1.0)).all())


def _differing(ours: Predictions, theirs: Predictions, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of which rows both predict something different. Shape (rows,)."""
    if ours.probabilities is not None and theirs.probabilities is not None:
        return np.asarray((ours.probabilities[rows] != theirs.probabilities[rows]).any(axis=1))
    return np.asarray(np.asarray(ours.prediction)[rows] != np.asarray(theirs.prediction)[rows])
