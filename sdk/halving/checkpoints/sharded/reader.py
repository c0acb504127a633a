"""DCP's storage interface for reading: it fetches the parts of tensors that this process needs."""

import json
import mmap
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from halving.checkpoints.placing import empty_like_shard, shards_of
from halving.checkpoints.serialization import from_json
from halving.checkpoints.sharded.manifest import Manifest, Place, SavedTensor, missing_elements
from halving.checkpoints.sharded.tree import put_together
from halving.errors import NotFound, StoreError
from halving.store.store import Store

_REQUESTS = 8  # Concurrent requests to an object store.


class StoreReader(StorageReader):
    """Reads chunks of a manifest's tensors.

    A blob is read once, whole, and checked against its digest before any byte of it is used.

    Args:
        names: the tensors that are to be read.

    Raises:
        StoreError: the manifest lacks a part of one of them.
    """

    def __init__(self, store: Store, manifest: Manifest, names: list[str]) -> None:
        self._store = store
        self._saved = {name: check_complete(name, manifest) for name in names}
        self._places = {
            MetadataIndex(name, c.offsets): (c.place, c.sizes)
            for name, saved in self._saved.items()
            for c in saved.chunks
        }

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: the manifest is read already."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata(
            {
                name: TensorStorageMetadata(
                    TensorProperties(dtype=dtype_of(saved)),
                    torch.Size(saved.shape),
                    [
                        ChunkStorageMetadata(torch.Size(chunk.offsets), torch.Size(chunk.sizes))
                        for chunk in saved.chunks
                    ],
                )
                for name, saved in self._saved.items()
            }
        )

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: there is nothing to set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what the plan says; the future is complete when this returns.

        Raises:
            StoreError: a blob is gone, damaged or cannot be read.
        """
        by_blob: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_blob.setdefault(self._places[item.storage_index][0].blob, []).append(item)
        threads = 1
        if self._store.folder is None:
            threads = _REQUESTS
        with ThreadPoolExecutor(threads, "halving-checkpoint") as pool:
            for _ in pool.map(lambda blob: self._read_blob(blob, by_blob[blob], planner), by_blob):
                pass
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False

    def _read_blob(self, blob: str, items: list[ReadItem], planner: LoadPlanner) -> None:
        try:
            with self._store.blob_file(blob) as path, path.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                for item in items:
                    place, sizes = self._places[item.storage_index]
                    dtype = dtype_of(self._saved[item.storage_index.fqn])
                    chunk = torch.frombuffer(
                        content, dtype=dtype, count=place.size // dtype.itemsize, offset=place.start
                    ).view(sizes)
                    for dimension, (start, length) in enumerate(
                        zip(item.storage_offsets, item.lengths, strict=True)
                    ):
                        chunk = chunk.narrow(dimension, start, length)
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(chunk)
                    planner.commit_tensor(item, target)
        except NotFound as error:
            raise StoreError(f"the checkpoint is not complete, and cannot be restored: {error}") from error


def read_tree(store: Store, manifest: Manifest, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Read what was saved under some names, on the CPU or as this process's shards.

    A tensor that the objects to be filled hold sharded is read only as far as this process's part goes. No
    process group is needed where nothing is sharded.

    Raises:
        StoreError: a part is gone, damaged or cannot be read.
    """
    targets: dict[str, Any] = {}
    for name, value in wanted.items():
        shards = shards_of(name, value) or (lambda key: None)

        def target(key: str, shards: Any = shards) -> Any:
            if key not in targets:
                saved = check_complete(key, manifest)
                shard = empty_like_shard(saved.shape, dtype_of(saved), shards(key))
                if shard is None:
                    shard = empty_as(saved)
                targets[key] = shard
            return targets[key]

        put_together(manifest.tree[name], target)
    reader = StoreReader(store, manifest, list(targets))
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    metadata = reader.read_metadata()
    planner.set_up_planner(targets, metadata)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner)
    return {name: put_together(manifest.tree[name], targets.__getitem__) for name in wanted}


def read_rng(store: Store, manifest: Manifest, rank: int) -> dict[str, Any] | None:
    """The random generators' states of a rank, or None where it had none.

    They are as :func:`halving.checkpoints.rng_state.rng_states` returned them.

    Raises:
        StoreError: they are gone, damaged or cannot be read.
    """
    if rank >= len(manifest.rng):
        return None
    place: Place = manifest.rng[rank]
    try:
        content = store.get_blob(place.blob)
    except NotFound as error:
        raise StoreError(f"the checkpoint is not complete, and cannot be restored: {error}") from error
    states: dict[str, Any] = from_json(json.loads(content))
    if "torch" in states:
        states["torch"] = torch.from_numpy(states["torch"])
    if "cuda" in states:
        states["cuda"] = [torch.from_numpy(state) for state in states["cuda"]]
    return states


def empty_as(saved: SavedTensor) -> torch.Tensor:
    """An empty tensor on the CPU with the memory layout of the saved one."""
    if saved.stride is None:
        return torch.empty(saved.shape, dtype=dtype_of(saved), device="cpu")
    return torch.empty_strided(saved.shape, saved.stride, dtype=dtype_of(saved), device="cpu")


def dtype_of(saved: SavedTensor) -> torch.dtype:
    """Torch's dtype of the saved name.

    Raises:
        StoreError: this version of torch has none of it.
    """
    dtype = getattr(torch, saved.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise StoreError(
            f"the checkpoint has a tensor of dtype {saved.dtype!r}, which this version of torch does not have"
        )
    return dtype


def check_complete(name: str, manifest: Manifest) -> SavedTensor:
    """Check that a saved tensor has all its parts, and return it.

    Raises:
        StoreError: the manifest lacks a part of it.
    """
    saved = manifest.tensors[name]
    if missing := missing_elements(saved):
        raise StoreError(
            f"the checkpoint is not complete, and cannot be restored: {name} lacks {missing} of its elements"
        )
    return saved
