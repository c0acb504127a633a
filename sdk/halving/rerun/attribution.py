"""How much of a metric's change between two runs each factor explains: reruns of the one with a single factor
of the other.

Every arm is trained with the same seeds, and compared with the first run's arm seed by seed, so that what the
seeds do to both alike drops out: the effect of a factor is the mean of the paired differences, its standard
error their standard deviation over the square root of their number (a paired comparison under common random
numbers; Law, Simulation Modeling and Analysis, section 11.2). The intervals are Student's, for all effects
together (Bonferroni).
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from halving.errors import HalvingError
from halving.rerun.environment import Environments, environments
from halving.rerun.experiment import ALL, Arm, Experiment
from halving.rerun.kept_reruns import KeptRerun, KeptReruns
from halving.rerun.plan import Plan
from halving.rerun.pods import Pods, RerunFailed
from halving.rerun.rerun import Options, check_code, check_pods, prepared, train, train_in_pod
from halving.rerun.student_t import t_quantile
from halving.rerun.worktree import check_commit, check_patch, repository_at, worktree
from halving.store.store import Store

CONFIDENCE = 0.95  # that every interval holds its effect
_MOST_SEEDS = 99  # that are worth a recommendation
Done = Mapping[tuple[str, int], KeptRerun]
"""Reruns that came to their end, by the arm's name and the seed."""


@dataclass(frozen=True)
class Effect:
    """What an arm's factors do to the metric.

    Attributes:
        effect: mean of the paired differences to the first run, in the metric's unit.
        standard_error: of that mean.
        error: why it was not measured, else None.
    """

    name: str
    factors: tuple[str, ...]
    effect: float | None
    standard_error: float | None
    error: str | None = None


@dataclass(frozen=True)
class Measured:
    """What an arm gave: its reruns' ids and the metric's last value in each, by seed."""

    name: str
    runs: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Attribution:
    """What the reruns say.

    Attributes:
        recorded: the metric's last value in both runs, as recorded.
        mean, noise: of the first run's own arm: the mean over the seeds, and the standard deviation that the
            seeds alone make.
        effects: of each factor, and where several differ of all together.
        arms: those that were measured, the first run's own first.
        left_out: factors that differ and were not changed, with the reason.
        given_up: by Ctrl-C, before every arm had ended.
    """

    metric: str
    recorded: tuple[float | None, float | None]
    seeds: tuple[int, ...]
    mean: float
    noise: float
    effects: list[Effect] = field(default_factory=list)
    arms: list[Measured] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    given_up: bool = False

    @property
    def change(self) -> float | None:
        """How much the metric differs from the one run to the other, as recorded; None where a value is
        missing or not finite.
        """
        before, after = self.recorded
        change = None if before is None or after is None else after - before
        return change if change is not None and math.isfinite(change) else None

    @property
    def unexplained(self) -> float | None:
        """What of the change the factors do not make, all together: other seeds, and what could not be
        changed.

        None where unknown.
        """
        together = [one.effect for one in self.effects if one.name == ALL or len(self.effects) == 1]
        return (
            None if self.change is None or not together or together[0] is None else self.change - together[0]
        )

    def share(self, effect: float | None) -> float | None:
        """How much of the recorded change an effect is; None where that is none, or unknown.

        They need not add up to 1.
        """
        return None if effect is None or not self.change else effect / self.change

    def interval(self, effect: Effect) -> tuple[float, float] | None:
        """In which the effect lies, at 95 % for all effects together; None where it was not measured."""
        if effect.effect is None or effect.standard_error is None:
            return None
        reach = self._quantile(len(self.seeds)) * effect.standard_error
        return effect.effect - reach, effect.effect + reach

    def beyond_noise(self, effect: Effect) -> bool | None:
        """Whether the effect cannot be the seeds' alone: its interval does not hold 0.

        None where it was not measured.
        """
        found = self.interval(effect)
        return (
            None
            if found is None or effect.effect is None
            else effect.effect != 0 and not found[0] <= 0 <= found[1]
        )

    def seeds_needed(self, effect: Effect) -> int | None:
        """With how many seeds the interval would not hold 0, if the effect and the spread of its differences
        stayed what they are; None where it was not measured, and where a hundred would not do.
        """
        if not effect.effect or effect.standard_error is None:
            return None
        spread = effect.standard_error * math.sqrt(len(self.seeds))
        enough = (
            n
            for n in range(2, _MOST_SEEDS + 1)
            if self._quantile(n) * spread / math.sqrt(n) < abs(effect.effect)
        )
        return next(enough, None)

    def _quantile(self, seeds: int) -> float:
        measured = sum(one.effect is not None for one in self.effects)
        return t_quantile(1 - (1 - CONFIDENCE) / 2 / measured, seeds - 1)

    def as_dict(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "recorded": list(self.recorded),
            "seeds": list(self.seeds),
            "mean": self.mean,
            "noise": self.noise,
            "effects": [
                {
                    **vars(one),
                    "factors": list(one.factors),
                    "interval": self.interval(one),
                    "share": self.share(one.effect),
                    "beyond_noise": self.beyond_noise(one),
                }
                for one in self.effects
            ],
            "arms": [
                {"name": one.name, "runs": list(one.runs), "values": list(one.values)} for one in self.arms
            ],
            "unexplained": {"effect": self.unexplained, "share": self.share(self.unexplained)},
            "left_out": self.left_out,
        }


def kept_of(asked: Experiment, kept: KeptReruns) -> dict[tuple[str, int], KeptRerun]:
    """Those of an experiment's reruns that an earlier call has trained."""
    found = {(arm.name, seed): kept.read(replace(arm.plan, seed=seed)) for arm, seed in asked.reruns}
    return {place: rerun for place, rerun in found.items() if rerun is not None}


def check_arms(store: Store, asked: Experiment, done: Done, options: Options, pods: Pods | None) -> None:
    """See that the code of every arm that is to be trained can be brought back: that of the last would be
    missed after hours.

    Whether an image is still there is known when its first pod starts.

    Raises:
        InvalidInput: there is no checkout, or no cluster.
        NotFound: what is gone, by its name.
    """
    left = [arm for arm, seed in asked.reruns if (arm.name, seed) not in done]
    own = asked.arms[0].plan
    if left and own.image is not None:
        check_pods(own, own.image, options, pods)
    elif left:
        repository = check_code(store, asked.arms[0].plan, options)
        if any("code" in arm.factors for arm in left):
            check_commit(repository, asked.other)
            check_patch(store, asked.other)


def run_experiment(
    store: Store,
    asked: Experiment,
    recorded: tuple[float | None, float | None],
    options: Options,
    kept: KeptReruns,
    done: Done,
    tell: Callable[[str], None],
    pods: Pods | None = None,
) -> Attribution:
    """Train every arm with every seed that an earlier call has not, one after another, and say what the
    factors do.

    What a rerun gave is kept when it ends, so that the next call goes on from there. By Ctrl-C the arms that
    have not ended are given up, and the others count.

    Args:
        recorded: the metric's last value in both runs.
        done: as :func:`kept_of` gives it.
        pods: the cluster, for trials that are trained in pods.

    Raises:
        HalvingError: the first run cannot be trained again, its metric is not finite, or an environment
            cannot be built; of any other arm the reason is kept with its effect.
    """
    effects = []
    measured = []
    with environments() as built:
        training = _Training(store, asked, options, kept, dict(done), built, tell, pods)
        if options.build:
            training.build_environments()
        own = training.arm(asked.arms[0])
        measured.append(own)
        given_up = False
        for arm in asked.arms[1:]:
            if given_up:
                effects.append(Effect(arm.name, arm.factors, None, None, "given up before it was trained"))
                continue
            try:
                values = training.arm(arm)
                measured.append(values)
                effects.append(effect_of(arm, own.values, values.values))
            except HalvingError as error:
                tell(f"{arm.name}: {error}")
                effects.append(Effect(arm.name, arm.factors, None, None, str(error)))
            except KeyboardInterrupt:
                given_up = True
                tell(
                    f"given up while training: {arm.name}; the arms before it count, and the same command "
                    "goes on from here"
                )
                effects.append(Effect(arm.name, arm.factors, None, None, "given up while it was trained"))
    return Attribution(
        metric=asked.metric,
        recorded=recorded,
        seeds=asked.seeds,
        mean=statistics.mean(own.values),
        noise=statistics.stdev(own.values),
        effects=effects,
        arms=measured,
        left_out=asked.left_out,
        given_up=given_up,
    )


def effect_of(arm: Arm, own: Sequence[float], values: Sequence[float]) -> Effect:
    """The effect of an arm's factors, of its values and the first run's, seed by seed."""
    paired = [value - before for value, before in zip(values, own, strict=True)]
    return Effect(
        arm.name, arm.factors, statistics.mean(paired), statistics.stdev(paired) / math.sqrt(len(paired))
    )


@dataclass
class _Training:
    """The reruns of one call."""

    store: Store
    asked: Experiment
    options: Options
    kept: KeptReruns
    done: dict[tuple[str, int], KeptRerun]
    built: Environments
    tell: Callable[[str], None]
    pods: Pods | None

    def build_environments(self) -> None:
        """Build what the arms need before the first of them trains: a package that is gone is named then, and
        not hours later.
        """
        for arm in self.asked.arms:
            if any((arm.name, seed) not in self.done for seed in self.asked.seeds):
                whose = self.asked.other if {"packages", "python"} & {*arm.factors} else arm.plan
                with worktree(repository_at(self.options.repository), arm.plan, self.store) as code:
                    self.built.python_of(replace(arm.plan, name=whose.name), code, self.tell)

    def arm(self, arm: Arm) -> Measured:
        """Train an arm with every seed that is not done."""
        reruns = []
        values = []
        told = self.tell
        for seed in self.asked.seeds:
            if (arm.name, seed) not in self.done:
                number = 1 + self.asked.reruns.index((arm, seed))
                self.tell(f"rerun {number} of {len(self.asked.reruns)}: {arm.name}, seed {seed}")
                self.done[arm.name, seed] = self._train(replace(arm.plan, seed=seed), told)
                told = _to_nobody  # the differences are those of the arm's first rerun
            rerun = self.done[arm.name, seed]
            values.append(_finite(self.asked.metric, rerun, arm, seed))
            reruns.append(rerun.run)
        return Measured(arm.name, tuple(reruns), tuple(values))

    def _train(self, plan: Plan, told: Callable[[str], None]) -> KeptRerun:
        """Each rerun has a checkout of its own: what one leaves in its folder another must not read."""
        began = time.monotonic()
        if plan.image is not None:
            new, _ = train_in_pod(self.store, plan, plan.image, self.options, self.pods, self.tell, told)
        else:
            with prepared(self.store, plan, self.options, self.built, told) as (code, python, _):
                new = train(self.store, plan, code, python, self.tell)
        seconds = time.monotonic() - began
        kept = self.kept.keep(plan, new, seconds)
        value = kept.values.get(self.asked.metric)
        if value is not None:
            self.tell(f"{self.asked.metric} = {value:.6g} after {seconds:.0f} s")
        return kept


def _finite(metric: str, rerun: KeptRerun, arm: Arm, seed: int) -> float:
    """The metric's value of a rerun, seen before the next is trained: that may take hours."""
    project = arm.plan.name.partition("/")[0]
    value = rerun.values.get(metric)
    if value is None:
        raise RerunFailed(f"the rerun {project}/{rerun.run} (seed {seed}) logged no {metric!r}")
    if not math.isfinite(value):
        raise RerunFailed(
            f"{metric} of the rerun {project}/{rerun.run} (seed {seed}) is {value}, and what is not finite "
            "has no difference to another"
        )
    return value


def _to_nobody(_: str) -> None:
    pass
