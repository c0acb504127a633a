"""Planning the reruns that tell which factor changes a metric: the first run with a factor of the second."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from halving.errors import InvalidInput
from halving.query.runs import RunInfo
from halving.records.run_record import RunRecords
from halving.rerun.comparison import read_points
from halving.rerun.factors import FACTORS, Difference, differences, epochs_difference
from halving.rerun.image import ImagePlan
from halving.rerun.plan import Plan
from halving.rerun.verdict import FAILED, FINISHED, PAUSED
from halving.store.store import Store

MIN_SEEDS = 2  # one difference has no standard error
ALL = "all together"
IN_THE_IMAGE = ("code", "python", "packages", "image")
"""Factors of a pod's rerun that change together, because the image has them."""
Planned = tuple[RunInfo, Plan]


@dataclass(frozen=True)
class Arm:
    """One set of reruns: the first run with some factors of the second.

    Attributes:
        factors: the factors of the second run; empty for the first run itself.
        plan: the plan of each rerun.
    """

    name: str
    factors: tuple[str, ...]
    plan: Plan


@dataclass(frozen=True)
class Experiment:
    """The reruns that will be trained.

    Attributes:
        metric: the metric whose last value is explained.
        arms: the first run's own comes first.
        seeds: each arm is trained once with each.
        other: the plan of the second run.
        left_out: factors that differ and cannot be changed here, with the reason.
        seconds: the training time of the longer run; None if neither has one.
    """

    metric: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    other: Plan
    left_out: dict[str, str]
    seconds: float | None

    @property
    def reruns(self) -> list[tuple[Arm, int]]:
        """Every arm with every seed, in the order in which they are trained."""
        return [(arm, seed) for arm in self.arms for seed in self.seeds]


def plan_experiment(first: Planned, second: Planned, metric: str, repeat: int, *, build: bool) -> Experiment:
    """Plan the reruns that explain the change of a metric from one run to the other.

    Args:
        first, second: the runs; the plan of a trial that will be trained here, and not in a pod, has no
            image.
        repeat: seeds for each arm.
        build: whether packages can be changed, each arm in a virtual environment of its own.

    Raises:
        InvalidInput: too few seeds, a run that failed, one that trains in a pod and one that does not, or
            nothing that differs can be changed.
    """
    check_repeat(repeat)
    info, plan = first
    other_info, other_plan = second
    if (plan.trial is None) != (other_plan.trial is None):
        raise InvalidInput(
            f"{plan.name} and {other_plan.name} cannot be compared by reruns: one is a trial, the other a "
            "script's run"
        )
    if (plan.image is None) != (other_plan.image is None):
        in_pod, here = (other_plan, plan) if plan.image is None else (plan, other_plan)
        advice = ""
        if in_pod.commit:
            advice = "; --except image trains both here"
        raise InvalidInput(
            f"{plan.name} and {other_plan.name} cannot be compared by reruns: {in_pod.name} trains in a "
            f"pod of its image, and {here.name} in a worktree here{advice}"
        )
    if plan.trial is None and info.status == FAILED:
        raise InvalidInput(
            f"{plan.name} failed, and would fail again: give a run that came to its end as the first of "
            "the two"
        )
    changed = []
    left_out = {}
    for factor in all_differences(info, other_info, (plan.epochs, other_plan.epochs)):
        reason = _why_not(factor, plan, other_plan, build=build)
        if reason is None:
            changed.append(factor)
        else:
            left_out[factor] = reason
    if not changed:
        reasons = "; ".join(f"{factor}: {reason}" for factor, reason in left_out.items())
        raise InvalidInput(
            "there is nothing to train: no factor in which the two runs differ can be changed here "
            f"({reasons or 'they have the same code, data, params and packages'})"
        )
    groups = _groups(changed, in_pods=plan.image is not None)
    if len(groups) > 1:
        groups.append((ALL, tuple(changed)))
    arms = (
        Arm("as it was", (), plan),
        *(Arm(name, factors, with_factors(plan, other_plan, factors)) for name, factors in groups),
    )
    durations = [seconds for seconds in (info.seconds, other_info.seconds) if seconds is not None]
    seed = plan.seed or 0
    seeds = tuple(range(seed, seed + repeat))
    return Experiment(metric, arms, seeds, other_plan, left_out, max(durations, default=None))


def check_repeat(repeat: int) -> None:
    """Check that there are enough seeds for a standard error."""
    if repeat < MIN_SEEDS:
        raise InvalidInput(
            f"repeat = {repeat} is not accepted: give {MIN_SEEDS} or more; one rerun has no standard error"
        )


def with_factors(plan: Plan, other: Plan, factors: Sequence[str]) -> Plan:
    """The first run's plan, with some factors of the other's."""
    taken = {name: getattr(other, name) for factor in factors for name in _FIELDS[factor]}
    changed = replace(plan, **taken, changed=tuple(factors))
    parent = {
        name: other.parent[name]
        for factor in factors
        for name in _OF_THE_PARENT.get(factor, ())
        if name in other.parent
    }
    changed = replace(changed, parent={**plan.parent, **parent})
    if plan.trial is not None and other.trial is not None:
        trial = {
            name: other.trial[name]
            for factor in factors
            for name in _OF_THE_TRIAL.get(factor, ())
            if name in other.trial
        }
        changed = replace(changed, trial={**plan.trial, **trial})
    if {"packages", "python", "image"} & {*factors}:
        names = [name for factor in factors for name in _OF_THE_ENVIRONMENT.get(factor, ())]
        changed = replace(
            changed, environment={**plan.environment, **{name: other.environment.get(name) for name in names}}
        )
    if plan.image is not None and other.image is not None:
        changed = replace(changed, image=_image_with(plan.image, other.image, factors))
    return changed


def all_differences(
    first: RunInfo, second: RunInfo, epochs: tuple[int | None, int | None]
) -> dict[str, list[Difference]]:
    """The differences of two runs by factor, in the order of :data:`halving.rerun.factors.FACTORS`.

    Args:
        epochs: the epochs of both, by their checkpoints.
    """
    by_factor: dict[str, list[Difference]] = {factor: [] for factor in FACTORS}
    for difference in [*differences(first, second), *epochs_difference(*epochs)]:
        by_factor[difference.factor].append(difference)
    return {factor: own for factor, own in by_factor.items() if own}


def last_value(store: Store, info: RunInfo, metric: str) -> float | None:
    """The metric's value in :func:`last_values`; None if the run has no point of it."""
    return last_values(store, info).get(metric)


def last_values(store: Store, info: RunInfo) -> dict[str, float]:
    """Each metric's value at its greatest step; for a trial, the values reported at its newest checkpoint.

    The rerun of a trial ends at that checkpoint.
    """
    values = {
        metric: float(points.value[-1])
        for metric, points in read_points(store, info.project, info.run).items()
        if len(points.value)
    }
    if info.record.get("trial"):
        newest = RunRecords(store, info.project, info.run).latest_checkpoint()
        if newest is not None:
            values |= {name: float(value) for name, value in newest.reported.items()}
    return values


def cautions(store: Store, runs: Sequence[Planned], metric: str) -> list[str]:
    """Reasons why the recorded change of a metric may not be that between two complete trainings."""
    texts = []
    for info, plan in runs:
        value = last_value(store, info, metric)
        if value is not None and not math.isfinite(value):
            texts.append(
                f"{metric} of {plan.name} is {value}: the change has no size, and an arm that ends so as "
                "well is its cause"
            )
        if plan.trial is not None and info.status not in (FINISHED, PAUSED):
            texts.append(
                f"{plan.name} ended as {info.status}: what counts is its newest checkpoint, after epoch "
                f"{plan.epochs}"
            )
        elif plan.trial is None and info.status != FINISHED:
            texts.append(
                f"{plan.name} ended as {info.status}: its last {metric} need not be what a training that "
                "comes to its end has"
            )
    return texts


_FIELDS: dict[str, tuple[str, ...]] = {
    "code": ("commit", "patch", "folder", "import_paths", "remote", "trainable", "incomplete"),
    "arguments": ("arguments", "ordinal"),
    "params": ("params",),
    "epochs": ("epochs",),
    "settings": ("variables", "deterministic", "threads"),
    "data": (),
    "python": (),
    "packages": (),
    "image": (),
}
"""The fields of a plan, by factor."""
_OF_THE_TRIAL = {
    "data": ("dataset_name", "dataset_digest", "train_on"),
    "epochs": ("max_epochs",),
    "settings": ("deterministic", "objectives", "start_from"),
}
_OF_THE_PARENT = {"code": ("trainable",), "data": ("dataset", "snapshot"), "settings": ("restored_from",)}
_OF_THE_ENVIRONMENT = {
    "python": ("python",),
    "packages": ("packages", "packages_from", "cuda"),
    "image": ("image", "image_digest"),
}


def _groups(changed: Sequence[str], *, in_pods: bool) -> list[tuple[str, tuple[str, ...]]]:
    """The factors that change together, with a name: each by itself, but in pods those of the image."""
    inside = tuple(factor for factor in changed if in_pods and factor in IN_THE_IMAGE)
    groups: list[tuple[str, tuple[str, ...]]] = [
        (factor, (factor,)) for factor in changed if factor not in inside
    ]
    if inside:
        name = "image" if "image" in inside else "code"
        groups.insert(0, (name, inside))
    return groups


def _image_with(own: ImagePlan, other: ImagePlan, factors: Sequence[str]) -> ImagePlan:
    """The first run's pod with its resources, and the other's image or trainable where that is a factor."""
    if "image" in factors:
        return replace(other, resources=own.resources)
    if "code" in factors:
        return replace(own, trainable_sha256=other.trainable_sha256)
    return own


def _why_not(factor: str, plan: Plan, other: Plan, *, build: bool) -> str | None:
    """Why a factor cannot be changed between reruns; None if it can."""
    if factor == "seed":
        return "what seeds do is the noise that is measured"
    if plan.image is not None and other.image is not None:
        return _why_not_in_pods(
            factor, plan.image, other.image, same_trainable=plan.trainable == other.trainable
        )
    if factor in ("hardware", "image"):
        return "a rerun trains on this machine, in what it runs in"
    if factor in ("packages", "python") and not build:
        return "only with --env, in virtual environments of the recorded packages"
    if factor == "python" and plan.python == other.python:
        return f"both are Python {plan.python}, and the patch release on this machine cannot be chosen"
    if factor == "epochs" and plan.trial is None:
        return "a script ends by itself"
    if factor == "data" and plan.trial is None:
        return "a script reads its data itself"
    return None


def _why_not_in_pods(factor: str, own: ImagePlan, other: ImagePlan, *, same_trainable: bool) -> str | None:
    """Why a factor cannot be changed between pods; None if it can."""
    if factor == "hardware":
        return f"every pod asks for what {dict(own.resources)} says, and runs where the cluster puts it"
    if factor not in IN_THE_IMAGE or own.exact != other.exact or (factor == "code" and not same_trainable):
        return None
    moved = ""
    if own.by_tag:
        moved = "; it is named without its digest, so it may have been two images"
    return f"both ran in the image {own.exact}, so what differs in it cannot be brought back{moved}"
