"""Gates that compare winner and champion on the same rows: ``non_inferior``, ``improvement``, ``slices``."""

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
from resources.evaluation.statistics.clusters import among, count_clusters
from resources.evaluation.statistics.evidence import ALPHA, Evidence
from resources.evaluation.statistics.verdict import Conclusion, holm, non_inferior, planned_seeds, superior
from resources.registry.gates.figures import rows_needed
from resources.registry.gates.verdict import FAIL, PASS, UNDECIDED, Verdict
from resources.sweep_spec.gates import Improvement, NonInferior, SliceGate
from resources.sweep_spec.metrics import TWO_CLASS_SCORERS

MAX_SLICES_IN_REASON = 5
Groups = Mapping[str, NDArray[np.int64]]
"""The positions of a slice's rows in the test split, by the slice's name."""


@dataclass(frozen=True)
class Pair:
    """The winner and the champion on the same rows.

    Attributes:
        report: the report's data, on both.
        ours: the winner's predictions.
        theirs: the champion's predictions; None if there is no champion, or if it could not be evaluated.
        groups: the slices of the rows.
    """

    report: Mapping[str, Any]
    ours: Predictions
    theirs: Predictions | None
    groups: Groups

    def metric_or_main(self, name: str | None) -> str:
        """The metric that a gate names, or the main metric if it names none."""
        metric: str = name or self.report["main_metric"]
        return metric

    def gain(self, metric: str, theirs: Predictions, rows: NDArray[np.int64] | None = None) -> Evidence:
        return gain_of(self.ours, theirs, metric, rows, higher=self.report["higher_is_better"][metric])

    @property
    def rows_in_words(self) -> str:
        """The number of rows, and the number of groups where groups are the independent units."""
        clusters = among(self.ours.clusters, np.arange(self.ours.rows))
        rows = f"{self.ours.rows:,} rows"
        if clusters is None:
            return rows
        return f"{rows} of {count_clusters(clusters):,} groups"

    @property
    def champion(self) -> str:
        champion = self.report["champion"]
        return f"champion {champion['model']} {champion['version']}"


def judge_non_inferior(gate: NonInferior, pair: Pair) -> Verdict:
    """Judge whether the winner is worse than the champion by less than the margin."""

    def judge(metric: str, theirs: Predictions) -> Verdict:
        margin = gate.margin
        if margin is None:
            margin = _percent(gate.percent, pair.report["champion"]["metrics"][metric])
        conclusion = non_inferior(pair.gain(metric, theirs), margin)
        sentences = {
            PASS: f"worse by less than the margin {_short(margin)}",
            FAIL: f"worse by more than the margin {_short(margin)}",
            UNDECIDED: f"whether it is worse by more than the margin {_short(margin)} cannot be told",
        }
        sentence = sentences[conclusion.outcome]
        return _verdict("non_inferior", pair, metric, conclusion, -margin, margin, sentence)

    return _compare("non_inferior", pair, gate.metric, judge)


def judge_improvement(gate: Improvement, pair: Pair) -> Verdict:
    """Judge whether the winner is better than the champion."""

    def judge(metric: str, theirs: Predictions) -> Verdict:
        effect = gate.effect
        if effect is None:
            effect = _percent(gate.percent, pair.report["champion"]["metrics"][metric])
        conclusion = superior(pair.gain(metric, theirs), effect)
        sentences = {
            PASS: "better",
            FAIL: f"not better by the effect {_short(effect)} that was asked for",
            UNDECIDED: f"it cannot be told whether it is better, and by {_short(effect)} it still may be",
        }
        sentence = sentences[conclusion.outcome]
        return _verdict("improvement", pair, metric, conclusion, 0.0, effect, sentence)

    return _compare("improvement", pair, gate.metric, judge)


def judge_slices_against(gate: SliceGate, pair: Pair) -> Verdict:
    """Judge whether the winner is worse than the champion by less than the margin in each slice.

    The gate passes if the evidence shows this for every slice. That needs no correction, because a worse
    slice must pass its own test to make the gate pass wrongly (Berger, "Multiparameter hypothesis testing and
    acceptance sampling", Technometrics 24 (1982)). It fails if a slice is worse by more than the margin, by
    Holm's p-values over all slices, because one of many slices would look worse by chance. A slice that could
    not be judged leaves the gate undecided.
    """

    def judge(metric: str, theirs: Predictions) -> Verdict:
        large = {name: rows for name, rows in pair.groups.items() if len(rows) >= SMALL}
        small = len(pair.groups) - len(large)
        unjudged = "; ".join(
            f"{part['slice']}: {part['error']}" for part in pair.report.get("slices", ()) if part["error"]
        )
        aside = ""
        if small:
            verb = "are"
            if small == 1:
                verb = "is"
            aside = f" ({small} of fewer than {SMALL} rows {verb} not judged)"
        if not large and unjudged:
            return Verdict("slices", UNDECIDED, f"no slice could be judged{aside}: {unjudged}", metric)
        if not large:
            largest = max(map(len, pair.groups.values()), default=0)
            more = "more test rows"
            if largest:
                needed = -(-SMALL * pair.ours.rows // largest)
                more = f"about {needed:,} test rows, of which the largest slice has {SMALL}"
            reason = f"no slice has {SMALL} rows or more: give {more}, or other slices"
            # The verdict has no `needed`: with that many rows slices are judged, which need not settle it.
            return Verdict("slices", UNDECIDED, reason, metric)
        conclusions: dict[str, tuple[Conclusion, float, float]] = {}
        without = []
        for name, rows in large.items():
            gain = pair.gain(metric, theirs, rows)
            if not (math.isfinite(gain.estimate) and _has_classes(metric, theirs, rows)):
                without.append(name)
                continue
            margin = gate.margin
            if margin is None:
                margin = _percent(gate.percent, _metric_in_slice(metric, pair, theirs, rows))
            conclusions[name] = (non_inferior(gain, margin), margin, gain.p_below(-margin))
        if without:
            aside += f" ({_join_slices(without, str)}: {metric} has no value there, not judged)"
        if not conclusions:
            return Verdict(
                "slices",
                UNDECIDED,
                f"no slice could be judged{aside}: give another metric, or other slices",
                metric,
            )
        adjusted = dict(zip(conclusions, holm([p for _, _, p in conclusions.values()]), strict=True))
        worse = [name for name in conclusions if adjusted[name] <= ALPHA]
        unsure = [
            name
            for name, (conclusion, _, _) in conclusions.items()
            if conclusion.outcome != PASS and name not in worse
        ]
        name = min(worse or unsure or list(conclusions), key=lambda name: conclusions[name][0].estimate)
        conclusion, margin, _ = conclusions[name]
        figures = (conclusion.estimate, -margin, conclusion.low, conclusion.high)
        if worse:

            def name_with_loss(name: str) -> str:
                conclusion, margin, _ = conclusions[name]
                return f"{name} by {_short(-conclusion.estimate)} (margin {_short(margin)})"

            slices = _join_slices(worse, name_with_loss)
            reason = f"{metric} is worse than that of the {pair.champion} in {slices}{aside}"
            return Verdict("slices", FAIL, reason, name, *figures)
        if unjudged:
            return Verdict("slices", UNDECIDED, f"a slice could not be judged: {unjudged}", name, *figures)
        if unsure:
            sizes = {name: conclusions[name][0].needed for name in unsure}
            of_split = [-(-size * pair.ours.rows // len(large[name])) for name, size in sizes.items() if size]
            slices = _join_slices(
                unsure, lambda name: f"{name} ({rows_needed(conclusions[name][0], 'rows of this slice')})"
            )
            reason = (
                f"whether {metric} is worse than that of the {pair.champion} by more than the margin "
                f"cannot be told in {slices}{aside}"
            )
            return Verdict("slices", UNDECIDED, reason, name, *figures, needed=max(of_split, default=None))
        reason = (
            f"{metric} is worse than that of the {pair.champion} by less than the margin in all "
            f"{len(conclusions)} slices, least in {name}"
        )
        return Verdict("slices", PASS, f"{reason}: {conclusion.estimate:+.4f}{aside}", name, *figures)

    return _compare("slices", pair, gate.metric, judge)


def _metric_in_slice(metric: str, pair: Pair, theirs: Predictions, rows: NDArray[np.int64]) -> float:
    """The champion's metric in a slice; if that is 0 or not finite, its metric of the whole split.

    A margin is a percentage of it, and a percentage of 0 would be no margin.
    """
    value = measure(theirs, metric).on(rows)
    if value and math.isfinite(value):
        return value
    whole: float = pair.report["champion"]["metrics"][metric]
    return whole


def _has_classes(metric: str, theirs: Predictions, rows: NDArray[np.int64]) -> bool:
    """Whether the rows have both classes, where the metric needs them."""
    if metric in theirs.scores or metric not in TWO_CLASS_SCORERS or theirs.target is None:
        return True
    return len(np.unique(theirs.target[rows])) > 1


def _compare(
    name: str, pair: Pair, metric_of_gate: str | None, judge: Callable[[str, Predictions], Verdict]
) -> Verdict:
    """Judge by ``judge``, unless there is no champion, or no metric of both."""
    champion = pair.report["champion"]
    metric = pair.metric_or_main(metric_of_gate)
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
        common = ", ".join(sorted(pair.report["metrics"].keys() & champion["metrics"].keys()))
        return Verdict(
            name,
            FAIL,
            f"{metric!r} is no test metric of both: give one of {common or 'nothing'} in gates",
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
            f"{metric} {ours:.4f} against {theirs:.4f} of the {pair.champion}: there is no evidence on how "
            "certain these two figures are"
        )
        return Verdict(name, UNDECIDED, f"{reason}; let the evaluator return scores of each row", metric)
    try:
        return judge(metric, pair.theirs)
    except HalvingError as error:
        return Verdict(
            name, FAIL, f"{metric} cannot be compared with that of the {pair.champion}: {error}", metric
        )


def _verdict(
    name: str,
    pair: Pair,
    metric: str,
    conclusion: Conclusion,
    threshold: float,
    distance: float,
    sentence: str,
) -> Verdict:
    ours = pair.report["metrics"][metric]
    theirs = pair.report["champion"]["metrics"][metric]
    reason = (
        f"{metric} {ours:.4f} against {theirs:.4f} of the {pair.champion} on the same "
        f"{pair.rows_in_words}: {sentence}"
    )
    low = conclusion.low
    high = conclusion.high
    if math.isfinite(low) and math.isfinite(high):
        reason += f" (gain {conclusion.estimate:+.4f}, at 95 % from {low:+.4f} to {high:+.4f})"
    seeds = None
    if conclusion.outcome == UNDECIDED:
        reason += f"; {rows_needed(conclusion)}"
        seeds = _seeds_needed(pair.report, metric, distance)
        if seeds is not None:
            trained = sum(seed["metrics"] is not None for seed in pair.report["final"]["seeds"])
            reason += (
                f". That compares these two checkpoints; to compare the recipes, {seeds:,} seeds of each are "
                f"needed, and {trained} were trained"
            )
    return Verdict(
        name,
        conclusion.outcome,
        reason,
        metric,
        conclusion.estimate,
        threshold,
        conclusion.low,
        conclusion.high,
        conclusion.needed,
        seeds,
    )


def _seeds_needed(report: Mapping[str, Any], metric: str, distance: float) -> int | None:
    """The number of seeds of both recipes that would show the difference; None without a final training.

    The deviation from seed to seed is that of the final training.
    """
    deviation = ((report.get("final") or {}).get("std") or {}).get(metric)
    if deviation is None or not math.isfinite(deviation) or not distance > 0:
        return None
    return planned_seeds(deviation, distance)


def _percent(percent: float, value: float) -> float:
    return percent / 100 * abs(value)


def _short(value: float) -> str:
    return f"{value:.4g}"


def _join_slices(names: list[str], describe: Callable[[str], str]) -> str:
    text = "; ".join(describe(name) for name in names[:MAX_SLICES_IN_REASON])
    if len(names) > MAX_SLICES_IN_REASON:
        text += f" and {len(names) - MAX_SLICES_IN_REASON} more"
    return text
