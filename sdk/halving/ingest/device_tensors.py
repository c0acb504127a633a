"""Tensors: numbers that a device is still computing, copied without waiting, and whole ones as arrays."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def capture(tensors: Mapping[str, Any]) -> list[tuple[tuple[str, ...], Callable[[], list[float]]]]:
    """Copy 0-d tensors on their devices, with one kernel for each device and dtype, without waiting.

    Returns:
        Keys, and a function that gives their values as float64. It waits until the device has computed them,
        but not for work that was queued after them.
    """
    import torch

    groups: dict[tuple[Any, Any], list[str]] = {}
    for key, tensor in tensors.items():
        groups.setdefault((tensor.device, tensor.dtype), []).append(key)
    captured: list[tuple[tuple[str, ...], Callable[[], list[float]]]] = []
    for (device, _), keys in groups.items():
        packed = torch.stack([tensors[key].detach() for key in keys])
        event = None
        if device.type == "cuda":
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
        captured.append((tuple(keys), partial(_fetch, packed, event)))
    return captured


def _fetch(packed: Any, event: Any) -> list[float]:
    if event is None:
        return [float(value) for value in packed.tolist()]
    from torch import cuda

    event.synchronize()
    aside = cuda.Stream(packed.device)  # type: ignore[no-untyped-call]
    with cuda.stream(aside):
        return [float(value) for value in packed.cpu().tolist()]


def is_on_device(value: Any) -> bool:
    """Whether a value is a 0-d tensor on a device other than the CPU."""
    return bool(
        getattr(value, "ndim", None) == 0 and hasattr(value, "is_complex") and value.device.type != "cpu"
    )


def array_of_tensor(tensor: Any) -> "np.ndarray[Any, Any]":
    """A tensor of any device as an array; floats become float32, because NumPy has no bfloat16."""
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.float()
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array
