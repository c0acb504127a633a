"""A sharded checkpoint as a single ``torch.save`` archive, assembled while it is read.

Torch writes the archive's frame around tensors without content, and the store gives what belongs into the
gaps, piece by piece. The archive has no checksums of its own, which ``torch.load`` does not ask for: each
blob is checked against its digest before a byte of it is returned.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

import torch
from torch.serialization import skip_data

from halving.checkpoints.serialization import RNG, Archived, from_json, write_archive
from halving.checkpoints.sharded.box_pieces import pieces_of
from halving.checkpoints.sharded.manifest import Manifest, Place, SavedTensor
from halving.checkpoints.sharded.reader import check_complete, dtype_of, read_rng
from halving.checkpoints.sharded.tree import NUMPY, as_kind
from halving.errors import NotFound, StoreError
from halving.store.store import Store


class AssembledCheckpoint:
    """The file that ``torch.load`` and ``restore`` read, with the random states of rank 0.

    It is loadable with ``weights_only=True``. Only the frame and one piece are in memory. From an object
    store, the blobs of one tensor and those that tensors share are copied to disk.

    Attributes:
        size: bytes.

    Raises:
        StoreError: the manifest lacks a part of a tensor, or the random states are gone.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        saved = dict[str, SavedTensor]()  # in the order of the archive
        hollow = dict[str, torch.Tensor]()

        def fetch(kind: str, name: str) -> Any:
            if name not in hollow:
                saved[name] = check_complete(name, manifest)
                # Nobody touches its memory: it takes none.
                hollow[name] = torch.empty(saved[name].shape, dtype=dtype_of(saved[name]), device="cpu")
            if kind == NUMPY:
                return Archived({NUMPY: hollow[name]})
            return as_kind(kind, hollow[name])

        tree = {name: from_json(value, fetch) for name, value in manifest.tree.items()}
        states = read_rng(store, manifest, 0) or {}
        frame = _Frame()
        with skip_data():
            write_archive({**tree, RNG: states}, frame)  # type: ignore[arg-type]
        self._frame = frame.parts
        self._gaps: list[SavedTensor | bytes] = [tensor for tensor in saved.values() if tensor.chunks]
        self._gaps += [state.numpy().tobytes() for value in states.values() for state in _tensors(value)]
        self.size = sum(part if isinstance(part, int) else len(part) for part in self._frame)

    def pieces(self) -> Iterator[bytes]:
        """The file from its beginning, in pieces of at most 16 MiB.

        Raises:
            StoreError: a blob is gone, damaged or cannot be read.
        """
        with _Blobs(self._store, [gap for gap in self._gaps if isinstance(gap, SavedTensor)]) as blobs:
            gaps = iter(self._gaps)
            for part in self._frame:
                if isinstance(part, bytes):
                    yield part
                elif isinstance(gap := next(gaps), bytes):
                    yield gap
                else:
                    yield from pieces_of(gap, dtype_of(gap).itemsize, blobs.read)
                    blobs.close_all_but_those_needed_after(gap)


class _Frame:
    """A writable file that keeps its bytes, and the sizes of the gaps between them."""

    def __init__(self) -> None:
        self.parts: list[bytes | int] = []

    def write(self, content: bytes) -> int:
        if self.parts and isinstance(self.parts[-1], bytes):
            self.parts[-1] += bytes(content)
        else:
            self.parts.append(bytes(content))
        return len(content)

    def seek(self, size: int, whence: int) -> None:
        """Note a gap: torch leaves out a tensor's content in this way."""
        self.parts.append(size)

    def flush(self) -> None:
        """Do nothing: all bytes are here."""


class _Blobs:
    """Local files of checked blobs, each opened when it is first needed."""

    def __init__(self, store: Store, tensors: list[SavedTensor]) -> None:
        self._store = store
        self._open = dict[str, tuple[IO[bytes], ExitStack]]()
        self._last = {chunk.place.blob: tensor for tensor in tensors for chunk in tensor.chunks}

    def __enter__(self) -> "_Blobs":
        return self

    def __exit__(self, *_: object) -> None:
        for blob in list(self._open):
            self._close(blob)

    def read(self, place: Place, start: int, size: int) -> bytes:
        """Bytes of a place, beginning at ``start`` within it."""
        if place.blob not in self._open:
            with ExitStack() as stack:
                try:
                    path = stack.enter_context(self._store.blob_file(place.blob))
                except NotFound as error:
                    raise StoreError(
                        f"the checkpoint is not complete, and cannot be read: {error}"
                    ) from error
                self._open[place.blob] = stack.enter_context(path.open("rb")), stack.pop_all()
        file, _ = self._open[place.blob]
        file.seek(place.start + start)
        return file.read(size)

    def close_all_but_those_needed_after(self, tensor: SavedTensor) -> None:
        for blob in [blob for blob in self._open if self._last[blob] is tensor]:
            self._close(blob)

    def _close(self, blob: str) -> None:
        _, stack = self._open.pop(blob)
        stack.close()


def _tensors(value: Any) -> list[torch.Tensor]:
    if not isinstance(value, list):
        value = [value]
    return [item for item in value if isinstance(item, torch.Tensor)]
