"""What the searches are compared on: three problems with learning curves.

Standard library only, as every tool's process needs it.

Branin and Hartmann-6 (as in Surjanovic & Bingham, "Virtual Library of Simulation Experiments") get a learning
curve: the power law with three parameters that fits most real curves (pow3: Domhan et al., IJCAI 2015;
Viering & Loog, "The shape of learning curves", TPAMI 2023), ``f(x) + D (e^-a - E^-a)`` at epoch e of E. D is
the standard deviation of f over the space. The rate a rises from 0.5 to 1.5 with the first coordinate, as it
does with a learning rate: slow learners look worse than they are, and curves cross. Each report carries
Gaussian noise of 0.05 D (1 - e/E): the last one is exact. The third problem is a table of real curves.
"""

import json
import math
import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

EPOCHS = 27
SAMPLES = 10_000  # random configurations that a winner is ranked among
NOISE = 0.05
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Real:
    """A float from ``low`` to ``high``."""

    low: float
    high: float

    def sample(self, source: random.Random) -> float:
        return source.uniform(self.low, self.high)


@dataclass(frozen=True)
class Whole:
    """An integer from ``low`` to ``high``, both possible."""

    low: int
    high: int

    def sample(self, source: random.Random) -> int:
        return source.randint(self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """One of several values without an order."""

    choices: tuple[Any, ...]

    def sample(self, source: random.Random) -> Any:
        return source.choice(self.choices)


Axis = Real | Whole | Choice


class Problem:
    """Something to search: a space, and what a trial reports after each epoch; less is better.

    Attributes:
        name: on the page.  space: parameter to :data:`Axis`.
    """

    name: str
    space: Mapping[str, Axis]

    def value(self, params: Params, epoch: int, seed: int) -> float:
        """The report after ``epoch`` (from 1 to :data:`EPOCHS`); ``seed`` is the search's, for the noise."""
        raise NotImplementedError

    def seconds(self, params: Params) -> float:
        """Virtual seconds of an epoch: from 0.75 to 1.25, so that workers do not go in step."""
        return 0.75 + 0.5 * random.Random(str(sorted(params.items()))).random()

    def final(self, params: Params) -> float:
        """The true value after the last epoch."""
        return self.value(params, EPOCHS, 0)

    @property
    def finals(self) -> list[float]:
        """The true values that a winner is ranked among."""
        raise NotImplementedError

    def rank(self, params: Params) -> int:
        """1 more than the number of configurations in :attr:`finals` that are truly better."""
        return 1 + bisect_left(self._sorted, self.final(params))

    @cached_property
    def _sorted(self) -> list[float]:
        return sorted(self.finals)


class Synthetic(Problem):
    """A function over a box of floats with a learning curve."""

    @cached_property
    def finals(self) -> list[float]:
        """The values of :data:`SAMPLES` configurations drawn evenly over the space."""
        source = random.Random(0)
        return [
            self.function({name: axis.sample(source) for name, axis in self.space.items()})
            for _ in range(SAMPLES)
        ]

    @cached_property
    def spread(self) -> float:
        """D: the standard deviation over the space."""
        middle = sum(self.finals) / len(self.finals)
        return math.sqrt(sum((value - middle) ** 2 for value in self.finals) / len(self.finals))

    def function(self, params: Params) -> float:
        raise NotImplementedError

    def value(self, params: Params, epoch: int, seed: int) -> float:
        name, axis = next(iter(self.space.items()))
        rate = 0.5 + (params[name] - axis.low) / (axis.high - axis.low)  # type: ignore[union-attr]
        noise = random.Random(f"{seed} {epoch} {sorted(params.items())}").gauss(
            0.0, NOISE * (1 - epoch / EPOCHS)
        )
        return self.function(params) + self.spread * (epoch**-rate - EPOCHS**-rate + noise)


class Branin(Synthetic):
    """Two coordinates, three minima of 0.397887."""

    name = "Branin"
    space = {"x1": Real(-5.0, 10.0), "x2": Real(0.0, 15.0)}

    def function(self, params: Params) -> float:
        x1 = params["x1"]
        x2 = params["x2"]
        bend = x2 - 5.1 / (4 * math.pi**2) * x1**2 + 5 / math.pi * x1 - 6
        return bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x1) + 10


class Hartmann6(Synthetic):
    """Six coordinates, six local minima, the least of them -3.32237."""

    name = "Hartmann-6"
    space = {f"x{place}": Real(0.0, 1.0) for place in range(1, 7)}
    _heights = (1.0, 1.2, 3.0, 3.2)
    _widths = (
        (10, 3, 17, 3.5, 1.7, 8),
        (0.05, 10, 17, 0.1, 8, 14),
        (3, 3.5, 1.7, 10, 17, 8),
        (17, 8, 0.05, 10, 0.1, 14),
    )
    _places = (
        (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
        (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
        (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
        (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
    )

    def function(self, params: Params) -> float:
        point = [params[name] for name in self.space]
        total = 0.0
        for height, widths, places in zip(self._heights, self._widths, self._places, strict=True):
            total -= height * math.exp(
                -sum(width * (x - place) ** 2 for width, x, place in zip(widths, point, places, strict=True))
            )
        return total


class Digits(Problem):
    """Validation losses of the digits example's network, for every combination of a discrete space.

    The space is the sweep's own (``sweeps/digits.yaml``) on a grid. Ordered parameters are passed to the
    searches as places on their axis, so that models can use the order; each point of the space is in the
    table, so nothing is rounded.
    """

    name = "digits"
    axes: Mapping[str, tuple[Any, ...]] = {
        "lr": tuple(round(10 ** (place / 3 - 4), 6) for place in range(10)),
        "hidden": (16, 40, 100, 256),
        "dropout": (0.0, 0.25, 0.5),
        "batch_size": (32, 64, 128),
        "optimizer": ("adam", "sgd"),
    }
    space = {
        "lr": Whole(0, 9),
        "hidden": Whole(0, 3),
        "dropout": Whole(0, 2),
        "batch_size": Choice(axes["batch_size"]),
        "optimizer": Choice(axes["optimizer"]),
    }

    def __init__(self, table: Path) -> None:
        """``table`` is what :mod:`benchmarks.search_curves` wrote: :meth:`key` to the losses."""
        self._curves: dict[str, list[float]] = json.loads(table.read_text())["loss"]

    @staticmethod
    def key(params: Params) -> str:
        return " ".join(str(params[name]) for name in Digits.space)

    def value(self, params: Params, epoch: int, seed: int) -> float:
        return self._curves[self.key(params)][epoch - 1]

    @cached_property
    def finals(self) -> list[float]:
        """The last losses of the whole table."""
        return [curve[-1] for curve in self._curves.values()]


class Record:
    """What a search has spent and found, by the same rules for every tool.

    Epochs count once their trial is at a rung. The winner is the trial that was trained for the most epochs,
    and of those the one that reported the best value there.
    """

    def __init__(self, searched: Problem) -> None:
        self._problem = searched
        self._epochs: dict[int, int] = {}
        self._best: tuple[int, float] | None = None  # (epochs, minus the value)
        self._winner: Params = {}
        self._history: list[tuple[int, int]] = []
        self.spent = 0

    def add(self, trial: int, params: Params, epochs: int, value: float) -> None:
        """A trial reported at a rung, or ended."""
        self.spent += epochs - self._epochs.get(trial, 0)
        self._epochs[trial] = epochs
        place = (epochs, -value)
        if self._best is None or place > self._best:
            self._best = place
            self._winner = dict(params)
            self._history.append((self.spent, self._problem.rank(params)))

    def result(self) -> dict[str, Any]:
        """The winner, its true rank and the counts, as plain data.

        They are epochs, trials, trials trained to the end, and each winner on the way.
        """
        return {
            "winner": dict(self._winner),
            "rank": self._history[-1][1],
            "epochs": self.spent,
            "trials": len(self._epochs),
            "trained_to_the_end": sum(epochs == EPOCHS for epochs in self._epochs.values()),
            "history": self._history,
        }


def problem(name: str, table: Path) -> Problem:
    """The problem of that name; ``table`` is the file of the digits' curves."""
    if name == Digits.name:
        return Digits(table)
    return {Branin.name: Branin, Hartmann6.name: Hartmann6}[name]()


NAMES = (Branin.name, Hartmann6.name, Digits.name)
