"""Measuring how much of a metric's change between two runs each factor explains.

The first run is trained again with a single factor of the second, which is an arm. Every arm is trained with
the same seeds, and compared with the first run's own arm seed by seed, so that the seeds' common effect drops
out. The effect of a factor is the mean of the paired differences, its standard error is their standard
deviation over the square root of their number (a paired comparison under common random numbers; Law,
Simulation Modeling and Analysis, section 11.2). The intervals are Student's, for all effects together
(Bonferroni).
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
from halving.rerun.rerun import Options, check_code, check_pods, prepare_interpreter, train, train_in_pod
from halving.rerun.student_t import t_quantile
from halving.rerun.worktree import check_commit, check_patch, repository_at, worktree
from halving.store.store import Store

CONFIDENCE = 0.95  # that all intervals contain their effects
_MAX_SEEDS = 99  # in a recommendation
Done = Mapping[tuple[str, int], KeptRerun]
"""Completed reruns, by the arm's name and the seed."""


@dataclass(frozen=True)
class Effect:
    """The effect of an arm's factors on the metric.

    Attributes:
        effect: the mean of the paired differences to the first run, in the metric's unit.
        standard_error: that of the mean.
        error: why it was not measured, else None.
    """

    name: str
    factors: tuple[str, ...]
    effect: float | None
    standard_error: float | None
    error: str | None = None


@dataclass(frozen=True)
class Measured:
    """The results of an arm: its reruns' ids and the metric's last value in each, by seed."""

    name: str
    runs: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Attribution:
    """The result of all reruns.

    Attributes:
        recorded: the metric's last value in both runs, as recorded.
        mean, noise: the mean over the seeds of the first run's own arm, and their standard deviation.
        effects: that of each factor, and where several differ, that of all together.
        arms: those that were measured, the first run's own first.
        left_out: factors that differ and were not changed, with the reason.
        given_up: whether Ctrl-C came before every arm had ended.
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
        """The recorded change of the metric between the runs; None if a value is missing or not finite."""
        before, after = self.recorded
        if before is None or after is None:
            return None
        change = after - before
        if not math.isfinite(change):
            return None
        return change

    @property
    def unexplained(self) -> float | None:
        """The part of the change that no factor explains; None if unknown.

        It comes from the runs' own seeds, and from factors that could not be changed.
        """
        for effect in self.effects:
            if effect.name == ALL or len(self.effects) == 1:
                if self.change is None or effect.effect is None:
                    return None
                return self.change - effect.effect
        return None

    def share(self, effect: float | None) -> float | None:
        """The share of an effect in the recorded change; None if either is unknown or there is no change.

        Shares need not add up to 1.
        """
        if effect is None or not self.change:
            return None
        return effect / self.change

    def interval(self, effect: Effect) -> tuple[float, float] | None:
        """The effect's interval, at 95 % for all effects together; None if it was not measured."""
        if effect.effect is None or effect.standard_error is None:
            return None
        reach = self._quantile(len(self.seeds)) * effect.standard_error
        return effect.effect - reach, effect.effect + reach

    def beyond_noise(self, effect: Effect) -> bool | None:
        """Whether the interval excludes 0, so that it is more than the seeds' noise; None if not measured."""
        interval = self.interval(effect)
        if interval is None or effect.effect is None:
            return None
        low, high = interval
        return effect.effect != 0 and not low <= 0 <= high

    def seeds_needed(self, effect: Effect) -> int | None:
        """The number of seeds with which the interval would exclude 0, if effect and spread stayed the same.

        It is None if the effect was not measured, and if a hundred seeds would not suffice.
        """
        if not effect.effect or effect.standard_error is None:
            return None
        spread = effect.standard_error * math.sqrt(len(self.seeds))
        enough = (
            n
            for n in range(2, _MAX_SEEDS + 1)
            if self._quantile(n) * spread / math.sqrt(n) < abs(effect.effect)
        )
        return next(enough, None)

    def _quantile(self, seeds: int) -> float:
        measured = sum(effect.effect is not None for effect in self.effects)
        return t_quantile(1 - (1 - CONFIDENCE) / 2 / measured, seeds - 1)

    def as_dict(self) -> dict[str, Any]:
        """The JSON that ``halving why --json`` prints as ``attribution``."""
        return {
            "metric": self.metric,
            "recorded": list(self.recorded),
            "seeds": list(self.seeds),
            "mean": self.mean,
            "noise": self.noise,
            "effects": [
                {
                    **vars(effect),
                    "factors": list(effect.factors),
                    "interval": self.interval(effect),
                    "share": self.share(effect.effect),
                    "beyond_noise": self.beyond_noise(effect),
                }
                for effect in self.effects
            ],
            "arms": [
                {"name": arm.name, "runs": list(arm.runs), "values": list(arm.values)} for arm in self.arms
            ],
            "unexplained": {"effect": self.unexplained, "share": self.share(self.unexplained)},
            "left_out": self.left_out,
        }


def read_kept(experiment: Experiment, kept: KeptReruns) -> dict[tuple[str, int], KeptRerun]:
    """Read the reruns of an experiment that an earlier call has trained."""
    reruns = {(arm.name, seed): kept.read(replace(arm.plan, seed=seed)) for arm, seed in experiment.reruns}
    return {place: rerun for place, rerun in reruns.items() if rerun is not None}


def check_arms(store: Store, experiment: Experiment, done: Done, options: Options, pods: Pods | None) -> None:
    """Check that the code of every arm to train can be restored, because a failure would come hours later.

    Whether an image still exists is known when its first pod starts.

    Raises:
        InvalidInput: there is no checkout, or no cluster.
        NotFound: something is gone; the message names it.
    """
    left = [arm for arm, seed in experiment.reruns if (arm.name, seed) not in done]
    own = experiment.arms[0].plan
    if left and own.image is not None:
        check_pods(own, own.image, options, pods)
    elif left:
        repository = check_code(store, experiment.arms[0].plan, options)
        if any("code" in arm.factors for arm in left):
            check_commit(repository, experiment.other)
            check_patch(store, experiment.other)


def run_experiment(
    store: Store,
    experiment: Experiment,
    recorded: tuple[float | None, float | None],
    options: Options,
    kept: KeptReruns,
    done: Done,
    tell: Callable[[str], None],
    pods: Pods | None = None,
) -> Attribution:
    """Train the reruns that are not done yet, one after another, and measure the factors' effects.

    The result of a rerun is kept when it ends, so that the next call goes on from there. After Ctrl-C the
    arms that have not ended are given up, and the others count.

    Args:
        recorded: the metric's last value in both runs.
        done: the result of :func:`read_kept`.
        pods: the cluster, for trials that are trained in pods.

    Raises:
        HalvingError: the first run cannot be trained again, its metric is not finite, or an environment
            cannot be built. The error of any other arm is kept with its effect.
    """
    effects = []
    measured = []
    with environments() as built:
        training = _Training(store, experiment, options, kept, dict(done), built, tell, pods)
        if options.build:
            training.build_environments()
        own = training.arm(experiment.arms[0])
        measured.append(own)
        given_up = False
        for arm in experiment.arms[1:]:
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
        metric=experiment.metric,
        recorded=recorded,
        seeds=experiment.seeds,
        mean=statistics.mean(own.values),
        noise=statistics.stdev(own.values),
        effects=effects,
        arms=measured,
        left_out=experiment.left_out,
        given_up=given_up,
    )


def effect_of(arm: Arm, own: Sequence[float], values: Sequence[float]) -> Effect:
    """The effect of an arm's factors, from its values and those of the first run's own arm, seed by seed."""
    paired = [value - before for value, before in zip(values, own, strict=True)]
    return Effect(
        arm.name, arm.factors, statistics.mean(paired), statistics.stdev(paired) / math.sqrt(len(paired))
    )


@dataclass
class _Training:
    """The reruns of one call."""

    store: Store
    experiment: Experiment
    options: Options
    kept: KeptReruns
    done: dict[tuple[str, int], KeptRerun]
    built: Environments
    tell: Callable[[str], None]
    pods: Pods | None

    def build_environments(self) -> None:
        """Build the environments of all arms before the first one trains, so that an error comes early."""
        for arm in self.experiment.arms:
            if any((arm.name, seed) not in self.done for seed in self.experiment.seeds):
                name = arm.plan.name  # for messages: the run whose packages are installed
                if {"packages", "python"} & {*arm.factors}:
                    name = self.experiment.other.name
                with worktree(repository_at(self.options.repository), arm.plan, self.store) as code:
                    self.built.python_of(replace(arm.plan, name=name), code, self.tell)

    def arm(self, arm: Arm) -> Measured:
        """Train an arm with every seed that is not done."""
        reruns = []
        values = []
        tell_differences = self.tell
        for seed in self.experiment.seeds:
            if (arm.name, seed) not in self.done:
                number = 1 + self.experiment.reruns.index((arm, seed))
                self.tell(f"rerun {number} of {len(self.experiment.reruns)}: {arm.name}, seed {seed}")
                self.done[arm.name, seed] = self._train(replace(arm.plan, seed=seed), tell_differences)
                tell_differences = _ignore_line  # All reruns of an arm have the same differences.
            rerun = self.done[arm.name, seed]
            values.append(_finite(self.experiment.metric, rerun, arm, seed))
            reruns.append(rerun.run)
        return Measured(arm.name, tuple(reruns), tuple(values))

    def _train(self, plan: Plan, tell_differences: Callable[[str], None]) -> KeptRerun:
        """Train in a checkout of its own, so that no rerun reads the files that another one has left."""
        began = time.monotonic()
        if plan.image is not None:
            new, _ = train_in_pod(
                self.store, plan, plan.image, self.options, self.pods, self.tell, tell_differences
            )
        else:
            with prepare_interpreter(self.store, plan, self.options, self.built, tell_differences) as (
                code,
                python,
                _,
            ):
                new = train(self.store, plan, code, python, self.tell)
        seconds = time.monotonic() - began
        kept = self.kept.keep(plan, new, seconds)
        value = kept.values.get(self.experiment.metric)
        if value is not None:
            self.tell(f"{self.experiment.metric} = {value:.6g} after {seconds:.0f} s")
        return kept


def _finite(metric: str, rerun: KeptRerun, arm: Arm, seed: int) -> float:
    """The metric's value in a rerun, checked before the next one is trained, which may take hours."""
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


def _ignore_line(_: str) -> None:
    pass
