"""Checkpoints as files: writing named state, and reading it back.

Objects with ``state_dict()`` (torch modules, optimizers, schedulers, scalers) are stored by it; everything
else must be plain data: numbers, strings, bytes, lists, dicts, numpy arrays or tensors. With torch imported
the file is a ``torch.save`` archive that loads with ``weights_only=True``; without it, JSON. Neither can run
code when loaded. An archive is written and read tensor by tensor; JSON is written entry by entry and read as
a whole. What many processes write together is in :mod:`halving.checkpoints.sharded`.
"""

import base64
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any, Protocol, runtime_checkable

from halving.checkpoints.rng_state import rng_states, set_rng_states
from halving.errors import CheckpointMismatch, InvalidInput

RNG = "__rng__"
"""The name of the entry with the random generators' states."""
LOADERS = "__loaders__"
"""The name of the entry with what a run's loaders have handed out (:mod:`halving.run.loader_entry`)."""
# In a torch archive, arrays and bytes are stored as a dict with this one key.
_TAGS = ({"__numpy__"}, {"__bytes__"})
Keep = Callable[[Any, str], Any]
# Subclasses (an enum's members, numpy's strings) are saved as the builtin value that they are.
_EXACT: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}


@runtime_checkable
class Stateful(Protocol):
    """An object that carries its own state, as torch modules and optimizers do."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


def pack(state: dict[str, Any], file: IO[bytes]) -> dict[str, Any]:
    """Write named state with the states of the random generators; equal state gives equal bytes.

    Returns:
        What was written of each name, as its object gave it: tensors are where they were, on a GPU perhaps.

    Raises:
        InvalidInput: a value is neither stateful nor plain data; the message names it.
    """
    check_names(state)
    values = {name: state_of(value) for name, value in state.items()}
    tree = {**values, RNG: rng_states()}
    if "torch" in sys.modules:
        write_archive(tree, file)
        return values
    separator = "{"
    for name, value in tree.items():
        file.write(f"{separator}{json.dumps(name)}: {json.dumps(as_json(value, name))}".encode())
        separator = ", "
    file.write(b"}")
    return values


def write_archive(tree: Mapping[str, Any], file: IO[bytes]) -> None:
    """Write values by name, the random generators' states among them, as :func:`load` reads them.

    Raises:
        InvalidInput: a value is no plain data.
    """
    import torch

    torch.save({name: _to_archive(value, name) for name, value in tree.items()}, file)


@dataclass(frozen=True)
class Archived:
    """Content that is put into an archive unchanged."""

    content: Any


def unpack(
    file: IO[bytes],
    state: dict[str, Any],
    *,
    with_rng: bool = True,
    optional: Mapping[str, Stateful] = MappingProxyType({}),
) -> dict[str, Any]:
    """Read a checkpoint: fill the stateful objects of ``state`` in place, and return all values by name.

    Args:
        file: what :func:`pack` wrote, to be read from its beginning.
        state: names that were saved. A stateful object is filled; any other value only names what to return.
        with_rng: also restore the states of the random generators.
        optional: stateful objects that are filled where the checkpoint has their names.

    Raises:
        CheckpointMismatch: ``state`` asks for names that the checkpoint does not hold.
    """
    tree = load(file)
    rng = tree.pop(RNG)
    restored = fill(tree, state)
    for name in optional.keys() & tree.keys():
        optional[name].load_state_dict(tree[name])
    if with_rng:
        set_rng_states(rng)
    return restored


def fill(tree: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Fill ``state`` from named values, as :func:`unpack` does.

    Raises:
        CheckpointMismatch: ``state`` asks for names that are not among them.
    """
    check_holds(tree, state)
    restored = {}
    for name, value in state.items():
        if isinstance(value, Stateful):
            unwrap(value).load_state_dict(tree[name])
            restored[name] = value
        else:
            restored[name] = tree[name]
    return restored


def check_holds(tree: Collection[str], state: Collection[str]) -> None:
    """Refuse to restore names that a checkpoint does not hold.

    Raises:
        CheckpointMismatch: there are some.
    """
    if missing := sorted(set(state) - set(tree)):
        raise CheckpointMismatch(
            f"the checkpoint has no {missing}; it holds {sorted(set(tree) - {LOADERS, RNG})}"
        )


def check_names(state: Mapping[str, Any]) -> None:
    """Refuse names that Halving itself uses in checkpoints.

    Raises:
        InvalidInput: one is.
    """
    if RNG in state:
        raise InvalidInput(f"checkpoint entry {RNG!r} is not accepted: the name is taken, choose another")


def state_of(value: Any) -> Any:
    """The state that is saved for a value: an object's own state, or the value itself."""
    if isinstance(value, Stateful):
        return unwrap(value).state_dict()
    return value


def unwrap(value: Any) -> Any:
    """The module inside the wrappers of DDP and ``torch.compile``; any other value is returned as it is.

    These wrappers change only the names of parameters. So a checkpoint fits wherever the module does: on one
    process or many, compiled or not.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.nn.Module):
        return value
    while True:
        if isinstance(value, torch.nn.parallel.DistributedDataParallel):
            value = value.module
        elif "_orig_mod" in value._modules:
            value = value._orig_mod
        else:
            return value


def load(file: IO[bytes]) -> dict[str, Any]:
    """Everything that :func:`pack` wrote, by name, with tensors on the CPU."""
    is_json = file.read(1) == b"{"
    file.seek(0)
    if is_json:
        return {name: from_json(value) for name, value in json.load(file).items()}
    import torch

    # Loaded on the CPU: load_state_dict copies onto whatever device the module lives on.
    tree: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return {name: _from_archive(value) for name, value in tree.items()}


def _to_archive(value: Any, name: str) -> Any:
    """Convert plain data to what ``weights_only`` loading accepts.

    NumPy arrays become tagged tensors, and bytes become tagged strings.
    """
    if value is None or isinstance(value, bool) or _is_tensor(value):
        return value
    if isinstance(value, Archived):
        return value.content
    if _is_numpy(value):
        if not value.ndim:
            return value.item()
        import torch

        return {"__numpy__": torch.from_numpy(value.astype(value.dtype.newbyteorder("=")))}
    for kind, exact in _EXACT.items():
        if isinstance(value, kind):
            if kind is bytes:
                return {"__bytes__": exact(value).decode("latin-1")}
            return exact(value)
    if isinstance(value, dict):
        if set(value) in _TAGS:
            raise InvalidInput(
                f"checkpoint entry {name!r} with the one key {next(iter(value))!r} is not accepted: the "
                "key is taken"
            )
        return _dict_like(
            value,
            {_key_to_archive(key, name): _to_archive(item, f"{name}.{key}") for key, item in value.items()},
        )
    if isinstance(value, (list, tuple)):
        return _like(value, [_to_archive(item, f"{name}[{index}]") for index, item in enumerate(value)])
    raise _not_plain(value, name)


def _like(original: list[Any] | tuple[Any, ...], items: list[Any]) -> list[Any] | tuple[Any, ...]:
    """The items as a tuple where the original is one, else as a list."""
    if isinstance(original, tuple):
        return tuple(items)
    return items


def _dict_like(original: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A dict of the items with the original's ``_metadata``, where torch keeps format versions."""
    if not hasattr(original, "_metadata"):
        return items
    copied = OrderedDict(items)
    copied._metadata = original._metadata  # type: ignore[attr-defined]
    return copied


def _key_to_archive(key: Any, name: str) -> Any:
    converted = _to_archive(key, name)
    try:
        hash(converted)
    except TypeError:
        raise InvalidInput(
            f"checkpoint entry {name!r} has the key {key!r}, which is not accepted: give strings or numbers"
        ) from None
    return converted


def _from_archive(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"__numpy__"}:
            return value["__numpy__"].numpy()
        if set(value) == {"__bytes__"}:
            return value["__bytes__"].encode("latin-1")
        return _dict_like(value, {key: _from_archive(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return _like(value, [_from_archive(item) for item in value])
    return value


def as_json(value: Any, name: str, keep: Keep | None = None) -> Any:
    """Convert plain data to JSON.

    Args:
        name: of the entry, for messages.
        keep: takes tensors and arrays with their names, and gives what stands for them; without it arrays are
            written as text.

    Raises:
        InvalidInput: a value is no plain data.
    """
    if keep is not None and (_is_tensor(value) or (_is_numpy(value) and value.ndim)):
        return keep(value, name)
    if _is_numpy(value):
        if not value.ndim:
            return value.item()
        return {
            "__array__": [str(value.dtype), list(value.shape), base64.b64encode(value.tobytes()).decode()]
        }
    if isinstance(value, (int, float, str, type(None))):
        return value
    if isinstance(value, bytes):
        return {"__bytes__": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        # Pairs, because JSON would turn integer keys into strings.
        pairs = [
            [as_json(key, name, keep), as_json(item, f"{name}.{key}", keep)] for key, item in value.items()
        ]
        if keep is not None and hasattr(value, "_metadata"):
            return {"__state_dict__": [pairs, as_json(dict(value._metadata), f"{name}._metadata", keep)]}
        return {"__dict__": pairs}
    if isinstance(value, (list, tuple)):
        kind = "__tuple__" if isinstance(value, tuple) else "__list__"
        return {kind: [as_json(item, f"{name}[{index}]", keep) for index, item in enumerate(value)]}
    raise _not_plain(value, name)


def from_json(value: Any, fetch: Callable[[str, str], Any] | None = None) -> Any:
    """The data that :func:`as_json` converted.

    Args:
        fetch: what a kept tensor or array was, by the one key and value of what stands for it.
    """
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "__array__":
        import numpy

        dtype, shape, encoded = content
        return numpy.frombuffer(base64.b64decode(encoded), dtype=dtype).reshape(shape).copy()
    if kind == "__bytes__":
        return base64.b64decode(content)
    if kind == "__dict__":
        return {from_json(key): from_json(item, fetch) for key, item in content}
    if kind == "__state_dict__":
        pairs, metadata = content
        items = OrderedDict((from_json(key), from_json(item, fetch)) for key, item in pairs)
        items._metadata = OrderedDict(from_json(metadata))  # type: ignore[attr-defined]
        return items
    if fetch is not None and kind not in ("__list__", "__tuple__"):
        return fetch(kind, content)
    listed = [from_json(item, fetch) for item in content]
    if kind == "__tuple__":
        return tuple(listed)
    return listed


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        return False
    return value.dtype.kind in "biuf" and value.dtype.itemsize <= 8  # no long doubles: torch has none


def _not_plain(value: Any, name: str) -> InvalidInput:
    return InvalidInput(
        f"checkpoint entry {name!r} of type {type(value).__qualname__} is not accepted: give an object with "
        "state_dict() and load_state_dict(), or numbers, strings, bytes, lists, dicts, numpy arrays or "
        "tensors"
    )
