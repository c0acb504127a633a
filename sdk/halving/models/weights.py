"""A checkpoint's state as two files: safetensors for tensors and arrays, JSON for all else.

The JSON also has the structure. Neither file can run code when it is read.
"""

import base64
import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

from halving.errors import ExtraMissing, InvalidInput

WEIGHTS = "weights.safetensors"
STATE = "state.json"


def write_state(tree: dict[str, Any], folder: Path) -> None:
    """Write ``weights.safetensors``, where there are tensors or arrays, and ``state.json``.

    Raises:
        ExtraMissing: safetensors is not installed.
        InvalidInput: a tensor is of a kind that safetensors has no name for.
    """
    tensors: dict[str, Any] = {}
    structure = {name: _split(value, name, tensors) for name, value in tree.items()}
    (folder / STATE).write_text(json.dumps(structure, indent=1), encoding="utf-8")
    if not tensors:
        return
    torch = sys.modules.get("torch")
    library = _safetensors("torch" if torch else "numpy")
    try:
        library.save_file(
            {name: _own_memory(name, value, torch) for name, value in tensors.items()}, folder / WEIGHTS
        )
    except (KeyError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"the checkpoint has tensors that safetensors does not take: {error}") from None


def read_state(folder: Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote."""
    structure = json.loads((folder / STATE).read_text(encoding="utf-8"))
    tensors: dict[str, Any] = {}
    if (folder / WEIGHTS).exists():
        library = "numpy"
        if '"__tensor__"' in json.dumps(structure):
            library = "torch"
        tensors = _safetensors(library).load_file(folder / WEIGHTS)
    return {name: _join(value, tensors) for name, value in structure.items()}


def same_state(left: Any, right: Any) -> bool:
    """Whether two states are equal to the last bit, including their types and NaN."""
    if isinstance(left, dict) and isinstance(right, dict):  # dict subclasses count as equal to dicts
        return list(left) == list(right) and all(
            same_state(value, right[name]) for name, value in left.items()
        )
    torch = sys.modules.get("torch")
    # A parameter is a tensor, too.
    if torch and isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        bits = [tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right)]
        return bool(left.dtype == right.dtype and left.shape == right.shape and torch.equal(*bits))
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same_state, left, right))
    if type(left).__module__ == "numpy":
        is_alike = left.dtype == right.dtype and left.shape == right.shape
        return bool(is_alike and left.tobytes() == right.tobytes())
    return bool(left == right or (left != left and right != right))


def _split(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return {"__bytes__": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        pairs = [
            [_split(key, name, tensors), _split(item, f"{name}.{key}", tensors)]
            for key, item in value.items()
        ]
        metadata = getattr(value, "_metadata", None)  # torch keeps the layers' format versions there
        split = {"__dict__": pairs}
        if metadata:
            split["metadata"] = _split(dict(metadata), name, tensors)
        return split
    if isinstance(value, (list, tuple)):
        items = [_split(item, f"{name}.{place}", tensors) for place, item in enumerate(value)]
        if isinstance(value, tuple):
            return {"__tuple__": items}
        return {"__list__": items}
    key = name
    while key in tensors:  # a dict may have both 0 and "0"
        key += "'"
    tensors[key] = value
    if type(value).__module__ == "numpy":
        return {"__array__": key}
    return {"__tensor__": key}


def _join(value: Any, tensors: dict[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    metadata = value.pop("metadata", None)
    ((kind, content),) = value.items()
    if kind == "__bytes__":
        return base64.b64decode(content)
    if kind == "__tensor__":
        return tensors[content]
    if kind == "__array__":
        array = tensors[content]
        if type(array).__module__ != "numpy":
            array = array.numpy()
        return array
    if kind == "__dict__":
        items = {_join(key, tensors): _join(item, tensors) for key, item in content}
        if metadata is None:
            return items
        ordered = OrderedDict(items)
        ordered._metadata = OrderedDict(_join(metadata, tensors))  # type: ignore[attr-defined]
        return ordered
    members = [_join(item, tensors) for item in content]
    if kind == "__tuple__":
        return tuple(members)
    return members


def _own_memory(name: str, value: Any, torch: Any) -> Any:
    """Copy a tensor to memory of its own, because tied weights share theirs."""
    if torch is None:
        return value.copy(order="C")
    tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(value)
    if tensor.layout is not torch.strided or tensor.is_meta:
        kind = tensor.layout
        if tensor.is_meta:
            kind = "on the device meta, without values"
        raise InvalidInput(
            f"the checkpoint's {name} is {kind}, which safetensors does not take: save it dense, as "
            "to_dense() gives it"
        )
    return tensor.detach().cpu().contiguous().clone()


def _safetensors(kind: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"safetensors.{kind}")
    except ImportError:
        raise ExtraMissing(
            "exported weights need the package safetensors: pip install 'halving[models]'"
        ) from None
