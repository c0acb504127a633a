"""The tool ``sql``: one SELECT over the views of the store, confined to what the agent may see."""

from collections.abc import Mapping
from typing import Any

from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk
from resources.agents.marking import clean, clean_value

MAX_ROWS = 200
SECONDS = 10.0


def sql(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Run a query and list its rows, with bars between values."""
    from halving.query.sql import Confinement, ask_confined

    confinement = Confinement(projects=desk.agent.projects, rows=asked_for["limit"], seconds=SECONDS)
    columns, rows, more = ask_confined(desk.store, asked_for["query"], confinement)
    reply.add(" | ".join(clean(column, 20) for column in columns))
    lines = [
        " | ".join(
            _cell(column, value) for column, value in zip(columns, _with_names(columns, row), strict=True)
        )
        for row in rows
    ]
    added = reply.add_rows(lines, "rows", lambda _: "select fewer columns or rows, or use LIMIT and OFFSET")
    if more and added == len(lines):
        reply.note(f"more than {len(lines)} rows: aggregate, or use limit, LIMIT and OFFSET")


def _with_names(columns: list[str], row: Any) -> list[Any]:
    """A row, in which the value of a param that is named like a secret is hidden."""
    values = list(row)
    if "name" in columns and "value" in columns:
        place = columns.index("value")
        values[place] = clean_value(str(values[columns.index("name")]), values[place])
    return values


def _cell(column: str, value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())[:19]
    return clean_value(column, value)


TOOLS = (
    Tool(
        "sql",
        "One DuckDB SELECT. Views: metrics(project,run,key,step,wall_time,value) stitched; points(+attempt) "
        "all; runs(project,run,status,started,ended,seconds,epoch,sweep,trial,git_commit,lifecycle,tags); "
        "params(project,run,name,value,number); media. Give run and key in WHERE.",
        (Argument("query"), Argument("limit", "integer", default=50, low=1, high=MAX_ROWS)),
        sql,
    ),
)
