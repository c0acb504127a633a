"""What a project wants to be told of its runs: how long they may be silent, and bounds of their metrics."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.identifiers import check_name
from resources.catalog import AlertRuleRow, utcnow
from resources.tenancy.projects import names_of
from resources.tenancy.usage import ALL

MIN_SILENT_SECONDS = 30.0
"""Points are in the store a few seconds after they are logged, and are read there every few seconds."""
MAX_SILENT_SECONDS = 30 * 86_400.0
MAX_BOUNDS = 50


@dataclass(frozen=True)
class Bound:
    """A value that a metric should not pass; exactly one of ``above`` and ``below`` is set."""

    metric: str
    above: float | None = None
    below: float | None = None

    def __str__(self) -> str:
        if self.above is not None:
            return f"{self.metric} > {self.above:g}"
        return f"{self.metric} < {self.below:g}"


@dataclass(frozen=True)
class Rule:
    """A project's rule; ``silent_after`` is in seconds, None for no limit."""

    project: str
    silent_after: float | None = None
    bounds: tuple[Bound, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The rule as plain data, as ``halving alerts rules --json`` and the API give it."""
        return {
            "project": self.project,
            "silent_after": self.silent_after,
            "bounds": [asdict(bound) for bound in self.bounds],
        }


def set_rule(
    session: Session, project: str, silent_after: float | None, bounds: Sequence[Bound], *, actor: str
) -> Rule:
    """Set a project's rule in place of the one that it had.

    Args:
        project: ``*`` is all projects that have no rule of their own.

    Raises:
        InvalidInput: a value is not accepted.
    """
    if project != ALL:
        check_name("project", project)
    check_silent_after(silent_after)
    if len(bounds) > MAX_BOUNDS:
        raise InvalidInput(f"bounds: {len(bounds)} are not accepted: give at most {MAX_BOUNDS}")
    for bound in bounds:
        _check_bound(bound)
    row = AlertRuleRow(project=project, silent_after=silent_after, changed_by=actor, changed_at=utcnow())
    row.bounds = [asdict(bound) for bound in bounds]
    session.merge(row)
    session.flush()
    return _rule(row)


def remove_rule(session: Session, project: str) -> None:
    """Remove a project's rule.

    Raises:
        NotFound: it has none.
    """
    row = session.get(AlertRuleRow, project)
    if row is None:
        raise NotFound(f"project {project!r} has no rule of alerts")
    session.delete(row)
    session.flush()


def list_rules(session: Session) -> list[Rule]:
    """All rules by project; that of all others comes first."""
    return [_rule(row) for row in session.scalars(select(AlertRuleRow).order_by(AlertRuleRow.project))]


class Rules:
    """The rules of all projects, by any of their names."""

    def __init__(self, session: Session) -> None:
        self._by_name: dict[str, Rule] = {}
        for rule in list_rules(session):
            names = [rule.project]
            if rule.project != ALL:
                names = list(names_of(session, rule.project))
            self._by_name.update(dict.fromkeys(names, rule))

    def of(self, project: str) -> Rule | None:
        """A project's rule, or that of all others; None if there is neither."""
        return self._by_name.get(project) or self._by_name.get(ALL)

    def bounds_of(self, project: str) -> tuple[Bound, ...]:
        """The bounds of a project's metrics."""
        rule = self.of(project)
        if rule is None:
            return ()
        return rule.bounds

    @property
    def shortest_silence(self) -> float | None:
        """The shortest time in any rule that runs may be silent, in seconds; None if no rule limits it."""
        limits = [rule.silent_after for rule in self._by_name.values() if rule.silent_after is not None]
        return min(limits, default=None)

    @property
    def bounded_metrics(self) -> set[str]:
        """The metrics that have a bound in any rule."""
        return {bound.metric for rule in self._by_name.values() for bound in rule.bounds}


def check_silent_after(seconds: float | None) -> None:
    """Check how long a run may be silent.

    Raises:
        InvalidInput: it is too short or too long.
    """
    if seconds is not None and not MIN_SILENT_SECONDS <= seconds <= MAX_SILENT_SECONDS:
        raise InvalidInput(
            f"silent_after = {seconds:g} is not accepted: give {MIN_SILENT_SECONDS:g} to "
            f"{MAX_SILENT_SECONDS:g} seconds"
        )


def parse_bound(text: str) -> Bound:
    """Parse a bound as people write it: ``val_loss > 10`` or ``accuracy < 0.1``.

    Raises:
        InvalidInput: it is none.
    """
    for sign in "><":
        metric, separator, value = text.partition(sign)
        if not separator:
            continue
        try:
            number = float(value)
        except ValueError:
            break
        bound = Bound(metric.strip(), above=number)
        if sign == "<":
            bound = Bound(metric.strip(), below=number)
        _check_bound(bound)
        return bound
    raise InvalidInput(f"bound {text!r} is not accepted: give METRIC > VALUE or METRIC < VALUE")


def _check_bound(bound: Bound) -> None:
    values = [value for value in (bound.above, bound.below) if value is not None]
    if not bound.metric or len(bound.metric) > 500:
        raise InvalidInput(f"metric = {bound.metric!r:.80} is not accepted: give the name of a metric")
    if len(values) != 1 or not math.isfinite(values[0]):
        raise InvalidInput(
            f"the bound of {bound.metric!r:.80} is not accepted: give above or below, a finite number"
        )


def _rule(row: AlertRuleRow) -> Rule:
    return Rule(row.project, row.silent_after, tuple(Bound(**bound) for bound in row.bounds))
