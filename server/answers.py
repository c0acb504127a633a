"""Answers as JSON, by the same rules as ``halving … --json``."""

import json
from typing import Any

from fastapi import Response

from halving.cli.output import jsonable


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Data as an answer; numbers that are not finite are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``."""
    content = json.dumps(jsonable(data), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, status, headers, media_type="application/json")
