"""One request to MLflow's API: its caller and its fields.

What is not accepted is refused in the words of MLflow's own server.
"""

import json
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session
from starlette.types import Scope

from server.access.write_log import RECORDED, WriteLog
from server.identity.caller import Caller
from server.mlflow.refusals import Refused
from server.state import State

# characters
MAX_KEY_LETTERS = 250
MAX_PARAM_LETTERS = 6_000
MAX_TAG_LETTERS = 8_000
_LATEST = 253_402_300_799_999  # ms: the end of the year 9999, after which no calendar goes
_SEE = "See the API docs for more information about request parameters."
_KEY = re.compile(r"[/\w.\- :]*")
_KEYS = (
    "Names may only contain alphanumerics, underscores (_), dashes (-), periods (.), spaces ( ), colon(:) "
    "and slashes (/)."
)
_INTEGERS = 2**63


@dataclass(frozen=True)
class Call:
    """A request to MLflow's API.

    Its methods raise :class:`Refused` with ``INVALID_PARAMETER_VALUE`` where a field is not accepted.
    """

    state: State
    caller: Caller
    write_log: WriteLog
    scope: Scope
    fields: dict[str, Any]
    status: int = 200

    def check(self, project: str, subject: str) -> None:
        """Refuse something of a project that the caller may not see.

        Raises:
            Refused: ``PERMISSION_DENIED``.
        """
        if not self.caller.sees(project):
            raise Refused("PERMISSION_DENIED", f"{subject} is of another project than those of this token")

    def log_write(self, session: Session) -> None:
        """Add the request to the write log, in the transaction of its work."""
        self.write_log.add(session, self.scope, self.status)
        self.scope[RECORDED] = True

    def text(self, name: str, *other: str) -> str:
        """A required text field."""
        value = self.maybe_text(name, *other)
        if not value:
            raise missing(name)
        return value

    def maybe_text(self, name: str, *other: str) -> str | None:
        """An optional text field; ``other`` are its earlier names."""
        for each in (name, *other):
            value = self.fields.get(each)
            if value is not None:
                return checked_text(name, value)
        return None

    def number(self, name: str, otherwise: int) -> int:
        """An integer, which may be given as text."""
        return integer(name, self.fields.get(name), otherwise)

    def maybe_number(self, name: str) -> int | None:
        if self.fields.get(name) in (None, ""):
            return None
        return self.number(name, 0)

    def time(self, name: str) -> int | None:
        """A time in ms since 1970; None where it is 0 or not given."""
        ms = self.number(name, 0)
        if not 0 <= ms <= _LATEST:
            raise invalid(name, ms, f"give ms since 1970, at most {_LATEST}")
        return ms or None

    def texts(self, name: str) -> list[str]:
        return [checked_text(name, value) for value in self.items(name)]

    def items(self, name: str) -> list[Any]:
        values = self.fields.get(name)
        if values is None:
            return []
        if isinstance(values, str) and self.scope["method"] == "GET":
            return [values]
        if not isinstance(values, list):
            raise invalid(name, values)
        return values

    def objects(self, name: str) -> list[dict[str, Any]]:
        values = self.items(name)
        for place, member in enumerate(values):
            if not isinstance(member, dict):
                raise invalid(f"{name}[{place}]", member)
        return values

    def experiment(self) -> int:
        """The experiment's id that the request names."""
        value = self.fields.get("experiment_id")
        if value in (None, ""):
            value = self.text("experiment_id")
        return experiment_number(value)

    def tags(self, name: str = "tags") -> dict[str, str]:
        """The tags of something new."""
        return dict(tag(item, f"{name}[{place}]") for place, item in enumerate(self.objects(name)))


def experiment_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):  # 1.5 is no experiment, and not 1
        raise invalid("experiment_id", value)
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Invalid experiment ID '{value}'. Experiment ID must be a valid integer.",
        ) from None
    if not -_INTEGERS <= number < _INTEGERS:
        raise Refused("RESOURCE_DOES_NOT_EXIST", f"No Experiment with id={value} exists")
    return number


def missing(name: str) -> Refused:
    return Refused("INVALID_PARAMETER_VALUE", f"Missing value for required parameter '{name}'. {_SEE}")


def invalid(name: str, value: Any, hint: str = "") -> Refused:
    text = json.dumps(value, default=str)[:200]
    hint = hint or f"Hint: Value was of type '{type(value).__name__}'. {_SEE}"
    return Refused("INVALID_PARAMETER_VALUE", f"Invalid value {text} for parameter '{name}' supplied: {hint}")


def too_long(name: str, limit: int) -> Refused:
    return Refused("INVALID_PARAMETER_VALUE", f"'{name}' exceeds the maximum length of {limit} characters")


def checked_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise invalid(name, value)
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise invalid(name, value, "it holds NUL or half of a surrogate pair, which no database takes")
    return value


def integer(name: str, value: Any, otherwise: int) -> int:
    """Parse a 64-bit integer in any form that protobuf accepts."""
    if value is None or value == "":
        return otherwise
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -_INTEGERS <= value < _INTEGERS:
        raise invalid(name, value)
    return value


def key(name: str, value: Any) -> str:
    """Check the name of a param, metric or tag."""
    if value is None or value == "":
        raise missing(name)
    text = checked_text(name, value)
    if not _KEY.fullmatch(text):
        raise invalid(name, text, _KEYS)
    normal = posixpath.normpath(text)
    if normal != text or normal == "." or normal.startswith(("..", "/")):
        raise invalid(
            name,
            text,
            "Names may be treated as files in certain cases, and must not resolve to other names when "
            f"treated as such. This name would resolve to {normal!r}",
        )
    if len(text) > MAX_KEY_LETTERS:
        raise too_long(name, MAX_KEY_LETTERS)
    return text


def value_of(item: dict[str, Any]) -> Any:
    """The value of a param or a tag; empty where it is null or left out."""
    value = item.get("value")
    return "" if value is None else value


def param(item: dict[str, Any], path: str = "") -> tuple[str, str]:
    """A param's key and value; a long value is cut as MLflow's server does."""
    before = f"{path}." if path else ""
    name = key(f"{before}key", item.get("key"))
    text = checked_text(f"{before}value", value_of(item))
    return name, text[:MAX_PARAM_LETTERS]


def tag(item: dict[str, Any], path: str = "") -> tuple[str, str]:
    """A tag's key and value; a long value is cut as MLflow's server does."""
    before = f"{path}." if path else ""
    name = key(f"{before}key", item.get("key"))
    text = checked_text(f"{before}value", value_of(item))
    return name, text[:MAX_TAG_LETTERS]


def time_of(name: str, value: Any) -> int:
    """A metric's time in ms since 1970."""
    if value is None or value == "":
        raise missing(name)
    time = integer(name, value, 0)
    if not 0 <= time <= _LATEST:
        raise invalid(
            name,
            time,
            f"Timestamp must be a nonnegative long (64-bit integer), at most {_LATEST}: ms since 1970",
        )
    return time


def number(name: str, value: Any) -> float:
    """Parse a double; NaN and infinities may be given as text."""
    if value is None or value == "":
        raise missing(name)
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", value):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise invalid(name, value)
    try:
        return float(value)
    except OverflowError:
        raise invalid(name, "…", "Please specify value as a valid double (64-bit floating point)") from None


def check_count(kind: str, limit: int, items: Sequence[object]) -> None:
    """Refuse more than ``limit`` items."""
    if len(items) > limit:
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"A batch logging request can contain at most {limit} {kind}. Got {len(items)} {kind}. Please "
            f"split up {kind} across multiple requests and try again.",
        )
