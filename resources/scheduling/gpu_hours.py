"""GPU-hours of sweeps: an estimate before a launch, and a pause while the project has none left."""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import AHEAD_SECONDS, Catalog, RungResultRow, SweepRow, statements
from resources.scheduling.sweeps import OPEN
from resources.search.rules import max_trials, rules_of
from resources.search.state import Control, Halving
from resources.sweep_spec import SweepSpec, stored_spec
from resources.tenancy.gpu_hours import GpuHours, gpu_hours_of, gpu_hours_of_sweep
from resources.tenancy.projects import names_of

LOOK_SECONDS = 15.0
"""Time between two looks at a project's remaining hours, by whichever process of the sweep comes first."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Estimate:
    """How many GPU-hours a sweep is expected to take.

    Attributes:
        gpu_hours: None if it is unknown how long an epoch takes.
        how: how the number was computed, in words for people.
    """

    gpu_hours: float | None
    how: str


@dataclass(frozen=True)
class Forecast:
    """How many GPU-hours a sweep is expected to take, beside those that its project has left.

    Attributes:
        project: its present name; the name in the spec if no GPU is requested or there is no catalog.
        quota: the project's hours of this month; None if they are not limited, or if the sweep needs none.
        others: GPU-hours that the project's unfinished sweeps are still expected to take, also another one of
            the same spec.
    """

    project: str
    estimate: Estimate
    quota: GpuHours | None = None
    others: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The forecast as JSON fields; ``quota``, ``left`` and ``others`` are None without a quota."""
        return {
            "project": self.project,
            "expected": self.estimate.gpu_hours,
            "how": self.estimate.how,
            "quota": self.quota and self.quota.quota,
            "left": self.quota and self.quota.left,
            "others": self.quota and self.others,
        }

    def __str__(self) -> str:
        hours = self.estimate.gpu_hours
        amount = "no"
        if hours is None:
            amount = "unknown"
        elif hours:
            amount = f"about {hours:.4g}"
        text = f"project {self.project}: {amount} GPU-hours ({self.estimate.how})"
        if self.quota:
            text += f"; it has {self._describe_left(self.quota)}"
        return text

    def refusal(self, spec: SweepSpec) -> str | None:
        """Why a launch of the spec is refused; None if there is enough."""
        quota = self.quota
        expected = self.estimate.gpu_hours
        if quota is None:
            return None
        left = f"project {self.project} has {self._describe_left(quota)}"
        if quota.spent:
            return f"resources.gpus = {spec.resources.gpus} is not accepted: {left}; {quota.remedy()}"
        if expected is None or expected <= quota.left - self.others:
            return None
        return (
            f"max_trials = {max_trials(spec)} is not accepted: the sweep would take about {expected:.4g} "
            f"GPU-hours ({self.estimate.how}), and {left}: give fewer trials, epochs or GPUs; "
            f"{quota.remedy()}"
        )

    def _describe_left(self, quota: GpuHours) -> str:
        text = f"{quota.left:.4g} of its {quota.quota:g} GPU-hours left this month"
        if self.others:
            text += f", of which its unfinished sweeps are expected to take {self.others:.4g}"
        return text


def gpu_epochs(spec: SweepSpec, trials: int | None = None) -> float:
    """Epochs times GPUs that a sweep is expected to train, with its audit and final training.

    With halving by η one trial in η^k gets beyond rung k. That is right for a large search; a small one
    promotes a little less. The median rule is assumed to stop nothing, so the estimate can only be too high.

    Args:
        trials: how many it may start, if that is not what its spec says.
    """
    rules = rules_of(spec)
    factor = 1
    if isinstance(rules.early_stopping, Halving):
        factor = rules.early_stopping.reduction_factor
    epochs = 0.0
    for bracket, started in Counter(map(rules.bracket, range(trials or max_trials(spec)))).items():
        before = 0
        for rung, budget in enumerate(rules.ladders[bracket]):
            share = factor**-rung
            share += rules.audit * (1 - share)
            epochs += started * share * (budget - before) * spec.resources.at(budget).all_gpus
            before = budget
    if rules.final:
        epochs += rules.final.seeds * rules.final.epochs * spec.resources.at(rules.final.epochs).all_gpus
    return epochs


def estimate_of(session: Session, spec: SweepSpec, trials: int | None = None) -> Estimate:
    """Estimate a sweep's GPU-hours from the epochs of the newest sweep of the same name with results.

    Args:
        trials: how many it may start, if that is not what its spec says.
    """
    epochs = gpu_epochs(spec, trials)
    if not epochs:
        return _without_results(spec)
    reached = (
        select(RungResultRow.sweep)
        .where(RungResultRow.sweep == SweepRow.id, RungResultRow.value.is_not(None))
        .exists()
    )
    earlier = session.scalar(
        select(SweepRow.id)
        .where(SweepRow.name == spec.name, reached)
        .order_by(SweepRow.created_at.desc())
        .limit(1)
    )
    if earlier is None:
        return _without_results(spec)
    of_trial = (
        select(
            func.sum(RungResultRow.seconds).label("seconds"), func.max(RungResultRow.epochs).label("epochs")
        )
        .where(RungResultRow.sweep == earlier, RungResultRow.value.is_not(None))
        .group_by(RungResultRow.trial)
        .subquery()
    )
    seconds, trained = session.execute(
        select(func.sum(of_trial.c.seconds), func.sum(of_trial.c.epochs))
    ).one()
    an_epoch = seconds / max(1, trained)
    how = (
        f"{epochs:.4g} epochs times GPUs, as early stopping leaves them, at {an_epoch:.3g} s an epoch as in "
        f"{earlier}"
    )
    return Estimate(an_epoch * epochs / 3600, how)


def expected_of_open(session: Session, projects: Iterable[str], now: float) -> float:
    """The GPU-hours that the unfinished sweeps of projects are still expected to take.

    Sweeps without an estimate count as none.
    """
    chosen = select(SweepRow).where(
        SweepRow.project.in_(list(projects)), SweepRow.status.in_(OPEN), SweepRow.control != Control.STOP
    )
    expected = 0.0
    for row in session.scalars(chosen):
        try:
            spec = stored_spec(row.spec)
        except InvalidInput:
            # The spec was stored by another version. That sweep cannot go on, so it takes nothing.
            continue
        hours = estimate_of(session, spec, row.max_trials).gpu_hours
        if hours:
            expected += max(0.0, hours - gpu_hours_of_sweep(session, row.id, now))
    return expected


def check_gpu_hours(catalog: Catalog | None, spec: SweepSpec, *, goes_on: bool = False) -> Forecast:
    """Check that a sweep fits into its project's GPU-hours of this month; return the forecast.

    The expected hours of the project's unfinished sweeps count as taken.

    Args:
        catalog: None if there is none yet; then nothing is limited.
        goes_on: the launch resumes a sweep. That is not refused: the sweep is paused when no hours are left.

    Raises:
        InvalidInput: the sweep would take more than there is, or nothing is left.
    """
    if catalog is None or not spec.resources.largest.gpus:
        return Forecast(spec.project, _without_results(spec))
    with catalog.read() as session:
        estimate = estimate_of(session, spec)
        now = catalog.now()
        quota = gpu_hours_of(session, spec.project, now)
        if quota is None:
            return Forecast(names_of(session, spec.project)[0], estimate)
        forecast = Forecast(quota.project, estimate, quota, expected_of_open(session, quota.projects, now))
    if not goes_on and (reason := forecast.refusal(spec)):
        raise InvalidInput(reason)
    return forecast


def _without_results(spec: SweepSpec) -> Estimate:
    if not spec.resources.largest.gpus:
        return Estimate(0.0, "it asks for no GPU")
    return Estimate(None, f"no sweep {spec.name!r} has a result yet, so nobody knows how long an epoch takes")


class GpuHoursWatch:
    """Pauses a sweep while its project has no hours left, and lets it go on later.

    It goes on by itself when the quota is changed or a month begins, and not before: once trials have ended,
    they may turn out to have used a little less than was counted while they ran. The user's ``control`` is
    not touched.
    """

    def __init__(self, catalog: Catalog, sweep: str, spec: SweepSpec) -> None:
        self._catalog = catalog
        self._sweep = sweep
        self._project = spec.project
        self._needed = spec.resources.largest.gpus > 0
        self._not_before = float("-inf")  # by this process's clock

    def look_if_due(self, looked_at: float | None = None) -> None:
        """Look, unless one of the sweep's processes has just done so.

        It raises nothing if the database is unavailable.

        Args:
            looked_at: the time of the last look, in seconds since the epoch, if the caller has just read it.
        """
        if not self._needed or time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + LOOK_SECONDS / 3
        try:
            now = self._catalog.now()
            if looked_at is None or not now - LOOK_SECONDS <= looked_at <= now + AHEAD_SECONDS:
                self._take_turn()
        except DBAPIError as error:
            _log.warning("could not look how many GPU-hours sweep %s has left: %s", self._sweep, error)

    def look(self) -> str | None:
        """Pause the sweep, or let it go on; return why it is paused, or None if it is not."""
        with self._catalog.read() as session:
            hours = gpu_hours_of(session, self._project, self._catalog.now())
            paused = session.scalar(select(SweepRow.out_of_gpu_hours).where(SweepRow.id == self._sweep))
        reason = None
        if hours and (hours.spent or hours.why_paused() == paused):
            reason = hours.why_paused()
        if reason != paused:
            with self._catalog.write() as session:
                self._catalog.sweep(session, self._sweep, lock=True).out_of_gpu_hours = reason
            change = "goes on: its project has GPU-hours again"
            if reason:
                change = f"is paused: {reason}"
            _log.warning("sweep %s %s", self._sweep, change)
        return reason

    def _take_turn(self) -> None:
        now = self._catalog.now()
        parameters = {
            "of_sweep": self._sweep,
            "now": now,
            "before": now - LOOK_SECONDS,
            "latest": now + AHEAD_SECONDS,
        }
        if self._catalog.at_once(statements.TURN_TO_LOOK_AT_GPU_HOURS, parameters):
            self.look()
