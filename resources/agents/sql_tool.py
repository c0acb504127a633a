"""The tool ``sql``: one SELECT over the views of the store, confined to what the agent may see."""

from collections.abc import Mapping
from typing import Any

from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk

MAX_ROWS = 200
SECONDS = 10.0


def sql(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Run a query and list its rows, with bars between values."""
    from halving.query.sql import Confinement
    from resources.agents.sql_process import ask_apart

    confinement = Confinement(projects=desk.agent.projects, rows=asked_for["limit"], seconds=SECONDS)
    lines = ask_apart(desk.store, asked_for["query"], confinement)
    reply.add(lines.head)
    added = reply.add_rows(
        lines.rows, "rows", lambda _: "select fewer columns or rows, or use LIMIT and OFFSET"
    )
    if lines.more and added == len(lines.rows):
        reply.note(f"more than {added} rows: aggregate, or use limit, LIMIT and OFFSET")


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
