"""What the head of a video file says: its width, height, seconds and frames."""

import math
import struct
from collections.abc import Iterator
from typing import Any

_MP4_FOLDERS = frozenset({b"moov", b"trak"})
_MAX_BOXES = 10_000
# WebM's elements (RFC 9559, section 5): those that hold others, and those that are read.
_WEBM_FOLDERS = frozenset({0x18538067, 0x1549A966, 0x1654AE6B, 0xAE, 0xE0})
_SCALE = 0x2AD7B1
_DURATION = 0x4489
_WIDTH = 0xB0
_HEIGHT = 0xBA
_CLUSTER = 0x1F43B675  # The frames begin here, and all facts come before.


def facts_of(encoded: bytes, name: str) -> dict[str, Any]:
    """``width``, ``height``, ``seconds``, and of a GIF ``frames``; only what the file says.

    Args:
        name: the file's format: ``mp4``, ``gif``, ``webm`` or ``ogv``.
    """
    try:
        if name == "mp4":
            return _mp4_facts(encoded)
        if name == "gif":
            return _gif_facts(encoded)
        if name == "webm":
            return _webm_facts(encoded)
    except (struct.error, IndexError, ZeroDivisionError):  # A damaged head says nothing.
        return {}
    return {}


def _mp4_facts(encoded: bytes) -> dict[str, Any]:
    """Read the boxes ``mvhd`` and ``tkhd`` (ISO/IEC 14496-12, sections 8.2.2 and 8.3.2)."""
    facts: dict[str, Any] = {}
    for name, begin, end in _mp4_boxes(encoded):
        if name == b"mvhd":
            scale, length = struct.unpack_from(">II", encoded, begin + 12)
            if encoded[begin] == 1:  # the version with times of 64 bits
                scale, length = struct.unpack_from(">IQ", encoded, begin + 20)
            facts["seconds"] = round(length / scale, 3)
        elif name == b"tkhd":
            width, height = struct.unpack_from(">II", encoded, end - 8)  # 16.16 fixed point
            if width and height:
                facts |= {"width": width >> 16, "height": height >> 16}
    return facts


def _mp4_boxes(encoded: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Each box's name, and where its content begins and ends."""
    place = 0
    for _ in range(_MAX_BOXES):
        if place + 8 > len(encoded):
            return
        size, name = struct.unpack_from(">I4s", encoded, place)
        head = 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", encoded, place + 8)
            head = 16
        if size == 0:
            size = len(encoded) - place
        if size < head:
            return
        yield name, place + head, place + size
        place += head if name in _MP4_FOLDERS else size


def _gif_facts(encoded: bytes) -> dict[str, Any]:
    """Count frames and their pauses (GIF89a, sections 18, 20 and 23)."""
    width, height, flags = struct.unpack_from("<HHB", encoded, 6)
    place = 13
    if flags & 0x80:
        place += 3 << ((flags & 7) + 1)
    frames = hundredths = 0
    while encoded[place] != 0x3B:
        if encoded[place] == 0x2C:
            frames += 1
            local = encoded[place + 9]
            place += 11
            if local & 0x80:
                place += 3 << ((local & 7) + 1)
        else:
            if encoded[place + 1] == 0xF9:
                hundredths += int.from_bytes(encoded[place + 4 : place + 6], "little")
            place += 2
        while encoded[place]:
            place += 1 + encoded[place]
        place += 1
    return {"width": width, "height": height, "frames": frames, "seconds": hundredths / 100}


def _webm_facts(encoded: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    scale = 1_000_000  # nanoseconds
    place = 0
    for _ in range(_MAX_BOXES):
        if place >= len(encoded):
            break
        name, place = _vint(encoded, place, keep_marker=True)
        size, place = _vint(encoded, place, keep_marker=False)
        content = encoded[place : place + min(size, 8)]
        if name == _CLUSTER:
            break
        if name == _SCALE:
            scale = int.from_bytes(content, "big")
        elif name == _DURATION:
            (length,) = struct.unpack(">f" if size == 4 else ">d", content)
            if math.isfinite(length):  # A record holds no other number.
                facts["seconds"] = round(length * scale / 1e9, 3)
        elif name == _WIDTH:
            facts["width"] = int.from_bytes(content, "big")
        elif name == _HEIGHT:
            facts["height"] = int.from_bytes(content, "big")
        if name not in _WEBM_FOLDERS:
            place += size
    return facts


def _vint(encoded: bytes, place: int, *, keep_marker: bool) -> tuple[int, int]:
    """A number of variable length, and where it ends (RFC 8794, section 4)."""
    first = encoded[place]
    length = 9 - first.bit_length()
    if length > 8:
        raise IndexError("no number begins with eight zero bits")
    value = int.from_bytes(encoded[place : place + length], "big")
    if not keep_marker:
        value &= (1 << (7 * length)) - 1
    return value, place + length
