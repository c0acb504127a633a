"""The retention policy: the model of ``retention.yaml``, and its checks. Pure.

What a policy does not name is kept for ever. ``projects`` overrides single fields for some projects.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError

from halving.errors import InvalidInput
from halving.store.cold import is_absolute
from resources.sweep_spec.base import Name, Strict
from resources.sweep_spec.parsing import problems_of_model

READ_AT_ONCE = ("STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR")
"""The storage classes of S3 whose objects can be read at once."""

MIN_GRACE_DAYS = 2.0  # twice halving.store.store.REFRESH_SECONDS


MAX_DAYS = 36_500
"""A hundred years; what is to stay for longer stays for ever."""


def _days(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= MAX_DAYS:
        raise ValueError(f"give a number of days from 0 to {MAX_DAYS:,}, or leave it out to keep it for ever")
    return value


Days = Annotated[float | None, AfterValidator(_days)]
"""Days for which something is kept; None is for ever."""


class Kept(Strict):
    """How long one kind of data is kept."""

    days: Days = Field(default=None, description="Days to keep it (default: for ever).")


class Points(Strict):
    """Metric points; their days count from when a run logged last. A protected run keeps all."""

    full: Kept = Field(default=Kept(), description="Full resolution; rollups stay.")
    system: Kept = Field(
        default=Kept(), description="Full resolution of system metrics; at most as long as full."
    )
    rollup: Kept = Field(default=Kept(), description="Rollups; at least as long as full.")


class Checkpoints(Strict):
    """Checkpoints of trials of sweeps that have ended, and superseded ones of other runs.

    The newest checkpoint of a run that is no trial is always kept, and so is what
    :mod:`resources.retention.protection` names.
    """

    top_k: int = Field(
        default=3,
        ge=0,
        description="How many of the best trials of a sweep keep their newest and best checkpoint.",
    )
    top_k_days: Days = Field(
        default=None,
        description="Days after a sweep's end to keep those of the best trials (default: for ever).",
    )
    days: Days = Field(
        default=None,
        description=(
            "Days after a sweep's end to keep the other ones, also each trial's last (default: for ever)."
        ),
    )


class Artifacts(Kept):
    """Files that runs logged; those of a search's trials may have days of their own."""

    trials: Kept = Field(
        default=Kept(),
        description="Those of trials, after the sweep's end; at most as long as those of all runs.",
    )


class ColdDays(Strict):
    """When data moves to the cold tier."""

    days: Days = Field(
        default=None, description="Days after a run's end from which on its data lies there (default: never)."
    )


class Cold(ColdDays):
    """The cold tier: another root, or another storage class of the same bucket; both can be read, slower."""

    root: str | None = Field(
        default=None, min_length=1, description="Another store's root: a folder, or s3://bucket/prefix."
    )
    storage_class: str | None = Field(
        default=None,
        min_length=1,
        description="Of S3, for example GLACIER_IR; set by a tag and lifecycle rules.",
    )


class ProjectPolicy(Strict):
    """What is kept of a project's runs; days count from a run's end, and for a trial from its sweep's end."""

    points: Points = Field(default=Points(), description="Metric points.")
    checkpoints: Checkpoints = Field(default=Checkpoints(), description="Checkpoints.")
    media: Kept = Field(default=Kept(), description="Images, texts and other media that runs logged.")
    artifacts: Artifacts = Field(
        default=Artifacts(), description="Files that runs logged; never those of a model's version."
    )
    journals: Kept = Field(
        default=Kept(),
        description="Journals of killed processes on this machine; they go into the store, not away.",
    )
    trash: Kept = Field(default=Kept(), description="Deleted runs, which can be restored until then.")
    cold: ColdDays = Field(default=ColdDays(), description="The cold tier.")
    dagster: Kept = Field(
        default=Kept(),
        description="Dagster's events, runs and partitions, after the sweep's end; and runs of upkeep.",
    )


class Policy(ProjectPolicy):
    """A whole policy, as in the file."""

    automatic: bool = Field(
        default=False, description="Carry it out where runs end, at most once a day; on a machine's own disk."
    )
    grace_days: float = Field(
        default=7.0,
        ge=MIN_GRACE_DAYS,
        le=MAX_DAYS,
        description=(
            "Days after a blob was last put in which it stays, though nothing names it: a run may be about "
            "to record it."
        ),
    )
    cold: Cold = Field(default=Cold(), description="The cold tier.")
    projects: dict[Name, ProjectPolicy] = Field(
        default={}, description="What is otherwise in some projects, by their names."
    )

    def with_names(self, renamed: Iterable[Sequence[str]]) -> Self:
        """A copy of the policy that knows each project by all of its names.

        Args:
            renamed: all names of each project that was renamed.

        Raises:
            InvalidInput: the policy has two names of one project.
        """
        projects = dict(self.projects)
        for names in renamed:
            in_policy = [name for name in names if name in self.projects]
            if len(in_policy) > 1:
                raise InvalidInput(
                    f"projects.{in_policy[1]} of the retention policy is not accepted beside "
                    f"projects.{in_policy[0]}: both are the project {names[0]!r}; give one of them"
                )
            projects |= {name: self.projects[in_policy[0]] for name in names if in_policy}
        return self.model_copy(update={"projects": projects})

    def of(self, project: str) -> ProjectPolicy:
        """The policy for a project, with the fields that ``projects`` overrides."""
        own = {}
        if project in self.projects:
            own = self.projects[project].model_dump(exclude_unset=True)
        common = self.model_dump(
            exclude_unset=True,
            include={*ProjectPolicy.model_fields},
            exclude={"cold": {"root", "storage_class"}},
        )
        return ProjectPolicy.model_validate(_merge(common, own))


def parse_policy(data: Any, source: str) -> Policy:
    """Check a policy and fill in its defaults.

    Args:
        data: as read from YAML; None, an empty file, keeps everything for ever.
        source: the file, for a message.

    Raises:
        InvalidInput: naming every wrong field by its path, the value given and what is accepted.
    """
    if data is None:
        data = {}
    try:
        policy = Policy.model_validate(data)
    except ValidationError as error:
        raise _refusal(source, problems_of_model(error, Policy)) from None
    problems = _contradictions(policy, policy.cold)
    for project in policy.projects:
        problems += [
            f"projects.{project}.{problem}" for problem in _contradictions(policy.of(project), policy.cold)
        ]
    if policy.cold.storage_class is not None and policy.cold.storage_class not in READ_AT_ONCE:
        problems.append(
            f"cold.storage_class = {policy.cold.storage_class!r} is not accepted: give one of "
            f"{', '.join(READ_AT_ONCE)}, which are read at once; of others an object must be restored first, "
            "for hours"
        )
    if policy.cold.root is not None and not is_absolute(policy.cold.root):
        problems.append(
            f"cold.root = {policy.cold.root!r} is not accepted: give a folder's absolute path, or an "
            "address such as s3://bucket/prefix"
        )
    if policy.cold.root is not None and policy.cold.storage_class is not None:
        problems.append("cold.root is not accepted beside cold.storage_class: give one of them")
    if problems:
        raise _refusal(source, problems)
    return policy


def _contradictions(policy: ProjectPolicy, cold: Cold) -> list[str]:
    problems = []
    full = policy.points.full.days
    system = policy.points.system.days
    rollup = policy.points.rollup.days
    if full is not None and system is not None and system > full:
        problems.append(
            f"points.system.days = {system:g} is not accepted: give at most points.full.days, which is "
            f"{full:g}"
        )
    if rollup is not None and (full is None or rollup < full):
        problems.append(
            f"points.rollup.days = {rollup:g} is not accepted: rollups stay as long as points.full.days at "
            f"least, which is {_length_of(full)}"
        )
    artifacts = policy.artifacts.days
    trials = policy.artifacts.trials.days
    if artifacts is not None and trials is not None and trials > artifacts:
        problems.append(
            f"artifacts.trials.days = {trials:g} is not accepted: give at most artifacts.days, which is "
            f"{artifacts:g}"
        )
    best = policy.checkpoints.top_k_days
    rest = policy.checkpoints.days
    if best is not None and (rest is None or best < rest):
        problems.append(
            f"checkpoints.top_k_days = {best:g} is not accepted: they stay as long as checkpoints.days at "
            f"least, which is {_length_of(rest)}"
        )
    if policy.cold.days is not None and cold.root is None and cold.storage_class is None:
        problems.append(
            f"cold.days = {policy.cold.days:g} is not accepted without a place: give cold.root or "
            "cold.storage_class"
        )
    return problems


def _length_of(days: float | None) -> str:
    if days is None:
        return "for ever"
    return f"{days:g}"


def _merge(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge two dicts at any depth; where both have a field, the second's counts."""
    both = {
        name: _merge(common[name], own[name])
        for name in common.keys() & own.keys()
        if isinstance(common[name], dict)
    }
    return {**common, **own, **both}


def _refusal(source: str, problems: list[str]) -> InvalidInput:
    return InvalidInput(
        f"the retention policy {source} is not accepted:\n"
        + "\n".join(f"  - {problem}" for problem in problems)
    )
