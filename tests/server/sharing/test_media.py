"""Media of a shared page whose bytes are not what their records say."""

import json

import pytest

from resources.backend import Backend
from server.sharing.media import read_media

WHOLE = b'{"counts": [1, 2], "edges": [0, 1, 2]}'


@pytest.mark.parametrize(
    ("content", "is_shown"),
    [
        (WHOLE, True),
        (b"\xff\xfe", False),
        (b"[" * 100_000, False),
        (b"[]", False),
        (b'{"counts": [1]}', False),
        (b'{"counts": [], "edges": [0]}', False),
        (b'{"counts": [1], "edges": [0]}', False),
        (b'{"counts": ["many"], "edges": [0, 1]}', False),
    ],
)
def test_what_is_no_histogram_is_left_out_and_counted(
    backend: Backend, content: bytes, is_shown: bool
) -> None:
    row = {
        "key": "weights",
        "kind": "histogram",
        "step": 1,
        "bytes": len(content),
        "digest": backend.store.put_blob(content),
        "media_type": "application/json",
    }
    packed = read_media(backend.store, [row])
    if is_shown:
        assert packed.media[0]["histogram"] == json.loads(content)
        assert packed.left_out == []
    else:
        assert packed.media == []
        assert packed.left_out == ["1 media that are too large, of another kind or no longer in the store"]
