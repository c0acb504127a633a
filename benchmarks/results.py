"""The results of a part: figures held to a target, and tables. Plain data, kept as JSON."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from halving.rerun.student_t import t_quantile


@dataclass
class Target:
    """A figure and the bound that the project promised for it.

    Attributes:
        what: the figure in words.  unit: of ``values`` and ``bound``.
        values: one for each round; the median counts.
        bound: what was promised.  at_most: whether it is an upper bound.
    """

    what: str
    unit: str
    values: list[float]
    bound: float
    at_most: bool = True

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        if self.at_most:
            return self.median <= self.bound
        return self.median >= self.bound


@dataclass
class Table:
    """Rows of text under a header; ``note`` is a sentence below."""

    header: list[str]
    rows: list[list[str]]
    title: str = ""
    note: str = ""


@dataclass
class Part:
    """The results of one part of the benchmarks.

    Attributes:
        name: what to call it on the command line.  title, text: what is measured and how.
        missing: why something of it was not measured; empty when all of it was.
        facts: when, on what and how long, from :func:`benchmarks.machine.facts`.
    """

    name: str
    title: str
    text: str
    targets: list[Target] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1))


def load(path: Path) -> Part:
    """Load a part that :meth:`Part.save` kept."""
    value = json.loads(path.read_text())
    value["targets"] = [Target(**target) for target in value["targets"]]
    value["tables"] = [Table(**table) for table in value["tables"]]
    return Part(**value)


def number(value: float) -> str:
    """A number with three significant digits and thousands apart: ``0.0123``, ``4.56``, ``12,300``."""
    if value == 0:
        return "0"
    if abs(value) >= 999.5:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:#.3g}".rstrip(".")


def spread(values: Sequence[float], show: Any = number) -> str:
    """``median (smallest to largest)`` of several rounds; of one round the number itself."""
    middle = show(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({show(min(values))} to {show(max(values))})"


def with_sign(value: float) -> str:
    """A number with two decimals and its sign, also where it is positive."""
    return f"{value:+.2f}"


def interval(values: Sequence[float], show: Callable[[float], str]) -> str:
    """The mean and its 95 % interval, by Student's t."""
    if len(values) < 2:
        return "one pair only"
    reach = t_quantile(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{show(statistics.mean(values))} ± {number(reach)}"
