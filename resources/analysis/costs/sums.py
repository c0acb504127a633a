"""Sums of what attempts cost by a list of prices, as pure functions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Literal, get_args

from resources.analysis.costs.prices import Prices

By = Literal["sweep", "project", "model", "trial", "purpose", "outcome", "month", "gpu_type"]
"""What costs can be grouped by."""
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
    """The resources that one attempt held, or several that are alike in all but their seconds.

    Attributes:
        sweep, model: the names of both; for a run that is not a trial, the same words as ``purpose``.
        trial: the trial's key, ``digits-7f3a.0007``; for a run that is not a trial, ``project/run``.
        purpose: the purpose of the trial, for people.
        outcome: how it ended, as in the catalog; None while it runs. For a run that is not a trial it may be
            any other words.
        months: its seconds by month (``2026-11``), in order.
        seconds: for how long it held ``nodes`` nodes, each with ``gpus`` and ``cpus``.
        with_result: the part of these seconds that led to a result at a rung.
        attempts: the number of attempts; 0 for all months of an attempt but its last one.
        estimated: whether its end is not recorded, so that its seconds count until its last point.
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
        """The cost of all its seconds, or of ``seconds`` of them."""
        if seconds is None:
            seconds = self.seconds
        rate = prices.node_hour(gpus=self.gpus, cpus=self.cpus, gpu_type=self.gpu_type, spot=self.spot)
        return seconds / 3600 * self.nodes * rate

    @property
    def gpu_hours(self) -> float:
        return self.seconds / 3600 * self.nodes * self.gpus

    @property
    def lost_seconds(self) -> float:
        """The seconds after the last result of an attempt that crashed, failed or was preempted.

        A checkpoint may have saved some of that work.
        """
        if self.outcome not in _LOST:
            return 0.0
        return max(0.0, self.seconds - self.with_result)

    def by_month(self) -> Iterator["Held"]:
        """Divide it into one part for each month.

        It counts as an attempt in its last month. Seconds with a result are supposed to come before those
        that were lost.
        """
        if len(self.months) == 1:
            yield self
            return
        *earlier, _ = self.months
        left_with_result = self.with_result
        for month, seconds in self.months.items():
            attempts = self.attempts
            if month in earlier:
                attempts = 0
            yield replace(
                self,
                months={month: seconds},
                seconds=seconds,
                with_result=min(left_with_result, seconds),
                attempts=attempts,
            )
            left_with_result = max(0.0, left_with_result - seconds)


@dataclass(frozen=True)
class Line:
    """A sum.

    Attributes:
        name: the name of what is summed up.
        cost: the cost in the currency of the prices.
        seconds: the seconds of attempts, however many nodes they had.
        lost: the cost, at most, of work that led to no result, because its attempt crashed, failed or was
            preempted.
    """

    name: str
    cost: float = 0.0
    gpu_hours: float = 0.0
    seconds: float = 0.0
    attempts: int = 0
    lost: float = 0.0

    def plus(self, held: Held, prices: Prices) -> "Line":
        """The sum with one more attempt."""
        return Line(
            self.name,
            self.cost + held.cost(prices),
            self.gpu_hours + held.gpu_hours,
            self.seconds + held.seconds,
            self.attempts + held.attempts,
            self.lost + held.cost(prices, held.lost_seconds),
        )

    def as_dict(self) -> dict[str, Any]:
        """The sum as plain data."""
        return asdict(self)


def _gpu_type(held: Held) -> str:
    if not held.gpus:
        return "no GPU"
    return held.gpu_type or "GPUs of no type"


_NAMES: dict[By, Callable[[Held], str]] = {
    "sweep": lambda held: held.sweep,
    "project": lambda held: held.project,
    "model": lambda held: held.model,
    "trial": lambda held: held.trial,
    "purpose": lambda held: held.purpose,
    "outcome": lambda held: _OUTCOMES.get(held.outcome, str(held.outcome)),
    "month": lambda held: next(iter(held.months)),
    "gpu_type": _gpu_type,
}


def total(attempts: Iterable[Held], prices: Prices) -> Line:
    """The sum of all attempts."""
    line = Line("in all")
    for held in attempts:
        line = line.plus(held, prices)
    return line


def lines_by(by: By, attempts: Iterable[Held], prices: Prices) -> list[Line]:
    """A line for each sweep, project and so on: months in their order, all others with the dearest first."""
    lines: dict[str, Line] = {}
    if by == "month":
        attempts = [part for held in attempts for part in held.by_month()]
    for held in attempts:
        name = _NAMES[by](held)
        lines[name] = lines.get(name, Line(name)).plus(held, prices)
    if by == "month":
        return [lines[name] for name in sorted(lines)]
    return sorted(lines.values(), key=lambda line: (-line.cost, line.name))


def saved_cost(attempts: Iterable[Held], saved: Iterable[tuple[str, int, float]], prices: Prices) -> float:
    """The cost of the training that early stopping left out.

    Args:
        attempts: the resources that trials held.
        saved: trial, the attempt whose resources it would have had, and the seconds of training.
    """
    held = {(attempt_held.trial, attempt_held.attempt): attempt_held for attempt_held in attempts}
    return sum(
        held[trial, attempt].cost(prices, seconds)
        for trial, attempt, seconds in saved
        if (trial, attempt) in held
    )


def money(value: float, prices: Prices) -> str:
    """An amount for people: ``1,234.50 USD``, or with two significant digits if small: ``0.00012 USD``."""
    if 0 < abs(value) < 0.01:
        return f"{Decimal(f'{value:.2g}'):f} {prices.currency}"
    return f"{value:,.2f} {prices.currency}"


def largest(lines: Iterable[Line], rows: int) -> Iterator[Line]:
    """The first ``rows`` lines, and all others as one."""
    kept = list(lines)
    yield from kept[:rows]
    if rest := kept[rows:]:
        sums = {
            name: sum(getattr(line, name) for line in rest)
            for name in ("cost", "gpu_hours", "seconds", "attempts", "lost")
        }
        yield Line(f"{len(rest)} more", **sums)
