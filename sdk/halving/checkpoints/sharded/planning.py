"""Planning who writes which part of which tensor, and copying it so that it is written beside training.

DCP's planner deals the parts.
"""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from halving.checkpoints.sharded.tree import FROZEN, OPTIMIZER, TRAINED, StateTree, put_together
from halving.checkpoints.weights_digest import digest_of_values

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata

PACKED_BELOW = 65_536
"""A chunk of at least so many bytes is a blob of its own; smaller ones are packed together."""

_DEALT = {FROZEN, TRAINED, OPTIMIZER}  # equal on all ranks that have them; of anything else rank 0's counts
_ALIGNED = 64  # bytes; any dtype's elements then begin where they may
_EXPECTED = 1.03  # tensors cannot be dealt in equal shares exactly
# A buffer may be larger than what is staged by this factor, and by so many bytes.
_MAX_OVERSIZE = 1.1
_MAX_SURPLUS = 1 << 20


class StagingPlanner(DefaultSavePlanner):
    """DCP's planner for a flat dict of tensors, which writes from a copy of them.

    Replicated parameters and optimizer states are dealt to the ranks, so that each writes a part. Other
    replicated tensors are written by rank 0: DDP keeps the buffers of rank 0, and training goes on only with
    those. So are small ones, so that what is packed does not depend on how many ranks there are.
    """

    def __init__(self, taken: StateTree) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.taken = taken
        self._copies: dict[MetadataIndex, torch.Tensor] = {}
        self._copied: list[torch.cuda.Event] = []
        self.set_up_planner(taken.tensors)

    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        def has(rank: int, item: WriteItem) -> bool:
            is_dealt = self.taken.roles.get(item.index.fqn) in _DEALT and bytes_of(item) >= PACKED_BELOW
            return rank == 0 or item.type != WriteItemType.TENSOR or is_dealt

        kept = [
            replace(plan, items=[item for item in plan.items if has(rank, item)])
            for rank, plan in enumerate(all_plans)
        ]
        return dedup_save_plans(kept)

    def stage(self, plan: SavePlan, memory: Callable[[int, bool], torch.Tensor]) -> None:
        """Copy what this rank writes into memory that ``memory`` allocates, page-locked or not.

        From a GPU the copy is queued behind what the GPU has to do, into page-locked memory, and this does
        not wait for it. Whatever training does to the tensors later comes after the copy on the same stream.
        """
        starts = list[int]()
        total = 0
        for item in plan.items:
            starts.append(total)
            total += -(-bytes_of(item) // _ALIGNED) * _ALIGNED
        sources = [self.lookup_object(item.index) for item in plan.items]
        devices = {source.device for source in sources if source.is_cuda}
        buffer = memory(total, bool(devices))
        with torch.no_grad():
            for item, start, source in zip(plan.items, starts, sources, strict=True):
                copy = buffer[start : start + bytes_of(item)].view(source.dtype).view(source.shape)
                # Without a GPU nothing would tell when an asynchronous copy is complete.
                copy.copy_(source, non_blocking=source.is_cuda)
                self._copies[item.index] = copy
        for device in devices:
            self._copied.append(torch.cuda.current_stream(device).record_event())
        self.state_dict = {}  # nothing of the training's is held
        self.taken.tensors = {}

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """Return the copy, and wait until it is complete."""
        self._await_copy()
        return self._copies[write_item.index]

    def weights(self, metadata: "Metadata") -> str | None:
        """The digest of what is in the copy; call it only where this is the only process."""
        self._await_copy()
        copies = {index.fqn: copy for index, copy in self._copies.items()}

        def tensor(name: str) -> torch.Tensor:
            if name in copies:
                return copies[name]
            described = metadata.state_dict_metadata[name]  # it has no elements
            assert isinstance(described, TensorStorageMetadata)
            return torch.empty(described.size, dtype=described.properties.dtype, device="cpu")

        values = {name: put_together(tree, tensor) for name, tree in self.taken.tree.items()}
        return digest_of_values(values, frozenset(self.taken.stateful))

    def _await_copy(self) -> None:
        for copied in self._copied:  # Several threads write parts, so each waits for all devices.
            copied.synchronize()


def fits(prepared: int, size: int) -> bool:
    """Whether memory of an earlier copy can be used again: large enough, and not much too large."""
    return size <= prepared <= _MAX_OVERSIZE * size + _MAX_SURPLUS


def expected_bytes(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, world_size: int, rank: int
) -> int:
    """An estimate, rather too large, of what this rank will write after the optimizer's first step.

    It follows what :class:`StagingPlanner` deals: this rank's part of sharded tensors, an equal share of
    large replicated ones, and everything else on rank 0.
    """
    states = [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]
    dealt = [*model.parameters(), *states]
    own = 0
    for tensor in [*dealt, *model.buffers()]:
        if isinstance(tensor, DTensor):
            own += tensor.to_local().nbytes + _ALIGNED
        elif tensor.nbytes >= PACKED_BELOW:
            own += tensor.nbytes // world_size
        elif rank == 0:
            own += tensor.nbytes + _ALIGNED
    return round(_EXPECTED * own)


def bytes_of(item: WriteItem) -> int:
    """Bytes of the chunk that an item writes."""
    assert item.tensor_data is not None
    return item.tensor_data.chunk.sizes.numel() * item.tensor_data.properties.dtype.itemsize


def plan_as_json(plan: SavePlan) -> list[Any]:
    """The plan of what a rank has, as JSON for the other ranks."""
    entries = []
    for item in plan.items:
        data = item.tensor_data
        assert data is not None
        chunk = data.chunk
        is_shard = item.type == WriteItemType.SHARD
        entries.append(
            [
                item.index.fqn,
                is_shard,
                dtype_name(data.properties.dtype),
                list(data.size),
                list(chunk.offsets),
                list(chunk.sizes),
            ]
        )
    return entries


def plan_of_json(items: list[Any]) -> SavePlan:
    """The plan that :func:`plan_as_json` converted."""
    return SavePlan([_item(*item) for item in items])


def shared_plan(
    planner: StagingPlanner, all_items: list[list[Any]], rank: int
) -> "tuple[SavePlan, Metadata]":
    """Plan a save: return the part that this rank writes, and the metadata of all ranks' parts.

    Every rank computes the same plan, because all have the same gathered items. Chunks without elements are
    not written.
    """
    plans, metadata = planner.create_global_plan([plan_of_json(items) for items in all_items])
    own = planner.finish_plan(plans[rank])
    return replace(own, items=[item for item in own.items if bytes_of(item)]), metadata


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype's name in manifests: ``float32``."""
    return str(dtype).removeprefix("torch.")


def _item(
    fqn: str, is_shard: bool, dtype: str, shape: list[int], offsets: list[int], sizes: list[int]
) -> WriteItem:
    chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
    data = TensorWriteData(chunk, TensorProperties(dtype=getattr(torch, dtype)), torch.Size(shape))
    kind = WriteItemType.SHARD if is_shard else WriteItemType.TENSOR
    return WriteItem(MetadataIndex(fqn, offsets), kind, tensor_data=data)
