"""GPUs of one machine, shared through the catalog by workers that know nothing of each other.

The workers of a job and the runs that sensors launch run on this machine with the same
``CUDA_VISIBLE_DEVICES``. An attempt takes as many of these GPUs as it needs, or none, in one transaction, and
gives them back when its process has ended. They stay its own while its worker's process lives. After a worker
was killed they stay its own until its lease has run out and been doubted, because its trial may still be
ending.

Devices are known by their names in ``CUDA_VISIBLE_DEVICES``: numbers, or the ids of GPUs and MIG slices. All
daemons and jobs on a machine have to be started with the same names.
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
    """The GPUs of a machine, and which attempts hold them.

    Args:
        devices: their names; no two names mean the same device.
        machine: its name, as in its workers' names (default: this host).
        process: the process that takes devices (default: this process).
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
        """Take devices for an attempt that is not over; None if fewer are free, and then it holds none.

        Raises:
            DBAPIError: the database does not answer. The attempt may hold devices until the next call.
        """
        with self._catalog.write(exclusive=True) as session:
            # The attempt may hold devices of an earlier try, whose COMMIT got no answer.
            for holder in (assignment, *self._owed):
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
        """Give an attempt's devices back.

        If the database stays unavailable, that is done when devices are taken next, or with the process's
        end.
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
        """How many of the devices are free."""
        with self._catalog.read() as session:
            return len(self._free(session))

    def somebody_waits(self) -> bool:
        """Whether an attempt has recorded that it waits for devices of this machine."""
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
        gpu = HeldGpuRow
        lost_before = self._catalog.now() - DOUBT_SECONDS
        same = (attempt.sweep == gpu.sweep) & (attempt.trial == gpu.trial) & (attempt.attempt == gpu.attempt)
        of_trial = (trial.sweep == gpu.sweep) & (trial.number == gpu.trial)
        query = (
            select(gpu.device, gpu.process, attempt.ended_at, trial.lease_until)
            .join(attempt, same)
            .join(trial, of_trial)
        )
        rows = session.execute(query.where(gpu.machine == self.machine)).all()
        taken = {
            row.device
            for row in rows
            if is_alive(row.process) or (row.ended_at is None and (row.lease_until or 0.0) > lost_before)
        }
        return [device for device in self._devices if device not in taken]


def process_id(pid: int) -> str:
    """A name for a process of this machine that no other process will have.

    Its number may be used again, but not with the same time of its start.
    """
    return f"{pid}/{(_stat(pid) or ('', ''))[1]}"


def is_alive(process: str) -> bool:
    """Whether a process that :func:`process_id` named still runs; a zombie does not."""
    stat = _stat(int(process.partition("/")[0]))
    return stat is not None and stat[0] not in "ZX" and f"{process.partition('/')[0]}/{stat[1]}" == process


def _stat(pid: int) -> tuple[str, str] | None:
    """A process's state and start time in ticks since the machine's start; None if there is no such process.

    Source: proc_pid_stat(5).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]


def _of(assignment: Assignment) -> Delete:
    gpu = HeldGpuRow
    return delete(gpu).where(
        gpu.sweep == assignment.sweep, gpu.trial == assignment.trial, gpu.attempt == assignment.attempt
    )
