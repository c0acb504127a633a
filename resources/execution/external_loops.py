"""External loops: training loops outside the platform that ask for trials and report their results.

They get the same decisions as a worker. A message that is sent twice gets the first answer again, because the
catalog recorded it.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError

from halving.errors import HalvingError, InvalidInput
from halving.text import comma_list
from halving.trial.bounds import describe_violation
from halving.trial.messages import ReachedRung
from resources.catalog import Catalog, statements
from resources.catalog.pipelined import Statement
from resources.execution.divergence import ranges_of
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.loop_scheduler import MAX_LEASE_SECONDS, LentAssignment, LoopScheduler
from resources.scheduling.suggestion_prefetch import LoopPrefetch
from resources.search.decide import Continue, Fail, Finish, Wait
from resources.search.state import Control
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.functions import check_sampler

LEASE_SECONDS = 600.0
"""Default lease of a loop. It is long, because most loops have no thread that sends heartbeats."""

# When there was nothing to do, asks within this time are answered without a look at the catalog: a thousand
# loops may ask every second. A report ends the wait at once.
_IDLE_SECONDS = 0.2
_CHOOSING_SECONDS = 0.05  # The same while the next params are being chosen.
# From the scheduler's decision to what the loop is to do. A requeued trial was given back because its sweep
# is paused or stopped; it goes on when it is handed out again.
_WORDS = {
    "continue": "continue",
    "pause": "pause",
    "stop": "stop",
    "complete": "complete",
    "requeue": "pause",
    "fail": "stop",
}


class DrivenOtherwise(HalvingError, RuntimeError):
    """The sweep's trials are run by Dagster, so they are not handed out to external loops."""


class CannotSuggest(HalvingError, RuntimeError):
    """The study's sampler fails, so no params can be chosen for its next trial."""


@dataclass(frozen=True)
class TrialToTrain:
    """A trial for a loop to train.

    Attributes:
        epoch: the last epoch that was reported.
        epochs: the epoch to train up to before the next report.
        checkpoint: the last one that was reported, if any.
        lease_until: when the lease ends unless the loop reports or sends a heartbeat, in seconds since the
            epoch. None if the attempt is over and nothing is left to train (``epochs`` equals ``epoch``).
    """

    trial: int
    key: str
    attempt: int
    params: dict[str, Any]
    seed: int
    epoch: int
    epochs: int
    checkpoint: str | None
    lease_until: float | None


@dataclass(frozen=True)
class Verdict:
    """What a loop is to do with its trial.

    Attributes:
        decision: ``continue`` up to ``epochs``, or leave the trial: ``pause`` (it may be handed out again,
            with its checkpoint), ``stop``, ``complete``, or ``retry`` (it failed and will be handed out
            again).
        reason: why, unless the epochs alone explain it.
    """

    decision: str
    epochs: int
    lease_until: float | None = None
    reason: str | None = None


def check_study(spec: SweepSpec) -> None:
    """Check that external loops can train a study, and that this process may choose its params.

    The process imports no code that a spec names, except for Optuna's own samplers.

    Raises:
        InvalidInput: the study has a final training or a sampler from elsewhere, or the sampler does not take
            its options.
    """
    if spec.final:
        raise InvalidInput(
            f"final = {spec.final.model_dump(exclude_none=True)} is not accepted with driver api: loops of "
            "your own read their data themselves, so nothing here can have them train on other splits; leave "
            "it out and train the winner again yourself, or launch the sweep with driver sensors"
        )
    sampler, _ = spec.sampler
    if ":" in sampler and not sampler.startswith("optuna.samplers:"):
        raise InvalidInput(
            f"strategy.{spec.strategy.name}.sampler = {sampler!r} is not accepted with driver api: the "
            "server chooses params, and imports no other code; give a sampler of optuna.samplers, or launch "
            "the sweep with driver sensors"
        )
    check_sampler(spec)


class ExternalLoops:
    """What the external loops of one sweep ask and report; threads share it.

    Attributes:
        held_back: why the last :meth:`ask` gave no trial although there is work; else None.

    Raises:
        NotFound: there is no such sweep.
        DrivenOtherwise: its driver is not ``api``.
    """

    def __init__(self, catalog: Catalog, sweep: str, **options: Any) -> None:
        with catalog.read() as session:
            driver = catalog.sweep(session, sweep).driver
        if driver != "api":
            raise DrivenOtherwise(
                f"the trials of sweep {sweep} are run by Dagster (driver {driver}); open a study with "
                "driver api to run them"
            )
        self.scheduler = LoopScheduler(catalog, sweep, **options)
        self._catalog = catalog
        self._ranges = ranges_of(self.scheduler.spec)
        self._prefetch = LoopPrefetch(self.scheduler)
        self._prefetch.start()
        self._idle_until = 0.0
        self._over = False
        self.held_back: str | None = None

    def close(self) -> None:
        """Stop choosing params ahead of time."""
        self._prefetch.close()

    @property
    def problem(self) -> str | None:
        """Why the last try to choose params failed for good; None if it did not fail for good."""
        failure = self._prefetch.failure
        if failure is None or isinstance(failure, DBAPIError | HalvingError):
            return None  # A catalog that is unavailable comes back.
        spec = self.scheduler.spec
        sampler, options = spec.sampler
        options_text = "no options"
        if options:
            options_text = f"options {comma_list(f'{name} = {value!r}' for name, value in options.items())}"
        return (
            f"sweep {self.scheduler.id} cannot choose the params of its next trial: "
            f"strategy.{spec.strategy.name} with sampler {sampler!r} and {options_text} fails: "
            f"{str(failure) or type(failure).__name__}; stop it, and launch one with other options"
        )

    def ask(
        self, worker: str, lease_seconds: float = LEASE_SECONDS, *, again: bool = True
    ) -> TrialToTrain | Wait | Finish:
        """Hand out a trial to train, without waiting for one.

        Args:
            again: give a worker that has a trial already the same one, with a new lease.

        Raises:
            CannotSuggest: the sampler fails. It is tried again with every ask.
        """
        is_idle = time.monotonic() < self._idle_until
        if (self._over or is_idle) and not (again and self.scheduler.has_lent(worker)):
            if self._over:
                return Finish()
            return Wait()
        self._prefetch.refill()
        work = self.scheduler.ask(worker, lease_seconds, again=again)
        if isinstance(work, LentAssignment):
            self._prefetch.note_handed_out()
            return self._trial_to_train(work)
        if isinstance(work, Finish):
            self._over = True
            return work
        is_choosing = work is None
        if is_choosing and (problem := self.problem):
            raise CannotSuggest(problem)
        self.held_back = self.scheduler.held_back()
        seconds = _IDLE_SECONDS
        if is_choosing:
            seconds = _CHOOSING_SECONDS
        self._idle_until = time.monotonic() + seconds
        return Wait()

    def tell(
        self,
        trial: int,
        attempt: int,
        epoch: int,
        values: dict[str, float],
        checkpoint: str | None = None,
        lease_seconds: float = LEASE_SECONDS,
        *,
        stored: bool = True,
    ) -> Verdict:
        """Report a trial's results after ``epoch`` epochs; the answer says whether it goes on.

        Before the granted epoch nothing is decided: the values are checked against the spec's divergence
        bounds, and the lease is renewed.

        Args:
            values: the objectives, each as it counts at the epoch, and the metrics that the spec bounds.
                Other metrics are kept beside them if they are finite.
            stored: whether the checkpoint is in the store. The caller looks before, so that nothing here
                waits for the store.

        Raises:
            NotFound: there is no such trial or attempt.
            InvalidInput: a value is missing, the epoch was not granted, or the checkpoint is not in the
                store.
            Superseded: the attempt has lost its lease, or was ended.
        """
        newest = self.scheduler.assignment(trial)
        assignment = newest
        if attempt != newest.attempt:
            assignment = self.scheduler.assignment(trial, attempt)
        if (word := self._find_decision(assignment, epoch)) is not None:
            # This was reported before. Whoever decided then may have been killed before it settled the sweep.
            if word != "continue":
                self.settle()
                return self._verdict(assignment, epoch, word)
            # The heartbeat raises if the attempt has lost the trial meanwhile.
            self.scheduler.heartbeat(assignment, lease_seconds)
            return self._verdict(assignment, epoch, word, lease_seconds)
        if checkpoint is not None and not stored:
            raise InvalidInput(
                f"checkpoint = {checkpoint!r} is not accepted: the store has no such blob; save it there "
                "before you tell, or tell without"
            )
        if divergence := self._find_divergence(values, epoch):
            self._settle_after(
                self.scheduler.report_failure(assignment, divergence, self._seconds(assignment), checkpoint)
            )
            return Verdict("stop", epoch, reason=divergence)
        if attempt == newest.attempt and epoch > newest.granted:
            raise InvalidInput(
                f"epoch = {epoch} is not accepted: {newest.granted} epochs are granted to trial "
                f"{assignment.key}; tell at that one"
            )
        if attempt != newest.attempt or epoch < newest.granted:
            return self.heartbeat(trial, attempt, lease_seconds)
        self._check_values(values)
        # The metrics that have to be finite are finite at this point. Other values that are not are dropped,
        # because Postgres keeps no NaN in JSON.
        kept = {metric: value for metric, value in values.items() if math.isfinite(value)}
        decision = self.scheduler.report_rung(
            assignment, ReachedRung(epoch, kept, checkpoint or ""), self._seconds(assignment), lease_seconds
        )
        self._settle_after(decision)
        return self._verdict(assignment, epoch, type(decision).__name__.lower(), lease_seconds)

    def heartbeat(self, trial: int, attempt: int, lease_seconds: float = LEASE_SECONDS) -> Verdict:
        """Renew the lease; the answer says whether the trial is to be released.

        Raises:
            NotFound, Superseded: as :meth:`tell`.
        """
        assignment = self.scheduler.assignment(trial, attempt)
        control = self.scheduler.heartbeat(assignment, lease_seconds)
        if control is Control.RUN:
            return Verdict("continue", assignment.granted, self._lease_end(lease_seconds))
        why = f"its sweep's user asked for {control}"
        if control is Control.YIELD:
            why = "its project's GPU-hours are used up"
        return Verdict(
            "pause", assignment.granted, self._lease_end(lease_seconds), f"{why}; release the trial"
        )

    def fail(
        self, trial: int, attempt: int, error: str, *, final: bool, also: Sequence[Statement] = ()
    ) -> Verdict:
        """Report that a trial has failed.

        Args:
            final: give the trial up, because it would fail again.
            also: statements for the same transaction; they are skipped if the failure was recorded before.

        Raises:
            NotFound, Superseded: as :meth:`tell`.
        """
        assignment = self.scheduler.assignment(trial, attempt)
        seconds = self._seconds(assignment)
        if final:
            decision = self.scheduler.report_failure(assignment, error, seconds, None, also)
        else:
            decision = self.scheduler.report_crash(assignment, error, seconds, also)
        self._settle_after(decision)
        word = "retry"
        if isinstance(decision, Fail):
            word = "stop"
        return Verdict(word, assignment.granted)

    def release(self, trial: int, attempt: int, *, also: Sequence[Statement] = ()) -> Verdict:
        """Give a trial back; it is handed out again unless its sweep was stopped.

        Args:
            also: as in :meth:`fail`.

        Raises:
            NotFound, Superseded: as :meth:`tell`.
        """
        assignment = self.scheduler.assignment(trial, attempt)
        self._settle_after(self.scheduler.release(assignment, self._seconds(assignment), also))
        return Verdict("pause", assignment.granted)

    def settle(self) -> None:
        """End the search if it is over; needed after changes, because nobody may ask for work any more."""
        self._idle_until = 0.0
        self._over = self._over or self.scheduler.end_if_over()

    def _trial_to_train(self, lent: LentAssignment) -> TrialToTrain:
        epoch = 0
        if lent.rung:
            epoch = lent.ladder[lent.rung - 1]
        epochs = epoch
        if lent.lease_until is not None:
            epochs = lent.granted
        checkpoint = self.scheduler.checkpoint(lent.trial)
        return TrialToTrain(
            lent.trial,
            lent.key,
            lent.attempt,
            lent.params,
            lent.seed,
            epoch,
            epochs,
            checkpoint,
            lent.lease_until,
        )

    def _find_decision(self, assignment: Assignment, epoch: int) -> str | None:
        """The word of the decision on an earlier report of this epoch; None if there was none."""
        of_report = {
            "of_sweep": assignment.sweep,
            "of_trial": assignment.trial,
            "of_attempt": assignment.attempt,
            "of_epochs": epoch,
        }
        rows = self._catalog.at_once(statements.DECISION, of_report)
        if not rows:
            return None
        return rows[0].decision

    def _verdict(
        self, assignment: Assignment, epoch: int, word: str, lease_seconds: float | None = None
    ) -> Verdict:
        if word != "continue":
            return Verdict(_WORDS[word], epoch)
        granted = next((budget for budget in assignment.ladder if budget > epoch), epoch)
        lease_until = None
        if lease_seconds:
            lease_until = self._lease_end(lease_seconds)
        return Verdict(_WORDS[word], granted, lease_until)

    def _settle_after(self, decision: Any) -> None:
        """Let other loops ask at once, and end the search if this was its last decision.

        The cache is checked before, because that is rare and a look locks the sweep.
        """
        self._idle_until = 0.0
        if not isinstance(decision, Continue) and self.scheduler.may_be_over():
            self.settle()

    def _seconds(self, assignment: Assignment) -> float:
        """Training seconds of an attempt since its last rung, or since it was handed out.

        They are read from the catalog, because another server may have taken the last report.
        """
        of_attempt = {
            "of_sweep": assignment.sweep,
            "of_trial": assignment.trial,
            "of_attempt": assignment.attempt,
        }
        rows = self._catalog.at_once(statements.LAST_REPORT_TIME, of_attempt)
        if not rows:
            return 0.0
        return max(0.0, self._catalog.now() - rows[0].reported_at.timestamp())

    def _lease_end(self, seconds: float) -> float:
        return self._catalog.now() + seconds

    def _check_values(self, values: dict[str, float]) -> None:
        spec = self.scheduler.spec
        wanted = [*(objective.metric for objective in spec.objectives), *spec.bounds]
        if missing := [metric for metric in wanted if metric not in values]:
            raise InvalidInput(
                f"values = {comma_list(sorted(values))} is not accepted: {comma_list(missing)} is missing; "
                f"at a rung tell {comma_list(wanted)}"
            )

    def _find_divergence(self, values: dict[str, float], epoch: int) -> str | None:
        for metric in self._ranges.keys() & values.keys():
            if divergence := describe_violation(
                f"metric {metric!r}", values[metric], self._ranges[metric], f"epoch {epoch}"
            ):
                return divergence
        return None


__all__ = [
    "LEASE_SECONDS",
    "MAX_LEASE_SECONDS",
    "CannotSuggest",
    "DrivenOtherwise",
    "ExternalLoops",
    "Superseded",
    "TrialToTrain",
    "Verdict",
]
