"""Reading a checkpoint from the store, whether one process wrote it as a file or many wrote parts of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import IO, Any

from halving.checkpoints.placing import place_shards, shards_of
from halving.checkpoints.ranks import run_together
from halving.checkpoints.rng_state import set_rng_states
from halving.checkpoints.serialization import LOADERS, RNG, Stateful, check_holds, fill, load
from halving.checkpoints.sharded.manifest import MAGIC_BYTES, Manifest, is_manifest
from halving.checkpoints.weights_digest import digest_of_values
from halving.distributed.ranks import Ranks
from halving.store.store import Store, blob_name


def restore(
    store: Store,
    digest: str,
    state: dict[str, Any],
    *,
    with_rng: bool = True,
    optional: Mapping[str, Stateful] = MappingProxyType({}),
    ranks: Ranks | None = None,
) -> dict[str, Any]:
    """Restore a checkpoint: fill the stateful objects of ``state`` in place, and return all values by name.

    It does not matter how many processes wrote it or how they shared its tensors: each gets the part that its
    own objects hold (``DTensor``). Everything that is read is checked on all ranks before anything is
    changed.

    Args:
        state: names that were saved. A stateful object is filled; any other value only names what to return.
        with_rng: also restore the states of the random generators. A rank that the checkpoint has not keeps
            its own.
        optional: stateful objects that are filled where the checkpoint has their names.
        ranks: those that restore together; each of them fails where one does. None: this process alone.

    Raises:
        CheckpointMismatch: ``state`` asks for names that the checkpoint does not hold.
        NotFound: no such blob.
        StoreError: it cannot be read, or is damaged.
    """
    rank = None
    if with_rng:
        rank = 0
        if ranks is not None:
            rank = ranks.rank
    tree, rng = run_together(ranks, "run.restore()", lambda: _read(store, digest, state, optional, rank))
    restored = fill(tree, state)
    for name in optional.keys() & tree.keys():
        optional[name].load_state_dict(tree[name])
    if rng is not None:
        set_rng_states(rng)
    return restored


def saved_state(store: Store, digest: str) -> dict[str, Any]:
    """Everything that a checkpoint's trainable saved, by name, whole and on the CPU.

    The states of the random generators and the positions of loaders are left out.

    Raises:
        NotFound: no such blob.
        StoreError: it cannot be read, or is damaged.
    """
    with _open_checkpoint(store, digest) as (file, manifest):
        if manifest is not None:
            from halving.checkpoints.sharded.reader import read_tree

            return read_tree(store, manifest, {name: None for name in manifest.tree if name != LOADERS})
        return {name: value for name, value in load(file).items() if name not in (RNG, LOADERS)}


def saved_weights(store: Store, digest: str) -> str | None:
    """The weights digest of a sharded checkpoint, which equals that of the same state in one process.

    All of the checkpoint is read. See :mod:`halving.checkpoints.weights_digest`.

    Raises:
        NotFound: no such blob.
        StoreError: it cannot be read, is damaged, or is not sharded.
    """
    from halving.checkpoints.sharded.reader import read_tree

    manifest = Manifest.parse(store.get_blob(digest))
    values = read_tree(store, manifest, {name: None for name in manifest.tree if name != LOADERS})
    try:
        return digest_of_values(values, frozenset(manifest.stateful))
    except Exception:  # noqa: BLE001  # The bytes of the weights are unknown, as they were in the process.
        return None


def checkpoint_bytes(store: Store, digest: str) -> int:
    """The size of a checkpoint in bytes, with all its parts.

    Raises:
        NotFound: no such blob.
        StoreError: it cannot be read.
    """
    with store.open_file(blob_name(digest)) as file:
        size = int(file.size())
        if not is_manifest(file.read(MAGIC_BYTES)):
            return size
        file.seek(0)
        return size + Manifest.parse(file.read()).bytes


def _read(
    store: Store, digest: str, state: Mapping[str, Any], optional: Mapping[str, Any], rank: int | None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The saved values by name, and the rank's random states; nothing is changed."""
    with _open_checkpoint(store, digest) as (file, manifest):
        if manifest is not None:
            from halving.checkpoints.sharded.reader import read_rng, read_tree

            check_holds(manifest.tree, state)
            wanted = {**state, **{name: value for name, value in optional.items() if name in manifest.tree}}
            rng = None
            if rank is not None:
                rng = read_rng(store, manifest, rank)
            return read_tree(store, manifest, wanted), rng
        tree = load(file)
        rng = tree.pop(RNG)
        check_holds(tree, state)
        for name, value in state.items():
            if (shards := shards_of(name, value)) is not None:
                tree[name] = place_shards(tree[name], name, shards)
        if rank != 0:  # the states are one process's: the others would draw the same numbers
            rng = None
        return tree, rng


@contextmanager
def _open_checkpoint(store: Store, digest: str) -> Iterator[tuple[IO[bytes], Manifest | None]]:
    """A checkpoint's file, checked against its digest, and its manifest if it is one."""
    with store.blob_file(digest) as path, path.open("rb") as file:
        beginning = file.read(MAGIC_BYTES)
        file.seek(0)
        manifest = None
        if is_manifest(beginning):
            manifest = Manifest.parse(file.read())
        file.seek(0)
        yield file, manifest
