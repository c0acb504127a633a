"""Sharded checkpoints in one process: what is stored once, what comes back, and who keeps it."""

import gc
import random
import threading
import time
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from halving import CheckpointMismatch, InvalidInput, Store, StoreError, TrainedRun
from halving.checkpoints.download import download
from halving.checkpoints.restoring import restore, saved_state, saved_weights
from halving.checkpoints.sharded.manifest import Chunk, Manifest, Place, SavedTensor
from halving.checkpoints.sharded.planning import StagingPlanner
from halving.checkpoints.sharded.save import Staging
from halving.checkpoints.sharded.tree import take_apart
from halving.checkpoints.sharded.writer import map_in_pool
from halving.checkpoints.weights_digest import weights_digest
from halving.data.dataset import Dataset
from halving.distributed.ranks import ALONE
from halving.maintenance.blob_collection import Marks, delete_unmarked, find_unmarked
from halving.store.deadline import Deadline
from halving.store.store import blob_name
from tests.checkpoints import Gate
from tests.sdk.checkpoints.sharded.states import (
    Adapted,
    assert_same,
    every_kind,
    save_state,
    stored_bytes,
)


def test_a_sweep_of_adapters_stores_its_base_once_its_small_tensors_too(store: Store) -> None:
    adapters = 0
    for trial in range(8):
        model = Adapted(trial + 1)
        optimizer = torch.optim.AdamW(model.adapters.parameters(), lr=0.1)
        for _ in range(2):
            sum(adapter(torch.randn(2, 512)).square().mean() for adapter in model.adapters).backward()
            optimizer.step()
            save_state(store, model=model, optimizer=optimizer)
            # AdamW keeps two more
            adapters += 3 * sum(parameter.nbytes for parameter in model.adapters.parameters())
    base = sum(parameter.nbytes for parameter in model.base.parameters())
    assert stored_bytes(store) <= 1.05 * (base + adapters)


def test_the_first_copys_memory_is_ready_after_the_first_step_and_hardly_too_large(
    store: Store,
) -> None:
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
    optimizer = torch.optim.AdamW(model.parameters())
    staging = Staging(store, ALONE)
    staging.expect(model, optimizer)
    optimizer.register_step_post_hook(lambda *_: None)  # a hook of the user's own, called after it
    for _ in range(2):  # it is prepared once
        model(torch.ones(1, 256)).sum().backward()
        optimizer.step()
    assert staging._preparing is not None
    staging._preparing.join()
    prepared = staging._buffer
    save = staging.begin({"model": model, "optimizer": optimizer}, Deadline())
    save.join()
    assert prepared is not None
    assert staging._buffer is prepared
    assert prepared.nbytes < 1.1 * 3 * sum(parameter.nbytes for parameter in model.parameters())
    fresh = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
    restore(store, str(save.digest), {"model": fresh})
    assert torch.equal(fresh[7].weight, model[7].weight)


def test_an_array_is_copied_once_and_what_state_dict_made_is_not_held(store: Store, gate: Gate) -> None:
    array = np.ones(1_000_000)
    made = list[weakref.ref[Any]]()

    class Counter:
        def state_dict(self) -> dict[str, Any]:
            counts = np.full(1_000_000, 2.0)
            made.append(weakref.ref(counts))
            return {"counts": counts}

        def load_state_dict(self, state: Any) -> None: ...

    staging = Staging(store, ALONE)
    staging.begin({"small": np.ones(3)}, Deadline()).recall()  # imports what it needs
    gate.open.set()
    assert staging._newest is not None
    staging._newest.join()
    gate.open.clear()
    tracemalloc.start()
    try:
        save = staging.begin({"array": array, "counter": Counter()}, Deadline())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * array.nbytes  # the counts; the copy is torch's, which is not traced
    assert [counts() for counts in made] == [None]
    array[:] = 3.0
    gate.open.set()
    save.join()
    restored = saved_state(store, str(save.digest))
    assert (restored["array"].sum(), restored["counter"]["counts"].sum()) == (1e6, 2e6)


def test_equal_state_is_the_same_checkpoint_and_another_one_is_not(store: Store) -> None:
    def digest(last: float) -> str:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        return save_state(store, model=nn.Linear(300, 300), last=last)

    assert digest(1.0) == digest(1.0) != digest(2.0)


def test_every_kind_of_tensor_and_value_comes_back_as_it_was(store: Store) -> None:
    state = every_kind()
    assert_same(saved_state(store, save_state(store, **state)), state)


def test_tensors_lie_in_memory_as_they_did(store: Store) -> None:
    state = {
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "transposed": torch.randn(30_000, 3).t(),
        "contiguous": torch.randn(2, 3),
        "with gaps": torch.randn(4, 6)[:, ::2],
        "expanded": torch.randn(3, 1).expand(3, 4),
    }
    restored = saved_state(store, save_state(store, **state))
    for name, tensor in state.items():
        assert torch.equal(restored[name], tensor)
    strides = {name: tensor.stride() for name, tensor in restored.items()}
    assert strides == {
        **{name: tensor.stride() for name, tensor in state.items()},
        "with gaps": (3, 1),
        "expanded": (4, 1),
    }


def test_values_that_are_trained_still_are(store: Store) -> None:
    leaf = torch.randn(3, requires_grad=True)
    parameter = nn.Parameter(torch.randn(3))
    state = {
        "leaf": leaf,
        "parameter": parameter,
        "computed": leaf * 2,
        "frozen": nn.Parameter(torch.randn(3), requires_grad=False),
    }
    restored = saved_state(store, save_state(store, **state))
    assert {name: tensor.requires_grad for name, tensor in restored.items()} == {
        "leaf": True,
        "parameter": True,
        "computed": False,
        "frozen": False,
    }
    assert isinstance(restored["parameter"], nn.Parameter)
    for name, tensor in state.items():
        assert torch.equal(restored[name], tensor)


def test_a_conjugate_of_the_same_memory_is_another_tensor(store: Store) -> None:
    tensor = torch.randn(3, dtype=torch.complex64)
    restored = saved_state(
        store, save_state(store, tensor=tensor, conjugate=tensor.conj(), imaginary=tensor.conj().imag)
    )
    assert torch.equal(restored["tensor"], tensor)
    assert torch.equal(restored["conjugate"], tensor.conj())
    assert torch.equal(restored["imaginary"], -tensor.imag)


def test_where_torch_makes_its_tensors_by_default_does_not_matter(store: Store) -> None:
    with torch.device("meta"):
        digest = save_state(store, tensor=torch.ones(3, device="cpu"))
        restored = saved_state(store, digest)
    assert torch.equal(restored["tensor"], torch.ones(3))


def test_a_download_is_one_file_that_torch_loads_and_that_restores_alike(
    any_store: Store, tmp_path: Path
) -> None:
    """The bytes that it announces, and no more of the large tensor in memory than a piece."""
    state = every_kind()
    model = nn.BatchNorm1d(3)
    digest = save_state(any_store, **state, model=model, large=torch.arange(9_000_000))  # of 72 MB
    drawn = torch.rand(3)
    file = tmp_path / "checkpoint.pt"
    downloaded = download(any_store, digest)
    with file.open("wb") as written:
        written.writelines(downloaded.pieces)
    assert downloaded.is_assembled
    assert file.stat().st_size == downloaded.size

    loaded = torch.load(file, weights_only=True)
    assert torch.equal(loaded["large"], torch.arange(9_000_000))
    assert loaded["tied"]["one"].data_ptr() == loaded["tied"]["other"].data_ptr()
    assert loaded["model"]._metadata == model.state_dict()._metadata

    again = any_store.put_blob(file)  # an ordinary checkpoint
    fresh = nn.BatchNorm1d(3)
    nn.init.ones_(fresh.bias)
    assert_same(restore(any_store, again, {**dict.fromkeys(state), "model": fresh}), state)
    assert torch.equal(fresh.bias, model.bias)
    assert torch.equal(torch.rand(3), drawn)


def test_a_download_of_a_checkpoint_whose_part_is_torn_ends_before_a_byte_of_it(store: Store) -> None:
    digest = save_state(store, weight=torch.ones(200, 200))
    (chunk,) = Manifest.parse(store.get_blob(digest)).tensors["weight"].chunks
    path = Path(store.root, blob_name(chunk.place.blob))
    path.write_bytes(bytes(path.stat().st_size))
    file = download(store, digest)
    length = 0
    with pytest.raises(StoreError, match="is damaged"):
        length = sum(len(piece) for piece in file.pieces)
    assert length < path.stat().st_size
    path.unlink()
    with pytest.raises(StoreError, match="is not complete, and cannot be read"):
        list(download(store, digest).pieces)


def test_a_trained_run_restores_what_it_asks_for_and_keeps_its_own_random_states(store: Store) -> None:
    model = nn.BatchNorm1d(3)
    digest = save_state(
        store, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), note="kept"
    )
    run = TrainedRun(
        store, params={}, dataset=Dataset(store, "d", "sha256:" + "0" * 64), checkpoint_digest=digest
    )
    state = torch.get_rng_state()
    fresh = nn.BatchNorm1d(3)
    nn.init.ones_(fresh.bias)
    torch.manual_seed(8)
    state = torch.get_rng_state()
    assert run.restore(model=fresh, note=None)["note"] == "kept"
    assert torch.equal(fresh.bias, model.bias)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(
        CheckpointMismatch, match=r"has no \['head'\]; it holds \['model', 'note', 'optimizer'\]"
    ):
        run.restore(head=None)


def test_a_restored_process_draws_the_numbers_that_the_saved_one_would_have(store: Store) -> None:
    digest = save_state(store, model=nn.Linear(2, 2))
    drawn = torch.rand(3), random.random(), np.random.rand()
    restore(store, digest, {"model": nn.Linear(2, 2)})
    assert torch.equal(torch.rand(3), drawn[0])
    assert (random.random(), np.random.rand()) == drawn[1:]


def test_the_weights_digest_is_that_of_the_same_state_in_one_process(store: Store) -> None:
    model = nn.Linear(300, 300)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 300)).sum().backward()
    optimizer.step()
    state = {
        "model": model,
        "optimizer": optimizer,
        "note": "not of the weights",
        "mean": torch.ones(2),
        "empty": torch.empty(0, 3),
    }
    save = Staging(store, ALONE).begin(state, Deadline())
    save.join()
    assert saved_weights(store, str(save.digest)) == save.weights == weights_digest(state)


@pytest.mark.parametrize(
    "tensor", [torch.eye(3).to_sparse(), torch.empty(2, device="meta")], ids=["sparse", "meta"]
)
def test_a_tensor_that_is_none_of_dense_numbers_is_refused_by_its_name(
    store: Store, tensor: torch.Tensor
) -> None:
    with pytest.raises(InvalidInput, match="'odd' is a tensor of class Tensor"):
        take_apart({"odd": tensor})


def test_an_array_that_is_only_read_is_not_copied_before_its_copy() -> None:
    array = np.ones(10)
    array.flags.writeable = False
    assert np.shares_memory(take_apart({"a": array}).tensors["a"].numpy(), array)


def test_no_thread_reads_a_part_before_the_copy_from_the_gpu_is_complete() -> None:
    planner = StagingPlanner(take_apart({"left": torch.ones(4), "right": torch.ones(4)}))
    plan = planner.create_local_plan()
    planner.stage(plan, lambda size, _: torch.empty(size, dtype=torch.uint8))
    waited_for = list[str]()

    class Copied:
        """What is recorded behind the copy."""

        def synchronize(self) -> None:
            waited_for.append(threading.current_thread().name)

    planner._copied.append(Copied())  # type: ignore[arg-type]
    for item in plan.items:
        planner.resolve_data(item)
    assert len(waited_for) == 2  # a second thread does not rely on the first


def test_the_memory_of_the_copy_is_given_back_before_a_larger_one_is_taken(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(store, ALONE)
    empty = torch.empty
    are_there = list[bool]()
    staging.begin({"w": torch.ones(1 << 10)}, Deadline()).join()
    assert staging._buffer is not None
    old = weakref.ref(staging._buffer)

    def seen_empty(*sizes: Any, **options: Any) -> torch.Tensor:
        gc.collect()
        are_there.append(old() is not None)
        return empty(*sizes, **options)

    monkeypatch.setattr(torch, "empty", seen_empty)
    staging.begin({"w": torch.ones(1 << 20)}, Deadline()).join()
    assert are_there
    assert not any(are_there)


def test_what_is_closed_makes_no_memory_for_a_copy_at_the_next_step(store: Store) -> None:
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    staging = Staging(store, ALONE)
    staging.expect(model, optimizer)
    staging.close()
    model(torch.ones(1, 16)).sum().backward()
    optimizer.step()
    assert (staging.prepared_bytes, staging._expected) == (0, [])


def test_what_one_process_cannot_copy_is_copied_into_a_file(store: Store) -> None:
    staging = Staging(store, ALONE)
    mask = torch.eye(3).to_sparse()
    save = staging.begin({"w": torch.ones(3), "mask": mask}, Deadline())
    save.join()
    assert not save.sharded
    assert torch.equal(saved_state(store, str(save.digest))["mask"].to_dense(), torch.eye(3))
    assert staging.begin({"w": torch.ones(3)}, Deadline()).sharded
    with pytest.raises(InvalidInput, match="checkpoint entry 'odd' of type object is not accepted"):
        staging.begin({"odd": object()}, Deadline())
    staging.close()


def test_an_upload_that_raises_a_runtime_error_does_not_upload_the_others_again() -> None:
    tried = list[int]()

    def upload(number: int) -> int:
        tried.append(number)
        if number == 2:
            raise RuntimeError("not of threads")
        return number

    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="not of threads"):
        list(map_in_pool(pool, upload, [1, 2, 3]))
    assert tried == [1, 2, 3]


def test_where_no_threads_are_started_any_more_all_is_uploaded_by_this_one() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    assert list(map_in_pool(pool, lambda number: number, [1, 2, 3])) == [1, 2, 3]


def test_a_collection_keeps_the_parts_of_a_checkpoint_for_as_long_as_it(store: Store) -> None:
    shared = torch.ones(40_000)
    old = torch.zeros(40_000)
    new = torch.full((40_000,), 2.0)
    digests = [save_state(store, shared=shared, own=own) for own in (old, new)]
    both, left = (
        [bytes.fromhex(digest.removeprefix("sha256:")) for digest in kept] for kept in (digests, digests[1:])
    )

    def collect(kept: list[bytes]) -> int:
        marks = Marks()
        before = time.time() + 60
        marks.keep(kept, sharded=True)
        marks.keep_parts(store)
        return sum(blob.bytes for blob in delete_unmarked(store, find_unmarked(store, marks, before), before))

    assert collect(both) == 0
    assert collect(left) > old.nbytes  # its own part has gone with it
    assert not store.has_blob(digests[0])
    assert torch.equal(saved_state(store, digests[1])["own"], new)
    assert torch.equal(saved_state(store, digests[1])["shared"], shared)


def test_a_manifest_comes_back_and_one_of_a_later_format_says_so() -> None:
    place = Place("sha256:" + "a" * 64, 16, 24)
    tensors = {"w": SavedTensor("float32", (2, 3), (Chunk((0, 0), (2, 3), place),))}
    manifest = Manifest(2, {"w": {"__tensor__": "w"}}, (), tensors, (place, place))
    assert Manifest.parse(manifest.to_bytes()) == manifest
    with pytest.raises(StoreError, match="has format 2, and this version of halving reads format 1"):
        Manifest.parse(manifest.to_bytes().replace(b'"halving_checkpoint":1', b'"halving_checkpoint":2'))
    with pytest.raises(StoreError, match="cannot be read"):
        Manifest.parse(b'{"halving_checkpoint":1')


def test_a_manifest_that_lacks_part_of_a_tensor_is_refused_before_any_change(store: Store) -> None:
    manifest = Manifest.parse(store.get_blob(save_state(store, model=nn.Linear(300, 300))))
    tensor = manifest.tensors["model.weight"]
    half = SavedTensor(tensor.dtype, (600, 300), tensor.chunks)
    digest = store.put_blob(
        Manifest(
            1, manifest.tree, manifest.stateful, {**manifest.tensors, "model.weight": half}, manifest.rng
        ).to_bytes()
    )
    with pytest.raises(
        StoreError,
        match=r"is not complete, and cannot be restored: model\.weight lacks 90000 of its elements",
    ):
        restore(store, digest, {"model": nn.Linear(300, 600)})
