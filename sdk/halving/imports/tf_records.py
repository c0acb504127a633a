"""TensorFlow's record files.

Each record has its length (uint64), a checksum of the length, the content, and a checksum of that
(https://www.tensorflow.org/tutorials/load_data/tfrecord; checksums are masked CRC-32C). TensorBoard's own
reader cannot begin in the middle of a file, and checks contents in Python at 4 MB/s. Here only the lengths
are checked, which is enough to detect a torn or damaged file.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from halving.imports.foreign_run import SourceUnreadable

_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4


class Record(NamedTuple):
    """A record's content, and the byte of the file at which the next record begins."""

    content: bytes
    end: int


def records(path: Path, begin: int = 0) -> Iterator[Record]:
    """Read the complete records of a file from the byte ``begin`` on, where a record must begin.

    A record that is still being written is not there yet.

    Raises:
        SourceUnreadable: what should be a record's length is none.
        OSError: the file cannot be read.
    """
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    with path.open("rb") as file:
        file.seek(begin)
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            length, checksum = _HEADER.unpack(header)
            if masked_crc32c(header[:8]) != checksum:
                raise SourceUnreadable(f"{path} is damaged from byte {begin} on")
            content = file.read(length)
            if len(content) < length or len(file.read(_FOOTER_BYTES)) < _FOOTER_BYTES:
                return
            begin += _HEADER.size + length + _FOOTER_BYTES
            yield Record(content, begin)
