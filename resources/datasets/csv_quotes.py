"""Check the quotes of CSV files.

A text must not go on behind its closing quote: there Arrow drops quotes, or takes several rows for one.
"""

import codecs
import csv
import io
from typing import Any

import numpy as np

from resources.datasets import text_files
from resources.datasets.text_files import UTF_8, TextFile, open_text
from resources.source_files.listing import SourceFile

_QUOTE = ord('"')


class Quotes:
    """Checks a file's bytes, block by block, for quotes that RFC 4180 does not allow.

    It also suspects a quote within an unquoted text, such as of inches; a suspected file is read once more.
    """

    def __init__(self, text: TextFile, delimiter: str) -> None:
        self._is_utf_8 = text.encoding in UTF_8
        self._may_adjoin = np.zeros(256, np.bool_)
        self._may_adjoin[[_QUOTE, ord(delimiter), *b"\r\n"]] = True
        self._rest = b"\n"  # the last checked byte, and the first that is not checked yet
        self._count = 0
        self.is_suspect = False

    def add(self, chunk: bytes) -> None:
        """Take in the next bytes."""
        if self.is_suspect or not chunk:
            return
        if not self._is_utf_8:
            self.is_suspect = b'"' in chunk
            return
        is_first = len(self._rest) == 1
        if is_first:
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
        block = self._rest + chunk
        self._rest = block[-2:]
        content = np.frombuffer(block, np.uint8)
        places = np.flatnonzero(content[1:-1] == _QUOTE) + 1
        is_opening = (np.arange(len(places)) + self._count) % 2 == 0
        neighbours = np.where(is_opening, content[places - 1], content[places + 1])
        self._count += len(places)
        self.is_suspect = not self._may_adjoin[neighbours].all()

    def end(self) -> None:
        """Take in the end of the file."""
        self.add(b"\n")
        self.is_suspect |= self._count % 2 == 1  # After an odd number of quotes one is open.


def check_quotes(file: SourceFile, encoding: str | None, delimiter: str) -> None:
    """Read a CSV file strictly by RFC 4180.

    Raises:
        ValueError: a text goes on behind its closing quote, or has none; the message says in which lines.
    """
    csv.field_size_limit(max(csv.field_size_limit(), text_files.BLOCK))
    with open_text(file, encoding) as text:
        lines = io.TextIOWrapper(io.BufferedReader(_Bytes(text)), text.encoding, "replace", newline="")
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        before = 0  # number of the last line that was read whole
        try:
            for _ in rows:
                before = rows.line_num
        except csv.Error:
            first = before + 1
            last = rows.line_num
            place = f"lines {first} to {last}"
            if first == last:
                place = f"line {last}"
            query = f"SELECT * FROM read_csv('{file.address.replace(chr(39), 2 * chr(39))}', escape = '\\')"
            raise ValueError(
                f"in its {place} a text goes on behind its closing quote, or has none, "
                "so a quote would be lost, or several rows would become one; "
                f'write "" for a quote within quotes, or, if it is written \\", give sql: {query}'
            ) from None


class _Bytes(io.RawIOBase):
    def __init__(self, text: TextFile) -> None:
        self._text = text

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._text.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)
