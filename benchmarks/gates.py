"""How often the gates decide wrongly, over simulated promotions.

They may promote what they should not, or hold back what they should promote.
"""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.machine import Setting
from benchmarks.results import Part, Table, Target

PROMOTIONS = 400
SMALL = 360
_TEXT = f"""
{PROMOTIONS} simulated promotions for each line: a champion and a winner predict the same rows, and the gates
judge the predictions as they judge those of a sweep. *Equal* models have the same true metric and make
different errors (A/A); *better* ones are better by the declared effect; *worse* ones are worse by the margin,
which is the hardest case that must not pass. Effect and margin are equal, and the rows are as many as the
gate itself asks for at that effect. *Naive* is what a comparison of two numbers does: promote what is above
the champion, or not below it by more than the margin. In the second table the same models meet a test split
of {SMALL} rows: what the gates cannot know there they say (*too little evidence*), and hold the promotion
back.

The problems: ten classes (*accuracy*); log loss of two; two classes of 15 % and 85 % (*f1_macro*); a class of
2 % of the rows (*rare class*); an evaluator's scores (*scores of 0 and 1*); models that are alike but for
three or five rows in a thousand (*few rows differ*); and ten rows of each customer, whom a model serves on
all of them or on none (*groups of 10 rows*). The rows that a gate asks for are worked out from the spread
alone: where only about 29 of them tell anything (*neg_log_loss, few rows differ*) they are a little too few,
and what does not pass is held back with too little evidence.
"""
Truth = str
TRUTHS = ("equal", "better", "worse")


@dataclass(frozen=True)
class Problem:
    """Two models on the same rows.

    Attributes:
        draw: given a source of chance, rows and the winner's true gain, both models' predictions.
        effect: what an improvement gate declares, and the margin; in the metric's unit.
        deviation, step: of one row's contribution to the difference, for the number of rows.
        also_small: whether it is met by the small test split, too; a ranking would take a minute more to
            resample.
    """

    metric: str
    draw: Callable[[Any, int, float], tuple[Any, Any]]
    effect: float
    deviation: float
    step: float = 0.0
    also_small: bool = True

    @property
    def rows(self) -> int:
        from resources.evaluation.statistics.verdict import planned_rows

        rows = planned_rows(self.deviation, self.effect, self.step)
        assert rows is not None
        return rows


def measure(setting: Setting) -> Part:
    """Run both gates and the naive comparison on equal, better and worse models, on every problem."""
    part = Part("gates", "Gates on simulated promotions", _TEXT)
    promotions = setting.choose(2, PROMOTIONS)
    names = list(PROBLEMS)
    header = [
        "problem",
        "effect",
        "rows",
        "winner is",
        "improvement gate promotes",
        "naive promotes",
        "margin gate promotes",
        "naive within margin",
    ]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for title, wanted in (("As many rows as the gate asks for", None), ("A small test split", SMALL)):
            table = Table(header, [], title)
            for name in names if wanted is None else [name for name in names if PROBLEMS[name].also_small]:
                rows = wanted or PROBLEMS[name].rows
                for number, truth in enumerate(TRUTHS):
                    seeds = range(number * 1_000_000, number * 1_000_000 + promotions)
                    outcomes = list(
                        pool.map(
                            promotion,
                            [name] * promotions,
                            [rows] * promotions,
                            [truth] * promotions,
                            seeds,
                            chunksize=10,
                        )
                    )
                    table.rows.append(
                        [name, f"{PROBLEMS[name].effect:g}", f"{rows:,}", truth, *_cells(outcomes)]
                    )
                    if wanted is None:
                        part.targets += _targets(name, truth, outcomes)
            part.tables.append(table)
    return part


def promotion(name: str, rows: int, truth: Truth, seed: int) -> dict[str, Any]:
    """Simulate one promotion: the outcome of each gate, and of the naive comparison."""
    from resources.evaluation.comparison import gain_of
    from resources.evaluation.statistics.verdict import non_inferior, superior

    problem = PROBLEMS[name]
    gain = {"equal": 0.0, "better": problem.effect, "worse": -problem.effect}[truth]
    theirs, ours = problem.draw(np.random.default_rng(seed), rows, gain)
    evidence = gain_of(ours, theirs, problem.metric)
    return {
        "improvement": superior(evidence, problem.effect).outcome,
        "margin": non_inferior(evidence, problem.effect).outcome,
        "naive": evidence.estimate > 0,
        "naive margin": evidence.estimate >= -problem.effect,
    }


def _cells(outcomes: list[dict[str, Any]]) -> list[str]:
    def of_gate(gate: str) -> str:
        shares = {
            outcome: np.mean([verdict[gate] == outcome for verdict in outcomes])
            for outcome in ("pass", "too little evidence")
        }
        undecided = shares["too little evidence"]
        return f"{shares['pass']:.1%}" + (f" ({undecided:.0%} too little evidence)" if undecided else "")

    naive = [
        f"{np.mean([verdict[which] for verdict in outcomes]):.1%}" for which in ("naive", "naive margin")
    ]
    return [of_gate("improvement"), naive[0], of_gate("margin"), naive[1]]


def _targets(name: str, truth: Truth, outcomes: list[dict[str, Any]]) -> list[Target]:
    better, within = (
        100 * float(np.mean([verdict[gate] == "pass" for verdict in outcomes]))
        for gate in ("improvement", "margin")
    )
    if truth == "equal":
        return [
            Target(f"{name}: equal models that are promoted as improvements", "%", [better], 5),
            Target(f"{name}: equal models that pass the margin gate", "%", [within], 80, at_most=False),
        ]
    if truth == "better":
        return [
            Target(
                f"{name}: models better by the declared effect that are promoted as improvements",
                "%",
                [better],
                80,
                at_most=False,
            )
        ]
    return [Target(f"{name}: models worse by the margin that pass its gate", "%", [within], 5)]


def _two_classifiers(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """Ten classes; on 6 % of the rows just one of both is right, on another 7 % neither."""
    from resources.evaluation.predictions import Predictions

    target = source.integers(0, 10, rows)
    # we, they, neither, both are right
    kind = source.choice(4, rows, p=[0.03 + gain / 2, 0.03 - gain / 2, 0.07, 0.87])
    wrong = (target + source.integers(1, 10, rows)) % 10
    ours = np.where(np.isin(kind, [0, 3]), target, wrong)
    theirs = np.where(np.isin(kind, [1, 3]), target, wrong)
    classes = tuple(range(10))
    return Predictions(target, theirs, classes=classes), Predictions(target, ours, classes=classes)


def _two_unequal_classes(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """Classes of 15 % and 85 %.

    Each model finds nine of ten of both; a better one errs less often, the same in both.
    """
    from resources.evaluation.predictions import Predictions

    target = (source.random(rows) < _RARE).astype(np.int64)
    hard = source.random(rows) < 0.1  # for both; in addition each has errors of its own
    theirs, ours = (
        np.where(
            (hard & (source.random(rows) < 0.6)) | (~hard & (source.random(rows) < own)), 1 - target, target
        )
        for own in (_own_errors(0.0), _own_errors(gain))
    )
    return Predictions(target, theirs, classes=(0, 1)), Predictions(target, ours, classes=(0, 1))


_RARE = 0.15


def _own_errors(gain: float) -> float:
    """The share of own errors with which macro F1 is better by ``gain`` than with 4 %."""
    from scipy.optimize import brentq

    def f1_macro(own: float) -> float:
        right = 1 - (0.06 + 0.9 * own)
        of_class = [
            2 * share * right / (share + share * right + (1 - share) * (1 - right))
            for share in (_RARE, 1 - _RARE)
        ]
        return sum(of_class) / 2

    return float(brentq(lambda own: f1_macro(own) - f1_macro(0.04) - gain, 0.0, 0.2))


def _two_probabilities(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """Two classes; what a row loses is skewed, and most of it both lose."""
    from resources.evaluation.predictions import Predictions

    target = source.integers(0, 2, rows)
    shared = source.gamma(0.7, 0.25, rows)
    losses = [shared + source.gamma(0.5, 0.1, rows) + more for more in (0.05, 0.05 - gain)]
    made = []
    for loss in losses:
        likelihood = np.exp(-loss)
        probabilities = np.where(
            np.arange(2) == target[:, None], likelihood[:, None], 1 - likelihood[:, None]
        )
        made.append(Predictions(target, probabilities.argmax(1), probabilities, classes=(0, 1)))
    return tuple(made)  # type: ignore[return-value]


_SELDOM = 0.02


def _two_of_a_rare_class(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """A class of 2 %, of which both find about 68 %; a better model finds a share ``gain`` more.

    Of the other class, 0.2 % are taken for it.
    """
    from resources.evaluation.predictions import Predictions

    target = source.random(rows) < _SELDOM
    findable = source.random(rows) < 0.85
    made = []
    for more in (0.0, gain):
        recalled = findable & (source.random(rows) < 0.8 + more / 0.85)
        predicted = np.where(target, recalled, source.random(rows) < _ALARMS)
        made.append(Predictions(target.astype(np.int64), predicted.astype(np.int64), classes=(0, 1)))
    return tuple(made)  # type: ignore[return-value]


_ALARMS = 0.002


def _by_f1(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    from scipy.optimize import brentq

    def f1(recall: float) -> float:
        return 2 * _SELDOM * recall / (_SELDOM * (1 + recall) + (1 - _SELDOM) * _ALARMS)

    return _two_of_a_rare_class(
        source, rows, float(brentq(lambda more: f1(0.68 + more) - f1(0.68) - gain, -0.6, 0.3))
    )


def _two_rankings_of_a_rare_class(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """A class of 2 % ranks above the others, farther in the better model.

    What makes a row look like that class, it mostly does to both.
    """
    from resources.evaluation.predictions import Predictions

    target = source.random(rows) < _SELDOM
    shared = source.normal(size=rows)
    made = []
    for distance in (_DISTANCES[0.0], _DISTANCES[gain]):
        probability = 1 / (
            1 + np.exp(4 - 2 * (distance * target + 0.8 * shared + 0.6 * source.normal(size=rows)))
        )
        probabilities = np.column_stack([1 - probability, probability])
        made.append(
            Predictions(
                target.astype(np.int64), (probability > 0.5).astype(np.int64), probabilities, classes=(0, 1)
            )
        )
    return tuple(made)  # type: ignore[return-value]


_DISTANCES = {-0.2: 1.711, 0.0: 2.2, 0.2: 2.693}
"""By how much better average precision is with them than 0.460, on 300,000 rows."""


def _two_evaluations(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """An evaluator's scores: whether a row's answer was accepted.

    On 8 % of the rows it was of just one of both.
    """
    from resources.evaluation.predictions import Predictions

    # ours, theirs, neither, both
    kind = source.choice(4, rows, p=[0.04 + gain / 2, 0.04 - gain / 2, 0.1, 0.82])
    return tuple(
        Predictions(None, None, scores={"accepted": np.isin(kind, of).astype(np.float64)})
        for of in ([1, 3], [0, 3])
    )  # type: ignore[return-value]


def _two_that_hardly_differ(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """Retrained on almost the same: on 0.3 % of the rows just one of both is right."""
    from resources.evaluation.predictions import Predictions

    target = source.integers(0, 2, rows)
    kind = source.choice(3, rows, p=[0.0015 + gain / 2, 0.0015 - gain / 2, 0.997])
    both = np.where(source.random(rows) < 0.1, 1 - target, target)
    theirs, ours = (
        np.where(kind == 2, both, np.where(kind == right, target, 1 - target)) for right in (1, 0)
    )
    return Predictions(target, theirs, classes=(0, 1)), Predictions(target, ours, classes=(0, 1))


def _two_probabilities_that_hardly_differ(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """On 0.5 % of the rows the losses differ, and there by much; what they are is skewed."""
    from resources.evaluation.predictions import Predictions

    target = source.integers(0, 2, rows)
    other = source.random(rows) < 0.005
    made = []
    shared = source.gamma(0.5, 0.2, rows)
    for less in (0.0, gain / 0.005):
        likelihood = np.exp(-np.where(other, 0.65 - less + source.gamma(0.5, 1.0, rows), shared))
        probabilities = np.where(
            np.arange(2) == target[:, None], likelihood[:, None], 1 - likelihood[:, None]
        )
        made.append(Predictions(target, probabilities.argmax(1), probabilities, classes=(0, 1)))
    return tuple(made)  # type: ignore[return-value]


def _two_on_customers(source: Any, rows: int, gain: float) -> tuple[Any, Any]:
    """Ten rows of each customer; of 20 % of them just one of both is right, on all their rows."""
    from resources.evaluation.predictions import Predictions

    customer = np.arange(rows) // 10
    kind = source.choice(3, customer[-1] + 1, p=[0.1 + gain / 2, 0.1 - gain / 2, 0.8])[customer]
    target = source.integers(0, 2, rows)
    theirs, ours = (np.where((kind == 2) | (kind == right), target, 1 - target) for right in (1, 0))
    options = {"classes": (0, 1), "clusters": customer}
    return Predictions(target, theirs, **options), Predictions(target, ours, **options)


PROBLEMS = {
    "accuracy": Problem("accuracy", _two_classifiers, effect=0.01, deviation=0.06**0.5, step=1.0),
    "neg_log_loss": Problem("neg_log_loss", _two_probabilities, effect=0.01, deviation=0.1),
    "f1_macro": Problem("f1_macro", _two_unequal_classes, effect=0.03, deviation=0.5),
    "recall, rare class": Problem("recall", _two_of_a_rare_class, effect=0.1, deviation=3.5),
    "f1, rare class": Problem("f1", _by_f1, effect=0.1, deviation=2.8),
    "average_precision, rare class": Problem(
        "average_precision", _two_rankings_of_a_rare_class, effect=0.2, deviation=3.2, also_small=False
    ),
    "scores of 0 and 1": Problem("accepted", _two_evaluations, effect=0.02, deviation=0.08**0.5, step=1.0),
    "accuracy, few rows differ": Problem(
        "accuracy", _two_that_hardly_differ, effect=0.002, deviation=0.003**0.5, step=1.0
    ),
    "neg_log_loss, few rows differ": Problem(
        "neg_log_loss", _two_probabilities_that_hardly_differ, effect=0.003, deviation=0.005**0.5
    ),
    "accuracy, groups of 10 rows": Problem("accuracy", _two_on_customers, effect=0.05, deviation=2**0.5),
}
