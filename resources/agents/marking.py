"""Text that runs and people recorded, marked as data: an agent must read it, and never obey it.

The whole answer of a tool stands between two marks, which its instructions explain once. Nothing that was
recorded can bring its own mark, a line of its own, or letters that nobody sees.
"""

import json
import math
import re
import unicodedata
from typing import Any

from halving.query.json_values import jsonable
from halving.records.redaction import HIDDEN, is_secret_name, text_without_secrets
from resources.agents.budget import cut

OPENING = "<halving-data>"
CLOSING = "</halving-data>"
NAME_TOKENS = 45
"""Tokens of a name; a run's id, at most 128 letters, is never cut."""
VALUE_TOKENS = 40
"""Tokens of a value."""

# A mark, or what a reader takes for one, with any of the signs that look like its brackets.
_MARK = re.compile(r"[<\uff1c\ufe64\u2039\u3008\u27e8]\s*[/\uff0f\u2215\u2044]?\s*(?=halving)", re.IGNORECASE)
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# Letters and signs that Unicode draws as nothing though they are of other categories: variation selectors, in
# which whole texts were hidden from people, fillers, and the blank of Braille.
_DRAWN_AS_NOTHING = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def clean(text: object, tokens: int = NAME_TOKENS) -> str:
    """A recorded text in one line, without secrets, invisible letters and marks, cut to some tokens."""
    line = str(text)
    # What is cut off anyway need not be looked at, as a text may have megabytes.
    line = line[: 20 * tokens]
    line = _DRAWN_AS_NOTHING.sub("", line)
    visible = "".join(" " if unicodedata.category(letter) in _INVISIBLE else letter for letter in line)
    normal = " ".join(visible.split())
    return cut(text_without_secrets(_MARK.sub("(", normal)), tokens)


def without_marks(text: str) -> str:
    """The text without anything that passes for a mark; the last look at what is sent between the marks."""
    return _MARK.sub("(", text)


def clean_value(name: str, value: object, tokens: int = VALUE_TOKENS) -> str:
    """A recorded value in one line; hidden where its name is that of a secret."""
    if isinstance(value, str) and is_secret_name(name.rpartition("/")[2]):
        return HIDDEN
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return cut(str(value), tokens)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return clean(value, tokens)
    return clean(json.dumps(_without_secrets(jsonable(value)), ensure_ascii=False, default=str), tokens)


def number(value: float | None) -> str:
    """A number in at most six digits; NaN and infinities by their names."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "NaN"
    return f"{value:.6g}"


def pairs(values: dict[str, Any], tokens: int = VALUE_TOKENS) -> str:
    """Names with values in one line: ``lr=0.1 optimizer=adam``."""
    return " ".join(f"{clean(name)}={clean_value(name, value, tokens)}" for name, value in values.items())


def match_name(wanted: str, names: list[str]) -> str | None:
    """The name that an agent means, who has seen it as :func:`clean` shows it; None if none or several."""
    if wanted in names:
        return wanted
    matches = [name for name in names if clean(name) == wanted]
    if len(matches) == 1:
        return matches[0]
    return None


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        safe = {name: _without_secrets(item) for name, item in value.items()}
        hidden = {
            name: HIDDEN for name, item in safe.items() if isinstance(item, str) and is_secret_name(name)
        }
        return safe | hidden
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return value
