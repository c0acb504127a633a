"""A digest of what a checkpoint holds, so that two trainings can be compared: equal weights have equal
digests.

It is over the names, shapes, dtypes and bytes of the state that was given to ``run.save``, and over nothing
that tells two equal trainings apart: neither the file's own bytes, nor the random generators, nor the
loaders' positions, nor plain data that was given beside (a time, a path).
"""

import hashlib
import json
import math
import sys
from array import array
from collections.abc import Iterator, Mapping
from threading import Thread
from typing import Any, Protocol

from halving.checkpoints.serialization import LOADERS, Stateful, state_of

_PLAIN = {bool, float, int, str, type(None)}
_BLOCK = 65536  # items of a list that are text at a time
_COPIED = 4_194_304  # items of a tensor that does not lie in C order: as many are copied at a time
_BY_ROWS = ("torch.sparse_csr", "torch.sparse_bsr")


class _Hash(Protocol):
    def update(self, data: Any, /) -> None: ...


def weights_digest(state: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> str | None:
    """``sha256:…`` of named state, in any order of its names; None where it holds no weights.

    All of an object's ``state_dict`` counts; of plain data beside it tensors and arrays alone. Those of equal
    dtype, shape and bytes are equal, wherever they lie; sparse ones by their indices and values. Of tensors
    on a GPU one at a time is copied to the CPU.

    Args:
        state: objects with ``state_dict``, and plain data, as for :meth:`halving.Run.save`.
        values: what the objects gave as their state (:func:`halving.checkpoints.serialization.pack`); they
            are not asked again.

    Raises:
        Exception: nobody can say what the bytes are: of quantized or expanded tensors, of those without data,
            of classes of others.
    """
    if values is None:
        values = {name: state_of(value) for name, value in state.items()}
    return digest_of_values(
        values, frozenset(name for name, value in state.items() if isinstance(value, Stateful))
    )


def digest_of_values(values: Mapping[str, Any], stateful: frozenset[str]) -> str | None:
    """As :func:`weights_digest`, of what was saved by name.

    Args:
        stateful: the names whose objects gave their own state.
    """
    counted = {
        name: value if name in stateful else _arrays_in(value)
        for name, value in values.items()
        if name != LOADERS
    }
    if not (weights := {name: value for name, value in counted.items() if value is not None}):
        return None
    found = hashlib.sha256()
    _add(found, weights)
    return f"sha256:{found.hexdigest()}"


class DigestInBackground:
    """:func:`weights_digest` in a thread, while the packed state is stored.

    Whatever goes wrong with it is an attribute.

    Packing has copied every tensor, so that a GPU has done whatever makes them: the thread needs no stream of
    the training's.

    Attributes:
        error: why there is no digest, else None.
    """

    def __init__(self, state: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self._state = state
        self._values = values
        self._digest: str | None = None
        self.error: Exception | None = None
        torch = sys.modules.get("torch")
        self._device = (
            torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else None
        )
        self._thread = Thread(target=self._work, name="halving-weights-digest", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # no thread is to be had: at the interpreter's end, or where processes are counted
            self._work()

    def result(self) -> str | None:
        """Waits for the digest; None where there are no weights, or an error."""
        if self._thread.ident is not None:
            self._thread.join()
        return self._digest

    def _work(self) -> None:
        try:
            if self._device is not None:
                # each thread has its own, which takes memory on that GPU
                sys.modules["torch"].cuda.set_device(self._device)
            self._digest = weights_digest(self._state, self._values)
        except Exception as error:  # noqa: BLE001  # training goes on without a digest, whatever the state is
            self.error = error


def _arrays_in(value: Any) -> Any:
    """Plain data without all that is neither tensor nor array; None where nothing is left."""
    if _is_array(value):
        return value
    if isinstance(value, Mapping):
        return {key: kept for key, item in value.items() if (kept := _arrays_in(item)) is not None} or None
    if isinstance(value, (list, tuple)) and not set(map(type, value)) <= _PLAIN:
        return [kept for item in value if (kept := _arrays_in(item)) is not None] or None
    return None


def _add(found: _Hash, value: Any) -> None:
    """Each value as its kind, its length where it has one, and its content: no two different values give the
    same bytes.
    """
    if _is_array(value):
        _add_array(found, value)
        return
    if (numpy := sys.modules.get("numpy")) and isinstance(value, (numpy.ndarray, numpy.generic)):
        value = value.item()  # as a checkpoint keeps it
    if isinstance(value, Mapping):
        found.update(f"dict {len(value)}:".encode())
        for key in sorted(value, key=lambda key: (type(key).__name__, repr(key))):
            _add(found, key)
            _add(found, value[key])
    elif isinstance(value, (list, tuple)):
        found.update(f"list {len(value)}:".encode())
        kinds = set(map(type, value))  # a list of millions of numbers, item by item, would take seconds
        if kinds == {float}:
            found.update(b"float:")
            found.update(array("d", value))
            return
        if kinds <= _PLAIN:
            for first in range(0, len(value), _BLOCK):
                found.update(json.dumps(value[first : first + _BLOCK]).encode())
            return
        for item in value:
            _add(found, item)
    elif isinstance(value, bytes):
        found.update(f"bytes {len(value)}:".encode() + value)
    elif isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        found.update(f"str {len(text)}:".encode() + text)
    elif isinstance(value, bool) or value is None:
        found.update(f"{value}:".encode())
    elif isinstance(value, float):
        found.update(f"float {'nan' if math.isnan(value) else float.hex(value)}:".encode())
    else:
        found.update(f"int {int(value)}:".encode())


def _is_array(value: Any) -> bool:
    """Whether it is a tensor, or an array that is not a single number."""
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return True
    return numpy is not None and isinstance(value, numpy.ndarray) and value.ndim > 0


def _add_array(found: _Hash, value: Any) -> None:
    """Dtype and shape, then the bytes, little-endian and in C order."""
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        found.update(f"array {value.dtype.name} {list(value.shape)}:".encode())
        plain = numpy.ascontiguousarray(value.astype(value.dtype.newbyteorder("<"), copy=False))
        found.update(memoryview(plain.reshape(-1).view(numpy.uint8)) if plain.size else b"")
        return
    assert torch is not None
    tensor = value.detach()
    dtype = str(value.dtype).removeprefix("torch.")
    if tensor.is_quantized:
        raise ValueError("a quantized tensor: its bytes are not its values")
    if tensor.is_nested:
        found.update(f"nested {dtype}:".encode())
        _add(found, list(tensor.unbind()))
        return
    if type(tensor) is not torch.Tensor:
        # of a sharded one the bytes are elsewhere, and to ask for them is to wait for all processes
        raise TypeError(f"a tensor of the class {type(tensor).__qualname__}")
    if tensor.layout != torch.strided:  # made dense it might not fit into memory
        found.update(f"{tensor.layout} {dtype} {list(tensor.shape)}:".encode())
        if tensor.layout == torch.sparse_coo:
            tensor = tensor.coalesce()
            _add(found, [tensor.indices(), tensor.values()])
        else:
            by_rows = str(tensor.layout) in _BY_ROWS
            indices = (
                (tensor.crow_indices(), tensor.col_indices())
                if by_rows
                else (tensor.ccol_indices(), tensor.row_indices())
            )
            _add(found, [*indices, tensor.values()])
        return
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError("an expanded tensor: it says more than it holds")
    found.update(f"array {dtype} {list(tensor.shape)}:".encode())
    for part in _in_c_order(tensor):
        flat = part.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy())


def _in_c_order(tensor: Any) -> Iterator[Any]:
    """The tensor, or slices of it one after another, so that no second one of its size is made."""
    if not tensor.numel():
        return iter(())
    if tensor.is_contiguous() or not tensor.ndim:
        return iter((tensor,))
    rows: int = max(1, _COPIED * len(tensor) // tensor.numel())
    return iter(tensor.split(rows))
