"""Checkpoints as files: writing named state, and reading it back.

Objects with ``state_dict()`` (torch modules, optimizers, schedulers, scalers) are stored by it; everything else must be
plain data: numbers, strings, bytes, lists, dicts, numpy arrays or tensors. With torch imported the file is a
``torch.save`` archive that loads with ``weights_only=True``; without it, JSON. Neither can run code when loaded.
An archive is written and read tensor by tensor; JSON is written entry by entry and read as a whole.
"""

import base64
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import IO, Any, Protocol, runtime_checkable

from halving.checkpoints.rng_state import rng_states, set_rng_states
from halving.errors import CheckpointMismatch, InvalidInput
from halving.store.store import Store

_RNG = "__rng__"
LOADERS = "__loaders__"
"""The name of the entry with what a run's loaders have handed out (:mod:`halving.run.loader_entry`)."""
_TAGS = ({"__numpy__"}, {"__bytes__"})  # arrays and bytes are stored in a torch archive as a dict with this one key
# Subclasses (an enum's members, numpy's strings) are saved as the builtin value that they are.
_EXACT: dict[type, Callable[[Any], Any]] = {int: int.__int__, float: float.__float__, str: str.__str__, bytes: bytes.__bytes__}


@runtime_checkable
class Stateful(Protocol):
    """An object that carries its own state, as torch modules and optimizers do."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


def pack(state: dict[str, Any], file: IO[bytes]) -> None:
    """Write named state, together with the random generators' states. Equal state gives equal bytes.

    Raises:
        InvalidInput: a value is neither stateful nor plain data; the message names it.
    """
    if _RNG in state:
        raise InvalidInput(f"checkpoint entry {_RNG!r} is not accepted: the name is taken, choose another")
    tree = {name: value.state_dict() if isinstance(value, Stateful) else value for name, value in state.items()}
    tree[_RNG] = rng_states()
    if torch := sys.modules.get("torch"):
        torch.save({name: _plain(value, name) for name, value in tree.items()}, file)
        return
    separator = "{"
    for name, value in tree.items():
        file.write(f"{separator}{json.dumps(name)}: {json.dumps(_to_json(value, name))}".encode())
        separator = ", "
    file.write(b"}")


def unpack(
    file: IO[bytes], state: dict[str, Any], *, with_rng: bool = True, optional: Mapping[str, Stateful] = MappingProxyType({})
) -> dict[str, Any]:
    """Read a checkpoint into ``state``: stateful objects are filled in place, plain values are in the returned dict.

    Args:
        file: what :func:`pack` wrote, to be read from its beginning.
        state: names that were saved. A stateful object is filled; any other value only names what to return.
        with_rng: also restore the states of the random generators.
        optional: stateful objects that are filled where the checkpoint has their names.

    Raises:
        CheckpointMismatch: ``state`` asks for names that the checkpoint does not hold.
    """
    tree = _load(file)
    rng = tree.pop(_RNG)
    if missing := sorted(set(state) - set(tree)):
        raise CheckpointMismatch(f"the checkpoint has no {missing}; it holds {sorted(set(tree) - {LOADERS})}")
    restored = {}
    for name, value in state.items():
        if isinstance(value, Stateful):
            value.load_state_dict(tree[name])
            restored[name] = value
        else:
            restored[name] = tree[name]
    for name in optional.keys() & tree.keys():
        optional[name].load_state_dict(tree[name])
    if with_rng:
        set_rng_states(rng)
    return restored


def restore(
    store: Store,
    digest: str,
    state: dict[str, Any],
    *,
    with_rng: bool = True,
    optional: Mapping[str, Stateful] = MappingProxyType({}),
) -> dict[str, Any]:
    """As :func:`unpack`, from a blob whose bytes are checked before ``state`` is changed.

    Raises:
        CheckpointMismatch: ``state`` asks for names that the checkpoint does not hold.
        NotFound: no such blob.
        StoreError: it cannot be read, or is damaged.
    """
    with store.blob_file(digest) as path, path.open("rb") as file:
        return unpack(file, state, with_rng=with_rng, optional=optional)


def _load(file: IO[bytes]) -> dict[str, Any]:
    is_json = file.read(1) == b"{"
    file.seek(0)
    if is_json:
        return {name: _from_json(value) for name, value in json.load(file).items()}
    import torch

    # Loaded on the CPU: load_state_dict copies onto whatever device the module lives on.
    tree: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return {name: _from_plain(value) for name, value in tree.items()}


def _plain(value: Any, name: str) -> Any:
    """Data that ``weights_only`` loading accepts: numpy arrays are stored as tagged tensors, bytes as tagged strings."""
    if value is None or isinstance(value, bool) or _is_tensor(value):
        return value
    if _is_numpy(value):
        import torch

        return {"__numpy__": torch.from_numpy(value.astype(value.dtype.newbyteorder("=")))} if value.ndim else value.item()
    for kind, exact in _EXACT.items():
        if isinstance(value, kind):
            return {"__bytes__": exact(value).decode("latin-1")} if kind is bytes else exact(value)
    if isinstance(value, dict):
        if set(value) in _TAGS:
            raise InvalidInput(f"checkpoint entry {name!r} with the one key {next(iter(value))!r} is not accepted: the key is taken")
        return _dict_like(value, {_plain_key(key, name): _plain(item, f"{name}.{key}") for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        items = [_plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    raise _not_plain(value, name)


def _dict_like(original: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """The items, with the original's ``_metadata`` if it has some: torch keeps the layers' format versions there."""
    if not hasattr(original, "_metadata"):
        return items
    copied = OrderedDict(items)
    copied._metadata = original._metadata  # type: ignore[attr-defined]
    return copied


def _plain_key(key: Any, name: str) -> Any:
    plain = _plain(key, name)
    try:
        hash(plain)
    except TypeError:
        raise InvalidInput(f"checkpoint entry {name!r} has the key {key!r}, which is not accepted: give strings or numbers") from None
    return plain


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"__numpy__"}:
            return value["__numpy__"].numpy()
        if set(value) == {"__bytes__"}:
            return value["__bytes__"].encode("latin-1")
        return _dict_like(value, {key: _from_plain(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        items = [_from_plain(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _to_json(value: Any, name: str) -> Any:
    if _is_numpy(value):
        if not value.ndim:
            return value.item()
        return {"__array__": [str(value.dtype), list(value.shape), base64.b64encode(value.tobytes()).decode()]}
    if isinstance(value, (int, float, str, type(None))):
        return value
    if isinstance(value, bytes):
        return {"__bytes__": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        # Pairs, because JSON would turn integer keys into strings.
        return {"__dict__": [[_to_json(key, name), _to_json(item, f"{name}.{key}")] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "__tuple__" if isinstance(value, tuple) else "__list__"
        return {kind: [_to_json(item, f"{name}[{index}]") for index, item in enumerate(value)]}
    raise _not_plain(value, name)


def _from_json(value: Any) -> Any:
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
        return {_from_json(key): _from_json(item) for key, item in content}
    items = [_from_json(item) for item in content]
    return tuple(items) if kind == "__tuple__" else items


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
        "state_dict() and load_state_dict(), or numbers, strings, bytes, lists, dicts, numpy arrays or tensors"
    )
