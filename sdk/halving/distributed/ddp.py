"""PyTorch's DDP around a model: it sums the gradients over ranks, and finds out when it could not.

DDP puts gradients into buckets and sends each bucket, in one order, as soon as it is full. A parameter that
the loss does not depend on keeps its bucket, and all after it, from being sent. DDP reports this in the next
forward pass only, after these gradients were applied un-summed; and where it is so on some ranks alone, the
others wait for ever. So after each backward pass it is checked whether the last bucket was sent; if it was
not, the rest is sent as NaN. That reaches all ranks, and none of them applies the step.

Source: Li et al., "PyTorch Distributed" (2020), section 3.2.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed import Reducer
    from torch.nn.parallel import DistributedDataParallel

    Look = Callable[[torch.Tensor], None]


class Ddp:
    """A model in DDP, which begins with rank 0's parameters. Making it is a collective.

    Args:
        look_at_gradients: gets each bucket before it is summed over ranks.
        unused_parameters: find in each forward pass which parameters it does not use, and do not wait for
            their gradients.
    """

    def __init__(
        self,
        model: "nn.Module",
        device: "torch.device",
        look_at_gradients: "Look",
        *,
        unused_parameters: bool,
    ) -> None:
        self._model = model
        self._device = device
        self._look = look_at_gradients
        self._unused_parameters = unused_parameters
        self._sent = _Sent()
        self.module: DistributedDataParallel = self._wrap(begins=True)

    def wrap_again(self) -> None:
        """Sum the gradients of the parameters that require them now; the model stays as it is.

        This is no collective.
        """
        self.module.reducer._remove_autograd_hooks()
        self.module = self._wrap(begins=False)

    @contextmanager
    def summing(self, is_last: bool) -> Iterator[None]:
        """Enclose a micro-batch; gradients are summed over ranks once, with the last one."""
        self._sent.buckets = 0
        self._sent.is_complete = False
        self._sent.is_awaited = is_last
        if is_last:
            yield
            return
        with self.module.no_sync():
            yield

    @property
    def lacks_gradients(self) -> bool:
        """Whether the last backward pass should have sent all of this rank's gradients, and has not."""
        return self._sent.is_awaited and not self._sent.is_complete

    def send_nan(self) -> None:
        """Send NaN in place of this rank's gradients that were not sent: other ranks may wait for them."""
        import torch
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        reducer: Reducer = self.module.reducer
        buckets = reducer._get_zeros_like_grad_buckets()[self._sent.buckets :]
        for bucket in buckets:
            bucket.buffer().fill_(float("nan"))
        torch.futures.wait_all([allreduce_hook(self.module.process_group, bucket) for bucket in buckets])

    def _wrap(self, *, begins: bool) -> "DistributedDataParallel":
        import torch
        from torch.distributed import GradBucket
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        from torch.nn.parallel import DistributedDataParallel

        device_ids = None
        if self._device.type == "cuda":
            device_ids = [self._device.index]
        wrapped = DistributedDataParallel(
            self._model,
            device_ids=device_ids,
            gradient_as_bucket_view=True,
            find_unused_parameters=self._unused_parameters,
            init_sync=begins,
        )
        # What is registered must not hold what it is registered with, whose buckets are large.
        group = wrapped.process_group
        look = self._look
        sent = self._sent

        def reduce(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            # DDP checks these very annotations
            look(bucket.buffer())
            sent.buckets = sent.buckets + 1
            sent.is_complete = bucket.is_last()
            return allreduce_hook(group, bucket)

        wrapped.register_comm_hook(None, reduce)
        return wrapped


class _Sent:
    """How much of a backward pass was sent to the other ranks.

    Attributes:
        buckets: that were sent.
        is_complete: whether the last of them was.
        is_awaited: whether they are to be sent; otherwise gradients are only added up.
    """

    def __init__(self) -> None:
        self.buckets = 0
        self.is_complete = False
        self.is_awaited = False


def unused_in(loss: "torch.Tensor", parameters: "Mapping[str, nn.Parameter]") -> list[str]:
    """The names of the parameters that a loss does not depend on.

    Its graph is walked, so this takes a while.
    """
    waiting = [loss.grad_fn]
    visited = set()
    used = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        # Only nodes at which gradients are added to a parameter have this attribute.
        used.add(id(getattr(node, "variable", None)))
        waiting += [earlier for earlier, _ in node.next_functions]
    return [name for name, each in parameters.items() if id(each) not in used]
