"""The search benchmark's pure parts: problems, ranks, and how other tools are driven."""

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks import search
from benchmarks.peers import search_loop
from benchmarks.search_curves import table
from benchmarks.search_problems import (
    EPOCHS,
    NAMES,
    SAMPLES,
    Branin,
    Digits,
    Hartmann6,
    Problem,
    Record,
    problem,
)

BRANIN_MINIMA = [(-3.14159265, 12.275), (3.14159265, 2.275), (9.42477796, 2.475)]
HARTMANN_MINIMUM = (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that a smoke run makes up."""
    return table(tmp_path_factory.mktemp("curves"), quick=True)


@pytest.fixture(params=NAMES)
def searched_problem(request: pytest.FixtureRequest, curves: Path) -> Problem:
    return problem(request.param, curves)


def samples(searched_problem: Problem, count: int) -> list[dict[str, Any]]:
    source = random.Random(3)
    return [
        {name: axis.sample(source) for name, axis in searched_problem.space.items()} for _ in range(count)
    ]


def test_the_functions_have_their_known_minima() -> None:
    for x1, x2 in BRANIN_MINIMA:
        assert Branin().final({"x1": x1, "x2": x2}) == pytest.approx(0.397887, abs=1e-5)
    point = dict(zip(Hartmann6.space, HARTMANN_MINIMUM, strict=True))
    assert Hartmann6().final(point) == pytest.approx(-3.32237, abs=1e-4)
    assert Hartmann6().rank(point) == 1


def test_ranks_are_true_places_among_all_that_are_ranked(searched_problem: Problem) -> None:
    places = sorted(searched_problem.finals)
    assert len(places) in (SAMPLES, len(Digits.axes["lr"]) * 4 * 3 * 3 * 2)
    for params in samples(searched_problem, 20):
        mine = searched_problem.final(params)
        assert searched_problem.rank(params) == 1 + sum(value < mine for value in places)


def test_a_winner_has_the_most_epochs_and_then_the_best_report() -> None:
    record = Record(branin := Branin())
    near = {"x1": 3.1, "x2": 2.3}
    far = {"x1": -5.0, "x2": 0.0}
    record.add(0, near, 3, 1.0)
    record.add(1, far, 9, 300.0)
    record.add(0, near, 9, 400.0)
    assert record.result()["winner"] == far  # as reported, whatever is true
    record.add(0, near, 27, 500.0)
    result = record.result()
    assert (result["winner"], result["rank"]) == (near, branin.rank(near))
    assert (result["epochs"], result["trials"], result["trained_to_the_end"]) == (36, 2, 1)
    assert [spent for spent, _ in result["history"]] == [3, 12, 36]


class Halver:
    """Stops every second trial at once, and counts the reports that it gets."""

    def __init__(self) -> None:
        self.started = self.finished = 0
        self.reports: list[tuple[int, int]] = []

    def start(self) -> tuple[int, dict[str, float]]:
        self.started += 1
        return self.started, {"x1": self.started % 7.0, "x2": 2.0}

    def report(self, trial: int, epoch: int, value: float) -> bool:
        self.reports.append((trial, epoch))
        return trial % 2 == 0

    def finish(self, trial: int, value: float) -> None:
        self.finished += 1


def test_another_tool_hears_each_epoch_once_and_stops_at_its_budget() -> None:
    tool = Halver()
    result = search_loop.search(tool, Branin(), 0, {"budget": 200, "rungs": [1, 3, 9, 27], "trials": None})
    assert len(set(tool.reports)) == len(tool.reports)
    assert max(epoch for _, epoch in tool.reports) < EPOCHS
    assert 200 <= result["epochs"] < 200 + EPOCHS
    assert result["trained_to_the_end"] == tool.finished > 0


def test_significance_counts_all_comparisons_together() -> None:
    assert search.count_rejected([0.5, 0.001, 0.02]) == 2  # 0.001 <= 0.05 / 3, 0.02 <= 0.05 / 2
    assert search.count_rejected([0.02, 0.03, 0.04]) == 0
    assert search.count_rejected([]) == 0


def test_the_rank_on_the_way_is_that_of_the_last_winner_by_then() -> None:
    run_of = {"history": [(9, 70), (27, 40), (60, 3)]}
    assert [search.rank_by(run_of, epochs) for epochs in (1, 9, 59, 60)] == [70, 70, 40, 3]
