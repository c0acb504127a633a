"""How often a test split has judged winners, which wears it out: the luckiest of many looks too good.

The best score of k equally good winners is expected to be E(k) standard errors above the true value, where
E(k) is the expected largest of k normal draws (Blom 1958: about the quantile at (k - 0.375) / (k + 0.25)). If
each winner was made with knowledge of earlier results, as in a team, it may be more, up to the order of
sqrt(k / rows) (Dwork et al. 2015, "The reusable holdout", Science 349; Blum & Hardt 2015, "The Ladder",
ICML).
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
"""The number of winners from which the report warns: the best of 10 looks 1.5 standard errors too good."""


@dataclass(frozen=True)
class SplitWear:
    """How often a split has judged winners so far.

    Attributes:
        winners: the number of different checkpoints, including the present one.
        reports: the number of reports on them; a repeated report does not wear the split out.
    """

    winners: int
    reports: int

    @property
    def optimism(self) -> float:
        """The standard errors by which the best of so many equally good winners probably looks too good."""
        if self.winners <= 1:
            return 0.0
        return max(0.0, NormalDist().inv_cdf((self.winners - 0.375) / (self.winners + 0.25)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "winners": self.winners,
            "looks": self.reports,
            "optimism": self.optimism,
            "worn": self.winners >= WORN_FROM,
        }


def split_digest(manifest: Mapping[str, Any], split: str) -> str:
    """The digest of a split's rows in their stored order; snapshots with the same rows share it."""
    digests = "".join(shard.sha256 for shard in shards_of(manifest, split))
    return f"sha256:{sha256(digests.encode()).hexdigest()}"


def record_judgement(catalog: Catalog, *, digest: str, split: str, checkpoint: str, sweep: str) -> SplitWear:
    """Record that a split is about to judge a winner; return its wear, including this judgement.

    Args:
        digest: the digest of the split; see :func:`split_digest`.
        checkpoint: the checkpoint of the search's winner. Judging the seeds of its final training counts as
            the same judgement.
    """
    with catalog.write(exclusive=True) as session:
        row = session.get(SplitLookRow, (digest, split, checkpoint))
        now = utcnow()
        if row is None:
            columns = {"content": digest, "split": split, "checkpoint": checkpoint, "sweep": sweep}
            session.add(SplitLookRow(**columns, times=1, first_at=now, last_at=now))
        else:
            row.times = row.times + 1
            row.last_at = now
        session.flush()
        of_split = (SplitLookRow.content == digest, SplitLookRow.split == split)
        winners, reports = session.execute(
            select(func.count(), func.sum(SplitLookRow.times)).where(*of_split)
        ).one()
        return SplitWear(int(winners), int(reports))
