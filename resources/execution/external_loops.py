"""External loops: training loops that are no workers of ours ask for a trial, tell what it has reached, and
are told what to do.

The decisions are those that a worker gets. Whatever is sent twice is answered as the first time, by what the
catalog recorded.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError

from halving.errors import HalvingError, InvalidInput
from halving.trial.bounds import problem
from halving.trial.messages import ReachedRung
from resources.catalog import Catalog, statements
from resources.catalog.pipelined import Asked
from resources.execution.divergence import ranges_of
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.loop_scheduler import LONGEST_LEASE_SECONDS, Lent, LoopScheduler
from resources.scheduling.suggestion_prefetch import LoopPrefetch
from resources.search.decide import Continue, Fail, Finish, Wait
from resources.search.state import Control
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.base import listed
from resources.sweep_spec.functions import check_sampler

LEASE_SECONDS = 600.0
"""How long a loop may be silent where it asks for no other lease: most have no thread that sends
heartbeats.
"""

# For so long nobody looks again once there was nothing to do: a thousand loops may ask every second. What is
# told here ends it at once.
_IDLE_SECONDS = 0.2
_CHOOSING_SECONDS = 0.05  # the same while the next params are being chosen
# A trial that is given back because its sweep is paused or stopped goes on when it is asked for again, if it
# is.
_WORDS = {
    "continue": "continue",
    "pause": "pause",
    "stop": "stop",
    "complete": "complete",
    "requeue": "pause",
    "fail": "stop",
}


class DrivenOtherwise(HalvingError, RuntimeError):
    """The sweep's trials are run by Dagster, so they are not handed out to others."""


class CannotSuggest(HalvingError, RuntimeError):
    """The study's sampler fails, so no params can be chosen for its next trial."""


@dataclass(frozen=True)
class Given:
    """A trial for a loop to train.

    Attributes:
        epoch: epochs that were told of already; ``checkpoint`` is the one that was told last, if any was.
        epochs: train up to this one in all, then tell.
        lease_until: seconds since the epoch; by then something must have been told, or a heartbeat sent. None
            where the attempt is over: the worker has asked again, and there is nothing left to train
            (``epochs`` is ``epoch``).
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
        decision: ``continue`` up to ``epochs``; or leave the trial: ``pause`` (with its checkpoint, it may be
            handed out again), ``stop``, ``complete``, or ``retry`` (it failed and will be handed out again).
        reason: why, where the epochs alone do not say.
    """

    decision: str
    epochs: int
    lease_until: float | None = None
    reason: str | None = None


def check_study(spec: SweepSpec) -> None:
    """Check that external loops can train a study, and that this process may choose its params: it imports
    nothing that a spec names but Optuna's own samplers.

    Raises:
        InvalidInput: it has a final training, or the sampler is another or does not take its options.
    """
    if spec.final:
        raise InvalidInput(
            f"final = {spec.final.model_dump(exclude_none=True)} is not accepted with driver api: loops of "
            "your own read their data "
            "themselves, so nothing here can have them train on other splits; leave it out and train the "
            "winner again yourself, or launch "
            "the sweep with driver sensors"
        )
    sampler, _ = spec.sampler
    if ":" in sampler and not sampler.startswith("optuna.samplers:"):
        raise InvalidInput(
            f"strategy.{spec.strategy.name}.sampler = {sampler!r} is not accepted with driver api: the "
            "server chooses params, and imports "
            "no other code; give a sampler of optuna.samplers, or launch the sweep with driver sensors"
        )
    check_sampler(spec)


class ExternalLoops:
    """The external loops of one sweep; threads share it.

    Attributes:
        held_back: why :meth:`ask` gave no trial when it looked last, where that was not for want of work.

    Raises:
        NotFound: no such sweep.
        DrivenOtherwise: its driver is another than ``api``.
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
        """Choose no more params ahead of time."""
        self._prefetch.close()

    @property
    def problem(self) -> str | None:
        """Why no params can be chosen for the next trial; None if they can, as far as this process has
        tried.
        """
        failure = self._prefetch.failure
        if failure is None or isinstance(failure, DBAPIError | HalvingError):
            # a catalog that is away comes back
            return None
        spec = self.scheduler.spec
        sampler, options = spec.sampler
        said = (
            f"and options {listed(f'{name} = {value!r}' for name, value in options.items())}"
            if options
            else "and no options"
        )
        return (
            f"sweep {self.scheduler.id} cannot choose the params of its next trial: "
            f"strategy.{spec.strategy.name} with sampler {sampler!r} "
            f"{said} fails: {str(failure) or type(failure).__name__}; stop it, and launch one with other "
            "options"
        )

    def ask(
        self, worker: str, lease_seconds: float = LEASE_SECONDS, *, again: bool = True
    ) -> Given | Wait | Finish:
        """A trial to train; it never waits for one.

        With ``again`` a worker that has got one before gets the same, with a new lease.

        Raises:
            CannotSuggest: the sampler fails; it is tried again with every ask.
        """
        nothing_to_do = self._over or time.monotonic() < self._idle_until
        if nothing_to_do and not (again and self.scheduler.has_given(worker)):
            return Finish() if self._over else Wait()
        self._prefetch.refill()
        given = self.scheduler.ask(worker, lease_seconds, again=again)
        if isinstance(given, Lent):
            self._prefetch.given_out()
            return self._given(given)
        if isinstance(given, Finish):
            self._over = True
            return given
        if given is None and (failing := self.problem):
            raise CannotSuggest(failing)
        self.held_back = self.scheduler.held_back()
        self._idle_until = time.monotonic() + (_CHOOSING_SECONDS if given is None else _IDLE_SECONDS)
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
        """Say what a trial has reported after ``epoch`` epochs; the answer says whether it goes on.

        ``values`` are the objectives, each as it counts at the epoch, and the metrics that the spec bounds.
        Others are kept beside them if they are finite. Before the granted epoch nothing is decided; only the
        spec's divergence bounds are looked at, and the lease is renewed.

        Args:
            stored: whether the checkpoint is in the store, which is asked before: here nobody waits for the
                store.

        Raises:
            NotFound: no such trial or attempt.
            InvalidInput: a value is missing, the epoch was not granted, or the checkpoint is not in the
                store.
            Superseded: the attempt has lost its lease, or was ended.
        """
        newest = self.scheduler.assignment(trial)
        given = newest if attempt == newest.attempt else self.scheduler.assignment(trial, attempt)
        if (word := self._recorded(given, epoch)) is not None:
            # told again: whoever answered first may have been killed right after
            if word != "continue":
                self.settle()
                return self._verdict(given, epoch, word)
            # or it is told that it has lost the trial meanwhile
            self.scheduler.heartbeat(given, lease_seconds)
            return self._verdict(given, epoch, word, lease_seconds)
        if checkpoint is not None and not stored:
            raise InvalidInput(
                f"checkpoint = {checkpoint!r} is not accepted: the store has no such blob; save it there "
                "before you tell, or tell without"
            )
        if found := self._diverged(values, epoch):
            self._ended(self.scheduler.failed(given, found, self._seconds(given), checkpoint))
            return Verdict("stop", epoch, reason=found)
        if attempt == newest.attempt and epoch > newest.granted:
            raise InvalidInput(
                f"epoch = {epoch} is not accepted: {newest.granted} epochs are granted to trial "
                f"{given.key}; tell at that one"
            )
        if attempt != newest.attempt or epoch < newest.granted:
            return self.heartbeat(trial, attempt, lease_seconds)
        self._check_values(values)
        # Metrics that must be finite are by now. Of the others, a value that is not says nothing, and
        # Postgres keeps no NaN in JSON.
        kept = {metric: value for metric, value in values.items() if math.isfinite(value)}
        decision = self.scheduler.reached(
            given, ReachedRung(epoch, kept, checkpoint or ""), self._seconds(given), lease_seconds
        )
        self._ended(decision)
        return self._verdict(given, epoch, type(decision).__name__.lower(), lease_seconds)

    def heartbeat(self, trial: int, attempt: int, lease_seconds: float = LEASE_SECONDS) -> Verdict:
        """Renew the lease; the answer says whether the trial is wanted back.

        Raises:
            NotFound, Superseded: as :meth:`tell`.
        """
        given = self.scheduler.assignment(trial, attempt)
        control = self.scheduler.heartbeat(given, lease_seconds)
        if control is Control.RUN:
            return Verdict("continue", given.granted, self._lease(lease_seconds))
        why = (
            "its project's GPU-hours are used up"
            if control is Control.YIELD
            else f"its sweep's user asked for {control}"
        )
        return Verdict("pause", given.granted, self._lease(lease_seconds), f"{why}; release the trial")

    def fail(
        self, trial: int, attempt: int, error: str, *, final: bool, also: Sequence[Asked] = ()
    ) -> Verdict:
        """A trial has failed; with ``final`` it would fail again, and is given up.

        Args:
            also: what else is written in the transaction that ends the attempt; nothing where it was ended so
                before.

        Raises:
            NotFound, Superseded: as :meth:`tell`.
        """
        given = self.scheduler.assignment(trial, attempt)
        seconds = self._seconds(given)
        if final:
            decision = self.scheduler.failed(given, error, seconds, None, also)
        else:
            decision = self.scheduler.crashed(given, error, seconds, also)
        self._ended(decision)
        return Verdict("stop" if isinstance(decision, Fail) else "retry", given.granted)

    def release(self, trial: int, attempt: int, *, also: Sequence[Asked] = ()) -> Verdict:
        """Give a trial back: it is handed out again, unless its sweep was stopped.

        ``also`` as of :meth:`fail`.

        Raises:
            NotFound, Superseded: as :meth:`tell`.
        """
        given = self.scheduler.assignment(trial, attempt)
        self._ended(self.scheduler.released(given, self._seconds(given), also))
        return Verdict("pause", given.granted)

    def settle(self) -> None:
        """Something has changed that nobody may ask about: end the search if it is over."""
        self._idle_until = 0.0
        self._over = self._over or self.scheduler.end_if_over()

    def _given(self, given: Lent) -> Given:
        epoch = given.ladder[given.rung - 1] if given.rung else 0
        epochs = epoch if given.lease_until is None else given.granted
        checkpoint = self.scheduler.checkpoint(given.trial)
        return Given(
            given.trial,
            given.key,
            given.attempt,
            given.params,
            given.seed,
            epoch,
            epochs,
            checkpoint,
            given.lease_until,
        )

    def _recorded(self, given: Assignment, epoch: int) -> str | None:
        """What was decided when this attempt told of this epoch before."""
        of = {
            "of_sweep": given.sweep,
            "of_trial": given.trial,
            "of_attempt": given.attempt,
            "of_epochs": epoch,
        }
        rows = self._catalog.at_once(statements.DECISION, of)
        return rows[0].decision if rows else None

    def _verdict(
        self, given: Assignment, epoch: int, word: str, lease_seconds: float | None = None
    ) -> Verdict:
        granted = (
            next((budget for budget in given.ladder if budget > epoch), epoch)
            if word == "continue"
            else epoch
        )
        until = self._lease(lease_seconds) if lease_seconds and word == "continue" else None
        return Verdict(_WORDS[word], granted, until)

    def _ended(self, decision: Any) -> None:
        """After a decision there may be work for others, or the search may be over: nearly never, so nobody's
        writing waits for a look.
        """
        self._idle_until = 0.0
        if not isinstance(decision, Continue) and self.scheduler.may_be_over():
            self.settle()

    def _seconds(self, given: Assignment) -> float:
        """Training seconds of an attempt since its last rung, or since it was handed out: by the catalog,
        whichever server did that.
        """
        of = {"of_sweep": given.sweep, "of_trial": given.trial, "of_attempt": given.attempt}
        rows = self._catalog.at_once(statements.LAST_TOLD, of)
        return max(0.0, self._catalog.now() - rows[0].moment.timestamp()) if rows else 0.0

    def _lease(self, seconds: float) -> float:
        return self._catalog.now() + seconds

    def _check_values(self, values: dict[str, float]) -> None:
        spec = self.scheduler.spec
        wanted = [*(objective.metric for objective in spec.objectives), *spec.bounds]
        if missing := [metric for metric in wanted if metric not in values]:
            raise InvalidInput(
                f"values = {listed(sorted(values))} is not accepted: {listed(missing)} is missing; at a "
                f"rung tell {listed(wanted)}"
            )

    def _diverged(self, values: dict[str, float], epoch: int) -> str | None:
        for metric in self._ranges.keys() & values.keys():
            if found := problem(f"metric {metric!r}", values[metric], self._ranges[metric], f"epoch {epoch}"):
                return found
        return None


__all__ = [
    "LEASE_SECONDS",
    "LONGEST_LEASE_SECONDS",
    "CannotSuggest",
    "DrivenOtherwise",
    "ExternalLoops",
    "Given",
    "Superseded",
    "Verdict",
]
