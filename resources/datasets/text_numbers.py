"""The type that holds the numbers of a text file exactly, block after block."""

import math
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

EXACT = 2**53
"""Up to here each whole number is a double."""
_SUSPECT = r"^\s*[+-]?[0-9]+(?:\.0*)?\s*$|[eE][+]?[0-9]{3}"
"""Texts of far doubles that may be others than is written: whole numbers, and those that are too large for
any.
"""
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_NOT_ZERO = r"^\s*[+-]?[0.]*[1-9]"


@dataclass
class Numbers:
    """What is to be known of a column's numbers beside their type.

    Attributes:
        inexact: one that no double is; None: there is none.
        has_negative: whether a whole number is below zero.
    """

    inexact: str | None = None
    has_negative: bool = False

    def see_whole(self, numbers: pa.Array) -> None:
        """Look at whole numbers."""
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

    def see_doubles(self, numbers: pa.Array, texts: pa.Array) -> None:
        """Look at doubles, and at the texts that they were read from."""
        if self.inexact is None:
            far = texts.filter(pc.greater_equal(pc.abs(numbers), float(EXACT)))
            suspects = far.filter(pc.match_substring_regex(far, _SUSPECT))
            zeros = texts.filter(pc.equal(numbers, 0.0))
            lost = zeros.filter(pc.match_substring_regex(zeros, _NOT_ZERO))  # too small for a double
            suspects = pa.concat_arrays([suspects, lost])
            self.inexact = next((text for text in suspects.to_pylist() if not is_exact(text)), None)

    def check(self, kind: pa.DataType) -> None:
        """Raise ValueError where a column of this type would have another number than is written."""
        if self.inexact is not None and pa.types.is_floating(kind):
            raise ValueError(f"has the number {self.inexact}, which a column of doubles would round")
        if self.has_negative and kind == pa.uint64():
            raise ValueError(
                "has numbers below 0 and beyond 2**63, for which there is no type of whole numbers"
            )


def is_exact(text: str) -> bool:
    """Whether a double is the number that is written: a whole one as it is, another one as near as a double
    can be, and not as 0.
    """
    text = text.strip()
    number = float(text)
    if math.isinf(number):
        return "inf" in text.lower()
    if number == 0:
        return re.match(_NOT_ZERO, text) is None
    whole = _WHOLE.fullmatch(text)
    return whole is None or int(number) == int(whole[1])
