"""The gates that compare the winner with the champion on the same rows: ``non_inferior``, ``improvement`` and
``slices``.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halving.errors import HalvingError
from resources.evaluation.comparison import gain_of
from resources.evaluation.measures import measure
from resources.evaluation.predictions import Predictions
from resources.evaluation.slices import SMALL
from resources.evaluation.statistics.clusters import among, count_of
from resources.evaluation.statistics.evidence import ALPHA, Evidence
from resources.evaluation.statistics.verdict import Conclusion, holm, improved, non_inferior, planned_seeds
from resources.registry.gates.figures import rows_needed
from resources.registry.gates.verdict import FAIL, PASS, UNDECIDED, Verdict
from resources.sweep_spec.gates import Improvement, NonInferior, SliceGate
from resources.sweep_spec.metrics import TWO_CLASS_SCORERS

_SHOWN = 5  # slices in a reason
Groups = Mapping[str, NDArray[np.int64]]
"""The positions of a slice's rows in the test split, by the slice's name."""


@dataclass(frozen=True)
class Pair:
    """The winner and the champion on the same rows.

    Attributes:
        report: what is known of both.
        ours, theirs: their predictions of the rows; theirs is None where there is no champion, or none that
            could be evaluated.
        groups: the slices of the rows.
    """

    report: Mapping[str, Any]
    ours: Predictions
    theirs: Predictions | None
    groups: Groups

    def metric(self, named: str | None) -> str:
        metric: str = named or self.report["main_metric"]
        return metric

    def gain(self, metric: str, theirs: Predictions, rows: NDArray[np.int64] | None = None) -> Evidence:
        return gain_of(self.ours, theirs, metric, rows, higher=self.report["higher_is_better"][metric])

    @property
    def rows_in_words(self) -> str:
        """How many rows there are, and of how many groups, where these are what is independent."""
        clusters = among(self.ours.clusters, np.arange(self.ours.rows))
        return f"{self.ours.rows:,} rows" + (
            f" of {count_of(clusters):,} groups" if clusters is not None else ""
        )

    @property
    def champion(self) -> str:
        champion = self.report["champion"]
        return f"champion {champion['model']} {champion['version']}"


def judge_non_inferior(gate: NonInferior, pair: Pair) -> Verdict:
    """Worse than the champion by less than the margin."""

    def judged(metric: str, theirs: Predictions) -> Verdict:
        margin = (
            gate.margin
            if gate.margin is not None
            else _percent(gate.percent, pair.report["champion"]["metrics"][metric])
        )
        found = non_inferior(pair.gain(metric, theirs), margin)
        said = {
            PASS: f"worse by less than the margin {_short(margin)}",
            FAIL: f"worse by more than the margin {_short(margin)}",
            UNDECIDED: f"whether it is worse by more than the margin {_short(margin)} cannot be told",
        }
        return _verdict("non_inferior", pair, metric, found, -margin, margin, said[found.outcome])

    return _compared("non_inferior", pair, gate.metric, judged)


def judge_improvement(gate: Improvement, pair: Pair) -> Verdict:
    """Better than the champion."""

    def judged(metric: str, theirs: Predictions) -> Verdict:
        effect = (
            gate.effect
            if gate.effect is not None
            else _percent(gate.percent, pair.report["champion"]["metrics"][metric])
        )
        found = improved(pair.gain(metric, theirs), effect)
        said = {
            PASS: "better",
            FAIL: f"not better by the effect {_short(effect)} that was asked for",
            UNDECIDED: f"whether it is better cannot be told, nor ruled out that it is by {_short(effect)}",
        }
        return _verdict("improvement", pair, metric, found, 0.0, effect, said[found.outcome])

    return _compared("improvement", pair, gate.metric, judged)


def judge_slices_against(gate: SliceGate, pair: Pair) -> Verdict:
    """In each slice worse than the champion by less than the margin.

    It passes where that is shown of every slice, which needs no correction: to pass wrongly, the slice that
    is worse must pass (Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24
    (1982)). It fails where one is shown to be worse by more, by Holm's p-values over all slices: among many
    slices one would look so by chance. A slice that could not be judged holds it back.
    """

    def judged(metric: str, theirs: Predictions) -> Verdict:
        large = {name: rows for name, rows in pair.groups.items() if len(rows) >= SMALL}
        small = len(pair.groups) - len(large)
        unjudged = "; ".join(
            f"{one['slice']}: {one['error']}" for one in pair.report.get("slices", ()) if one["error"]
        )
        aside = (
            f" ({small} of fewer than {SMALL} rows {'is' if small == 1 else 'are'} not judged)"
            if small
            else ""
        )
        if not large and unjudged:
            return Verdict("slices", UNDECIDED, f"no slice could be judged{aside}: {unjudged}", metric)
        if not large:
            largest = max(map(len, pair.groups.values()), default=0)
            needed = -(-SMALL * pair.ours.rows // largest) if largest else None
            more = (
                f"about {needed:,} test rows, of which the largest slice has {SMALL}"
                if needed
                else "more test rows"
            )
            reason = f"no slice has {SMALL} rows or more: give {more}, or other slices"
            # with so many they are judged, which need not settle it
            return Verdict("slices", UNDECIDED, reason, metric)
        found: dict[str, tuple[Conclusion, float, float]] = {}
        without = []
        for name, rows in large.items():
            gain = pair.gain(metric, theirs, rows)
            if not (math.isfinite(gain.estimate) and _has_classes(metric, theirs, rows)):
                without.append(name)
                continue
            margin = (
                gate.margin
                if gate.margin is not None
                else _percent(gate.percent, _metric_of(metric, pair, theirs, rows))
            )
            found[name] = (non_inferior(gain, margin), margin, gain.p_below(-margin))
        if without:
            aside += f" ({_listed(without, str)}: {metric} has no value there, not judged)"
        if not found:
            return Verdict(
                "slices",
                UNDECIDED,
                f"no slice could be judged{aside}: give another metric, or other slices",
                metric,
            )
        adjusted = dict(zip(found, holm([p for _, _, p in found.values()]), strict=True))
        worse = [name for name in found if adjusted[name] <= ALPHA]
        unsure = [
            name
            for name, (concluded, _, _) in found.items()
            if concluded.outcome != PASS and name not in worse
        ]
        name = min(worse or unsure or list(found), key=lambda name: found[name][0].estimate)
        concluded, margin, _ = found[name]
        told = (concluded.estimate, -margin, concluded.low, concluded.high)
        if worse:
            shown = _listed(
                worse,
                lambda name: (
                    f"{name} by {_short(-found[name][0].estimate)} (margin {_short(found[name][1])})"
                ),
            )
            return Verdict(
                "slices",
                FAIL,
                f"{metric} is worse than that of the {pair.champion} in {shown}{aside}",
                name,
                *told,
            )
        if unjudged:
            return Verdict("slices", UNDECIDED, f"a slice could not be judged: {unjudged}", name, *told)
        if unsure:
            sizes = {name: found[name][0].needed for name in unsure}
            of_split = [-(-size * pair.ours.rows // len(large[name])) for name, size in sizes.items() if size]
            needed = max(of_split, default=None)
            shown = _listed(
                unsure, lambda name: f"{name} ({rows_needed(found[name][0], 'rows of this slice')})"
            )
            reason = (
                f"whether {metric} is worse than that of the {pair.champion} by more than the margin "
                f"cannot be told in {shown}{aside}"
            )
            return Verdict("slices", UNDECIDED, reason, name, *told, needed=needed)
        reason = (
            f"{metric} is worse than that of the {pair.champion} by less than the margin in all "
            f"{len(found)} slices, least in {name}"
        )
        return Verdict("slices", PASS, f"{reason}: {concluded.estimate:+.4f}{aside}", name, *told)

    return _compared("slices", pair, gate.metric, judged)


def _metric_of(metric: str, pair: Pair, theirs: Predictions, rows: NDArray[np.int64]) -> float:
    """The champion's metric in a slice; where it is 0 there, of which no percentage is a margin, that of the
    whole split.
    """
    value = measure(theirs, metric).on(rows)
    whole: float = pair.report["champion"]["metrics"][metric]
    return value if value and math.isfinite(value) else whole


def _has_classes(metric: str, theirs: Predictions, rows: NDArray[np.int64]) -> bool:
    """Whether a metric of two classes is one of these rows: they have rows of both."""
    if metric in theirs.scores or metric not in TWO_CLASS_SCORERS or theirs.target is None:
        return True
    return len(np.unique(theirs.target[rows])) > 1


def _compared(
    name: str, pair: Pair, named: str | None, judged: Callable[[str, Predictions], Verdict]
) -> Verdict:
    """What is common to all of them: there may be nothing to compare with, or nothing to compare by."""
    champion = pair.report["champion"]
    metric = pair.metric(named)
    if champion is None:
        return Verdict(name, PASS, "there is no champion yet", metric)
    remedy = f"correct it, or take it out of use: halving archive {champion['model']} {champion['version']}"
    if champion["error"] or pair.theirs is None:
        reason = champion["error"] or "it has no predictions"
        return Verdict(
            name,
            FAIL,
            f"the {pair.champion} could not be evaluated on this test split: {reason}; {remedy}",
            metric,
        )
    ours = pair.report["metrics"].get(metric)
    theirs = champion["metrics"].get(metric)
    if ours is None or theirs is None:
        known = ", ".join(sorted(pair.report["metrics"].keys() & champion["metrics"].keys()))
        return Verdict(
            name,
            FAIL,
            f"{metric!r} is no test metric of both: give one of {known or 'nothing'} in gates",
            metric,
        )
    if not math.isfinite(ours):
        return Verdict(name, FAIL, f"{metric} is not finite", metric)
    if not math.isfinite(theirs):
        return Verdict(
            name, FAIL, f"{metric} of the {pair.champion} is not finite on this test split; {remedy}", metric
        )
    if metric not in pair.report["intervals"]:
        reason = (
            f"{metric} {ours:.4f} against {theirs:.4f} of the {pair.champion}: nothing says how sure these "
            "two figures are"
        )
        return Verdict(name, UNDECIDED, f"{reason}; let the evaluator return scores of each row", metric)
    try:
        return judged(metric, pair.theirs)
    except HalvingError as error:
        return Verdict(
            name, FAIL, f"{metric} cannot be compared with that of the {pair.champion}: {error}", metric
        )


def _verdict(
    name: str, pair: Pair, metric: str, found: Conclusion, threshold: float, distance: float, said: str
) -> Verdict:
    ours = pair.report["metrics"][metric]
    theirs = pair.report["champion"]["metrics"][metric]
    reason = (
        f"{metric} {ours:.4f} against {theirs:.4f} of the {pair.champion} on the same "
        f"{pair.rows_in_words}: {said}"
    )
    if math.isfinite(found.low) and math.isfinite(found.high):
        reason += f" (gain {found.estimate:+.4f}, at 95 % from {found.low:+.4f} to {found.high:+.4f})"
    seeds = None
    if found.outcome == UNDECIDED:
        reason += f"; {rows_needed(found)}"
        seeds = _seeds_needed(pair.report, metric, distance)
        if seeds is not None:
            trained = sum(seed["metrics"] is not None for seed in pair.report["final"]["seeds"])
            reason += (
                f". That is of these two checkpoints: of the recipes, {seeds:,} seeds of each would tell, "
                f"{trained} were trained"
            )
    return Verdict(
        name,
        found.outcome,
        reason,
        metric,
        found.estimate,
        threshold,
        found.low,
        found.high,
        found.needed,
        seeds,
    )


def _seeds_needed(report: Mapping[str, Any], metric: str, distance: float) -> int | None:
    """How many seeds of both recipes would show the difference, by the spread of those that the final
    training has; None: it has none.
    """
    deviation = ((report.get("final") or {}).get("std") or {}).get(metric)
    if deviation is None or not math.isfinite(deviation) or not distance > 0:
        return None
    return planned_seeds(deviation, distance)


def _percent(percent: float, value: float) -> float:
    return percent / 100 * abs(value)


def _short(value: float) -> str:
    return f"{value:.4g}"


def _listed(names: list[str], said: Callable[[str], str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return "; ".join(said(name) for name in names[:_SHOWN]) + more
