"""Which values may be logged: numbers, 0-d tensors, media, and dicts of these.

They are sorted by how they are stored.
"""

import re
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from halving.ingest.device_tensors import is_on_device

if TYPE_CHECKING:
    from halving.ingest.media import Media

KEY_RULE = "give 1-256 characters, none of them a control character"
VALUE_RULE = (
    "give a number, a numpy scalar, a 0-d tensor, a dict of them, or a halving.Image, Table, Histogram, "
    "Text, Audio, Video or Html"
)
NUMBER_TYPES = frozenset({int, float, bool})
# Half a surrogate pair is excluded as well, because it has no UTF-8 form.
_KEY = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_FLOAT_MAX = 1.7976931348623157e308


class Sorted(NamedTuple):
    """Values sorted by how they are stored. Keys of nested dicts are joined by ``/``.

    Attributes:
        numbers: key to float.
        device: key to a 0-d tensor that is not in this process's memory, but on a GPU.
        media: key to an image, table, histogram, text, sound, video or HTML.
        wrong: what is not accepted: key to the message.
    """

    numbers: dict[str, float]
    device: dict[str, Any]
    media: "dict[str, Media]"
    wrong: dict[str, str]


def sort_values(values: Mapping[str, Any]) -> Sorted:
    """Flatten the values of a ``log()`` call and sort them by how they are stored.

    Wrong keys and values are collected in ``wrong``; nothing raises.
    """
    sorted_values = Sorted({}, {}, {}, {})
    if not isinstance(values, Mapping):
        sorted_values.wrong["values"] = (
            f"values {_kind(values)} is not accepted: give a dict of names to numbers"
        )
        return sorted_values
    _sort("", values, sorted_values)
    return sorted_values


def is_key(name: Any) -> bool:
    """Whether a metric may have this name."""
    return isinstance(name, str) and _KEY.fullmatch(name) is not None


def _sort(prefix: str, values: Mapping[Any, Any], sorted_values: Sorted) -> None:
    for name, value in values.items():
        key = name
        if isinstance(name, str):
            key = f"{prefix}{name}"
        if not is_key(key):
            sorted_values.wrong[f"{key!r:.80}"] = f"metric name {key!r:.80} is not accepted: {KEY_RULE}"
        elif key in sorted_values.numbers or key in sorted_values.device or key in sorted_values.media:
            sorted_values.wrong[key] = (
                f"metric {key!r} is given twice: once by its name with '/', once as a dict in a dict"
            )
        elif isinstance(value, (int, float)):
            _add_number(key, value, value, sorted_values)
        elif isinstance(value, Mapping):
            _sort(f"{key}/", value, sorted_values)
        elif callable(getattr(value, "encode", None)) and hasattr(value, "media_type"):
            sorted_values.media[key] = value
        elif is_on_device(value) and not value.is_complex():
            sorted_values.device[key] = value
        elif getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            _add_number(key, value.item(), value, sorted_values)
        else:
            sorted_values.wrong[key] = _refusal(key, value)


def _add_number(key: str, number: Any, original: Any, sorted_values: Sorted) -> None:
    if not isinstance(number, (int, float)):
        sorted_values.wrong[key] = _refusal(key, original)
    elif isinstance(number, int) and not -_FLOAT_MAX <= number <= _FLOAT_MAX:
        sorted_values.wrong[key] = (
            f"metric {key!r} = an integer of {number.bit_length()} bits is not accepted: give one that a "
            "float64 can hold"
        )
    else:
        sorted_values.numbers[key] = float(number)


def _refusal(key: str, value: Any) -> str:
    # No repr of arbitrary objects: that of a long list takes a while, and that of a tensor on a GPU waits for
    # the GPU.
    if isinstance(value, str):
        described = repr(value[:60])
    elif isinstance(value, (complex, NoneType)):
        described = repr(value)
    else:
        described = _kind(value)
    return f"metric {key!r} = {described} is not accepted: {VALUE_RULE}"


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        return f"a {type(value).__qualname__}"
    return f"a {type(value).__qualname__} of shape {tuple(shape)}"
