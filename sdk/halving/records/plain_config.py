"""A run's hyperparameters as plain data, of configs as training scripts have them: OmegaConf's, argparse's,
dataclasses, NumPy's values.

The same config gives the same data in every process, because the attempts at a run compare theirs. Nothing is
imported for it.
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

_DEEPEST = 20
_MOST_VALUES = 1000  # of an array or a range that is kept as its values
_LONGEST_TEXT = 1000  # characters of what an object prints
_MOST_NAMES = 8  # that a warning lists
_LARGEST = 10**600  # Python reads back no whole number of some thousand digits
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def recorded_params(config: Any) -> dict[str, Any]:
    """Give a config's names and values as plain data, and warn once of those that are kept as text.

    Raises:
        InvalidInput: as :func:`plain_config`.
    """
    params, texts = plain_config(config)
    if texts:
        listed = ", ".join(texts[:_MOST_NAMES]) + (", …" if len(texts) > _MOST_NAMES else "")
        warn_once(
            f"config {listed}",
            f"kept as text in the run's params, since they have no value of their own: {listed}",
        )
    return params


def plain_config(config: Any) -> tuple[dict[str, Any], list[str]]:
    """Give a config's names and values as plain data, and the dotted names of the values of which only the
    text is kept.

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
    return reader.named(pairs, (), (id(config),)), reader.texts


def _own_values(config: Any) -> Mapping[Any, Any] | None:
    """The names and values of a config, also of an object or a class of the script's own; None of what has no
    names.
    """
    config = _resolved(config)
    if not isinstance(config, type) and (pairs := _pairs_of(config)) is not None:
        return pairs
    if isinstance(config, (str, bytes, Sequence, Set, int, float, enum.Enum, ModuleType)) or not hasattr(
        config, "__dict__"
    ):
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
            else:
                values[name] = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    return values


def _is_for_instances(value: Any, owner: type) -> bool:
    """Whether an attribute of a class is a method, a property or a slot, and not a function that the class
    was given as a value.
    """
    if not hasattr(value, "__get__"):
        return False
    function = getattr(value, "__func__", value)
    if not callable(function):
        return True
    name = getattr(function, "__qualname__", "")
    return name.startswith(f"{owner.__qualname__}.") and not name.endswith(".<lambda>")


def _refuse_fields_without_values(kind: type) -> None:
    """
    Raises:
        InvalidInput: it is a class of pydantic, attrs or the like, whose fields only its instances have.
    """
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    names += [field.name for field in getattr(kind, "__attrs_attrs__", ())]
    names += getattr(kind, "model_fields", ()) if hasattr(kind, "__pydantic_core_schema__") else ()
    names += getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()
    names += getattr(kind, "__struct_fields__", ())  # of msgspec
    values = _of_class(kind)
    if missing := [name for name in names if name not in values]:
        listed = ", ".join(missing[:_MOST_NAMES]) + (", …" if len(missing) > _MOST_NAMES else "")
        raise InvalidInput(
            f"config = class {kind.__qualname__} is not accepted: only its instances have values of "
            f"{listed}; "
            f"give an instance, such as {kind.__qualname__}()"
        )


def _pairs_of(value: Any) -> Mapping[Any, Any] | None:
    """The names and values that an object consists of, or None."""
    if isinstance(value, Mapping):
        return value
    if is_dataclass(value):
        return {
            field.name: getattr(value, field.name) for field in fields(value) if hasattr(value, field.name)
        }
    if hasattr(type(value), "__attrs_attrs__"):
        return {
            field.name: getattr(value, field.name)
            for field in type(value).__attrs_attrs__
            if hasattr(value, field.name)
        }
    if isinstance(value, (argparse.Namespace, SimpleNamespace)):
        return vars(value)
    for method in ("_asdict", "model_dump", "to_dict"):
        # named tuples; pydantic; Transformers' and ml_collections' configs
        if callable(getattr(type(value), method, None)) and isinstance(
            pairs := getattr(value, method)(), Mapping
        ):
            return pairs
    return None


class _Reader:
    """Turns values into plain data, and notes which of them are kept as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def plain(self, value: Any, path: tuple[str, ...], above: tuple[int, ...] = ()) -> Any:
        """A value as numbers, texts, lists and dicts.

        Args:
            path: the names that lead to it.
            above: the ids of what it lies in.
        """
        if isinstance(value, enum.Enum):
            return self._member(value, path, above)
        if value is None or isinstance(value, (bool, int, float, str)):
            return _basic(value)
        if id(value) in above or len(above) > _DEEPEST:
            return self._as_text(type(value).__qualname__, path)
        try:
            return self._compound(_resolved(value), path, (*above, id(value)))
        except Exception:  # noqa: BLE001
            # what an object does when it is asked for its values must not end a training
            return self._as_text(_text(value), path)

    def named(
        self, pairs: Mapping[Any, Any], path: tuple[str, ...], above: tuple[int, ...]
    ) -> dict[str, Any]:
        """Names and values with names that are texts; of two that become one text, the later has its type
        behind it.
        """
        names = {name for name in pairs if isinstance(name, str)}
        params = {}
        for key, value in pairs.items():
            name = str.__str__(key) if isinstance(key, str) else str(_Reader().plain(key, (), above))
            while not isinstance(key, str) and name in names:
                name += f" ({type(key).__name__})"
            names.add(name)
            params[name] = self.plain(value, (*path, name), above)
        return params

    def _compound(self, value: Any, path: tuple[str, ...], above: tuple[int, ...]) -> Any:
        if value is None or isinstance(value, (str, bytes, bytearray, memoryview)):
            return value if value is None or isinstance(value, str) else bytes(value).hex()
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
        if (pairs := _pairs_of(value)) is not None:
            return self.named(pairs, path, above)
        if isinstance(value, range) and len(value) > _MOST_VALUES:
            return self._as_text(str(value), path)
        if isinstance(value, Set):
            return sorted(self._listed(value, path, above), key=repr)
        if isinstance(value, Sequence):
            return self._listed(value, path, above)
        return self._as_text(_text(value), path)

    def _array(
        self, value: Any, shape: tuple[int, ...], path: tuple[str, ...], above: tuple[int, ...]
    ) -> Any:
        """An array or a tensor: its values, where there are not too many."""
        dtype = getattr(value, "dtype", type(value).__name__)
        if prod(shape) > _MOST_VALUES:
            return self._as_text(f"array of {dtype}, {shape}", path)
        if getattr(dtype, "kind", "") in ("M", "m"):
            # of NumPy's moments and durations item() may give a count of nanoseconds
            value = value.astype(str)
        if not hasattr(value, "tolist"):
            pairs = _pairs_of(value)
            return self._as_text(_text(value), path) if pairs is None else self.named(pairs, path, above)
        values = value.tolist()
        return (
            self._as_text(_text(value), path)
            if type(values) is type(value)
            else self.plain(values, path, above)
        )

    def _listed(self, values: Iterable[Any], path: tuple[str, ...], above: tuple[int, ...]) -> list[Any]:
        return [self.plain(value, path, above) for value in values]

    def _member(self, member: enum.Enum, path: tuple[str, ...], above: tuple[int, ...]) -> Any:
        """An enumeration's member: its value if that is plain data, else its name."""
        values = _Reader()
        value = values.plain(member.value, path, above)
        return member.name if values.texts else value

    def _as_text(self, text: str, path: tuple[str, ...]) -> str:
        name = ".".join(path)
        if name not in self.texts:
            self.texts.append(name)
        return text


def _basic(value: Any) -> Any:
    """None, a flag, a number or a text, as Python's own type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int.__int__(value)
        return number if abs(number) < _LARGEST else hex(number)
    return float.__float__(value) if isinstance(value, float) else str.__str__(value)


def _number(value: Decimal | Fraction) -> Any:
    """The whole number or the float that reads like a decimal number or a fraction; its text, if there is
    none.
    """
    if isinstance(value, Decimal) and not value.is_finite():
        return str(value) if value.is_snan() else float(value)
    if isinstance(value, Decimal) and abs(value.adjusted()) > len(str(_LARGEST)):
        return str(value)  # before its zeros are written out
    if value == int(value):
        return _basic(int(value))
    return float(value) if type(value)(repr(float(value))) == value else str(value)


def _resolved(value: Any) -> Any:
    """The dict or list of an OmegaConf, with its interpolations resolved if all of them can be; anything else
    as it is.
    """
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is None or not omegaconf.OmegaConf.is_config(value):
        return value
    try:
        return omegaconf.OmegaConf.to_container(value, resolve=True)
    except omegaconf.errors.OmegaConfBaseException:
        return omegaconf.OmegaConf.to_container(value, resolve=False)


def _text(value: Any) -> str:
    """What an object prints, without the addresses of this process; its type's name, where it prints
    nothing.
    """
    try:
        return _ADDRESS.sub("", str(value))[:_LONGEST_TEXT]
    except Exception:  # noqa: BLE001  # whatever its author did there
        return type(value).__qualname__
