"""The Markdown page of the figures."""

from collections.abc import Sequence

from benchmarks.results import Part, Table, number, spread

_HEAD = """# Benchmarks

Measured by `make bench`, which writes this whole page; edit `benchmarks/` instead. Every figure is the median
of several rounds, with the smallest and the largest in brackets. Each round runs in a process of its own. A
part alone: `python -m benchmarks NAME`.
"""


def page(parts: Sequence[Part]) -> str:
    """The whole page: machine, targets, then each part with its tables."""
    pieces = [_HEAD, _facts(parts), _targets(parts), *(_section(part) for part in parts)]
    return "\n".join(piece.rstrip() + "\n" for piece in pieces if piece.strip())


def _facts(parts: Sequence[Part]) -> str:
    lines = ["## On what\n"]
    for machine in dict.fromkeys(part.facts.get("machine", "") for part in parts):
        lines.append(f"- {machine}")
    for versions in dict.fromkeys(part.facts.get("versions", "") for part in parts):
        lines.append(f"- {versions}")
    rows = [
        [
            f"`{part.name}`",
            *(str(part.facts.get(name, "")) for name in ("date", "commit", "load", "seconds")),
            f"`python -m benchmarks {part.name}`",
        ]
        for part in parts
    ]
    table = Table(["part", "when", "commit", "load before", "took, s", "again"], rows)
    return "\n".join(lines) + "\n\n" + _table(table)


def _targets(parts: Sequence[Part]) -> str:
    rows = []
    for part in parts:
        for target in part.targets:
            sign = "≤" if target.at_most else "≥"
            bound = f"{sign} {number(target.bound)} {target.unit}"
            verdict = "yes" if target.met else "**no**"
            rows.append(
                [target.what, bound, f"{spread(target.values)} {target.unit}", verdict, f"`{part.name}`"]
            )
    missing = [f"- Not measured (`{part.name}`): {reason}" for part in parts for reason in part.missing]
    if not rows and not missing:
        return ""
    table = ""
    if rows:
        table = _table(Table(["what", "target", "measured", "met", "part"], rows))
    return "## Targets\n\n" + table + ("\n" + "\n".join(missing) + "\n" if missing else "")


def _section(part: Part) -> str:
    pieces = [f"## {part.title}\n", part.text.strip() + "\n", f"`python -m benchmarks {part.name}`\n"]
    pieces += [_table(table) for table in part.tables]
    return "\n".join(pieces)


def _table(table: Table) -> str:
    lines = [f"### {table.title}\n"] if table.title else []
    lines.append("| " + " | ".join(table.header) + " |")
    lines.append("|" + "---|" * len(table.header))
    lines += [
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
        for row in table.rows
    ]
    if table.note:
        lines += ["", table.note]
    return "\n".join(lines) + "\n"
