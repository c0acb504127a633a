"""Check, block by block, which type holds the numbers of a text file exactly."""

import math
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

EXACT = 2**53
"""Each whole number up to this one is a double."""
_SUSPECT = r"^\s*[+-]?[0-9]+(?:\.0*)?\s*$|[eE][+]?[0-9]{3}"
"""Texts of large doubles that may have been rounded: whole numbers, and numbers beyond any double."""
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_NOT_ZERO = r"^\s*[+-]?[0.]*[1-9]"


@dataclass
class Numbers:
    """Facts about a column's numbers that decide whether a type holds them.

    Attributes:
        inexact: a number that no double is; None if there is none.
        has_negative: whether a whole number is below zero.
    """

    inexact: str | None = None
    has_negative: bool = False

    def add_whole(self, numbers: pa.Array) -> None:
        """Take in whole numbers."""
        bounds = pc.min_max(numbers)
        lowest = bounds["min"].as_py()
        highest = bounds["max"].as_py()
        if lowest is None:
            return
        self.has_negative |= lowest < 0
        if self.inexact is None and (lowest < -EXACT or highest > EXACT):
            is_far = pc.greater_equal(pc.abs(numbers.cast(pa.float64(), safe=False)), float(EXACT))
            self.inexact = next(
                (
                    str(number)
                    for number in numbers.filter(is_far).to_pylist()
                    if int(float(number)) != number
                ),
                None,
            )

    def add_doubles(self, numbers: pa.Array, texts: pa.Array) -> None:
        """Take in doubles, and the texts that they were read from."""
        if self.inexact is None:
            far = texts.filter(pc.greater_equal(pc.abs(numbers), float(EXACT)))
            suspects = far.filter(pc.match_substring_regex(far, _SUSPECT))
            zeros = texts.filter(pc.equal(numbers, 0.0))
            # These are too small for a double.
            lost = zeros.filter(pc.match_substring_regex(zeros, _NOT_ZERO))
            suspects = pa.concat_arrays([suspects, lost])
            self.inexact = next((text for text in suspects.to_pylist() if not is_exact(text)), None)

    def check(self, kind: pa.DataType) -> None:
        """Raise ValueError if a column of this type would hold another number than is written."""
        if self.inexact is not None and pa.types.is_floating(kind):
            raise ValueError(f"has the number {self.inexact}, which a column of doubles would round")
        if self.has_negative and kind == pa.uint64():
            raise ValueError(
                "has numbers below 0 and beyond 2**63, for which there is no type of whole numbers"
            )


def is_exact(text: str) -> bool:
    """Whether the double of a text is the number that is written.

    A whole number must be equal; any other must be as near as a double can be, and not become 0.
    """
    text = text.strip()
    number = float(text)
    if math.isinf(number):
        return "inf" in text.lower()
    if number == 0:
        return re.match(_NOT_ZERO, text) is None
    match = _WHOLE.fullmatch(text)
    return match is None or int(number) == int(match[1])
