"""JSON as the store keeps it, and the times in records."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput


def to_json(value: Any) -> bytes:
    """JSON that reads well and is equal for equal values.

    Raises:
        InvalidInput: something in it is not plain data.
    """
    try:
        return json.dumps(value, indent=1, sort_keys=True, default=_jsonable).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{error}; accepted are numbers, strings, lists and dicts") from None


def now() -> str:
    """The present time, ISO 8601 in UTC to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _jsonable(value: Any) -> Any:
    """Make plain data of a scalar of NumPy's or PyTorch's, or of a path."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r:.80} of type {type(value).__qualname__} is not accepted in a run's record")
