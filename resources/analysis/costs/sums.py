"""Sums over attempts and a list of prices. Pure: rows in, figures out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Literal, get_args

from resources.analysis.costs.prices import Prices

By = Literal["sweep", "project", "model", "trial", "purpose", "outcome", "month", "gpu_type"]
"""What costs may be told apart by."""
BY: tuple[By, ...] = get_args(By)

WINNER = "the winner"
FINAL = "final training"
PRUNED = "pruned trials"
AUDIT = "audit of pruning"
OTHERS = "other completed trials"
FAILED = "failed trials"
OPEN = "trials that are not done"
SCRIPTS = "runs of scripts"
RERUNS = "reruns"
_OUTCOMES = {
    None: "running",
    "pause": "paused at a rung",
    "stop": "stopped at a rung",
    "complete": "completed",
    "requeue": "given back",
    "retry": "crashed",
    "fail": "failed",
    "preempted": "preempted or lost",
    "halved": "out of memory",
}
_LOST = ("retry", "fail", "preempted", "halved")


@dataclass(frozen=True)
class Held:
    """One attempt as the ledger has it, or several that are alike in all but their seconds.

    Attributes:
        sweep, model: of what is no trial, the same words as ``purpose``.
        trial: its key, ``digits-7f3a.0007``; of what is no trial, ``project/run``.
        purpose: what its trial was for, in words.
        outcome: as in the catalog; None while it runs. Of what is no trial it may be any other words.
        months: its seconds by the months in which it held that (``2026-11``), in their order.
        seconds: for which it held ``nodes`` nodes, each with ``gpus`` and ``cpus``.
        with_result: of these seconds those that led to a result at a rung.
        attempts: how many they are; 0 of the months of one before its last.
        estimated: it left no end, and its seconds go to its last sign of life.
    """

    sweep: str
    project: str
    model: str
    trial: str
    attempt: int
    purpose: str
    outcome: str | None
    months: Mapping[str, float]
    seconds: float
    with_result: float
    nodes: int
    gpus: int
    cpus: float
    gpu_type: str | None
    spot: bool
    attempts: int = 1
    estimated: bool = False

    def cost(self, prices: Prices, seconds: float | None = None) -> float:
        """What it cost, or what so many of its seconds did."""
        rate = prices.node_hour(gpus=self.gpus, cpus=self.cpus, gpu_type=self.gpu_type, spot=self.spot)
        return (self.seconds if seconds is None else seconds) / 3600 * self.nodes * rate

    @property
    def gpu_hours(self) -> float:
        return self.seconds / 3600 * self.nodes * self.gpus

    @property
    def lost_seconds(self) -> float:
        """The seconds after the last result of an attempt that crashed, failed or was preempted; a checkpoint
        may have saved some of it.
        """
        return max(0.0, self.seconds - self.with_result) if self.outcome in _LOST else 0.0

    def by_month(self) -> Iterator["Held"]:
        """What it held in each month.

        It counts as an attempt in the last one, and what led to results came before what was lost.
        """
        if len(self.months) == 1:
            yield self
            return
        *earlier, _ = self.months
        told = self.with_result
        for month, seconds in self.months.items():
            attempts = 0 if month in earlier else self.attempts
            yield replace(
                self,
                months={month: seconds},
                seconds=seconds,
                with_result=min(told, seconds),
                attempts=attempts,
            )
            told = max(0.0, told - seconds)


@dataclass(frozen=True)
class Line:
    """A sum.

    Attributes:
        name: of what.
        cost: in the currency of the prices.
        seconds: of attempts, however many nodes they had.
        lost: the cost of work that led to no result, because its attempt crashed, failed or was preempted; at
            most.
    """

    name: str
    cost: float = 0.0
    gpu_hours: float = 0.0
    seconds: float = 0.0
    attempts: int = 0
    lost: float = 0.0

    def plus(self, held: Held, prices: Prices) -> "Line":
        return Line(
            self.name,
            self.cost + held.cost(prices),
            self.gpu_hours + held.gpu_hours,
            self.seconds + held.seconds,
            self.attempts + held.attempts,
            self.lost + held.cost(prices, held.lost_seconds),
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_NAMES: dict[By, Callable[[Held], str]] = {
    "sweep": lambda held: held.sweep,
    "project": lambda held: held.project,
    "model": lambda held: held.model,
    "trial": lambda held: held.trial,
    "purpose": lambda held: held.purpose,
    "outcome": lambda held: _OUTCOMES.get(held.outcome, str(held.outcome)),
    "month": lambda held: next(iter(held.months)),
    "gpu_type": lambda held: (held.gpu_type or "GPUs of no type") if held.gpus else "no GPU",
}


def total(attempts: Iterable[Held], prices: Prices) -> Line:
    """All in one."""
    line = Line("in all")
    for held in attempts:
        line = line.plus(held, prices)
    return line


def lines_by(by: By, attempts: Iterable[Held], prices: Prices) -> list[Line]:
    """A line for each sweep, project…: months in their order, all else the dearest first."""
    found: dict[str, Line] = {}
    parts = (part for held in attempts for part in held.by_month()) if by == "month" else attempts
    for held in parts:
        name = _NAMES[by](held)
        found[name] = found.get(name, Line(name)).plus(held, prices)
    if by == "month":
        return [found[name] for name in sorted(found)]
    return sorted(found.values(), key=lambda line: (-line.cost, line.name))


def saved_cost(attempts: Iterable[Held], saved: Iterable[tuple[str, int, float]], prices: Prices) -> float:
    """What the training would have cost that early stopping left out.

    Args:
        attempts: by which trials are known to have held what they did.
        saved: trial, the attempt with whose resources it would have trained, and seconds of training.
    """
    held = {(one.trial, one.attempt): one for one in attempts}
    return sum(
        held[trial, attempt].cost(prices, seconds)
        for trial, attempt, seconds in saved
        if (trial, attempt) in held
    )


def money(value: float, prices: Prices) -> str:
    """An amount for people: ``1,234.50 USD``, small ones with two digits that count: ``0.00012 USD``."""
    if 0 < abs(value) < 0.01:
        return f"{Decimal(f'{value:.2g}'):f} {prices.currency}"
    return f"{value:,.2f} {prices.currency}"


def largest(lines: Iterable[Line], rows: int) -> Iterator[Line]:
    """The first so many lines, and all others as one."""
    kept = list(lines)
    yield from kept[:rows]
    if rest := kept[rows:]:
        sums = {
            name: sum(getattr(line, name) for line in rest)
            for name in ("cost", "gpu_hours", "seconds", "attempts", "lost")
        }
        yield Line(f"{len(rest)} more", **sums)
