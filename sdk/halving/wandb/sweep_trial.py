"""The trial of a sweep that this process trains: what its run records is what the search is told."""

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from halving.errors import HalvingError, StoreUnavailable
from halving.wandb.errors import Error
from halving.wandb.errors.term import termwarn
from halving.wandb.sweep_config import FACTS, NO_METRIC, nested_params
from halving.wandb.sweep_studies import LEASE_SECONDS, Studies

if TYPE_CHECKING:
    from halving.wandb.run import Run

CONTINUE = "continue"
_AWAY_SECONDS = 60.0
_assigned: "SweepTrial | None" = None


class TrialStopped(Error):
    """The search has stopped the trial that is being trained; the agent goes on with the next one."""


def assigned_trial() -> "SweepTrial | None":
    """The trial that the agent of this process trains; None outside of an agent's function."""
    if _assigned is None or _assigned.process != os.getpid():
        return None
    return _assigned


class SweepTrial:
    """A trial, from its params to its last result.

    Args:
        work: what was asked for: ``trial``, ``key``, ``attempt``, ``params``, ``epoch``.
        project: of its run.

    Attributes:
        params: as ``wandb.config`` has them.
        stopped: why the search has ended it; None while it trains.
    """

    def __init__(self, studies: Studies, study: str, project: str, work: Mapping[str, Any]) -> None:
        facts = work["params"][FACTS]
        self.params = nested_params(work["params"])
        self.key = str(work["key"])
        self.process = os.getpid()
        self.stopped: str | None = None
        self._studies = studies
        self._study = study
        self._project = project
        self._number = int(work["trial"])
        self._attempt = int(work["attempt"])
        self._rung = int(work["epoch"])
        self._metric = str(facts["metric"])
        self._sign = {"minimize": 1, "maximize": -1}[facts["goal"]]
        self._bands = [int(band) for band in facts["bands"]]
        self._count = 0
        self._best = math.inf
        self._away_until = 0.0
        self._runs: list[Run] = []
        self._began = time.monotonic()

    def settings(self) -> dict[str, str]:
        """The settings of the run that ``wandb.init`` opens for it."""
        return {"run_id": self.key, "project": self._project, "sweep_id": self._study}

    def follow(self, run: "Run") -> None:
        """Tell the search of what a run logs, and end the run at a ``log`` when the trial has ended."""
        self._runs.append(run)
        record = run.log

        def log(
            data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: Any = None
        ) -> None:
            self._check_goes_on(run)
            record(data, step, commit, sync)
            self._note(data)
            self._check_goes_on(run)

        vars(run)["log"] = log

    @contextmanager
    def training(self) -> Iterator[None]:
        """Within the block it is the trial of this process, and its lease is renewed."""
        global _assigned
        ended = threading.Event()
        heart = threading.Thread(
            target=self._renew, args=(ended,), name=f"halving-lease-{self.key}", daemon=True
        )
        before = {name: os.environ.get(name) for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID")}
        os.environ.update(WANDB_SWEEP_ID=self._study, WANDB_RUN_ID=self.key)
        _assigned = self
        heart.start()
        try:
            yield
        finally:
            _assigned = None
            ended.set()
            heart.join()
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def complete(self) -> None:
        """Tell the last result of a trial whose function has returned.

        Raises:
            Error: it has logged no number under the name of the metric.
        """
        if self.stopped is not None:
            return
        value = self._last_value()
        # A trial that ends before it has reached all bands is compared at those by what it came to.
        while self.stopped is None and self._rung <= len(self._bands):
            self._tell(value, waits=True)

    def fail(self, error: str) -> None:
        """Tell that it has failed."""
        if self.stopped is None:
            self._studies.fail(self._study, self._number, self._attempt, error)

    def release(self) -> None:
        """Give it back untrained."""
        if self.stopped is None:
            self._studies.release(self._study, self._number, self._attempt)

    def finish_runs(self, exit_code: int = 0) -> None:
        """End the runs that its function has left open."""
        for run in self._runs:
            run.finish(exit_code)

    def _note(self, data: Mapping[str, Any]) -> None:
        if self._rung >= len(self._bands):
            return
        value = number_at(data, self._metric)
        if value is None:
            return
        self._count += 1
        self._best = min(self._best, self._sign * value)
        # W&B compares the value after as many others as the band says.
        is_due = self._count > self._bands[self._rung]
        if not is_due or time.monotonic() < self._away_until:
            return
        try:
            self._tell(self._sign * self._best, waits=False)
        except StoreUnavailable as error:
            self._leave_alone(error)
        except HalvingError:
            raise
        except Exception as error:  # noqa: BLE001
            self._leave_alone(error)  # The catalog of this machine is locked, or away.

    def _leave_alone(self, error: Exception) -> None:
        """Train on for a minute: the search is told at a later call, or at the end."""
        self._away_until = time.monotonic() + _AWAY_SECONDS
        termwarn(f"trial {self.key} trains on without its sweep, which is away: {error}", repeat=False)

    def _tell(self, value: float, *, waits: bool) -> None:
        epoch = self._rung + 1
        values = {self._metric: value}
        decision = self._studies.tell(self._study, self._number, self._attempt, epoch, values, waits=waits)
        self._rung = epoch
        if decision != CONTINUE:
            self.stopped = decision

    def _check_goes_on(self, run: "Run") -> None:
        if self.stopped is None:
            return
        run._is_stopped = True
        raise TrialStopped(f"trial {self.key} was stopped by its sweep: {self.stopped}")

    def _last_value(self) -> float:
        if self._metric == NO_METRIC:
            return time.monotonic() - self._began
        for run in reversed(self._runs):
            value = number_at(dict(run.summary.items()), self._metric)
            if value is not None:
                return value
        raise Error(
            f"trial {self.key} has logged no number as {self._metric!r}, the metric of its sweep: "
            f"call wandb.log({{{self._metric!r}: …}}) in the function, between wandb.init() and its end"
        )

    def _renew(self, ended: threading.Event) -> None:
        while not ended.wait(LEASE_SECONDS / 3):
            try:
                self._studies.heartbeat(self._study, self._number, self._attempt)
            except StoreUnavailable:
                continue
            except HalvingError as error:
                # Another agent has the trial now, because this process stood still for too long.
                self.stopped = str(error)
                return
            except Exception:  # noqa: BLE001
                continue  # The catalog is away; the next heartbeat may find it again.


def number_at(data: Mapping[str, Any], name: str) -> float | None:
    """A logged number by its name, where nested ones have dots or slashes; None if there is none."""
    value: Any = data.get(name)
    if value is None:
        for separator in (".", "/"):
            value = data
            for part in name.split(separator):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                break
    if value is None or isinstance(value, (str, bytes, Mapping)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
