"""The query of Compare's address, which is a whole view: what may stand in it, checked.

The page ignores what it cannot read in an address (``server/static/compare/view.js``). A view that is kept is
checked instead, so that it shows tomorrow what it was saved for.
"""

import math
import re
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

from halving.errors import InvalidInput
from halving.query.run_filter import InvalidFilter
from halving.query.run_filter_parser import parse_fields, parse_filter

MAX_LENGTH = 16_000
"""Characters of a query, as long as addresses are that servers and browsers take."""

_READABLE = ",/:@()'!$;*"  # What the page leaves as it is in an address (lib/url-state.js).
_MAX_TOP = 1_000
_MAX_RANGE = 1_000  # characters: a range may begin behind each colon, and is read to its end from there
_TABS = ("curves", "parameters", "system", "media", "diff")
# No text matches these in two ways, since trying them all would take a long text's time squared.
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?"
_TEXT = r"\((?:[^)]|\)\))*\)"
_WINDOW = re.compile(rf"({_NUMBER})_({_NUMBER})", re.IGNORECASE)
_METRIC_WINDOW = re.compile(rf".+:({_NUMBER}_{_NUMBER})", re.IGNORECASE | re.DOTALL)
_RANGE = re.compile(rf".+?:(?:{_NUMBER}_{_NUMBER}|{_TEXT}_{_TEXT})", re.IGNORECASE | re.DOTALL)
_UNPRINTABLE = re.compile("[\x00\ud800-\udfff]")


def check_query(text: str) -> str:
    """Return a query of Compare in its one written form, without what is empty.

    Args:
        text: the query of an address, with or without its ``?``.

    Raises:
        InvalidInput: it is too long, has a name that Compare does not have, or one twice that it has once; or
            a value is not accepted.
    """
    pairs = pairs_of(text)
    for name, value in pairs:
        _CHECKS[name](name, value)
    return urlencode(pairs, safe=_READABLE)


def pairs_of(text: str) -> list[tuple[str, str]]:
    """The names and values of a query, in their order; values are not checked.

    Raises:
        InvalidInput: it is too long, or has a name that Compare does not have, or one twice that it has once.
    """
    text = text.removeprefix("?")
    if len(text) > MAX_LENGTH:
        raise InvalidInput(f"query of {len(text)} characters is not accepted: give at most {MAX_LENGTH}")
    names = []
    pairs = []
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name not in _CHECKS:
            raise InvalidInput(
                f"query: name {name!r:.100} is not accepted: a view of Compare has {', '.join(NAMES)}"
            )
        if not value:
            continue
        if name in names and name not in MANY:
            raise InvalidInput(f"query: {name} is there twice: give it once")
        if _UNPRINTABLE.search(value):
            raise InvalidInput(f"query: {name} holds NUL or half of a surrogate pair: give text")
        names.append(name)
        pairs.append((name, value))
    return pairs


def value_of(text: str, name: str) -> str:
    """One value of a checked query; empty where it does not have it."""
    return dict(parse_qsl(text)).get(name, "")


def _check_filter(name: str, value: str) -> None:
    try:
        parse_filter(value)
    except InvalidFilter as error:
        raise _error(name, value, str(error)) from None


def _check_fields(name: str, value: str) -> None:
    try:
        parse_fields(value)
    except InvalidFilter as error:
        raise _error(name, value, str(error)) from None


def _check_group(name: str, value: str) -> None:
    _check_fields(name, value)
    if len(parse_fields(value)) > 1:
        raise _error(name, value, "give one field, such as params.optimizer")


def _check_text(name: str, value: str) -> None:
    """Any text is a search, or the name of what one run may have tomorrow."""


def _check_ids(name: str, value: str) -> None:
    for run in value.split(","):
        project, _, rest = run.partition("/")
        if not (project and rest):
            raise _error(name, run, "give runs as project/run, with commas between")


def _check_window(name: str, value: str) -> None:
    if not _is_window(value):
        raise _error(name, value, "give LOW_HIGH, two numbers, the lower one first")


def _check_metric_window(name: str, value: str) -> None:
    match = _METRIC_WINDOW.fullmatch(value)
    if match is None or not _is_window(match[1]):
        raise _error(name, value, "give METRIC:LOW_HIGH, two numbers, the lower one first")


def _is_window(text: str) -> bool:
    """Whether a text is two finite numbers, the lower one first."""
    bounds = _WINDOW.fullmatch(text)
    return bounds is not None and -math.inf < float(bounds[1]) < float(bounds[2]) < math.inf


def _check_range(name: str, value: str) -> None:
    if len(value) > _MAX_RANGE or not _RANGE.fullmatch(value):
        raise _error(name, value, "give NAME:LOW_HIGH, two numbers, or two texts in parentheses")


def _check_top(name: str, value: str) -> None:
    if not (value.isascii() and value.isdecimal() and int(value[:9]) <= _MAX_TOP and len(value) < 9):
        raise _error(name, value, f"give a whole number from 0 to {_MAX_TOP}")


def _check_smoothing(name: str, value: str) -> None:
    if not re.fullmatch(_NUMBER, value, re.IGNORECASE) or not 0 <= float(value) < 1:
        raise _error(name, value, "give a number from 0, less than 1")


def _check_step(name: str, value: str) -> None:
    if not re.fullmatch(_NUMBER, value, re.IGNORECASE) or not math.isfinite(float(value)):
        raise _error(name, value, "give a number")


def _one_of(*accepted: str) -> Callable[[str, str], None]:
    def check(name: str, value: str) -> None:
        if value not in accepted:
            raise _error(name, value, f"give {' or '.join(accepted)}")

    return check


def _error(name: str, value: str, reason: str) -> InvalidInput:
    return InvalidInput(f"query: {name} = {value!r:.200} is not accepted: {reason}")


_CHECKS: dict[str, Callable[[str, str], None]] = {
    "filter": _check_filter,
    "columns": _check_fields,
    "group": _check_group,
    "metrics": _check_text,
    "show": _check_ids,
    "hide": _check_ids,
    "top": _check_top,
    "tab": _one_of(*_TABS),
    "x": _one_of("step", "time", "relative"),
    "sysx": _one_of("time", "relative"),
    "logx": _one_of("1"),
    "logy": _one_of("1"),
    "smooth": _check_smoothing,
    "band": _one_of("0", "1"),
    "zoom": _check_window,
    "zoom-time": _check_window,
    "zoom-relative": _check_window,
    "zoom-y": _check_metric_window,
    "mark": _check_range,
    "fold": _check_text,
    "color": _check_text,
    "axes": _check_text,
    "sx": _check_text,
    "sy": _check_text,
    "media-step": _check_step,
    "media-size": _one_of("small", "medium", "large"),
    "all": _one_of("1"),
}
NAMES = tuple(_CHECKS)
"""What Compare's address may have; ``server/static/compare/saved-views.js`` has the same names."""
MANY = ("zoom-y", "mark", "fold")
"""Those that it may have several times."""
