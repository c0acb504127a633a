"""GPUs of one machine among workers that know nothing of each other: each attempt has its own, held in the
catalog.

The workers of a job and the runs that sensors launch, all on this machine and with the same
``CUDA_VISIBLE_DEVICES``, take as many of these as an attempt needs, or none, in one transaction, and give
them back when its process has ended. What an attempt has taken stays its own while its worker's process
lives, and of a worker that was killed until its lease has run out and been doubted, like the attempt itself:
its trial may still be ending.

Devices are known by their names in ``CUDA_VISIBLE_DEVICES``: numbers, or the ids of GPUs and MIG slices.
Whoever starts several daemons and jobs on a machine names them alike.
"""

import logging
import os
import socket
import time
from pathlib import Path

from sqlalchemy import Delete, delete, exists, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from resources.catalog import AttemptRow, Catalog, HeldGpuRow, SweepRow, TrialRow
from resources.catalog.retry import WORKER_SECONDS, retry_transient
from resources.scheduling.assignment import Assignment
from resources.scheduling.leases import DOUBT_SECONDS

_log = logging.getLogger(__name__)


class HeldGpus:
    """The devices of a machine.

    Args:
        devices: their names, of which none is another's.
        machine: whose they are, as its workers name it (default: this host).
        process: whoever takes them (default: this process).
    """

    def __init__(
        self, catalog: Catalog, devices: list[str], *, machine: str | None = None, process: str | None = None
    ) -> None:
        self._catalog = catalog
        self._devices = list(dict.fromkeys(devices))
        self.machine = machine or socket.gethostname()
        self._process = process or process_id(os.getpid())
        self._owed: list[Assignment] = []  # whose devices could not be given back

    def __len__(self) -> int:
        return len(self._devices)

    def take(self, assignment: Assignment, count: int) -> list[str] | None:
        """So many devices for an attempt that is not over, in their order; None where fewer are free, and
        then it holds none.

        Raises:
            DBAPIError: the database does not answer; whether it holds any is known after the next call.
        """
        with self._catalog.write(exclusive=True) as session:
            for holder in (assignment, *self._owed):  # its own of an earlier try, whose COMMIT got no answer
                session.execute(_of(holder))
            free = self._free(session)[:count]
            if len(free) < count:
                return None
            session.execute(
                delete(HeldGpuRow).where(HeldGpuRow.machine == self.machine, HeldGpuRow.device.in_(free))
            )
            whose = {
                "sweep": assignment.sweep,
                "trial": assignment.trial,
                "attempt": assignment.attempt,
                "process": self._process,
            }
            session.add_all(
                HeldGpuRow(machine=self.machine, device=device, since=time.time(), **whose) for device in free
            )
            return free

    def give(self, assignment: Assignment) -> None:
        """Give an attempt's devices back; where the database stays unavailable, when the next ones are taken,
        or with the process's end.
        """
        try:
            retry_transient(lambda: self._give(assignment), WORKER_SECONDS)
        except DBAPIError as error:
            _log.warning(
                "could not give the GPUs of %s back, which is tried again before the next trial: %s",
                assignment.run_key,
                error,
            )
            self._owed.append(assignment)

    def free(self) -> int:
        """How many of the devices nobody has."""
        with self._catalog.read() as session:
            return len(self._free(session))

    def somebody_waits(self) -> bool:
        """Whether an attempt waits for devices of this machine, as it has said."""
        trial = TrialRow
        sweep = SweepRow
        here = trial.worker.startswith(f"{self.machine}:", autoescape=True)
        waits = (
            sweep.status == "searching",
            trial.sweep == sweep.id,
            trial.status == "running",
            trial.waiting.is_not(None),
            here,
        )
        with self._catalog.read() as session:
            return bool(
                session.scalar(select(exists().where(*waits, trial.lease_until > self._catalog.now())))
            )

    def _give(self, assignment: Assignment) -> None:
        with self._catalog.write() as session:
            session.execute(_of(assignment))

    def _free(self, session: Session) -> list[str]:
        attempt = AttemptRow
        trial = TrialRow
        held = HeldGpuRow
        lost_before = self._catalog.now() - DOUBT_SECONDS
        same = (
            (attempt.sweep == held.sweep) & (attempt.trial == held.trial) & (attempt.attempt == held.attempt)
        )
        of_trial = (trial.sweep == held.sweep) & (trial.number == held.trial)
        query = (
            select(held.device, held.process, attempt.ended_at, trial.lease_until)
            .join(attempt, same)
            .join(trial, of_trial)
        )
        rows = session.execute(query.where(held.machine == self.machine)).all()
        taken = {
            row.device
            for row in rows
            if is_alive(row.process) or (row.ended_at is None and (row.lease_until or 0.0) > lost_before)
        }
        return [device for device in self._devices if device not in taken]


def process_id(pid: int) -> str:
    """A process of this machine, as no other will be called: its number may be given again, but not with the
    moment of its start.
    """
    return f"{pid}/{(_stat(pid) or ('', ''))[1]}"


def is_alive(process: str) -> bool:
    """Whether a process that :func:`process_id` named runs; one that was killed and that its parent has not
    looked at does not.
    """
    stat = _stat(int(process.partition("/")[0]))
    return stat is not None and stat[0] not in "ZX" and f"{process.partition('/')[0]}/{stat[1]}" == process


def _stat(pid: int) -> tuple[str, str] | None:
    """A process's state and the moment of its start, in ticks since the machine's (proc_pid_stat(5)); None if
    there is no such process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]


def _of(assignment: Assignment) -> Delete:
    held = HeldGpuRow
    return delete(held).where(
        held.sweep == assignment.sweep, held.trial == assignment.trial, held.attempt == assignment.attempt
    )
