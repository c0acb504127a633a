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
    """How far a trial has come, and with what.

    Attributes:
        epoch: the last one that counts.
        values: metric to value: the summary of each objective, and the last value of each bounded metric.
        checkpoint: digest of the checkpoint of this epoch.
        best_checkpoint: where the best value of the first objective counts, digest of the checkpoint of that
            value's epoch.
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

    ``complete``: the trial is complete.
    """

    epochs: int
    complete: bool


@dataclass(frozen=True)
class Stopped:
    """The trainable returned after its last grant was used up."""


@dataclass(frozen=True)
class Raised:
    """The trainable raised. ``final``: it would only raise again, so the trial is not tried again."""

    error: str
    final: bool
    checkpoint: str | None


@dataclass(frozen=True)
class Interrupted:
    """The trial received SIGTERM and has saved its checkpoint (sent by a trial in a pod; one on the worker's
    machine just ends), or its store was unavailable for too long.
    """

    reason: str


@dataclass(frozen=True)
class Ready:
    """The process of a rerun in a pod has looked around, and trains when :class:`Granted` comes.

    A trial of a sweep sends none.

    Attributes:
        environment: as :func:`halving.records.provenance.environment` gives it.
        trainable_sha256: of the trainable's source file; None where there is none.
    """

    environment: dict[str, Any]
    trainable_sha256: str | None


Message = ReachedRung | Stopped | ReturnedEarly | Raised | Interrupted
_KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (ReachedRung, Stopped, ReturnedEarly, Raised, Interrupted, Granted, Ready)
}
_MOST = 2**31  # epochs: a database keeps 32 bits of them
_DIGESTS = ("checkpoint", "best_checkpoint")


def to_bytes(message: Message | Granted | Ready) -> bytes:
    """A message as JSON. Equal messages give equal bytes."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}, sort_keys=True).encode()


def from_bytes(data: bytes) -> Message | Granted | Ready:
    """Read a message from JSON.

    Raises:
        InvalidInput: it is not a message; the error names the field.
    """
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"a message is not accepted: {error}; give JSON") from None
    named = given.pop("kind", None) if isinstance(given, dict) else None
    kind = _KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise InvalidInput(f"a message is not accepted: give an object whose kind is one of {sorted(_KINDS)}")
    wanted = {field.name: field.type for field in fields(kind)}
    if given.keys() != wanted.keys():
        raise InvalidInput(
            f"a message {kind.__name__} with {sorted(given)} is not accepted: give {sorted(wanted)}"
        )
    for name, value in given.items():
        if not _fits(value, wanted[name]):
            raise InvalidInput(f"{kind.__name__}.{name} = {value!r:.80} is not accepted: give {wanted[name]}")
        if name in _DIGESTS and value is not None:
            blob_name(value)
    message: Message | Granted | Ready = kind(**given)
    return message


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is int:
        return type(value) is int and 0 <= value < _MOST
    if wanted == dict[str, float]:
        return isinstance(value, dict) and all(
            type(number) in (int, float) and abs(number) <= sys.float_info.max for number in value.values()
        )
    if wanted == dict[str, Any]:
        return isinstance(value, dict)
    return isinstance(value, wanted)
