"""Cutting the spooled rows of a snapshot into shards, behind those of the former snapshot that stay as they
are.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from halving import Store
from halving.data.shards import Shard, open_shard, shards_of
from halving.data.verified_shards import whole_shard
from resources.datasets.former import Former
from resources.datasets.shard_writing import ShardWriter, read_hashes
from resources.datasets.small_shards import first_merged
from resources.datasets.spool import JoinedSpools, Spool
from resources.datasets.statistics import Statistics, merged, without


@dataclass(frozen=True)
class Cut:
    """What was cut.

    Attributes:
        shards: by split, in their order.
        statistics: of the columns, by split.
        stored: bytes of shards that the store did not have yet.
    """

    shards: dict[str, list[Shard]]
    statistics: dict[str, Statistics]
    stored: int


@dataclass(frozen=True)
class Cutter:
    """Cuts spools by the rules of a spec.

    Attributes:
        folder: for what is being written, best on the store's own disk.
        rules: of what is hashed and counted of a row; see :meth:`halving.data.shards.Shard.row_hashes_name`.
        kinds: of the hashes of a row, in the order of the spools'.
    """

    store: Store
    folder: Path
    target: str
    rules: str
    shard_bytes: int
    kinds: Sequence[str]

    def cut(self, spools: Mapping[str, Spool], former: Former | None) -> Cut:
        """Cut all rows of a snapshot.

        What the former one cut is cut there again as long as the rows are the same.
        """
        shards: dict[str, list[Shard]] = {}
        statistics: dict[str, Statistics] = {}
        stored = 0
        for split, spool in sorted(spools.items()):
            writer = self._writer(split)
            former_shards = shards_of(former.manifest, split) if former is not None else []
            former_rows = sum(shard.rows for shard in former_shards)
            added = spool.bytes - spool.bytes_before(former_rows) if spool.rows > former_rows else 0
            kept = former_shards[
                : first_merged([shard.bytes for shard in former_shards], added, self.shard_bytes)
            ]
            shards[split], statistics[split] = writer.cut(spool, again=kept)
            stored += writer.stored
        return Cut(shards, statistics, stored)

    def append(self, spools: Mapping[str, Spool], former: Former) -> Cut:
        """Cut rows that are appended to the former snapshot; of its own rows only small shards are read and
        written again.
        """
        shards = {split: shards_of(former.manifest, split) for split in former.manifest["shards"]}
        statistics: dict[str, Statistics] = dict(former.manifest["statistics"])
        stored = 0
        for split, spool in sorted(spools.items()):
            writer = self._writer(split)
            former_shards = shards.get(split, [])
            first = first_merged([shard.bytes for shard in former_shards], spool.bytes, self.shard_bytes)
            small = former_shards[first:]
            rows = JoinedSpools([self._spooled(split, small), spool]) if small else spool
            new_shards, new_statistics = writer.cut(rows)
            untouched = without(
                statistics.get(split, {}), (read_hashes(self.store, shard, self.rules)[1] for shard in small)
            )
            shards[split] = [*former_shards[:first], *new_shards]
            statistics[split] = merged([untouched, new_statistics])
            stored += writer.stored
        return Cut(shards, statistics, stored)

    def _writer(self, split: str) -> ShardWriter:
        return ShardWriter(
            self.store, self.folder / "cutting" / split, self.target, self.rules, self.shard_bytes, self.kinds
        )

    def _spooled(self, split: str, shards: list[Shard]) -> Spool:
        """The rows of stored shards, whose bytes are checked, with their hashes as they are stored."""
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
