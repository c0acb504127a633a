"""The figures of the search benchmark as SVG, small and sharp, without another package."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLORS = {"Halving": "#0b6e4f", "Optuna": "#2f6db5", "Syne Tune": "#c2571a"}
_LEFT = 190
_WIDTH = 230
_GAP = 20
_TOP = 50
_STYLE = "font-family='sans-serif' font-size='11' fill='#222'"


@dataclass(frozen=True)
class Strip:
    """One row of dots: a strategy of one tool, and its winners' ranks on each problem."""

    strategy: str
    tool: str
    ranks: Mapping[str, Sequence[int]]


def strips(rows: Sequence[Strip], problems: Sequence[str]) -> str:
    """Draw a dot for each seed's winner and a bar at the median, with ranks on a log scale.

    There is a column for each problem.
    """
    largest = {
        name: _power_of_ten_above(rank for row in rows for rank in row.ranks.get(name, ()))
        for name in problems
    }
    pieces = _heads(problems)
    y = float(_TOP)
    strategy = ""
    for row in rows:
        if row.strategy != strategy:
            y += 8
            strategy = row.strategy
            pieces.append(
                f"<line x1='10' x2='{_right(problems)}' y1='{y - 10:.0f}' y2='{y - 10:.0f}' stroke='#ddd'/>"
            )
            pieces.append(f"<text x='10' y='{y + 4:.0f}' font-weight='bold'>{escape(strategy)}</text>")
        pieces.append(
            f"<text x='{_LEFT - 10}' y='{y + 4:.0f}' text-anchor='end' "
            f"fill='{COLORS[row.tool]}'>{escape(row.tool)}</text>"
        )
        for column, name in enumerate(problems):
            ranks = row.ranks.get(name, ())
            places = [_column(column) + _WIDTH * math.log10(rank) / largest[name] for rank in ranks]
            dots = "".join(f"<circle cx='{x:.0f}' cy='{y:.0f}' r='3'/>" for x in places)
            pieces.append(f"<g fill='{COLORS[row.tool]}' fill-opacity='0.4'>{dots}</g>")
            if ranks:
                x = _column(column) + _WIDTH * math.log10(statistics.median(ranks)) / largest[name]
                pieces.append(
                    f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{y - 7:.0f}' y2='{y + 7:.0f}' "
                    f"stroke='{COLORS[row.tool]}' stroke-width='3'/>"
                )
        y += 16
    for column, name in enumerate(problems):
        for power in range(largest[name] + 1):
            x = _column(column) + _WIDTH * power / largest[name]
            pieces.insert(0, f"<line x1='{x:.0f}' x2='{x:.0f}' y1='{_TOP - 8}' y2='{y:.0f}' stroke='#eee'/>")
            pieces.append(f"<text x='{x:.0f}' y='{y + 12:.0f}' text-anchor='middle'>{10**power:,}</text>")
    return _svg(pieces, problems, y + 20)


def progress(
    histories: Mapping[tuple[str, str, str], Sequence[Sequence[Sequence[int]]]],
    problems: Sequence[str],
    strategies: Sequence[str],
    budget: int,
) -> str:
    """Draw the median rank of the best configuration so far against the epochs spent.

    There is a row for each strategy and a line for each tool.

    Args:
        histories: for (problem, strategy, tool) and each seed: pairs of epochs spent and the rank of the
            winner from then on.
        budget: epochs at the right end.
    """
    height = 120
    pieces = _heads(problems)
    for row, strategy in enumerate(strategies):
        top = _TOP + row * (height + 24)
        pieces.append(f"<text x='10' y='{top + 12}' font-weight='bold'>{escape(strategy)}</text>")
        for tool, color in COLORS.items():
            y = top + 30 + 15 * list(COLORS).index(tool)
            pieces.append(f"<text x='10' y='{y}' fill='{color}'>{escape(tool)}</text>")
        for column, name in enumerate(problems):
            here = {
                tool: histories[name, strategy, tool]
                for tool in COLORS
                if (name, strategy, tool) in histories
            }
            largest = _power_of_ten_above(
                rank for each in here.values() for history in each for _, rank in history
            )
            left = _column(column)
            for power in range(largest + 1):
                level = top + height * power / largest
                pieces.append(
                    f"<line x1='{left}' x2='{left + _WIDTH}' y1='{level:.0f}' y2='{level:.0f}' "
                    "stroke='#eee'/>"
                )
                pieces.append(
                    f"<text x='{left - 3}' y='{level + 3:.0f}' text-anchor='end' "
                    f"font-size='8'>{10**power:,}</text>"
                )
            for tool, each in here.items():
                points = " ".join(
                    f"{left + _WIDTH * epochs / budget:.1f},{top + height * math.log10(rank) / largest:.1f}"
                    for epochs, rank in median_steps(each, budget)
                )
                pieces.append(
                    f"<polyline points='{points}' fill='none' stroke='{COLORS[tool]}' stroke-width='2'/>"
                )
    end = _TOP + len(strategies) * (height + 24)
    for column in range(len(problems)):
        for epochs in (0, budget // 2, budget):
            x = _column(column) + _WIDTH * epochs / budget
            pieces.append(f"<text x='{x:.0f}' y='{end - 8}' text-anchor='middle'>{epochs:,}</text>")
    return _svg(pieces, problems, end + 6)


def median_steps(
    histories: Sequence[Sequence[Sequence[int]]], budget: int, every: int = 9
) -> list[tuple[int, float]]:
    """Epochs, and the median rank of the winner by then, from where each seed has one."""
    first = max(history[0][0] for history in histories)
    steps = []
    for epochs in range(-(-first // every) * every, budget + 1, every):
        steps.append(
            (
                epochs,
                statistics.median(
                    [[rank for spent, rank in history if spent <= epochs][-1] for history in histories]
                ),
            )
        )
    return steps


def _heads(problems: Sequence[str]) -> list[str]:
    return [
        (
            f"<text x='{_column(column) + _WIDTH / 2:.0f}' y='24' text-anchor='middle' "
            f"font-size='14'>{escape(name)}</text>"
        )
        for column, name in enumerate(problems)
    ]


def _column(column: int) -> int:
    return _LEFT + column * (_WIDTH + 2 * _GAP)


def _right(problems: Sequence[str]) -> int:
    return _column(len(problems)) - _GAP


def _power_of_ten_above(ranks: Iterable[int]) -> int:
    """The power of ten that no rank is above, at least the first."""
    return max(1, math.ceil(math.log10(max(ranks, default=10))))


def _svg(pieces: Sequence[str], problems: Sequence[str], height: float) -> str:
    size = f"width='{_right(problems)}' height='{height:.0f}'"
    background = f"<rect {size} fill='white'/>"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size}><g "
        f"{_STYLE}>{background}{''.join(pieces)}</g></svg>\n"
    )
