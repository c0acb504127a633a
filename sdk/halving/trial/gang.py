"""What the pods of a gang and the trial's worker say to each other through the gang's rendezvous store
(torch's ``TCPStore``).

The store lives in the worker, so that the loss of no pod takes it along. Pods that have started say so; the
worker names those that form the gang; each of them counts beats, and says at its end how its ranks ended. A
pod that gives a collective up says so at once, and the others then say where their ranks are that do not
answer. All values are text or JSON.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from halving.errors import InvalidInput
from halving.trial.messages import Granted, Interrupted, Message, Raised, Ready, from_bytes, to_bytes

VARIABLE = "HALVING_GANG"
"""Names the gang to the process of one of its pods."""
FORMATION = "halving/formation"
"""The pods that form the gang, in the order of their ranks: a JSON list of names."""
HANG = "halving/hang"
"""A collective that the ranks of a pod have given up, as the last such pod says it: JSON of
:class:`halving.distributed.hang.Hang`.
"""
BEAT_SECONDS = 0.5
"""Between two beats of a pod, and two looks at :data:`HANG`."""
_MOST_CHARACTERS = 20_000  # of an error; the catalog keeps no more


@dataclass(frozen=True)
class GangPlace:
    """A pod's place in its gang.

    Attributes:
        host, port: of the rendezvous store.
        pod: the pod's name.
    """

    host: str
    port: int
    pod: str

    def to_variable(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def place_of(variable: str) -> GangPlace:
    """Read :data:`VARIABLE`.

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
    """The place of this process's pod in its gang; None where a trial has one pod."""
    variable = os.environ.get(VARIABLE)
    return place_of(variable) if variable else None


def here(pod: str) -> str:
    """The key of a pod that has started and waits to be named in :data:`FORMATION`."""
    return f"halving/here/{pod}"


def beat(pod: str) -> str:
    """The key of a pod's count of beats."""
    return f"halving/beat/{pod}"


def signalled(pod: str) -> str:
    """The key of a pod that has received SIGTERM."""
    return f"halving/signalled/{pod}"


def hung(pod: str) -> str:
    """The key of the collective that was given up, as :data:`HANG`, with where the ranks of this pod are that
    did not answer.
    """
    return f"halving/hung/{pod}"


def ended(pod: str) -> str:
    """The key of how the ranks of a pod ended, as :func:`end_to_bytes` gives it."""
    return f"halving/ended/{pod}"


def end_to_bytes(message: Message | None) -> bytes:
    """How the ranks of a pod ended; None if they have saved a checkpoint after a SIGTERM.

    Of a very long error the end is kept.
    """
    if isinstance(message, Raised) and len(message.error) > _MOST_CHARACTERS:
        message = replace(message, error=f"…{message.error[-_MOST_CHARACTERS:]}")
    return b"null" if message is None else to_bytes(message)


def end_from_bytes(data: bytes) -> Message | None:
    """As :func:`end_to_bytes` was given it.

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
    """Whether ranks that ended so have broken the gang, or were ended themselves."""
    return message is None or isinstance(message, Raised | Interrupted)
