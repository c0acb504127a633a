"""Files that a medium is made of: their content, read within a limit, and what kind of file it is.

A file's kind is told by its first bytes, never by its name.
"""

from pathlib import Path

from halving.errors import InvalidInput

MAX_BYTES = 256 << 20
"""The size of a medium's file, at most: it is held in memory, and waits in the journal for the store."""

MEDIA_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "gif": "image/gif",
    "ogv": "video/ogg",
}
"""By the format's name, which is a file's suffix as well."""

_MP3_FRAMES = (0xFB, 0xF3, 0xF2, 0xFA)  # MPEG 1 or 2, layer 3, with or without a checksum
_OGG_VIDEOS = (b"\x80theora", b"BBCD")  # Theora's and Dirac's first packet
_OGG_HEAD = 4_096  # The first pages of an Ogg file name each of its streams.


def read_medium(kind: str, data: str | Path | bytes | bytearray, expected: str) -> tuple[bytes, str]:
    """The content of a file, and how messages name it.

    Args:
        kind: of the medium, for messages: ``audio``.
        data: the content, or the file's path.
        expected: what is accepted, for messages: ``a WAV file``.

    Raises:
        InvalidInput: there is no such file, it cannot be read, or it is larger than ``MAX_BYTES``.
    """
    if isinstance(data, (bytes, bytearray)):
        named = f"{kind} {len(data)} bytes"
        content = bytes(data)
    else:
        named = f"{kind} path {str(data)!r:.200}"
        try:
            if Path(data).stat().st_size > MAX_BYTES:
                raise InvalidInput(f"{named} is not accepted: {_TOO_LARGE}")
            content = Path(data).read_bytes()
        except (OSError, ValueError) as error:  # ValueError: a null character in the path
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"{named} is not accepted: give {expected} that exists ({error})") from None
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"{named} is not accepted: {_TOO_LARGE}")
    return content, named


_TOO_LARGE = f"give at most {MAX_BYTES >> 20} MiB, and store a larger file by run.log_artifact(path)"


def format_of(content: bytes) -> str | None:
    """The format of an audio or video file, a name of ``MEDIA_TYPES``; None where it is none of these."""
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        return "wav"
    if content[:4] == b"fLaC":
        return "flac"
    if content[:4] == b"OggS":
        if any(name in content[:_OGG_HEAD] for name in _OGG_VIDEOS):
            return "ogv"
        return "ogg"
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    if content[4:8] == b"ftyp" and content[8:12] != b"qt  ":
        return "mp4"
    if content[:4] == b"\x1aE\xdf\xa3" and b"webm" in content[:64]:
        return "webm"
    if content[:3] == b"ID3" or (content[:1] == b"\xff" and content[1:2] and content[1] in _MP3_FRAMES):
        return "mp3"
    return None
