"""What a trial's process and the platform say to each other: at a rung, at the end; and the same as JSON.

Between processes of one machine they are pickled over a pipe. A trial in an image of its own gets and gives them as JSON: what
such an image says is looked at field by field, and never unpickled.
"""

import json
import sys
from dataclasses import asdict, dataclass, fields
from typing import Any

from halving.errors import InvalidInput
from halving.store.store import blob_name


@dataclass(frozen=True)
class ReachedRung:
    """The trial trained its granted epochs. The platform answers with :class:`Granted`.

    Attributes:
        values: metric to value: the summary of each objective, and the last value of each bounded metric.
        checkpoint: digest of the checkpoint of this epoch.
        best_checkpoint: where the first objective's best value counts, digest of the checkpoint of that value's epoch.
    """

    epoch: int
    values: dict[str, float]
    checkpoint: str
    best_checkpoint: str | None = None


@dataclass(frozen=True)
class Granted:
    """The platform's answer: train up to ``epochs`` in all (no more than before: stop), and whether the trial is complete."""

    epochs: int
    complete: bool


@dataclass(frozen=True)
class Stopped:
    """The trainable returned after its last grant was used up."""


@dataclass(frozen=True)
class ReturnedEarly:
    """The trainable returned before its grant was used up.

    ``epoch`` and ``values`` are those of the newest checkpoint that counts; the rest is as in :class:`ReachedRung`.
    """

    epoch: int
    values: dict[str, float]
    checkpoint: str
    best_checkpoint: str | None = None


@dataclass(frozen=True)
class Raised:
    """The trainable raised; ``final`` says that trying again is pointless."""

    error: str
    final: bool
    checkpoint: str | None


@dataclass(frozen=True)
class Interrupted:
    """The trial was told to end and has saved what counts. Said by a trial in a pod; one on the worker's machine just ends.
    Or its store was away for too long: then both say so.
    """

    reason: str


Message = ReachedRung | Stopped | ReturnedEarly | Raised | Interrupted
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (ReachedRung, Stopped, ReturnedEarly, Raised, Interrupted, Granted)}
_MOST = 2**31  # epochs, of which a database keeps 32 bits
_DIGESTS = ("checkpoint", "best_checkpoint")


def to_bytes(message: Message | Granted) -> bytes:
    """A message as JSON, equal for equal messages."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}, sort_keys=True).encode()


def from_bytes(data: bytes) -> Message | Granted:
    """The message that JSON from the other side is.

    Raises:
        InvalidInput: it is none, naming the field.
    """
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"a message is not accepted: {error}; give JSON") from None
    named = said.pop("kind", None) if isinstance(said, dict) else None
    kind = _KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise InvalidInput(f"a message is not accepted: give an object whose kind is one of {sorted(_KINDS)}")
    wanted = {field.name: field.type for field in fields(kind)}
    if said.keys() != wanted.keys():
        raise InvalidInput(f"a message {kind.__name__} with {sorted(said)} is not accepted: give {sorted(wanted)}")
    for name, value in said.items():
        if not _fits(value, wanted[name]):
            raise InvalidInput(f"{kind.__name__}.{name} = {value!r:.80} is not accepted: give {wanted[name]}")
        if name in _DIGESTS and value is not None:
            blob_name(value)
    message: Message | Granted = kind(**said)
    return message


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is int:
        return type(value) is int and 0 <= value < _MOST
    if wanted == dict[str, float]:
        return isinstance(value, dict) and all(
            type(number) in (int, float) and abs(number) <= sys.float_info.max for number in value.values()
        )
    return isinstance(value, wanted)
