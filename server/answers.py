"""JSON answers, and content negotiation by a request's headers.

JSON follows the same rules as ``halving … --json``.
"""

import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Header, Response

from halving.query.json_values import jsonable

Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""Of an answer's model."""
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="The ETag of the answer that is known already.")
]
"""Of a route's arguments."""


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response; NaN and infinities become ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``."""
    return Response(_encode(data), status, headers, media_type="application/json")


def _encode(data: Any) -> bytes:
    form: dict[str, Any] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    try:  # nearly all answers have finite numbers alone, and need not be gone through first
        return json.dumps(data, default=datetime.isoformat, **form).encode()
    except ValueError:
        return json.dumps(jsonable(data), **form).encode()


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Whether ``If-None-Match`` names an answer's tag; ``*`` matches every answer."""
    named = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
    return "*" in named or tag.removeprefix("W/") in named


def chosen_type(accept: str, kinds: Sequence[str]) -> str | None:
    """The media type of ``kinds`` that ``Accept`` prefers.

    The highest quality wins, then the most exact range, then the earlier one.

    The first of ``kinds`` where nothing decides; None where none is accepted.
    """
    ranges = [_range(text) for text in (accept.strip() or "*/*").split(",")]
    best: tuple[float, int, int] | None = None
    best_kind = None
    for kind in kinds:
        named = {kind: 2, kind.partition("/")[0] + "/*": 1, "*/*": 0}
        fitting = [
            (named[name], -place, quality) for place, (name, quality) in enumerate(ranges) if name in named
        ]
        if not fitting:
            continue
        exactness, place, quality = max(fitting)  # the most exact range says what a type is worth
        if quality > 0 and (best is None or (quality, exactness, place) > best):
            best = (quality, exactness, place)
            best_kind = kind
    return best_kind


def _range(text: str) -> tuple[str, float]:
    """Parse a media range of ``Accept`` with its quality; a quality that is no number counts as 0."""
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                quality = float(parameter[2:])
            except ValueError:
                quality = 0.0
            if not math.isfinite(quality):
                return name, 0.0
            return name, min(quality, 1.0)
    return name, 1.0
