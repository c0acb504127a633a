"""What a param was before MLflow made a text of it: a number or a flag, where the text is one."""

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
    """Give a run's params as what they were: those of MLflow's clients and of its importer are texts in
    records.

    Args:
        parent: what the run belongs to, as its record has it.
    """
    if "tracked" in parent or (parent.get("imported") or {}).get("tool") == "mlflow":
        return {name: typed(value) if isinstance(value, str) else value for name, value in params.items()}
    return dict(params)


def typed(text: str) -> str | int | float | bool:
    """Give the number or the flag that a text is, as Python, Java, JavaScript and R write them; the text, if
    it is neither.

    What people write to be a text stays one: leading zeros (``007``), a plus, spaces, ``1_000``, dates; so
    does what no float holds.
    """
    if text in _FLAGS:
        return _FLAGS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if text in _NOT_FINITE:
        return float(text)
    if (
        _NUMBER.fullmatch(text)
        and math.isfinite(number := float(text))
        and (number or not _NOT_ZERO.match(text))
    ):
        return number
    return text
