"""Mixed precision: in which type a model computes, and the scaling of fp16's losses.

Sources: Micikevicius et al., "Mixed Precision Training" (2018), section 3.2; PyTorch's ``torch.amp``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput

if TYPE_CHECKING:
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

PRECISIONS = ("fp32", "bf16", "fp16")


class Precision:
    """The dtype that a model computes in.

    Its parameters, their gradients' sums and the optimizer's state are always fp32.

    Args:
        name: one of :data:`PRECISIONS`.
        cast_by_model: a sharded model casts its parameters and inputs itself (:attr:`policy`); any other is
            run under autocast.

    Attributes:
        scaler: scales the losses of fp16, whose gradients would underflow; for others it does nothing.
    """

    def __init__(self, name: str, device: "torch.device", *, cast_by_model: bool) -> None:
        import torch
        from torch.amp import GradScaler

        if name == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise InvalidInput(
                f"precision = 'bf16' is not accepted: {torch.cuda.get_device_name(device)} cannot compute "
                "in it; give 'fp16'"
            )
        self.name = name
        self._device = device
        self._cast_by_model = cast_by_model
        self._dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
        self.scaler: GradScaler = GradScaler(device.type, enabled=name == "fp16")

    @property
    def policy(self) -> "MixedPrecisionPolicy":
        """The policy of a sharded model: it computes in this dtype; gradients and output are fp32."""
        import torch
        from torch.distributed.fsdp import MixedPrecisionPolicy

        if self.name == "fp32":
            return MixedPrecisionPolicy()
        return MixedPrecisionPolicy(param_dtype=self._dtype, reduce_dtype=torch.float32)

    @contextmanager
    def casting(self) -> Iterator[None]:
        """Enclose the forward pass."""
        import torch

        if self.name == "fp32" or self._cast_by_model:
            yield
            return
        with torch.autocast(self._device.type, self._dtype):
            yield

    @property
    def scale(self) -> float:
        """The factor of losses before the backward pass. On a GPU, reading it waits for the device."""
        return float(self.scaler.get_scale())

    def state_dict(self) -> dict[str, Any]:
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state and self.scaler.is_enabled():
            # A training that resumes in another precision begins with a scale of its own.
            self.scaler.load_state_dict(state)
