"""Params as they were before MLflow converted them to texts: numbers and booleans where the text is one."""

import math
import re
from collections.abc import Mapping
from typing import Any

_FLAGS = {"True": True, "true": True, "False": False, "false": False}
_NOT_FINITE = ("nan", "NaN", "inf", "-inf", "Infinity", "-Infinity")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,599})")
_NUMBER = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

_NOT_ZERO = re.compile(r"-?[0.]*[1-9]")  # 1e-400 is 0 as a float


def typed_params(params: Mapping[str, Any], parent: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the types of a run's params, which records of MLflow's clients and importer have as texts.

    Args:
        parent: what the run belongs to, as its record has it.
    """
    typed = dict(params)
    if "tracked" in parent or (parent.get("imported") or {}).get("tool") == "mlflow":
        typed |= {name: parse_text(value) for name, value in params.items() if isinstance(value, str)}
    return typed


def parse_text(text: str) -> str | int | float | bool:
    """Parse a number or a boolean as Python, Java, JavaScript and R write them; any other text is unchanged.

    What people mean as a text remains one: leading zeros (``007``), a plus, spaces, ``1_000``, dates; and so
    does a number that no float holds.
    """
    if text in _FLAGS:
        return _FLAGS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if text in _NOT_FINITE:
        return float(text)
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    if math.isinf(number) or (number == 0 and _NOT_ZERO.match(text)):
        return text
    return number
