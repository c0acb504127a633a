"""What a script logs, as values that :meth:`halving.Run.log` takes."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from halving.errors import InvalidInput

INTERNAL = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
"""Names that are W&B's own, which a script may log and which are not recorded."""

_MAX_LISTED = 32  # Arrays with more values become histograms, as in W&B.
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LIBRARIES = frozenset({"matplotlib", "pandas", "plotly"})
_NUMBER_TYPES = frozenset({int, float, bool})


def as_logged(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values: texts to :class:`halving.Text`, data types and arrays to media; None is left out.

    Charts become tables, and lists of media dicts by their numbers. What has no form here stays as it is, for
    the run to refuse, count and warn about.
    """
    logged = {}
    for name, value in values.items():
        if type(value).__name__ == "CustomChart" and hasattr(value, "table_key"):
            logged[value.table_key(name)] = converted(value.table)
        elif value is not None:
            logged[name] = converted(value)
    return logged


_converters: dict[type, Callable[[Any], Any]] = {}


def converted(value: Any) -> Any:
    """Convert one value."""
    kind = type(value)
    if kind in _NUMBER_TYPES:
        return value
    convert = _converters.get(kind)
    if convert is None:
        convert = _converters[kind] = _converter_of(value)
    try:
        return convert(value)
    except InvalidInput:
        return value  # The run refuses, counts and warns about it.


def _converter_of(value: Any) -> Callable[[Any], Any]:
    """How values of this value's type are converted; looked for once, because that takes microseconds."""
    if isinstance(value, str):
        return _text
    if isinstance(value, Mapping):
        return _mapping
    if is_data_type(value):
        return _media
    if type(value).__module__ == "numpy" and type(value).__name__ != "ndarray":
        return _as_it_is
    if hasattr(value, "ndim") and hasattr(value, "shape"):
        return _array
    if isinstance(value, Sequence):
        return _sequence
    return _of_library


def is_data_type(value: Any) -> bool:
    """Whether a value is an object of W&B's data types, such as ``wandb.Image``."""
    return any(kind.__name__ == "WBValue" for kind in type(value).__mro__)


def _as_it_is(value: Any) -> Any:
    return value


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return as_logged({str(name): inner for name, inner in value.items()})


def _sequence(value: Sequence[Any]) -> Any:
    """A list of media by their numbers; any other has no form here."""
    if value and all(is_data_type(item) for item in value):
        return {str(number): _media(item) for number, item in enumerate(value)}
    return value


def _media(value: Any) -> Any:
    from halving.wandb.data_types import to_media

    return to_media(value)


def _text(value: str) -> Any:
    from halving.ingest.media import Text

    if value in _NUMBERS:
        return _NUMBERS[value]
    return Text(value)


def _array(value: Any) -> Any:
    """An array or tensor: a number if it has one value, and a histogram if it has many."""
    from halving.ingest.media import Histogram

    if not value.ndim:
        return value
    if type(value).__name__ == "DataFrame":
        return _of_library(value)
    if not hasattr(value, "reshape"):
        return value  # a series of pandas, which W&B does not take either
    count = math.prod(value.shape)
    if count == 1:
        return value.reshape(())
    if count <= _MAX_LISTED:
        return value
    return Histogram(value, bins=_MAX_LISTED)


def _of_library(value: Any) -> Any:
    """Figures of Matplotlib (``plt`` as well) and Plotly, and frames of pandas: images, HTML and tables."""
    if hasattr(value, "item") or _LIBRARIES.isdisjoint(sys.modules):  # a tensor's number is none of these
        return value
    from halving.wandb.data_types import to_media

    stored = to_media(value)
    if stored is None:
        return value
    return stored
