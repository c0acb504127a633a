"""Converts a script's config to params: OmegaConf, argparse, dataclasses, NumPy's values and so on.

The same config becomes the same data in every process, because the attempts at a run compare theirs. Nothing
is imported for it.
"""

import argparse
import enum
import re
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from math import prod
from pathlib import PurePath
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

from halving.errors import InvalidInput
from halving.store.retry import warn_once

_MAX_DEPTH = 20
_MAX_VALUES = 1000  # in an array or a range that is kept as a list
_MAX_TEXT = 1000  # characters of an object's text
_MAX_NAMES = 8  # in a warning
_MAX_NUMBER = 10**600  # Python refuses to parse a whole number of some thousand digits
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def recorded_params(config: Any) -> dict[str, Any]:
    """Convert a config to plain data, and warn once of the values that are kept as text.

    Raises:
        InvalidInput: as :func:`convert_config`.
    """
    params, texts = convert_config(config)
    if texts:
        listed = _shorten(texts)
        warn_once(
            f"config {listed}",
            f"kept as text in the run's params, since they have no value of their own: {listed}",
        )
    return params


def convert_config(config: Any) -> tuple[dict[str, Any], list[str]]:
    """Convert a config to plain data; returns it and the dotted names of values that are kept as text.

    Raises:
        InvalidInput: the config has no names, or is a class whose instances have the values.
    """
    if config is None:
        return {}, []
    reader = _Reader()
    pairs = _own_values(config)
    if pairs is None:
        raise InvalidInput(
            f"config = {_text(config):.80} is not accepted: give names and values, such as a dictionary or "
            "a dataclass"
        )
    return reader.read_pairs(pairs, (), (id(config),)), reader.texts


def _shorten(names: list[str]) -> str:
    if len(names) > _MAX_NAMES:
        names = [*names[:_MAX_NAMES], "…"]
    return ", ".join(names)


def _own_values(config: Any) -> Mapping[Any, Any] | None:
    """The names and values of a config, which may be the script's own object or class; None without names."""
    config = _resolve(config)
    if not isinstance(config, type):
        pairs = _pairs_of(config)
        if pairs is not None:
            return pairs
    if isinstance(config, (str, bytes, Sequence, Set, int, float, enum.Enum, ModuleType)):
        return None
    if not hasattr(config, "__dict__"):
        return None
    if isinstance(config, enum.EnumType):
        return config.__members__
    if isinstance(config, type):
        _refuse_fields_without_values(config)
        return _of_class(config)
    own: dict[str, Any] = vars(config)
    return _of_class(type(config)) | own


def _of_class(kind: type) -> dict[str, Any]:
    """The values of a class and of its bases, without what their bodies define for instances."""
    values: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if name.startswith("_") or _is_for_instances(value, base):
                values.pop(name, None)
            elif isinstance(value, (classmethod, staticmethod)):
                values[name] = value.__func__
            else:
                values[name] = value
    return values


def _is_for_instances(value: Any, owner: type) -> bool:
    """Whether a class attribute is a method, a property or a slot, and not a function used as a value."""
    if not hasattr(value, "__get__"):
        return False
    function = getattr(value, "__func__", value)
    if not callable(function):
        return True
    name = getattr(function, "__qualname__", "")
    return name.startswith(f"{owner.__qualname__}.") and not name.endswith(".<lambda>")


def _refuse_fields_without_values(kind: type) -> None:
    """Refuse a class of pydantic, attrs or the like, if only its instances have values of its fields."""
    names: list[str] = []
    if is_dataclass(kind):
        names += [field.name for field in fields(kind)]
    names += [field.name for field in getattr(kind, "__attrs_attrs__", ())]
    if hasattr(kind, "__pydantic_core_schema__"):
        names += getattr(kind, "model_fields", ())
    if issubclass(kind, tuple):
        names += getattr(kind, "_fields", ())
    names += getattr(kind, "__struct_fields__", ())  # of msgspec
    values = _of_class(kind)
    missing = [name for name in names if name not in values]
    if missing:
        raise InvalidInput(
            f"config = class {kind.__qualname__} is not accepted: only its instances have values of "
            f"{_shorten(missing)}; give an instance, such as {kind.__qualname__}()"
        )


def _pairs_of(value: Any) -> Mapping[Any, Any] | None:
    """The names and values of an object that consists of such pairs; None for any other."""
    if isinstance(value, Mapping):
        return value
    if is_dataclass(value):
        return _fields_of(value, fields(value))
    if hasattr(type(value), "__attrs_attrs__"):
        return _fields_of(value, type(value).__attrs_attrs__)
    if isinstance(value, (argparse.Namespace, SimpleNamespace)):
        return vars(value)
    # Named tuples, pydantic, and the configs of Transformers and ml_collections have these methods.
    for method in ("_asdict", "model_dump", "to_dict"):
        if callable(getattr(type(value), method, None)):
            pairs = getattr(value, method)()
            if isinstance(pairs, Mapping):
                return pairs
    return None


def _fields_of(value: Any, members: Iterable[Any]) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in members if hasattr(value, field.name)}


class _Reader:
    """Turns values into plain data, and notes which of them are kept as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def read(self, value: Any, path: tuple[str, ...], above: tuple[int, ...] = ()) -> Any:
        """Convert a value to numbers, texts, lists and dicts.

        Args:
            path: the names that lead to it.
            above: the ids of the objects that contain it.
        """
        if isinstance(value, enum.Enum):
            return self._member(value, path, above)
        if value is None or isinstance(value, (bool, int, float, str)):
            return _basic(value)
        if id(value) in above or len(above) > _MAX_DEPTH:
            return self._as_text(type(value).__qualname__, path)
        try:
            return self._read_object(_resolve(value), path, (*above, id(value)))
        except Exception:  # noqa: BLE001
            # An error of the object's own code must not end a training.
            return self._as_text(_text(value), path)

    def read_pairs(
        self, pairs: Mapping[Any, Any], path: tuple[str, ...], above: tuple[int, ...]
    ) -> dict[str, Any]:
        """Convert names and values; a name gets its type appended if its text is taken already."""
        names = {name for name in pairs if isinstance(name, str)}
        params = {}
        for key, value in pairs.items():
            if isinstance(key, str):
                name = str.__str__(key)
            else:
                name = str(_Reader().read(key, (), above))
                while name in names:
                    name += f" ({type(key).__name__})"
            names.add(name)
            params[name] = self.read(value, (*path, name), above)
        return params

    def _read_object(self, value: Any, path: tuple[str, ...], above: tuple[int, ...]) -> Any:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).hex()
        if isinstance(value, (date, time)):
            return value.isoformat()
        if isinstance(value, (PurePath, UUID, timedelta)):
            return str(value)
        if isinstance(value, (Decimal, Fraction)):
            return _number(value)
        if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            return self._as_text(f"{value.__module__}.{value.__qualname__}", path)
        if hasattr(value, "shape") and hasattr(value, "ndim"):
            return self._array(value, tuple(value.shape), path, above)
        pairs = _pairs_of(value)
        if pairs is not None:
            return self.read_pairs(pairs, path, above)
        if isinstance(value, range) and len(value) > _MAX_VALUES:
            return self._as_text(str(value), path)
        if isinstance(value, Set):
            return sorted(self._read_items(value, path, above), key=repr)
        if isinstance(value, Sequence):
            return self._read_items(value, path, above)
        return self._as_text(_text(value), path)

    def _array(
        self, value: Any, shape: tuple[int, ...], path: tuple[str, ...], above: tuple[int, ...]
    ) -> Any:
        """Convert an array or a tensor to its values, if there are not too many."""
        dtype = getattr(value, "dtype", type(value).__name__)
        if prod(shape) > _MAX_VALUES:
            return self._as_text(f"array of {dtype}, {shape}", path)
        if getattr(dtype, "kind", "") in ("M", "m"):
            # item() of NumPy's times and durations may return a count of nanoseconds.
            value = value.astype(str)
        if not hasattr(value, "tolist"):
            pairs = _pairs_of(value)
            if pairs is None:
                return self._as_text(_text(value), path)
            return self.read_pairs(pairs, path, above)
        values = value.tolist()
        if type(values) is type(value):
            return self._as_text(_text(value), path)
        return self.read(values, path, above)

    def _read_items(self, values: Iterable[Any], path: tuple[str, ...], above: tuple[int, ...]) -> list[Any]:
        return [self.read(value, path, above) for value in values]

    def _member(self, member: enum.Enum, path: tuple[str, ...], above: tuple[int, ...]) -> Any:
        """An enumeration's member: its value if that is plain data, else its name."""
        values = _Reader()
        value = values.read(member.value, path, above)
        if values.texts:
            return member.name
        return value

    def _as_text(self, text: str, path: tuple[str, ...]) -> str:
        name = ".".join(path)
        if name not in self.texts:
            self.texts.append(name)
        return text


def _basic(value: Any) -> Any:
    """None, a boolean, a number or a text, as Python's own type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int.__int__(value)
        if abs(number) >= _MAX_NUMBER:
            return hex(number)
        return number
    if isinstance(value, float):
        return float.__float__(value)
    return str.__str__(value)


def _number(value: Decimal | Fraction) -> Any:
    """The int or the float that is equal to a decimal number or a fraction; its text, if there is none."""
    if isinstance(value, Decimal) and not value.is_finite():
        if value.is_snan():
            return str(value)
        return float(value)
    if isinstance(value, Decimal) and abs(value.adjusted()) > len(str(_MAX_NUMBER)):
        return str(value)  # An int would have all of its zeros.
    if value == int(value):
        return _basic(int(value))
    if type(value)(repr(float(value))) == value:
        return float(value)
    return str(value)


def _resolve(value: Any) -> Any:
    """Convert an OmegaConf to a dict or list, with interpolations resolved if all of them can be."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is None or not omegaconf.OmegaConf.is_config(value):
        return value
    try:
        return omegaconf.OmegaConf.to_container(value, resolve=True)
    except omegaconf.errors.OmegaConfBaseException:
        return omegaconf.OmegaConf.to_container(value, resolve=False)


def _text(value: Any) -> str:
    """An object's text without memory addresses; the name of its type, if its ``str`` fails."""
    try:
        return _ADDRESS.sub("", str(value))[:_MAX_TEXT]
    except Exception:  # noqa: BLE001
        # The object's own code may raise anything.
        return type(value).__qualname__
