"""Cut a snapshot's spooled rows into shards, and keep those of the previous snapshot."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from halving import Store
from halving.data.shards import Shard, open_shard, shards_of
from halving.data.verified_shards import whole_shard
from resources.datasets.previous_snapshot import PreviousSnapshot
from resources.datasets.shard_writing import Rows, ShardWriter, read_hashes
from resources.datasets.small_shards import find_first_merged
from resources.datasets.spool import JoinedSpools, Spool
from resources.datasets.statistics import Statistics, merge, subtract


@dataclass(frozen=True)
class Cut:
    """The shards of a snapshot, and their statistics.

    Attributes:
        shards: shards of each split, in order.
        statistics: statistics of the columns, by split.
        stored: bytes of the shards that the store did not have yet.
    """

    shards: dict[str, list[Shard]]
    statistics: dict[str, Statistics]
    stored: int


@dataclass(frozen=True)
class Cutter:
    """Cuts spools into shards by the rules of a spec.

    Attributes:
        folder: scratch folder, best on the store's own disk.
        rules: fingerprint of the rules of hashes; see :meth:`halving.data.shards.Shard.row_hashes_name`.
        kinds: kinds of hashes of a row, in the order of the spools.
    """

    store: Store
    folder: Path
    target: str
    rules: str
    shard_bytes: int
    kinds: Sequence[str]

    def cut(self, spools: Mapping[str, Spool], previous: PreviousSnapshot | None) -> Cut:
        """Cut all rows of a snapshot.

        Cuts of the previous snapshot are kept as long as the rows are the same.
        """
        shards: dict[str, list[Shard]] = {}
        statistics: dict[str, Statistics] = {}
        stored = 0
        for split, spool in sorted(spools.items()):
            writer = self._writer(split)
            previous_shards: list[Shard] = []
            if previous is not None:
                previous_shards = shards_of(previous.manifest, split)
            previous_rows = sum(shard.rows for shard in previous_shards)
            added = 0
            if spool.rows > previous_rows:
                added = spool.bytes - spool.bytes_before(previous_rows)
            kept_shards = previous_shards[
                : find_first_merged([shard.bytes for shard in previous_shards], added, self.shard_bytes)
            ]
            shards[split], statistics[split] = writer.cut(spool, again=kept_shards)
            stored += writer.stored
        return Cut(shards, statistics, stored)

    def append(self, spools: Mapping[str, Spool], previous: PreviousSnapshot) -> Cut:
        """Cut rows that are appended to the previous snapshot.

        Of its own rows only small shards are read and written again.
        """
        shards = {split: shards_of(previous.manifest, split) for split in previous.manifest["shards"]}
        statistics: dict[str, Statistics] = dict(previous.manifest["statistics"])
        stored = 0
        for split, spool in sorted(spools.items()):
            writer = self._writer(split)
            previous_shards = shards.get(split, [])
            first = find_first_merged(
                [shard.bytes for shard in previous_shards], spool.bytes, self.shard_bytes
            )
            small = previous_shards[first:]
            rows: Rows = spool
            if small:
                rows = JoinedSpools([self._spool_shards(split, small), spool])
            new_shards, new_statistics = writer.cut(rows)
            untouched = subtract(
                statistics.get(split, {}), (read_hashes(self.store, shard, self.rules)[1] for shard in small)
            )
            shards[split] = [*previous_shards[:first], *new_shards]
            statistics[split] = merge([untouched, new_statistics])
            stored += writer.stored
        return Cut(shards, statistics, stored)

    def _writer(self, split: str) -> ShardWriter:
        return ShardWriter(
            self.store, self.folder / "cutting" / split, self.target, self.rules, self.shard_bytes, self.kinds
        )

    def _spool_shards(self, split: str, shards: list[Shard]) -> Spool:
        """Spool the rows of stored shards, after a check of their bytes, with their stored hashes."""
        with open_shard(self.store, shards[0]) as reader:
            spool = Spool(self.folder / "merged" / split, reader.schema)
        with ExitStack() as unfinished:
            unfinished.callback(spool.close)
            for shard in shards:
                hashes = read_hashes(self.store, shard, self.rules)[0]
                begin = 0
                for batch in whole_shard(self.store, shard).to_batches():
                    spool.append(batch, hashes[begin : begin + batch.num_rows])
                    begin += batch.num_rows
            unfinished.pop_all()
        spool.complete()
        return spool
