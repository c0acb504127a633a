"""A snapshot of a dataset: its manifest, its splits and folds, and the shards that they consist of."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self, TypeVar

from halving.data.shards import Shard, shards_of
from halving.errors import InvalidInput, NotFound, StoreError
from halving.store.deadline import Deadline
from halving.store.retry import Outage, retry_while_unavailable
from halving.store.store import Store

_Result = TypeVar("_Result")
_FOLD = "fold-"
_TRAIN = "train"


class Snapshot:
    """Immutable rows of a dataset in shards, named by their content.

    While the store is unavailable, reading waits for up to ten minutes. A trial that has to end waits for
    most of its grace period.

    Args:
        name: the dataset's name.
        digest: ``sha256:…`` of the list of the shards.
        train_on: stored splits that together are ``train`` here. In the final training of a sweep these are
            train and validation.

    Attributes:
        deadline: the time until which reading waits. A run sets it for its own dataset.
        outage: the outage of the store, shared by everything that reads this snapshot in this process.
    """

    def __init__(self, store: Store, name: str, digest: str, train_on: Sequence[str] = (_TRAIN,)) -> None:
        self.store = store
        self.name = name
        self.digest = digest
        self.train_on = tuple(train_on)
        self.deadline = Deadline()
        self.outage = Outage()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.digest!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[Store, str, str, tuple[str, ...]]]:
        # A data loader's process gets the snapshot without the run.
        return type(self), (self.store, self.name, self.digest, self.train_on)

    @property
    def folder(self) -> str:
        """The snapshot's folder in the store."""
        return snapshot_folder(self.name, self.digest)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The snapshot's contents as its manifest lists them.

        They are ``shards`` by split, ``rows``, ``bytes``, ``schema``, ``splits``, ``target``, ``statistics``
        and ``lineage``.

        Raises:
            NotFound: there is no such snapshot in the store.
        """
        try:
            manifest = parse_manifest(self._retry(partial(self.store.read, f"{self.folder}/manifest.json")))
        except NotFound:
            remedy = ""
            if self.store.folder is not None:
                remedy = "; `dvc pull` in its datasets folder brings it back"
            raise NotFound(
                f"no dataset snapshot {self.name} {self.digest} in the store {self.store.root}{remedy}"
            ) from None
        if "shards" not in manifest:
            raise StoreError(
                f"the snapshot {self.folder} is of an older version, which had no shards; take it again"
            )
        return manifest

    @property
    def target(self) -> str:
        """The name of the column to predict."""
        return str(self.manifest["target"])

    @property
    def splits(self) -> Mapping[str, int]:
        """The number of rows in each split."""
        stored: dict[str, int] = self.manifest["splits"]
        if self.train_on == (_TRAIN,) or self.folds:
            return dict(stored)
        return {**stored, _TRAIN: sum(stored[name] for name in self.train_on)}

    @property
    def folds(self) -> int:
        """The number of folds that all rows except the test split's are dealt into; 0 without folds."""
        return sum(name.startswith(_FOLD) for name in self.manifest["splits"])

    def shards(self, split: str, fold: int | None = None) -> list[Shard]:
        """The shards of a split in stored order.

        In a dataset with folds, ``validation`` is the given fold and ``train`` is all others. Where ``train``
        is several splits, their shards follow one another in the order of ``train_on``.

        Raises:
            NotFound: the snapshot has no such split or fold.
        """
        return [
            shard for name in self._stored_splits(split, fold) for shard in shards_of(self.manifest, name)
        ]

    def statistics(self, split: str, fold: int | None = None) -> list[Mapping[str, Mapping[str, Any]]]:
        """What the columns of a split hold, for each of the stored parts that the split consists of.

        The counts are ``nulls`` (which include NaN in floats), ``null_items`` within lists, and whatever else
        was counted when the snapshot was taken.

        Raises:
            NotFound: the snapshot has no such split or fold.
        """
        by_split: Mapping[str, Mapping[str, Mapping[str, Any]]] = self.manifest.get("statistics", {})
        return [by_split.get(name, {}) for name in self._stored_splits(split, fold)]

    def _stored_splits(self, split: str, fold: int | None) -> list[str]:
        """The names of the stored splits that a split consists of."""
        if split == _TRAIN:
            return [name for part in self.train_on for name in self._splits_of_part(part, fold)]
        return self._splits_of_part(split, fold)

    def _splits_of_part(self, split: str, fold: int | None) -> list[str]:
        """The names of the stored splits that one part of a split consists of."""
        folds = self.folds
        if fold is not None and not (0 <= fold < folds):
            existing = "no folds"
            if folds:
                existing = f"the folds 0 to {folds - 1}"
            raise NotFound(f"dataset {self.name} has no fold {fold}; it has {existing}")
        if folds and split in ("train", "validation"):
            if fold is None:
                raise InvalidInput(
                    f"fold = None is not accepted for the split {split!r} of {self.name}: give one of 0 to "
                    f"{folds - 1}"
                )
            names = [
                f"{_FOLD}{number}" for number in range(folds) if (number == fold) == (split == "validation")
            ]
        else:
            names = [split]
        if missing := [name for name in names if name not in self.manifest["splits"]]:
            raise NotFound(
                f"dataset {self.name} has no split {missing[0]!r}; it has {sorted(self.manifest['splits'])}"
            )
        return names

    def _retry(self, read: Callable[[], _Result]) -> _Result:
        """Read from the snapshot's store, again while that is unavailable."""
        return self._retry_at(self.store, read)

    def _retry_at(self, store: Store, read: Callable[[], _Result]) -> _Result:
        """Read from a store, again while that is unavailable."""
        return retry_while_unavailable(store, f"dataset {self.name}", read, self.deadline, outage=self.outage)


def parse_manifest(content: bytes) -> dict[str, Any]:
    """Read the contents of a manifest file.

    A snapshot is immutable, so one from before ``hash_rules`` had that name still calls it ``hashes``.
    """
    manifest: dict[str, Any] = json.loads(content)
    if "hashes" in manifest:
        manifest["hash_rules"] = manifest.pop("hashes")
    return manifest


def snapshot_folder(name: str, digest: str) -> str:
    """A snapshot's folder in the store: ``datasets/NAME/HASH``, with 16 hex digits of the digest."""
    return f"datasets/{name}/{digest.removeprefix('sha256:')[:16]}"
