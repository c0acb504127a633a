"""Values that a device is still computing: copied without waiting for it, and fetched later by another thread."""

from collections.abc import Mapping
from typing import Any


class Pending:
    """A copy of 0-d tensors of one device, in the order given."""

    def __init__(self, packed: Any, event: Any) -> None:
        self._packed, self._event = packed, event

    def fetch(self) -> list[float]:
        """The values as float64. Waits until the device has computed them, but not for work that was queued after them."""
        if self._event is None:
            return [float(value) for value in self._packed.tolist()]
        from torch import cuda

        self._event.synchronize()
        aside = cuda.Stream(self._packed.device)  # type: ignore[no-untyped-call]
        with cuda.stream(aside):
            return [float(value) for value in self._packed.cpu().tolist()]


def capture(tensors: Mapping[str, Any]) -> list[tuple[tuple[str, ...], Pending]]:
    """Copy 0-d tensors on their devices, with one kernel for each device and dtype, without waiting for any device."""
    import torch

    groups: dict[tuple[Any, Any], list[str]] = {}
    for key, tensor in tensors.items():
        groups.setdefault((tensor.device, tensor.dtype), []).append(key)
    captured = []
    for (device, _), keys in groups.items():
        packed = torch.stack([tensors[key].detach() for key in keys])
        event = None
        if device.type == "cuda":
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
        captured.append((tuple(keys), Pending(packed, event)))
    return captured


def is_on_device(value: Any) -> bool:
    """Whether this is a 0-d tensor whose value is on a device other than the CPU."""
    if getattr(value, "ndim", None) != 0 or not hasattr(value, "is_complex"):
        return False
    return bool(value.device.type != "cpu")
