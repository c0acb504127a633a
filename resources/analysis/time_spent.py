"""Where the time of a training went, by the samples of each rank, and which rank is a straggler.

See :mod:`halving.run.time_shares` for what is sampled and what is not.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from halving.metrics.points import Points, stitch

SAMPLED = re.compile(r"system/(data_wait|collectives|saves|gpu\.\d+/utilization)(?:/rank\.(\d+))?")
"""The names of the sampled metrics: what was sampled, and the rank, which is left out for rank 0."""
BUSY_PERCENT = 90.0
"""The percentage of the time that a training should compute; below it there is a warning."""
_MIN_SAMPLES = 3  # before a rank is called slow
_RECENT = 20  # samples that are looked at
_SLOWER = 1.5  # times the median of the others
_OFTEN = 0.75  # share of the samples
_EXPLAINED = 0.5  # share of the time that is missing
_EXPLAINED_WAITS = 1 / 3  # share of the time that the other ranks spend in collectives
_WAITS = ("data_wait", "collectives", "saves")
SHARES = {
    "computing": "computing",
    "data_wait": "waiting for data",
    "collectives": "collectives",
    "saves": "saves",
    "gpu": "GPUs busy",
}
"""Fields of :class:`TimeSpent`, and their names for people."""
_ADVICE = {
    "data_wait": "it waits for data: prepare batches in processes (loader.torch(workers=4)), make the "
    "transform cheaper, or read fewer columns",
    "collectives": "its ranks wait for each other or for the network: give each more work between two "
    "collectives (a larger batch, accumulation), or fewer ranks",
    "saves": "it writes checkpoints: let run.save decide how often, or make them smaller",
    "straggler": "most of its ranks wait for another one",
    "gpu": "none of the waits that are measured explains it: look at a loader of your own, at Python between "
    "two steps, at batches that are too small for the GPU, and at values that are fetched from it in every "
    "step (.item(), print)",
}


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for.

    Attributes:
        times: its time from one collective to the next, divided by the median of the other ranks' times.
    """

    rank: int
    times: float


@dataclass(frozen=True)
class TimeSpent:
    """Percentages of the time of a training, as means over its samples and its ranks.

    Attributes:
        computing: what the other shares leave of 100.
        data_wait: the share of waiting for data; None if it was not sampled.
        collectives: the share of collectives; None if it was not sampled.
        saves: the share of writing checkpoints; None if it was not sampled.
        gpu: the utilisation of its GPUs; None without GPUs.
        straggler: the rank that the others wait for; None if there is none.
    """

    computing: float
    data_wait: float | None
    collectives: float | None
    saves: float | None
    gpu: float | None
    straggler: Straggler | None

    @property
    def busy(self) -> float:
        """Percent of the time in which it computed, by its GPUs if it has any, otherwise by ``computing``."""
        return self.computing if self.gpu is None else self.gpu

    @property
    def warning(self) -> str | None:
        """A sentence for each problem and its remedy; None if all is well."""
        sentences = []
        if self.busy < BUSY_PERCENT:
            waits = {name: value for name in _WAITS if (value := getattr(self, name)) is not None}
            largest = max(waits, key=lambda name: waits[name], default="gpu")
            explained = bool(waits) and waits[largest] >= _EXPLAINED * (100 - self.busy)
            cause = largest
            subject = "it is"
            if self.gpu is not None:
                subject = "its GPUs are"
                if not explained:
                    cause = "gpu"
            if cause == "collectives" and self.straggler is not None:
                cause = "straggler"
            sentences.append(
                f"{subject} busy {self.busy:.0f} % of the time, below {BUSY_PERCENT:.0f} %: {_ADVICE[cause]}"
            )
        if self.straggler is not None:
            sentences.append(
                f"rank {self.straggler.rank} is a straggler: it takes {self.straggler.times:.1f} times as "
                "long as the other ranks from one collective to the next, and they wait for it; look at its "
                "node, its GPU and its share of the data"
            )
        return "; ".join(sentences) or None

    def as_dict(self) -> dict[str, Any]:
        """The shares as plain data, with :attr:`busy` and :attr:`warning`."""
        return {**asdict(self), "busy": self.busy, "warning": self.warning}


def shares_text(spent: TimeSpent) -> str:
    """The shares in a line: ``computing 71 %, waiting for data 20 %, collectives 9 %``."""
    shares = {name: getattr(spent, field) for field, name in SHARES.items()}
    return ", ".join(f"{name} {value:.0f} %" for name, value in shares.items() if value is not None)


def time_spent(points: Mapping[str, Points]) -> TimeSpent | None:
    """Work out where the time of a run went.

    None if nothing was sampled, because the run was shorter than a second or had no system metrics.

    Args:
        points: the points of all attempts, by metric; only metrics that :data:`SAMPLED` matches are used.
    """
    samples = {}
    for key in points:
        if name := SAMPLED.fullmatch(key):
            samples[name[1], int(name[2] or 0)] = stitch(points[key]).value.tolist()
    return spent_by(samples)


def spent_by(samples: Mapping[tuple[str, int], Sequence[float]]) -> TimeSpent | None:
    """Work out where the time went.

    Args:
        samples: by kind and rank, percentages in the order of time.
    """
    means = {
        name: _mean([values for (sampled, _), values in samples.items() if sampled == name])
        for name in _WAITS
    }
    if all(value is None for value in means.values()):
        return None
    gpu = _mean([values for (name, _), values in samples.items() if name.startswith("gpu.")])
    own = {rank: _own_time(samples, rank) for name, rank in samples if name == "collectives"}
    computing = max(0.0, 100 - sum(value or 0.0 for value in means.values()))
    return TimeSpent(
        computing, means["data_wait"], means["collectives"], means["saves"], gpu, find_straggler(own)
    )


def find_straggler(own: Mapping[int, Sequence[float]]) -> Straggler | None:
    """Find the rank that takes much longer than the others from one collective to the next.

    The median of its last 20 samples must be at least 1.5 times the median of the other ranks' medians, and
    so must be three in four of its samples, because a rank may be slow once. It must also explain a third of
    the time that the others spend in collectives, because ranks that are all in collectives most of the time
    wait for the network. If there are several such ranks, the slowest is returned.

    Args:
        own: by rank, the shares of time outside of collectives, in percent and in the order of time.
    """
    recent = {rank: values[-_RECENT:] for rank, values in own.items() if len(values) >= _MIN_SAMPLES}
    if len(recent) < 2:
        return None
    medians = {rank: median(values) for rank, values in recent.items()}
    slowest = max(medians, key=lambda rank: medians[rank])
    of_others = median(value for rank, value in medians.items() if rank != slowest)
    bound = _SLOWER * max(of_others, 1.0)  # a rank that only waits has no time of its own to compare with
    often = sum(value >= bound for value in recent[slowest]) >= _OFTEN * len(recent[slowest])
    explains_waits = medians[slowest] - of_others >= _EXPLAINED_WAITS * (100 - of_others)
    if medians[slowest] < bound or not often or not explains_waits:
        return None
    return Straggler(slowest, medians[slowest] / max(of_others, 1.0))


def _own_time(samples: Mapping[tuple[str, int], Sequence[float]], rank: int) -> list[float]:
    """A rank's time apart from collectives and from checkpoints, which rank 0 alone writes."""
    waited = samples["collectives", rank]
    saved = samples.get(("saves", rank), ())
    saved = [*saved, *[0.0] * (len(waited) - len(saved))]
    return [max(0.0, 100 - share - writing) for share, writing in zip(waited, saved, strict=False)]


def _mean(of_ranks: Sequence[Sequence[float]]) -> float | None:
    values = [value for samples in of_ranks for value in samples]
    if not values:
        return None
    return fmean(values)
