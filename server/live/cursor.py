"""A stream's cursor: how far each of its runs was read, as text for the ``id`` of an event.

It says nothing of this server: another one, or this one after a restart, goes on from it.
"""

import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

from halving.errors import InvalidInput
from halving.query.run_follower import Position, position_of

_LONGEST = 64 << 10
_MOST_BYTES = 4 << 20

Run = tuple[str, str]


def cursor_of(positions: Mapping[Run, Position]) -> str:
    """The text of some runs' positions."""
    plain: dict[str, dict[str, Position]] = {}
    for (project, run), position in positions.items():
        plain.setdefault(project, {})[run] = position
    return urlsafe_b64encode(zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)).decode()


def positions_of(cursor: str) -> dict[Run, Position]:
    """The positions in a cursor.

    Raises:
        InvalidInput: it is none.
    """
    try:
        if len(cursor) > _LONGEST:
            raise ValueError(len(cursor))
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(urlsafe_b64decode(cursor.encode("ascii")), _MOST_BYTES)
        plain = json.loads(text)
        return {(project, run): position_of(place) for project, runs in plain.items() for run, place in runs.items()}
    except (AttributeError, ValueError, zlib.error, RecursionError):
        raise InvalidInput(f"the cursor {cursor:.40}… is not accepted: give the id of an event of such a stream") from None
