"""A digest of the weights in a checkpoint, so that two trainings can be compared.

Equal weights have equal digests. The digest is over the names, shapes, dtypes and bytes of the state given to
``run.save``. Nothing counts that tells two equal trainings apart: neither the file's own bytes, nor the
random generators, nor the loaders' positions, nor plain data given beside them (a time, a path).
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

_SCALARS = {bool, float, int, str, type(None)}
_BLOCK = 65536  # items of a list that are text at a time
_COPIED = 4_194_304  # items of a tensor that does not lie in C order: as many are copied at a time
_BY_ROWS = ("torch.sparse_csr", "torch.sparse_bsr")


class _Hash(Protocol):
    def update(self, data: Any, /) -> None: ...


def weights_digest(state: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> str | None:
    """``sha256:…`` of named state, in any order of its names; None where it holds no weights.

    All of an object's ``state_dict`` counts; of plain data only tensors and arrays do. Tensors and arrays of
    equal dtype, shape and bytes are equal, however they lie in memory; sparse ones count by their indices and
    values. Tensors on a GPU are copied to the CPU one at a time.

    Args:
        state: objects with ``state_dict``, and plain data, as for :meth:`halving.Run.save`.
        values: what the objects gave as their state (:func:`halving.checkpoints.serialization.pack`); they
            are not asked again.

    Raises:
        Exception: the bytes of a tensor are unknown: it is quantized or expanded, has no data, or is of a
            class that is not PyTorch's.
    """
    if values is None:
        values = {name: state_of(value) for name, value in state.items()}
    return digest_of_values(
        values, frozenset(name for name, value in state.items() if isinstance(value, Stateful))
    )


def digest_of_values(values: Mapping[str, Any], stateful: frozenset[str]) -> str | None:
    """The digest that :func:`weights_digest` gives, of values that were saved by name.

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
    digest = hashlib.sha256()
    _add(digest, weights)
    return f"sha256:{digest.hexdigest()}"


class DigestInBackground:
    """:func:`weights_digest` in a thread, while the packed state is stored; an error becomes an attribute.

    Packing has copied every tensor, so a GPU has computed them by then, and the thread needs no CUDA stream
    of the training.

    Attributes:
        error: why there is no digest, else None.
    """

    def __init__(self, state: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self._state = state
        self._values = values
        self._digest: str | None = None
        self.error: Exception | None = None
        torch = sys.modules.get("torch")
        self._device = None
        if torch is not None and torch.cuda.is_initialized():
            self._device = torch.cuda.current_device()
        self._thread = Thread(target=self._work, name="halving-weights-digest", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # There is no thread to be had at the interpreter's end, or where processes are limited.
            self._work()

    def result(self) -> str | None:
        """Wait for the digest; None where there are no weights, or an error."""
        if self._thread.ident is not None:
            self._thread.join()
        return self._digest

    def _work(self) -> None:
        try:
            if self._device is not None:
                # Each thread has a current device of its own; another one would take memory on another GPU.
                sys.modules["torch"].cuda.set_device(self._device)
            self._digest = weights_digest(self._state, self._values)
        except Exception as error:  # noqa: BLE001  # training goes on without a digest, whatever the state is
            self.error = error


def _arrays_in(value: Any) -> Any:
    """The tensors and arrays in plain data, in its structure; None where there are none."""
    if _is_array(value):
        return value
    if isinstance(value, Mapping):
        return {key: kept for key, item in value.items() if (kept := _arrays_in(item)) is not None} or None
    if isinstance(value, (list, tuple)) and not set(map(type, value)) <= _SCALARS:
        return [kept for item in value if (kept := _arrays_in(item)) is not None] or None
    return None


def _add(digest: _Hash, value: Any) -> None:
    """Add a value to a digest: its kind, its length and its content, so that no two values collide."""
    if _is_array(value):
        _add_array(digest, value)
        return
    if (numpy := sys.modules.get("numpy")) and isinstance(value, (numpy.ndarray, numpy.generic)):
        value = value.item()  # A checkpoint keeps the same.
    if isinstance(value, Mapping):
        digest.update(f"dict {len(value)}:".encode())
        for key in sorted(value, key=lambda key: (type(key).__name__, repr(key))):
            _add(digest, key)
            _add(digest, value[key])
    elif isinstance(value, (list, tuple)):
        digest.update(f"list {len(value)}:".encode())
        kinds = set(map(type, value))  # a list of millions of numbers, item by item, would take seconds
        if kinds == {float}:
            digest.update(b"float:")
            digest.update(array("d", value))
            return
        if kinds <= _SCALARS:
            for first in range(0, len(value), _BLOCK):
                digest.update(json.dumps(value[first : first + _BLOCK]).encode())
            return
        for item in value:
            _add(digest, item)
    elif isinstance(value, bytes):
        digest.update(f"bytes {len(value)}:".encode() + value)
    elif isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        digest.update(f"str {len(text)}:".encode() + text)
    elif isinstance(value, bool) or value is None:
        digest.update(f"{value}:".encode())
    elif isinstance(value, float):
        digits = "nan"
        if not math.isnan(value):
            digits = float.hex(value)
        digest.update(f"float {digits}:".encode())
    else:
        digest.update(f"int {int(value)}:".encode())


def _is_array(value: Any) -> bool:
    """Whether a value is a tensor, or an array that is not a single number."""
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return True
    return numpy is not None and isinstance(value, numpy.ndarray) and value.ndim > 0


def _add_array(digest: _Hash, value: Any) -> None:
    """Add an array's dtype and shape, then its bytes, little-endian and in C order."""
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        digest.update(f"array {value.dtype.name} {list(value.shape)}:".encode())
        contiguous = numpy.ascontiguousarray(value.astype(value.dtype.newbyteorder("<"), copy=False))
        if contiguous.size:
            digest.update(memoryview(contiguous.reshape(-1).view(numpy.uint8)))
        return
    assert torch is not None
    tensor = value.detach()
    dtype = str(value.dtype).removeprefix("torch.")
    if tensor.is_quantized:
        raise ValueError("a quantized tensor: its bytes are not its values")
    if tensor.is_nested:
        digest.update(f"nested {dtype}:".encode())
        _add(digest, list(tensor.unbind()))
        return
    if type(tensor) is not torch.Tensor:
        # The bytes of a sharded tensor are elsewhere, and asking for them would wait for all processes.
        raise TypeError(f"a tensor of the class {type(tensor).__qualname__}")
    if tensor.layout != torch.strided:  # made dense it might not fit into memory
        digest.update(f"{tensor.layout} {dtype} {list(tensor.shape)}:".encode())
        if tensor.layout == torch.sparse_coo:
            tensor = tensor.coalesce()
            _add(digest, [tensor.indices(), tensor.values()])
        elif str(tensor.layout) in _BY_ROWS:
            _add(digest, [tensor.crow_indices(), tensor.col_indices(), tensor.values()])
        else:
            _add(digest, [tensor.ccol_indices(), tensor.row_indices(), tensor.values()])
        return
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError("an expanded tensor: it says more than it holds")
    digest.update(f"array {dtype} {list(tensor.shape)}:".encode())
    for part in _in_c_order(tensor):
        flat = part.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())


def _in_c_order(tensor: Any) -> Iterator[Any]:
    """The tensor, or its slices one after another, so that no second tensor of its size is made."""
    if not tensor.numel():
        return iter(())
    if tensor.is_contiguous() or not tensor.ndim:
        return iter((tensor,))
    rows: int = max(1, _COPIED * len(tensor) // tensor.numel())
    return iter(tensor.split(rows))
