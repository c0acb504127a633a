"""How often a test split has judged a winner: it wears out, as the luckiest of many looks better than it is.

Of k equally good winners the best is expected to lie E(k) standard errors above its true value, the expected
largest of k normal draws (Blom 1958: about the quantile at (k - 0.375) / (k + 0.25)). Where each was made
knowing the results before it, as teams do, it may be more: up to the order of sqrt(k / rows) (Dwork et al.
2015, "The reusable holdout", Science 349; Blum & Hardt 2015, "The Ladder", ICML).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from statistics import NormalDist
from typing import Any

from sqlalchemy import func, select

from halving.data.shards import shards_of
from resources.catalog import Catalog, SplitLookRow, utcnow

WORN_FROM = 10
"""Winners judged from which the report warns: the best of 10 is expected 1.5 standard errors too high."""


@dataclass(frozen=True)
class Looks:
    """What a split has judged so far.

    Attributes:
        winners: how many different checkpoints, the present one included.
        looks: how many reports of them; a repeated report tells nothing new about the split.
    """

    winners: int
    looks: int

    @property
    def optimism(self) -> float:
        """Standard errors by which the best of so many equally good winners is expected to look too good."""
        if self.winners <= 1:
            return 0.0
        return max(0.0, NormalDist().inv_cdf((self.winners - 0.375) / (self.winners + 0.25)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "winners": self.winners,
            "looks": self.looks,
            "optimism": self.optimism,
            "worn": self.winners >= WORN_FROM,
        }


def content_of(manifest: Mapping[str, Any], split: str) -> str:
    """Digest of a split's rows in their stored order; snapshots with the same test rows share the count."""
    digests = "".join(shard.sha256 for shard in shards_of(manifest, split))
    return f"sha256:{sha256(digests.encode()).hexdigest()}"


def count_look(catalog: Catalog, *, content: str, split: str, checkpoint: str, sweep: str) -> Looks:
    """Record that a split is about to judge a winner; give what it has judged so far, this included.

    Args:
        content: of the split; see :func:`content_of`.
        checkpoint: of the search's winner; the same look judges the seeds of its final training.
    """
    with catalog.write(exclusive=True) as session:
        row = session.get(SplitLookRow, (content, split, checkpoint))
        now = utcnow()
        if row is None:
            columns = {"content": content, "split": split, "checkpoint": checkpoint, "sweep": sweep}
            session.add(SplitLookRow(**columns, times=1, first_at=now, last_at=now))
        else:
            row.times = row.times + 1
            row.last_at = now
        session.flush()
        of_split = (SplitLookRow.content == content, SplitLookRow.split == split)
        winners, looks = session.execute(
            select(func.count(), func.sum(SplitLookRow.times)).where(*of_split)
        ).one()
        return Looks(int(winners), int(looks))
