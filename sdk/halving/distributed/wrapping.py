"""Preparing a model for many ranks: activation checkpointing, compilation of its blocks, and FSDP2.

All of it changes the model in place, and DDP (:mod:`halving.distributed.ddp`) is kept beside it: so the
user's ``model`` stays what is evaluated and saved, under the names that its parameters have always had.

Sources: Zhao et al., "PyTorch FSDP" (2023); Chen et al., "Training Deep Nets with Sublinear Memory Cost"
(2016) for activation checkpointing. The order of the wrappers is torchtitan's.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from halving.distributed.sharded_optimizer import check_shardable, move_state, shard_state
from halving.errors import InvalidInput, message_of

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from torch.optim import Optimizer

    from halving.distributed.nonfinite import NonFinite
    from halving.distributed.options import Options
    from halving.distributed.precision import Precision
    from halving.distributed.ranks import Ranks

    Look = Callable[[torch.Tensor], None]


def prepare(
    ranks: "Ranks",
    device: "torch.device",
    model: "nn.Module",
    optimizer: "Optimizer",
    options: "Options",
    precision: "Precision",
    nonfinite: "NonFinite",
) -> None:
    """Change the model in place as its options say.

    A collective where its parameters are sharded, or the training is exact.

    Raises:
        InvalidInput: it has no blocks of the given classes, or none to be checkpointed, or ``torch.compile``
            does not take its options, or the optimizer whose parameters are to be sharded has made steps or
            cannot make one of them. Nothing is changed then.
    """
    is_sharded = options.shard == "fsdp" and ranks.world_size > 1
    blocks = blocks_of(model, options.blocks)
    if isinstance(options.compile, Mapping):
        check_compile(options.compile)
    if options.activation_checkpointing and not blocks:
        raise InvalidInput(
            f"activation_checkpointing = True is not accepted: {type(model).__name__} has no ModuleList or "
            "Sequential; name the "
            "classes of what is to be checkpointed: blocks=[Block]"
        )
    mesh = _mesh(ranks, device) if is_sharded else None
    if mesh is not None:
        check_shardable(optimizer, mesh)
    if options.activation_checkpointing:
        checkpoint_activations(model, blocks)
    if options.compile is not False:
        compile_options = {} if options.compile is True else options.compile
        compile_blocks(model, blocks, compile_options)
    if mesh is not None:
        same_on_all_ranks(model)
        shard(model, optimizer, blocks, mesh, precision.policy, unused_parameters=options.unused_parameters)
        sum_shards(model, ranks, nonfinite.look_at_gradients)
        return
    model.to(device)
    move_state(optimizer)
    if options.leaves is not None and ranks.world_size > 1:
        same_on_all_ranks(model)


def blocks_of(model: "nn.Module", classes: "Sequence[type[nn.Module]] | None") -> "list[str]":
    """The names of the modules that are checkpointed, compiled and sharded one by one.

    They are a transformer's layers, say: the modules of ``classes``; without these the members of the longest
    ``ModuleList``, else of the longest ``Sequential`` within the model.

    Raises:
        InvalidInput: no module is of these classes.
    """
    from torch import nn

    if classes is not None:
        if names := [
            name for name, module in model.named_modules() if name and isinstance(module, tuple(classes))
        ]:
            return names
        raise InvalidInput(
            f"blocks = {[each.__name__ for each in classes]} is not accepted: no module of "
            f"{type(model).__name__} is of these classes"
        )
    for kind in (nn.ModuleList, nn.Sequential):
        longest: list[str] = []
        for name, module in model.named_modules():
            if isinstance(module, kind):
                prefix = f"{name}." if name else ""
                members = [prefix + child for child, block in module.named_children() if _is_called(block)]
                longest = max(longest, members, key=len)
        if longest:
            return longest
    return []


def checkpoint_activations(model: "nn.Module", blocks: "Sequence[str]") -> None:
    """Let these modules compute their activations again in the backward pass instead of keeping them.

    Their own forward passes are replaced: a wrapping module, such as PyTorch's, would change the names of the
    parameters.
    """
    from torch.utils.checkpoint import checkpoint

    for name in blocks:
        block = model.get_submodule(name)
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def check_compile(options: "Mapping[str, Any]") -> None:
    """Check that ``torch.compile`` takes these options; nothing is compiled.

    Raises:
        InvalidInput: it does not; the message has its own.
    """
    from torch import nn

    backend = options.get("backend", "inductor")
    if not isinstance(backend, str) and not callable(backend):
        raise InvalidInput(
            f"compile's backend = {backend!r:.80} is not accepted: give the name of one, or a function"
        )
    try:
        nn.Identity().compile(**options)
    except Exception as error:  # noqa: BLE001
        # Torch raises errors of every kind for its options, even bare assertions.
        why = message_of(error) or type(error).__name__
        raise InvalidInput(f"compile = {dict(options)!r} is not accepted by torch.compile: {why}") from None


def compile_blocks(model: "nn.Module", blocks: "Sequence[str]", options: "Mapping[str, Any]") -> None:
    """Compile these modules, or a model that has none of them, when they are first called.

    Equal blocks share their code, and the gradients of one are sent while the next one's are computed.
    """
    for name in blocks or [""]:
        model.get_submodule(name).compile(**options)


def same_on_all_ranks(model: "nn.Module") -> None:
    """Give all ranks rank 0's parameters and buffers."""
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor, src=0)


def shard(
    model: "nn.Module",
    optimizer: "Optimizer",
    blocks: "Sequence[str]",
    mesh: "DeviceMesh",
    policy: "MixedPrecisionPolicy",
    *,
    unused_parameters: bool,
) -> None:
    """Shard the model's parameters over all ranks by FSDP2: each block, then everything else.

    The optimizer gets the shards. The model's output is fp32, whatever it computes in.
    """
    from dataclasses import replace

    import torch
    from torch.distributed.fsdp import FSDPModule, fully_shard

    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for name in blocks:
        fully_shard(model.get_submodule(name), mesh=mesh, mp_policy=policy)
    output_dtype = torch.float32 if policy.param_dtype else None
    fully_shard(model, mesh=mesh, mp_policy=replace(policy, output_dtype=output_dtype))
    shards = dict(model.named_parameters())
    shard_state(optimizer, {whole: shards[name] for whole, name in names.items()})
    if unused_parameters:
        cast("FSDPModule", model).set_reduce_scatter_unused_params(True)


def _mesh(ranks: "Ranks", device: "torch.device") -> "DeviceMesh":
    """A device mesh of all ranks, in one dimension."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (ranks.world_size,))


def sum_shards(model: "nn.Module", ranks: "Ranks", look_at_gradients: "Look") -> None:
    """Let FSDP2 sum gradients as usual, but look at them before."""
    from torch.distributed.fsdp import FSDPModule

    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            module.set_custom_reduce_scatter(cast("Any", _ReduceScatter(name, ranks, look_at_gradients)))


class _ReduceScatter:
    """FSDP2's own way of summing a module's gradients over ranks, with a look at them before.

    FSDP2 sums those that a backward pass has computed. Where these are not the same on all ranks, gloo ends
    the process and NCCL adds numbers that do not belong together. So the ranks compare how many there are in
    the first pass, and a rank that has others later ends there.
    """

    def __init__(self, module: str, ranks: "Ranks", look_at_gradients: "Look") -> None:
        self._module = module
        self._ranks = ranks
        self._look = look_at_gradients
        self._numbers: int | None = None  # How many numbers all ranks have summed here.

    def allocate(
        self, size: Sequence[int], *, dtype: "torch.dtype", device: "torch.device"
    ) -> "torch.Tensor":
        import torch

        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: "torch.Tensor",
        input_tensor: "torch.Tensor",
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        import torch.distributed as dist

        self._check(input_tensor.numel())
        self._look(input_tensor)
        return dist.reduce_scatter_single(output_tensor, input_tensor, op=op, group=group, async_op=async_op)

    def _check(self, numbers: int) -> None:
        """Check that all ranks sum so many numbers here; a collective in the first pass.

        Raises:
            InvalidInput: they do not.
        """
        where = "the model"
        if self._module:
            where = f"the module {self._module!r}"
        if self._numbers is None:
            of_ranks = self._ranks.gather(f"training.step, in the backward pass of {where}", numbers)
            if len(set(of_ranks)) == 1:
                self._numbers = numbers
        if numbers != self._numbers:
            raise InvalidInput(
                f"a loss that uses other parameters of {where} on rank {self._ranks.rank} than on other "
                "ranks, or than before, is "
                "not accepted with shard = 'fsdp', which sums the gradients of those that are used: give "
                "run.distribute "
                "unused_parameters=True"
            )


def _is_called(block: "nn.Module") -> bool:
    """Whether a module has parameters and a forward pass of its own, around which it can be wrapped."""
    from torch import nn

    return (
        not isinstance(block, (nn.ModuleList, nn.ModuleDict)) and next(block.parameters(), None) is not None
    )
