"""Cursors of streams: how far each run was read, as text for the ``id`` of an event.

It says nothing of this server: another one, or this one after a restart, goes on from it.
"""

import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

from halving.errors import InvalidInput
from halving.query.run_follower import Position, position_of

_MAX_CURSOR_LETTERS = 64 << 10
_MAX_BYTES = 4 << 20

Run = tuple[str, str]


def text_of(position: Position) -> str:
    """Encode a position as JSON, once for all who watch the run."""
    return json.dumps(position, separators=(",", ":"))


def cursor_of(positions: Mapping[Run, str]) -> str:
    """Encode the positions of runs, given as :func:`text_of` writes them, as a cursor.

    Names of runs need no quoting in JSON.
    """
    members = ",".join(f'"{project}/{run}":{text}' for (project, run), text in positions.items())
    return urlsafe_b64encode(zlib.compress(f"{{{members}}}".encode(), 1)).decode()


def positions_of(cursor: str) -> dict[Run, Position]:
    """Decode the positions in a cursor.

    Raises:
        InvalidInput: it is none.
    """
    try:
        if len(cursor) > _MAX_CURSOR_LETTERS:
            raise ValueError(len(cursor))
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(urlsafe_b64decode(cursor.encode("ascii")), _MAX_BYTES)
        if not unpacker.eof:
            raise ValueError("it is cut")
        content = json.loads(text)
        return {
            (name.partition("/")[0], name.partition("/")[2]): position_of(place)
            for name, place in content.items()
        }
    except (AttributeError, ValueError, zlib.error, RecursionError):
        raise InvalidInput(
            f"the cursor {cursor:.40}… is not accepted: give the id of an event of such a stream"
        ) from None
