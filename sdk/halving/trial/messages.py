"""The messages between a trial's process and the platform, at a rung and at the end, and their JSON form.

Between processes of one machine they are pickled over a pipe. A trial in its own image exchanges them as
JSON: messages from such an image are checked field by field, and never unpickled.
"""

import json
import sys
from dataclasses import asdict, dataclass, fields
from typing import Any

from halving.errors import InvalidInput
from halving.store.store import blob_name


@dataclass(frozen=True)
class RungResult:
    """A trial's progress and results.

    Attributes:
        epoch: the last one that counts.
        values: metric to value: the summary of each objective, and the last value of each bounded metric.
        checkpoint: the digest of this epoch's checkpoint.
        best_checkpoint: the digest of the checkpoint of the best epoch, where the best value of the first
            objective counts.
    """

    epoch: int
    values: dict[str, float]
    checkpoint: str
    best_checkpoint: str | None = None


class ReachedRung(RungResult):
    """The trial has trained its granted epochs. The platform answers with :class:`Granted`."""


class ReturnedEarly(RungResult):
    """The trainable returned before its grant was used up.

    Epoch and values are those of the newest checkpoint that counts.
    """


@dataclass(frozen=True)
class Granted:
    """The platform's answer: train up to ``epochs`` in all; if that is no more than before, stop.

    Attributes:
        complete: whether the trial is complete.
    """

    epochs: int
    complete: bool


@dataclass(frozen=True)
class Stopped:
    """The trainable returned after its last grant was used up."""


@dataclass(frozen=True)
class Raised:
    """The trainable raised an error.

    Attributes:
        final: whether it would raise again, so that the trial is not tried again.
    """

    error: str
    final: bool
    checkpoint: str | None


@dataclass(frozen=True)
class Interrupted:
    """The trial received SIGTERM and has saved its checkpoint, or its store was unavailable for too long.

    After a SIGTERM only a trial in a pod sends it; one on the worker's machine just ends.
    """

    reason: str


@dataclass(frozen=True)
class Ready:
    """The report of a rerun's process in a pod, which trains when :class:`Granted` comes.

    A trial of a sweep sends none.

    Attributes:
        environment: the result of :func:`halving.records.provenance.environment`.
        trainable_sha256: the hash of the trainable's source file; None without one.
    """

    environment: dict[str, Any]
    trainable_sha256: str | None


Message = ReachedRung | Stopped | ReturnedEarly | Raised | Interrupted
_KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (ReachedRung, Stopped, ReturnedEarly, Raised, Interrupted, Granted, Ready)
}
_MAX_EPOCHS = 2**31  # because a database keeps 32 bits of them
_DIGESTS = ("checkpoint", "best_checkpoint")


def to_bytes(message: Message | Granted | Ready) -> bytes:
    """Convert a message to JSON; equal messages become equal bytes."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}, sort_keys=True).encode()


def from_bytes(data: bytes) -> Message | Granted | Ready:
    """Parse a message from JSON.

    Raises:
        InvalidInput: it is not a message; the error names the field.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"a message is not accepted: {error}; give JSON") from None
    kind = None
    if isinstance(content, dict):
        name = content.pop("kind", None)
        kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidInput(f"a message is not accepted: give an object whose kind is one of {sorted(_KINDS)}")
    wanted = {field.name: field.type for field in fields(kind)}
    if content.keys() != wanted.keys():
        raise InvalidInput(
            f"a message {kind.__name__} with {sorted(content)} is not accepted: give {sorted(wanted)}"
        )
    for name, value in content.items():
        if not _fits(value, wanted[name]):
            raise InvalidInput(f"{kind.__name__}.{name} = {value!r:.80} is not accepted: give {wanted[name]}")
        if name in _DIGESTS and value is not None:
            blob_name(value)
    message: Message | Granted | Ready = kind(**content)
    return message


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is int:
        return type(value) is int and 0 <= value < _MAX_EPOCHS
    if wanted == dict[str, float]:
        return isinstance(value, dict) and all(
            type(number) in (int, float) and abs(number) <= sys.float_info.max for number in value.values()
        )
    if wanted == dict[str, Any]:
        return isinstance(value, dict)
    return isinstance(value, wanted)
