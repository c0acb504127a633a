"""What commands print: one JSON document, or tables for people."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from halving.errors import ExtraMissing
from halving.query.json_values import jsonable
from halving.text import NONE

if TYPE_CHECKING:
    from rich.console import Console


def print_json(value: Any) -> None:
    """Print one document.

    JSON has no NaN and no infinities: they are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
    """
    json.dump(jsonable(value), sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def console(*, stderr: bool = False, markup: bool = False) -> "Console":
    """The output for people.

    Except on a terminal nothing is cut or wrapped, so that lines can be searched and copied.

    Args:
        stderr: write to the standard error.
        markup: interpret rich's ``[bold]…[/]``.

    Raises:
        ExtraMissing: rich is not installed.
    """
    try:
        from rich.console import Console
    except ImportError:
        raise ExtraMissing(
            "tables need the package rich: pip install 'halving[cli]', or ask for --json"
        ) from None

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stdout
    if stderr:
        stream = sys.stderr
    width = None
    if not stream.isatty():
        width = 10_000
    # soft_wrap: a path that is longer than the terminal stays in one piece, to be copied.
    return Quiet(
        width=width,
        soft_wrap=True,
        stderr=stderr,
        highlight=False,
        markup=markup,
        emoji=False,
    )


def print_table(
    out: "Console",
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    right: Sequence[str] = (),
    title: str | None = None,
    first: bool = False,
) -> None:
    """Print a table, after a blank line unless it is the ``first`` output.

    Text that is too wide for the terminal continues on the next line of its cell. Nothing in it is markup:
    what people wrote, such as ``see [/etc]``, is printed as it is.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, pad_edge=False)
    if title is not None:
        table.title = Text(title, style="bold")
    for name in columns:
        table.add_column(Text(name), overflow="fold")
        if name in right:
            table.columns[-1].justify = "right"
    for row in rows:
        table.add_row(*(Text(cell_text(value)) for value in row))
    if not first:
        out.print()
    out.print(table, soft_wrap=False)


def print_pairs(out: "Console", title: str, pairs: dict[str, Any]) -> None:
    """Print names and values under a title, none of them markup; without pairs, print nothing."""
    if not pairs:
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        show_header=False,
        title=Text(title, style="bold"),
        title_justify="left",
        padding=(0, 2, 0, 2),
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(Text(name), Text(cell_text(value)))
    out.print()
    out.print(table, soft_wrap=False)


def cell_text(value: Any) -> str:
    """The text of a value in a table; a float has six significant digits."""
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (str, int, bool)):
        return str(value)
    return json.dumps(jsonable(value))


def names_of(text: str | None) -> list[str] | None:
    """The names in ``A,B,C``, without empty ones."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]
