"""This process's collectives, as torch's flight recorder has them: our own, DDP's and the trainable's.

For each process group it counts the collectives that were entered and those that have completed, and keeps
the last ones (PyTorch 2.13, ``torch/csrc/distributed/c10d/FlightRecorder.hpp``; gloo and NCCL both write to
it). It is read as JSON, because its other form is a pickle.
"""

import json
import os
from typing import Any, NamedTuple

OWN = "halving:"
"""The beginning of the descriptions of our own process groups."""
ARRIVALS = f"{OWN}arrivals"
"""The description of the group in which a rank need not wait; :attr:`Gang.waits` says whether it does."""
SAVES = f"{OWN}saves"
"""The description of the group of saves, whose collectives a background thread calls."""
_ENTRIES = 64  # collectives that are kept; reading 2000, torch's own number, takes 0.1 s


class Counts(NamedTuple):
    """How many collectives of a process group this rank has entered, and how many have completed here."""

    entered: int
    completed: int


class Collective(NamedTuple):
    """A collective that this rank has entered.

    Attributes:
        number: of its process group in this process; see :func:`counts`.
        group: the process group's name, the same on all ranks, behind that of its backend: ``gloo:0``.
        description: of the process group.
        position: 1 for the first collective of its group.
        operation: ``all_reduce``, …
        entered_at: Unix time, seconds.
        timeout: seconds, after which the backend gives it up.
        over: whether it has completed.
    """

    number: str
    group: str
    description: str
    position: int
    operation: str
    entered_at: float
    timeout: float
    over: bool


def switch_on() -> None:
    """Let torch record collectives; call it before the first process group is made."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(_ENTRIES))


def counts() -> dict[str, Counts]:
    """The counts by the number of the process group in this process. It takes microseconds."""
    return counts_in(_dump(includeCollectives=False))


def collectives() -> list[Collective]:
    """The last collectives that this rank has entered, in that order."""
    return collectives_in(_dump())


def _dump(**options: bool) -> bytes:
    from torch._C import _distributed_c10d

    # Torch's stubs lack this function.
    dump: bytes = _distributed_c10d._dump_fr_trace_json(**options)  # type: ignore[attr-defined]
    return dump


def counts_in(dump: bytes) -> dict[str, Counts]:
    """The counts in a dump of the recorder; see :func:`counts`."""
    statuses = json.loads(dump).get("pg_status", {})
    return {
        number: Counts(
            _whole(status, "last_enqueued_collective"), _whole(status, "last_completed_collective")
        )
        for number, status in statuses.items()
    }


def collectives_in(dump: bytes) -> list[Collective]:
    """The collectives in a dump of the recorder; see :func:`collectives`."""
    return [_collective(entry) for entry in json.loads(dump).get("entries", []) if not entry["is_p2p"]]


def _whole(status: dict[str, str], name: str) -> int:
    return max(0, int(status[name]))  # -1: none yet


def _collective(entry: dict[str, Any]) -> Collective:
    backend, _, operation = entry["profiling_name"].partition(":")
    name, description = entry["process_group"]
    return Collective(
        str(entry["pg_id"]),
        f"{backend}:{name}",
        description,
        entry["collective_seq_id"],
        operation,
        entry["time_created_ns"] / 1e9,
        entry["timeout_ms"] / 1e3,
        entry["retired"],
    )
