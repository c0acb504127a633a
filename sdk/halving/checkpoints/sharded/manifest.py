"""The manifest of a sharded checkpoint: names, tensors, and where the bytes of each part lie.

It is pure and needs no torch. The digest of the manifest's blob is the checkpoint's digest. Equal state of
equally many processes gives an equal manifest.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from halving.errors import StoreError

_FORMAT = 1
_MAGIC = b'{"halving_checkpoint":'  # no other checkpoint begins so: JSON ones have a blank after the colon


class Place(NamedTuple):
    """Bytes in the store: ``size`` bytes of ``blob`` from ``start`` on."""

    blob: str
    start: int
    size: int


class Chunk(NamedTuple):
    """A box of a tensor: its ``offsets`` and ``sizes`` in each dimension, and where its bytes lie.

    Its elements are in C order, little-endian.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    place: Place


@dataclass(frozen=True)
class SavedTensor:
    """A tensor: torch's name of its dtype, its whole shape, and the chunks that cover it.

    Chunks do not overlap, and a tensor without elements has none. ``stride`` is set where the tensor was not
    laid out in C order (channels last, transposed), because a fused optimizer goes through a parameter and
    its states as they lie in memory.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Manifest:
    """A sharded checkpoint.

    Attributes:
        world_size: of the processes that wrote it.
        tree: what was saved by name, as JSON, with references to ``tensors``.
        stateful: the names whose objects gave their own state.
        tensors: by the names that ``tree`` refers to.
        rng: the random generators' states of each rank.
    """

    world_size: int
    tree: dict[str, Any]
    stateful: tuple[str, ...]
    tensors: dict[str, SavedTensor]
    rng: tuple[Place, ...]

    def to_bytes(self) -> bytes:
        """The manifest as JSON, for :meth:`parse`."""
        tensors = {name: _as_json(tensor) for name, tensor in self.tensors.items()}
        content = {
            "halving_checkpoint": _FORMAT,
            "world_size": self.world_size,
            "stateful": sorted(self.stateful),
            "rng": self.rng,
            "tree": self.tree,
            "tensors": dict(sorted(tensors.items())),
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes) -> "Manifest":
        """Parse what :meth:`to_bytes` wrote.

        Raises:
            StoreError: it was written by a later version, or is no manifest.
        """
        try:
            content = json.loads(data)
            if content["halving_checkpoint"] != _FORMAT:
                raise StoreError(
                    f"the checkpoint has format {content['halving_checkpoint']!r}, and this version of "
                    f"halving reads format {_FORMAT}: "
                    "install the version that wrote it"
                )
            return cls(
                content["world_size"],
                content["tree"],
                tuple(content["stateful"]),
                {name: _tensor(tensor) for name, tensor in content["tensors"].items()},
                tuple(Place(*place) for place in content["rng"]),
            )
        except (ValueError, LookupError, TypeError) as error:
            raise StoreError(f"the checkpoint's manifest cannot be read: {error!r}") from error

    @property
    def blobs(self) -> set[str]:
        """The digests of all blobs that the checkpoint consists of."""
        return {chunk.place.blob for tensor in self.tensors.values() for chunk in tensor.chunks} | {
            place.blob for place in self.rng
        }

    @property
    def bytes(self) -> int:
        """The size of all its parts, without the manifest itself."""
        places = {chunk.place for tensor in self.tensors.values() for chunk in tensor.chunks} | set(self.rng)
        return sum(place.size for place in places)


def is_manifest(beginning: bytes) -> bool:
    """Whether a checkpoint that begins with these bytes is a manifest."""
    return beginning.startswith(_MAGIC)


MAGIC_BYTES = len(_MAGIC)
"""How many bytes :func:`is_manifest` needs."""


def missing_elements(tensor: SavedTensor) -> int:
    """How many elements of a tensor its chunks lack."""
    return math.prod(tensor.shape) - sum(math.prod(chunk.sizes) for chunk in tensor.chunks)


def _as_json(tensor: SavedTensor) -> dict[str, Any]:
    chunks = [[chunk.offsets, chunk.sizes, *chunk.place] for chunk in tensor.chunks]
    content: dict[str, Any] = {"dtype": tensor.dtype, "shape": tensor.shape, "chunks": chunks}
    if tensor.stride is not None:
        content["stride"] = tensor.stride
    return content


def _tensor(content: dict[str, Any]) -> SavedTensor:
    stride = content.get("stride")
    if stride is not None:
        stride = tuple(stride)
    chunks = tuple(_chunks(content["chunks"]))
    return SavedTensor(content["dtype"], tuple(content["shape"]), chunks, stride)


def _chunks(listed: Iterable[Any]) -> Iterable[Chunk]:
    for offsets, sizes, *place in listed:
        yield Chunk(tuple(offsets), tuple(sizes), Place(*place))
