"""How fast TPE suggests with ten thousand finished trials, and whether a capped history costs quality."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, spread
from benchmarks.search_problems import SAMPLES, Hartmann6

FINISHED = 10_000
SUGGESTED = 300
ASKED_OF_OPTUNA = 20
QUALITY_TRIALS = 1_500
QUALITY_SEEDS = 10
ROUNDS = 3
_MINIMUM = -3.32237
_STRATEGY = {"tpe": {"budget": 1}}
_TEXT = f"""
Hartmann-6 with {FINISHED:,} finished trials of random params; then each suggestion is followed by its result,
so that every one pays for learning what is new. *Optuna alone* is the same sampler with the same settings on
Optuna's own storage in memory. Halving's suggester shows the sampler a limited number of finished trials
(`TpeSuggester.max_finished`): a quarter of them the best, the others spread evenly over the rest.
Whether the search suffers is seen below: {QUALITY_TRIALS:,} trials one after another, with that rule and
without it; the rank of the best is among {SAMPLES:,} random configurations, the regret is what it is above
the function's minimum.
"""


def measure(setting: Setting) -> Part:
    """Measure suggestions a second, Halving's and Optuna's, and the quality with a capped history."""
    part = Part("suggestions", "TPE with a long history", _TEXT)
    finished = setting.choose(100, FINISHED)
    rates = []
    optuna = []
    for seed in range(setting.choose(1, ROUNDS)):
        sizes = {"finished": finished, "seed": seed}
        rates.append(
            in_child("benchmarks.search_suggestions:halving", **sizes, suggested=setting.choose(5, SUGGESTED))
        )
        optuna.append(
            in_child(
                "benchmarks.search_suggestions:optuna_alone",
                **sizes,
                suggested=setting.choose(5, ASKED_OF_OPTUNA),
            )
        )
    header = ["finished trials", "Halving, suggestions/s", "Optuna alone, suggestions/s"]
    part.tables.append(Table(header, [[f"{finished:,}", spread(rates), spread(optuna)]], "Speed"))
    part.targets.append(
        Target(f"TPE suggestions a second at {finished:,} finished trials", "1/s", rates, 20.0, at_most=False)
    )
    table = Table(["history", "trials", "searches", "rank of the best", "regret of the best"], [], "Quality")
    trials = setting.choose(30, QUALITY_TRIALS)
    seeds = setting.choose(1, QUALITY_SEEDS)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:  # nothing is timed here
        for name, capped in (("at most 500 trials", True), ("all", False)):
            search = partial(in_child, "benchmarks.search_suggestions:quality", trials=trials, capped=capped)
            searches = [pool.submit(search, seed=seed) for seed in range(seeds)]
            results = [each.result() for each in searches]
            cells = (spread([result[what] for result in results]) for what in ("rank", "regret"))
            table.rows.append([name, f"{trials:,}", str(seeds), *cells])
    part.tables.append(table)
    return part


def halving(finished: int, suggested: int, seed: int) -> float:
    """Suggestions a second of Halving's suggester."""
    search = _Search(seed)
    source = random.Random(seed)
    problem = search.problem
    for _ in range(finished):
        search.tell({name: axis.sample(source) for name, axis in problem.space.items()})
    search.tell(search.ask())  # the first one shows the whole history to the sampler
    began = time.perf_counter()
    for _ in range(suggested):
        search.tell(search.ask())
    return suggested / (time.perf_counter() - began)


def optuna_alone(finished: int, suggested: int, seed: int) -> float:
    """Suggestions a second of the same sampler on Optuna's storage in memory."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    source = random.Random(seed)
    problem = Hartmann6()
    ranges = {
        name: optuna.distributions.FloatDistribution(axis.low, axis.high)
        for name, axis in problem.space.items()
    }
    for _ in range(finished):
        params = {name: axis.sample(source) for name, axis in problem.space.items()}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=ranges, value=problem.function(params))
        )
    study.tell(study.ask(ranges), 0.0)
    began = time.perf_counter()
    for _ in range(suggested):
        trial = study.ask(ranges)
        study.tell(trial, problem.function(trial.params))
    return suggested / (time.perf_counter() - began)


def quality(trials: int, seed: int, capped: bool) -> dict[str, float]:
    """The best of a search, one trial after another, with a capped history or with all of it."""
    from resources.search.suggestions.tpe import TpeSuggester

    if not capped:
        TpeSuggester.max_finished = None
    search = _Search(seed)
    params, value = min((search.tell(search.ask()) for _ in range(trials)), key=lambda trial: trial[1])
    return {"rank": search.problem.rank(params), "regret": value - _MINIMUM}


class _Search:
    """A sweep that is one list of finished trials: what the suggester sees of it."""

    def __init__(self, seed: int) -> None:
        from benchmarks.search_scale import spec_of
        from resources.search.suggest import make_suggester
        from resources.search.suggestions.suggester import Tried
        from resources.sweep_spec import parse_spec

        self.problem = Hartmann6()
        space = {
            name: {"float": {"low": axis.low, "high": axis.high}} for name, axis in self.problem.space.items()
        }
        self._suggester = make_suggester(
            parse_spec(spec_of(_STRATEGY, space=space, max_trials=FINISHED, seed=seed))
        )
        self._tried: list[Tried] = []

    def ask(self) -> dict[str, Any]:
        self._suggester.learn(self._tried, {})
        return self._suggester.suggest(len(self._tried)).params

    def tell(self, params: dict[str, Any]) -> tuple[dict[str, Any], float]:
        from resources.search.state import Result, Status, TrialState
        from resources.search.suggestions.suggester import Tried

        value = self.problem.function(params)
        self._tried.append(Tried(params, TrialState(len(self._tried), Status.COMPLETED, (Result((value,)),))))
        return params, value
