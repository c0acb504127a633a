"""Converts values to ones that JSON can hold."""

import math
from datetime import datetime
from typing import Any


def jsonable(value: Any) -> Any:
    """Replace what JSON cannot hold: NaN and infinities by their names, datetimes by ISO 8601."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if value == math.inf:
            return "Infinity"
        if value == -math.inf:
            return "-Infinity"
        return value
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value
