"""Values and names in messages for people."""

import difflib
from collections.abc import Iterable
from typing import Any


def comma_list(values: Iterable[Any]) -> str:
    """Join values with commas, ``1, 3, 9``, for people; ``nothing`` if there are none."""
    return ", ".join(map(str, values)) or "nothing"


def did_you_mean(written: Any, accepted: Iterable[Any]) -> str:
    """``, did you mean 'tpe'?`` if something accepted looks like what was written, else nothing."""
    by_text = {str(value): value for value in accepted}
    matches = difflib.get_close_matches(str(written), by_text, n=1)
    if not matches:
        return ""
    return f", did you mean {by_text[matches[0]]!r}?"
