"""DCP's storage interface for writing to the store: chunks become blobs, and a manifest names them."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from halving.checkpoints.sharded.manifest import Chunk, Manifest, Place, SavedTensor
from halving.checkpoints.sharded.planning import PACKED_BELOW, bytes_of, dtype_name
from halving.checkpoints.sharded.tree import BUFFER, FROZEN, StateTree
from halving.errors import StoreError
from halving.store.store import Store

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_ALIGNED = 16  # bytes, within a blob: any dtype's elements then begin where they may
_REQUESTS = 4  # Concurrent requests of one rank to an object store.


class StoreWriter(StorageWriter):
    """Writes a rank's chunks as blobs and, on rank 0 at the end, the manifest.

    Each chunk of 64 KiB or more is a blob, so that one that has not changed is there already. Smaller chunks
    are packed together, but frozen parameters and buffers apart from what training changes. So a sweep of
    adapters stores the small parts of its base once, too.

    Attributes:
        digest: of the manifest, after :meth:`finish`.
        is_recalled: set it when the checkpoint is no longer needed; nothing further is written then.
    """

    def __init__(self, store: Store, taken: StateTree, world_size: int) -> None:
        self._store = store
        self._taken = taken
        self._world_size = world_size
        self.rng: list[Place] = []
        self.digest: str | None = None
        self.is_recalled = False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a checkpoint has no name before it is complete."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is nothing to set up."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what the plan says, in this and a few other threads; the returned future is complete.

        Raises:
            StoreError: the store refuses, or is unavailable, or the checkpoint was recalled.
        """
        packs: dict[str, list[WriteItem]] = {}
        single = list[WriteItem]()
        for item in sorted(plan.items, key=lambda item: (item.index.fqn, tuple(item.index.offset or ()))):
            if bytes_of(item) >= PACKED_BELOW:
                single.append(item)
            else:
                pack = self._taken.roles.get(item.index.fqn)
                if pack not in (FROZEN, BUFFER):
                    pack = ""
                packs.setdefault(pack, []).append(item)
        blobs = [*packs.values(), *([item] for item in single)]
        written = self._write_blobs(blobs, planner)
        future: Future[list[WriteResult]] = Future()
        future.set_result([result for results in written for result in results])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the manifest, with which the checkpoint is there.

        Raises:
            StoreError: the store refuses, or is unavailable, or the checkpoint was recalled.
        """
        self._check_needed()
        places = {result.index: result.storage_data for written in results for result in written}
        strides = self._taken.strides
        tensors = {
            name: _saved_tensor(name, described, places, strides.get(name))
            for name, described in metadata.state_dict_metadata.items()
        }
        manifest = Manifest(
            self._world_size, self._taken.tree, tuple(self._taken.stateful), tensors, tuple(self.rng)
        )
        self.digest = self._store.put_blob(manifest.to_bytes())

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False

    def _write_blobs(self, blobs: list[list[WriteItem]], planner: SavePlanner) -> list[list[WriteResult]]:
        if self._store.folder is None:
            with ThreadPoolExecutor(_REQUESTS, "halving-checkpoint") as pool:
                try:
                    return list(map_in_pool(pool, lambda items: self._write_blob(items, planner), blobs))
                finally:
                    pool.shutdown(cancel_futures=True)  # one that fails ends all
        return [self._write_blob(items, planner) for items in blobs]

    def _write_blob(self, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        self._check_needed()
        parts = [_memory(planner.resolve_data(item)) for item in items]
        padded = list[bytes]()
        blob: bytes | memoryview = parts[0]
        if len(parts) > 1:
            padded = [bytes(part) + bytes(-len(part) % _ALIGNED) for part in parts]
            blob = b"".join(padded)
        digest = self._store.put_blob(blob)
        starts = accumulate((len(part) for part in padded[:-1]), initial=0)
        written = zip(items, parts, starts, strict=True)
        return [
            WriteResult(item.index, len(part), Place(digest, start, len(part)))
            for item, part, start in written
        ]

    def _check_needed(self) -> None:
        if self.is_recalled:
            raise StoreError("the checkpoint was given up before it was written")


def results_as_json(results: list[WriteResult]) -> list[Any]:
    """Where a rank has written its tensors, as JSON for rank 0."""
    return [[result.index.fqn, list(result.index.offset or ()), *result.storage_data] for result in results]


def results_of_json(listed: list[Any]) -> list[WriteResult]:
    """The results that :func:`results_as_json` converted."""
    return [
        WriteResult(MetadataIndex(name, offsets), place[2], Place(*place)) for name, offsets, *place in listed
    ]


def map_in_pool(
    pool: ThreadPoolExecutor, action: Callable[[_Item], _Result], items: Iterable[_Item]
) -> Iterator[_Result]:
    """The results of ``action`` for each item, computed in a pool and in order.

    Python starts no threads any more where a script has come to its end without ``run.finish()``: what the
    pool does not take is done here.
    """
    waiting = deque(items)
    futures = []
    with contextlib.suppress(RuntimeError):
        while waiting:
            futures.append(pool.submit(action, waiting[0]))
            waiting.popleft()
    yield from (future.result() for future in futures)
    yield from map(action, waiting)


def _saved_tensor(
    name: str, described: Any, places: dict[MetadataIndex, Place], stride: tuple[int, ...] | None
) -> SavedTensor:
    assert isinstance(described, TensorStorageMetadata)
    chunks = sorted(
        Chunk(tuple(chunk.offsets), tuple(chunk.sizes), places[MetadataIndex(name, chunk.offsets)])
        for chunk in described.chunks
        if chunk.sizes.numel()
    )
    return SavedTensor(dtype_name(described.properties.dtype), tuple(described.size), tuple(chunks), stride)


def _memory(tensor: Any) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
