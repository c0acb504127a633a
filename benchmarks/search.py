"""What searches find with the same epochs: Halving's strategies, and Optuna's and Syne Tune's."""

import json
import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child, run_json
from benchmarks.peers.installs import environment, install
from benchmarks.results import Part, Table, Target, number
from benchmarks.search_curves import table as curves
from benchmarks.search_plots import Strip, progress, strips
from benchmarks.search_problems import EPOCHS, NAMES, SAMPLES

SEEDS = 20
TRAININGS = 30
GP_TRAININGS = 20
_WAIT_SECONDS = 3600.0  # seconds for one strategy on one problem
LEVEL = 0.05  # of all comparisons together
_RUNGS = (1, 3, 9, EPOCHS)
_EVERY = tuple(range(1, EPOCHS + 1))
_SYNE_TUNE = (("syne-tune==0.16.0", "botorch==0.18.1", "torch==2.13.0"),)
_IMAGES = CHECKOUT / "docs" / "images"
_PROGRAM = (
    "import runpy, sys; sys.path.append(sys.argv[2]); runpy.run_module(sys.argv[3], run_name='__main__')"
)
_TEXT = f"""
Each search has the epochs of {TRAININGS} whole trainings of {EPOCHS} epochs ({GP_TRAININGS} with a Gaussian
process, which is slow in all tools), four workers in virtual time, and {SEEDS} seeds. Reports come after each
epoch; strategies that stop trials have rungs at 1, 3, 9 and {EPOCHS} epochs, the median rules look at every
epoch. Epochs count once their trial is at a rung, so a search may end a few epochs above its budget. The
winner is the trial that was trained for the most epochs, and of those the one that reported the best value.
Its rank is that of its true final value: among {SAMPLES:,} random configurations for Branin and Hartmann-6,
among all configurations of the table for digits; 1 is the best. *At half* is the median rank when half of the
budget was spent. All tools get the same reports by the same rules, and their own defaults otherwise.

Branin and Hartmann-6 have learning curves of the form pow3 (Domhan et al., IJCAI 2015),
`f(x) + D (e^-a - {EPOCHS}^-a)` at epoch e, where D is the standard deviation of f and the rate a rises from
0.5 to 1.5 with the first coordinate: curves cross. Reports have Gaussian noise of 0.05 D (1 - e/{EPOCHS}),
none at the last epoch. *digits* is a table of real validation losses: the network of `examples/digits.py` was
trained with every combination of ten learning rates, four widths, three dropouts, three batch sizes and two
optimizers; learning rate, width and dropout are ordered axes to the searches. So every suggestion is in the
table.

Halving's strategies run in its simulator (`resources/search/simulation.py`): the decisions and suggester of a
real sweep. Optuna is used by `ask` and `tell`, in the version that Halving stands on; Syne Tune's schedulers
are called as its `Tuner` calls them. Both stop trials for good where Halving pauses and may promote them
later. *Ours better* is the share of pairs of searches in which Halving's winner ranks better, ties counting
half: 0.5 means alike. *p* is the chance of such a difference or a larger one in the other tool's favour if
both were alike (one-sided Mann-Whitney test).
"""


@dataclass(frozen=True)
class Family:
    """One of Halving's strategies and its equivalents.

    Attributes:
        ours: its name in :data:`benchmarks.search_halving.STRATEGIES`.  optuna, syne_tune: names in their
            scripts; empty: there is none.
        rungs: epochs at which trials may be stopped.  trainings: the budget in whole trainings.
    """

    ours: str
    optuna: str
    syne_tune: str
    rungs: tuple[int, ...] = (EPOCHS,)
    trainings: int = TRAININGS

    @property
    def tools(self) -> dict[str, str]:
        """The tools that have this strategy, Halving first, with its name there."""
        return {
            tool: name
            for tool, name in zip(TOOLS, (self.ours, self.optuna, self.syne_tune), strict=True)
            if name
        }


TOOLS = ("Halving", "Optuna", "Syne Tune")
FAMILIES = (
    Family("random", "RandomSampler", "RandomSearch"),
    Family("tpe", "TPESampler", "TPE"),
    Family("gp", "GPSampler", "BOTorch", trainings=GP_TRAININGS),
    Family("asha, random", "SuccessiveHalvingPruner, RandomSampler", "ASHA", _RUNGS),
    Family("asha, tpe", "SuccessiveHalvingPruner, TPESampler", "BOHB", _RUNGS),
    Family("hyperband, random", "HyperbandPruner, RandomSampler", "ASHA, 4 brackets", _RUNGS),
    Family("bohb", "HyperbandPruner, TPESampler", "BOHB, 4 brackets", _RUNGS),
    Family("median, random", "MedianPruner, RandomSampler", "MedianStoppingRule, RandomSearch", _EVERY),
    Family("median, tpe", "MedianPruner, TPESampler", "", _EVERY),
)
Key = tuple[str, str, str]  # problem, Halving's name of the strategy, tool


def measure(setting: Setting) -> Part:
    """Run every strategy of every tool on every problem; a tool that cannot be installed is named."""
    part = Part("search", "What a search finds", _TEXT)
    syne_tune = install(setting.home / "syne-tune", _SYNE_TUNE, "syne_tune", allowed=not setting.quick)
    pythons = {"Optuna": Path(sys.executable)} | ({"Syne Tune": syne_tune.python} if syne_tune.python else {})
    if syne_tune.python is None:
        part.missing.append(f"Syne Tune: {syne_tune.reason}")
    results = _search_all(setting, pythons, part.missing)
    compared = list(_compare(results))
    versions = {tool: result["version"] for (_, _, tool), result in results.items()}
    for searched in NAMES:
        part.tables.append(_table(searched, results, compared))
    part.tables[0].note = (
        "Measured: " + ", ".join(f"{tool} {version}" for tool, version in sorted(versions.items())) + "."
    )
    part.targets = _targets(results, compared)
    if not setting.quick:
        part.text += _draw(results)
    return part


def _search_all(setting: Setting, pythons: dict[str, Path], missing: list[str]) -> dict[Key, dict[str, Any]]:
    """Run each strategy, tool and problem in a process of its own, one a core: nothing is timed."""
    table = curves(setting.home, setting.quick)
    seeds = setting.choose(2, SEEDS)
    jobs: dict[Key, dict[str, Any]] = {}
    for family in FAMILIES[:: setting.choose(3, 1)]:
        trainings = setting.choose(4, family.trainings)
        arguments = {"table": str(table), "seeds": seeds, "rungs": family.rungs, "budget": trainings * EPOCHS}
        arguments["trials"] = trainings if len(family.rungs) == 1 else None
        for searched in NAMES:
            for tool, name in family.tools.items():
                if tool == "Halving" or tool in pythons:
                    jobs[searched, family.ours, tool] = arguments | {"problem": searched, "strategy": name}

    def run(key: Key) -> dict[str, Any] | str:
        try:
            return _run(setting, key, pythons, jobs[key])
        except ChildFailed as error:
            return str(error)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        outcomes = dict(zip(jobs, pool.map(run, jobs), strict=True))
    missing += [
        f"{tool}, {jobs[searched, ours, tool]['strategy']} on {searched}: {outcome}"
        for (searched, ours, tool), outcome in outcomes.items()
        if isinstance(outcome, str)
    ]
    return {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, dict)}


def _run(setting: Setting, key: Key, pythons: dict[str, Path], arguments: dict[str, Any]) -> dict[str, Any]:
    searched, ours, tool = key
    if tool == "Halving":
        return in_child("benchmarks.search_halving:run", arguments=arguments)
    script = {"Optuna": "use_optuna_search", "Syne Tune": "use_synetune_search"}[tool]
    place = setting.work / f"{searched}-{ours}-{tool}".replace(" ", "-").replace(",", "")
    place.mkdir(parents=True)
    command = [
        str(pythons[tool]),
        "-c",
        _PROGRAM,
        json.dumps(arguments),
        str(CHECKOUT),
        f"benchmarks.peers.{script}",
    ]
    return run_json(
        command, cwd=place, environment=environment(place) | {"OMP_NUM_THREADS": "1"}, timeout=_WAIT_SECONDS
    )


def ranks(result: dict[str, Any]) -> list[int]:
    """The winner's true rank, for each seed."""
    return [run["rank"] for run in result["runs"]]


def rank_by(run: dict[str, Any], epochs: int) -> int:
    """The true rank of what a search had found when it had spent so many epochs."""
    ranks: list[int] = [rank for spent, rank in run["history"] if spent <= epochs]
    return ranks[-1] if ranks else run["history"][0][1]


@dataclass(frozen=True)
class Comparison:
    """Halving's ranks against another tool's.

    Attributes:
        better: share of pairs in which Halving's winner ranks better, ties counting half.
        p: chance of such ranks, or worse ones for Halving, if both were alike.
    """

    key: Key
    better: float
    p: float


def _compare(results: dict[Key, dict[str, Any]]) -> Iterator[Comparison]:
    from scipy.stats import mannwhitneyu

    for (searched, ours, tool), result in results.items():
        reference = results.get((searched, ours, "Halving"))
        if tool != "Halving" and reference is not None:
            theirs = ranks(result)
            mine = ranks(reference)
            test = mannwhitneyu(mine, theirs, alternative="greater")
            yield Comparison(
                (searched, ours, tool),
                1 - float(test.statistic) / (len(mine) * len(theirs)),
                float(test.pvalue),
            )


def count_rejected(chances: Sequence[float], level: float = LEVEL) -> int:
    """How many of these p-values are significant together (Holm, Scandinavian Journal of Statistics 1979)."""
    ordered = sorted(chances)
    for place, p in enumerate(ordered):
        if p > level / (len(ordered) - place):
            return place
    return len(ordered)


def _targets(results: dict[Key, dict[str, Any]], compared: Sequence[Comparison]) -> list[Target]:
    if not compared:
        return []
    worse = count_rejected([comparison.p for comparison in compared])
    what = f"searches that another tool's equivalent beats, of {len(compared)} compared (Holm, {LEVEL:.0%})"
    targets = [Target(what, "searches", [float(worse)], 0.0)]
    ratios = []
    for comparison in compared:
        searched, ours, _ = comparison.key
        if ours.startswith(("asha", "hyperband", "bohb")):
            mine, theirs = (
                statistics.median(ranks(results[key]))
                for key in ((searched, ours, "Halving"), comparison.key)
            )
            ratios.append(math.log(mine / theirs))
    if ratios:
        what = (
            "winner's median rank over that of tools that stop and never promote, geometric mean of asha, "
            "hyperband and bohb"
        )
        targets.append(Target(what, "x", [math.exp(statistics.mean(ratios))], 1.0))
    return targets


def _table(searched: str, results: dict[Key, dict[str, Any]], compared: Sequence[Comparison]) -> Table:
    header = [
        "strategy",
        "tool",
        "median rank",
        "worst rank",
        "at half",
        "epochs",
        "trials",
        "trained to the end",
        "ours better",
        "p",
    ]
    table = Table(header, [], searched)
    comparisons = {comparison.key: comparison for comparison in compared}
    for family in FAMILIES:
        for tool, name in family.tools.items():
            key = (searched, family.ours, tool)
            if key not in results:
                continue
            place = ranks(results[key])
            halfway = [rank_by(run, family.trainings * EPOCHS // 2) for run in results[key]["runs"]]
            if tool == "Halving":
                name = f"`{name}`"
            row = [
                name,
                tool,
                f"{statistics.median(place):,g}",
                f"{max(place):,}",
            ]
            row.append(f"{statistics.median(halfway):,g}")
            row += [
                f"{statistics.median(run[what] for run in results[key]['runs']):,g}"
                for what in ("epochs", "trials", "trained_to_the_end")
            ]
            cells = ["", ""]
            if comparison := comparisons.get(key):
                cells = [f"{comparison.better:.2f}", number(comparison.p)]
            table.rows.append([*row, *cells])
    return table


def _draw(results: dict[Key, dict[str, Any]]) -> str:
    """Draw the two figures; return the lines that show them."""
    rows = [(family.ours, tool) for family in FAMILIES for tool in family.tools]
    data = [
        Strip(
            *row,
            {searched: ranks(results[searched, *row]) for searched in NAMES if (searched, *row) in results},
        )
        for row in rows
    ]
    _IMAGES.mkdir(parents=True, exist_ok=True)
    (_IMAGES / "search-ranks.svg").write_text(strips([strip for strip in data if strip.ranks], NAMES))
    lines = {key: [run["history"] for run in result["runs"]] for key, result in results.items()}
    (_IMAGES / "search-progress.svg").write_text(
        progress(lines, NAMES, ("random", "asha, random", "asha, tpe", "bohb"), TRAININGS * EPOCHS)
    )
    return """
![The winner's rank for each strategy, tool and seed](images/search-ranks.svg)

![The best configuration's median rank as epochs are spent](images/search-progress.svg)
"""
