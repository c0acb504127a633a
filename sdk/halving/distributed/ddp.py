"""PyTorch's DDP around a model, which is kept beside it: how its gradients are summed over ranks, and what of
them was not.

DDP puts gradients into buckets and sends each as soon as all of it are there, in one order. A parameter that
the loss does not depend on keeps its bucket, and all after it, from being sent, and DDP says so in the next
forward pass only, after these gradients were applied un-summed; and where that is so on some ranks alone, the
others wait for what never comes. So it is looked at after each backward pass whether the last bucket was
sent; where it was not, the rest is sent as NaN. That reaches all ranks, and none of them applies the step.

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
    """A model in DDP; it begins with rank 0's parameters. Making it is a collective.

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
        self.module: DistributedDataParallel = self._wrapped(begins=True)

    def wrap_again(self) -> None:
        """Sum the gradients of those parameters that require them now; the model stays as it is.

        This is no collective.
        """
        self.module.reducer._remove_autograd_hooks()
        self.module = self._wrapped(begins=False)

    @contextmanager
    def summing(self, is_last: bool) -> Iterator[None]:
        """Around a micro-batch: gradients are summed over ranks once, with the last."""
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
        """Whether the last backward pass should have summed all gradients, and has not sent all of this
        rank's.
        """
        return self._sent.is_awaited and not self._sent.is_complete

    def send_nan(self) -> None:
        """Send NaN in place of what the last backward pass has not sent, for which other ranks may wait."""
        import torch
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        reducer: Reducer = self.module.reducer
        buckets = reducer._get_zeros_like_grad_buckets()[self._sent.buckets :]
        for bucket in buckets:
            bucket.buffer().fill_(float("nan"))
        torch.futures.wait_all([allreduce_hook(self.module.process_group, bucket) for bucket in buckets])

    def _wrapped(self, *, begins: bool) -> "DistributedDataParallel":
        import torch
        from torch.distributed import GradBucket
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        from torch.nn.parallel import DistributedDataParallel

        wrapped = DistributedDataParallel(
            self._model,
            device_ids=[self._device.index] if self._device.type == "cuda" else None,
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
    """What was sent of a backward pass.

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
    """The names of those parameters that a loss does not depend on.

    Its graph is walked, so this takes a while.
    """
    waiting = [loss.grad_fn]
    seen = set()
    used = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        # of the nodes at which gradients are added to a parameter
        used.add(id(getattr(node, "variable", None)))
        waiting += [earlier for earlier, _ in node.next_functions]
    return [name for name, each in parameters.items() if id(each) not in used]
