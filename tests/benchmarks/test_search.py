"""The search benchmark's pure parts: problems, ranks, the virtual time that other tools are driven in, and the figures."""

import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import search, search_latency, search_scale
from benchmarks.machine import Setting
from benchmarks.peers import search_loop
from benchmarks.search_curves import table
from benchmarks.search_halving import STRATEGIES, run
from benchmarks.search_plots import Strip, median_steps, progress, strips
from benchmarks.search_problems import EPOCHS, NAMES, SAMPLES, Branin, Digits, Hartmann6, Problem, Record, problem

BRANIN_MINIMA = [(-3.14159265, 12.275), (3.14159265, 2.275), (9.42477796, 2.475)]
HARTMANN_MINIMUM = (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that a smoke run makes up."""
    return table(tmp_path_factory.mktemp("curves"), quick=True)


@pytest.fixture(params=NAMES)
def searched(request: pytest.FixtureRequest, curves: Path) -> Problem:
    return problem(request.param, curves)


def samples(searched: Problem, count: int) -> list[dict[str, Any]]:
    source = random.Random(3)
    return [{name: axis.sample(source) for name, axis in searched.space.items()} for _ in range(count)]


def test_the_functions_have_their_known_minima() -> None:
    for x1, x2 in BRANIN_MINIMA:
        assert Branin().final({"x1": x1, "x2": x2}) == pytest.approx(0.397887, abs=1e-5)
    point = dict(zip(Hartmann6.space, HARTMANN_MINIMUM, strict=True))
    assert Hartmann6().final(point) == pytest.approx(-3.32237, abs=1e-4)
    assert Hartmann6().rank(point) == 1


def test_a_report_is_the_same_each_time_and_the_last_one_is_exact(searched: Problem) -> None:
    for params in samples(searched, 20):
        assert [searched.value(params, epoch, 1) for epoch in range(1, 5)] == [searched.value(params, epoch, 1) for epoch in range(1, 5)]
        assert searched.value(params, EPOCHS, 1) == searched.value(params, EPOCHS, 2) == searched.final(params)
        assert 0.75 <= searched.seconds(params) <= 1.25


def test_curves_fall_and_early_reports_can_mislead() -> None:
    branin = Branin()
    slow, fast = {"x1": -5.0, "x2": 15.0}, {"x1": 10.0, "x2": 3.0}
    assert branin.value(slow, 1, 0) > branin.value(slow, EPOCHS, 0)
    bias = [branin.value(params, 3, 0) - branin.final(params) for params in (slow, fast)]
    assert bias[0] > bias[1] > 0


def test_ranks_are_true_places_among_all_that_are_ranked(searched: Problem) -> None:
    places = sorted(searched.finals)
    assert len(places) in (SAMPLES, len(Digits.axes["lr"]) * 4 * 3 * 3 * 2)
    for params in samples(searched, 20):
        mine = searched.final(params)
        assert searched.rank(params) == 1 + sum(value < mine for value in places)


def test_every_point_of_the_digits_space_is_in_the_table(curves: Path) -> None:
    digits = problem("digits", curves)
    assert len(digits.finals) == 10 * 4 * 3 * 3 * 2
    assert {digits.final(params) for params in samples(digits, 200)} <= set(digits.finals)


def test_a_winner_has_the_most_epochs_and_then_the_best_report() -> None:
    record = Record(branin := Branin())
    near, far = {"x1": 3.1, "x2": 2.3}, {"x1": -5.0, "x2": 0.0}
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
    """Stops every second trial at once, and counts what it is told."""

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


def test_full_trainings_are_as_many_as_asked_for() -> None:
    tool = Halver()
    result = search_loop.search(tool, Branin(), 0, {"budget": 10_000, "rungs": [27], "trials": 6})
    assert (tool.started, tool.finished, result["trials"]) == (6, 3, 6)


@pytest.mark.parametrize("strategy", ["random", "asha, random", "hyperband, random", "median, random"])
def test_halving_searches_by_the_same_rules(strategy: str, curves: Path) -> None:
    family = next(family for family in search.FAMILIES if family.ours == strategy)
    given = {"problem": "Branin", "table": str(curves), "strategy": strategy, "seeds": 2, "budget": 5 * EPOCHS}
    given |= {"trials": 5 if family.rungs == (EPOCHS,) else None}
    first, again = run(given)["runs"], run(given)["runs"]
    assert first == again
    assert first[0] != first[1]
    for result in first:
        assert 5 * EPOCHS <= result["epochs"] < 6 * EPOCHS
        assert (result["trials"] == 5) == (strategy == "random")


def test_each_strategy_has_an_equivalent() -> None:
    assert [family.ours for family in search.FAMILIES] == list(STRATEGIES)
    assert all(family.optuna for family in search.FAMILIES)


def test_significance_counts_all_comparisons_together() -> None:
    assert search.rejected([0.5, 0.001, 0.02]) == 2  # 0.001 <= 0.05 / 3, 0.02 <= 0.05 / 2
    assert search.rejected([0.02, 0.03, 0.04]) == 0
    assert search.rejected([]) == 0


def test_the_rank_on_the_way_is_that_of_the_last_winner_by_then() -> None:
    run_of = {"history": [(9, 70), (27, 40), (60, 3)]}
    assert [search.rank_by(run_of, epochs) for epochs in (1, 9, 59, 60)] == [70, 70, 40, 3]


def test_a_smoke_run_compares_with_optuna_and_names_who_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FAMILIES", search.FAMILIES[3:4])
    part = search.measure(Setting(tmp_path / "work", tmp_path, quick=True))
    assert part.missing == ["Syne Tune: not installed, and a quick run installs nothing"]
    assert [found.title for found in part.tables] == list(NAMES)
    assert [row[1] for row in part.tables[0].rows] == ["Halving", "Optuna"]
    assert all(len(row) == len(found.header) for found in part.tables for row in found.rows)
    assert part.targets[0].values == [0.0]


def test_figures_are_svg_with_a_dot_for_each_seed_and_a_line_for_each_tool() -> None:
    rows = [Strip("asha", "Halving", {"Branin": [1, 20, 300]}), Strip("asha", "Optuna", {"Branin": [5, 5, 5]})]
    drawn = ElementTree.fromstring(strips(rows, ["Branin"]))
    assert sum(each.tag.endswith("circle") for each in drawn.iter()) == 6
    histories = {("Branin", "asha", tool): [[[3, 90], [30, 4]], [[9, 50]]] for tool in ("Halving", "Optuna")}
    drawn = ElementTree.fromstring(progress(histories, ["Branin"], ["asha"], 36))
    assert sum(each.tag.endswith("polyline") for each in drawn.iter()) == 2
    assert median_steps(histories["Branin", "asha", "Halving"], 36) == [(9, 70), (18, 70), (27, 70), (36, 27)]


def test_a_simulated_cluster_loses_workers_and_no_work() -> None:
    found = search_scale.one("asha, random", trials=120, workers=16, seed=1)
    assert found["lost_workers"] > 0
    assert (found["twice"], found["missing"], found["repeated"]) == (0, 0, 0)


def test_waiting_for_the_catalog_is_measured_for_both_calls(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    sweep = search_latency.fill(url, trials=20, more=30)
    found = search_latency.client(str(tmp_path), url, sweep, taken=10, pace=0.0, clients=1, client=0)
    assert len(found["next"]) == 10
    assert len(found["decision"]) >= 10
    assert found["began"] < found["ended"]
