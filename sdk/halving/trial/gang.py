"""The keys by which the pods of a gang and the trial's worker communicate in the gang's rendezvous store.

The store is torch's ``TCPStore`` in the worker, so that it survives the loss of any pod. Pods register when
they have started; the worker names those that form the gang; each of them counts beats, and writes at its end
how its ranks ended. A pod that gives a collective up writes that at once, and the others then write where
their silent ranks are. All values are text or JSON.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from halving.errors import InvalidInput
from halving.trial.messages import Granted, Interrupted, Message, Raised, Ready, from_bytes, to_bytes

VARIABLE = "HALVING_GANG"
"""The environment variable with the place of a pod's process in its gang."""
FORMATION = "halving/formation"
"""The pods that form the gang, in the order of their ranks: a JSON list of names."""
HANG = "halving/hang"
"""The collective that a pod was the last to give up: JSON of :class:`halving.distributed.hang.Hang`."""
BEAT_SECONDS = 0.5
"""The time between two beats of a pod, and between two reads of :data:`HANG`."""
_MAX_CHARACTERS = 20_000  # of an error, because the catalog keeps no more


@dataclass(frozen=True)
class GangPlace:
    """A pod's place in its gang.

    Attributes:
        host, port: the address of the rendezvous store.
        pod: the pod's name.
    """

    host: str
    port: int
    pod: str

    def to_variable(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def place_of(variable: str) -> GangPlace:
    """Parse the value of :data:`VARIABLE`.

    Raises:
        InvalidInput: it is not accepted.
    """
    try:
        return GangPlace(**json.loads(variable))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{VARIABLE} = {variable!r:.200} is not accepted: {error}; the trial's worker sets it"
        ) from None


def own_place() -> GangPlace | None:
    """The place of this process's pod in its gang; None in a trial of one pod."""
    variable = os.environ.get(VARIABLE)
    if not variable:
        return None
    return place_of(variable)


def here_key(pod: str) -> str:
    """The key of a pod that has started and waits to be named in :data:`FORMATION`."""
    return f"halving/here/{pod}"


def beat_key(pod: str) -> str:
    """The key of a pod's count of beats."""
    return f"halving/beat/{pod}"


def signalled_key(pod: str) -> str:
    """The key of a pod that has received SIGTERM."""
    return f"halving/signalled/{pod}"


def hung_key(pod: str) -> str:
    """The key of a :data:`HANG` with the stacks of this pod's silent ranks."""
    return f"halving/hung/{pod}"


def ended_key(pod: str) -> str:
    """The key of how the ranks of a pod ended, in the form of :func:`end_to_bytes`."""
    return f"halving/ended/{pod}"


def end_to_bytes(message: Message | None) -> bytes:
    """Convert how the ranks of a pod ended to bytes, with only the end of a very long error.

    None means that they have saved a checkpoint after a SIGTERM.
    """
    if message is None:
        return b"null"
    if isinstance(message, Raised) and len(message.error) > _MAX_CHARACTERS:
        message = replace(message, error=f"…{message.error[-_MAX_CHARACTERS:]}")
    return to_bytes(message)


def end_from_bytes(data: bytes) -> Message | None:
    """Parse the bytes of :func:`end_to_bytes`.

    Raises:
        InvalidInput: it is no message of a trial.
    """
    if data == b"null":
        return None
    message: Any = from_bytes(data)
    if isinstance(message, Granted | Ready):
        raise InvalidInput(f"a gang's end {type(message).__name__} is not accepted: give how its ranks ended")
    return message  # type: ignore[no-any-return]


def is_wrong(message: Message | None) -> bool:
    """Whether ranks that ended this way have broken the gang, or were ended themselves."""
    return message is None or isinstance(message, Raised | Interrupted)
