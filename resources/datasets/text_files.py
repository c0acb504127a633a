"""Text files: find their encoding, and read them from the beginning."""

import codecs
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from resources.source_files.listing import SourceFile

BLOCK = 8 * 2**20
"""Bytes of a text file that are parsed at a time."""
UTF_8 = ("utf-8", "utf-8-sig")
_MARKS = {  # The longer ones come first, since UTF-32's begins with UTF-16's.
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
# How compressed files begin, and what their names should end with.
_COMPRESSED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}


@dataclass
class TextFile:
    """An open text file.

    Attributes:
        address: its path, or its address on an object store.
        encoding: its encoding, by Python's name.
        head: its first block, which ``read`` returns again.
        watch: called with everything that ``read`` returns.
    """

    address: str
    encoding: str
    head: bytes
    _stream: Any
    _begun: int = 0
    closed: bool = False
    watch: Callable[[bytes], None] = lambda chunk: None

    def read(self, size: int) -> bytes:
        """Read the next bytes; fewer than asked for only at the file's end."""
        begin = self._begun
        self._begun = min(len(self.head), begin + size)
        chunk = self.head[begin : self._begun]
        missing = size - len(chunk)
        if missing:
            chunk += bytes(self._stream.read(missing))
        self.watch(chunk)
        return chunk

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it but a byte order mark, spaces and line breaks."""
        return len(self.head) < BLOCK and not self.head.decode(self.encoding, "replace").strip()


@contextlib.contextmanager
def open_text(file: SourceFile, encoding: str | None) -> Iterator[TextFile]:
    """Open a text file.

    Its encoding is what a byte order mark says, else the given one, else UTF-8.

    Raises:
        ValueError: it holds bytes that no text has.
    """
    ending = PurePosixPath(file.path).suffix.lower()  # Arrow itself knows .gz, but not .GZ.
    with file.filesystem.open_input_stream(file.path, compression=_COMPRESSIONS.get(ending)) as stream:
        head = bytes(stream.read(BLOCK))
        wanted = next((name for mark, name in _COMPRESSED.items() if head.startswith(mark)), None)
        if wanted is not None:
            raise ValueError(f"it is compressed; give it a name that ends with {wanted}")
        marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
        encoding = marked or codecs.lookup(encoding or "utf-8").name
        if b"\0" in head and not encoding.startswith(("utf-16", "utf-32")):
            if encoding in UTF_8:
                encoding = "UTF-8"
            raise ValueError(
                f"it has NUL bytes, so it is not {encoding} text; say what it is, "
                "for example encoding: utf-16-le"
            )
        yield TextFile(file.address, encoding, head, stream)


def not_in_encoding(subject: str, encoding: str) -> ValueError:
    """The error for a part of a file that is not in the encoding in which it was read."""
    if encoding in UTF_8:
        return ValueError(
            f"{subject} is not UTF-8; say what it is, for example encoding: latin-1 (or cp1252)"
        )
    return ValueError(f"{subject} is not {encoding}; give the encoding in which it was written")
