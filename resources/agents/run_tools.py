"""Tools about runs: which there are, one described, and what differs between several."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import select

from halving.errors import InvalidInput
from halving.query.curve_stats import read_extremes
from halving.query.run_details import code_of, environment_of
from halving.query.run_diff import SECTIONS, diff_of, read_for_diff
from halving.query.run_filter_parser import parse_fields, parse_filter
from halving.query.runs import RunInfo, read_run
from halving.records.amendments import ACTIVE
from halving.text import duration
from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk
from resources.agents.marking import clean, clean_value, number, pairs
from resources.analysis.run_index.outcomes import with_stopped_runs
from resources.analysis.run_index.project_names import with_all_names
from resources.analysis.run_index.reading import reading
from resources.analysis.run_index.select import select_page
from resources.catalog import RunIndexRow, TrialRow
from resources.tenancy.projects import names_of

MAX_RUNS = 200
MAX_COMPARED = 10
MAX_COLUMNS = 20
_CODE = ("commit", "branch", "working tree", "command")
_PARTS = ("params", "metrics", "attempts", "environment", "packages", "tags")


def find_runs(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """List runs by a filter, each with the columns that were asked for."""
    chosen = parse_filter(asked_for["filter"], now=datetime.now(UTC).replace(microsecond=0))
    fields = parse_fields(asked_for["columns"])
    if not fields:
        fields = tuple(field for field in chosen.fields if field.kind != "run")
    if len(fields) > MAX_COLUMNS:
        raise InvalidInput(f"columns has {len(fields)} names, and at most {MAX_COLUMNS} are accepted")
    offset = asked_for["offset"]
    with reading(desk.catalog) as session:
        projects = desk.agent.visible_projects
        if asked_for["project"]:
            desk.agent.check(asked_for["project"], f"project {asked_for['project']!r}")
            projects = names_of(session, asked_for["project"])
        page = select_page(
            session,
            with_all_names(session, chosen),
            columns=fields,
            projects=projects,
            limit=asked_for["limit"],
            offset=offset,
        )
        is_complete = session.scalar(select(RunIndexRow.refreshed_at)) is not None
    reply.add(f"{page.total} runs")
    if not is_complete:
        reply.note("the index of runs is still being made, and some runs are missing: ask again in a while")
    rows = [_line_of(row) for row in page.runs]
    reply.add_rows(
        rows, "runs", lambda added: f"ask with offset={offset + added}", total=max(page.total - offset, 0)
    )


def describe_run(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Describe one run, or page through one part of it."""
    info = read_run(desk.store, *desk.run(asked_for["run"]))
    [info] = with_stopped_runs(desk.catalog, [info])
    reply.add(f"{info.project}/{info.run} {clean(info.status)}{_lifecycle(info)}")
    if asked_for["part"] != "all":
        rows = _rows_of(desk, info, asked_for["part"])
        offset = asked_for["offset"]
        reply.add_rows(rows[offset:], asked_for["part"], lambda added: f"ask with offset={offset + added}")
        return
    reply.add(
        f"started {info.started[:19]} took {duration(info.seconds)} attempts {len(info.attempts)} "
        f"epoch {info.attempts[-1].epoch}"
    )
    _add_trouble(desk, reply, info)
    if info.parent:
        reply.add(f"belongs to: {pairs(info.parent, 20)}")
    code = {name: value for name, value in code_of(info).items() if name in _CODE}
    reply.add(f"code: {pairs(code, 30)}")
    for part, share in (("tags", 0.2), ("attempts", 0.2), ("params", 0.5), ("metrics", 1.0)):
        rows = _rows_of(desk, info, part)
        if rows:
            reply.add(f"{part} ({len(rows)}):")
            reply.add_rows(rows, part, partial(_rest_of, part, 0), share=share)
    reply.note("more: part=environment, packages; curves: curve_summary")


def compare_runs(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Say what differs between runs, with their values side by side."""
    names = list(dict.fromkeys(filter(None, (name.strip() for name in asked_for["runs"].split(",")))))
    if not 2 <= len(names) <= MAX_COMPARED:
        raise InvalidInput(
            f"runs names {len(names)} runs, which is not accepted: give 2 to {MAX_COMPARED}, with commas"
        )
    infos = read_for_diff(desk.store, [desk.run(name) for name in names])
    infos = list(with_stopped_runs(desk.catalog, infos))
    diff = diff_of(infos)
    heads = " | ".join(f"{info.project}/{info.run} {clean(info.status)}" for info in infos)
    reply.add(f"order of values: {heads}")
    sections = SECTIONS
    if asked_for["part"] != "all":
        sections = (asked_for["part"],)
    offset = asked_for["offset"]
    for section in sections:
        differing = {name: row for name, row in diff[section].items() if row["differs"]}
        equal = len(diff[section]) - len(differing)
        reply.add(f"{section}: {len(differing)} differ, {equal} equal")
        rows = [
            f"  {clean(name)}: {' | '.join(clean_value(name, value, 20) for value in row['values'])}"
            for name, row in differing.items()
        ][offset:]
        reply.add_rows(
            rows,
            section,
            partial(_rest_of, section, offset),
            share=0.6,
        )


def _rest_of(part: str, offset: int, added: int) -> str:
    """How to ask for the rest of a part."""
    return f"part={part} offset={offset + added}"


def _line_of(row: dict[str, Any]) -> str:
    words = [row["id"], clean(row["status"])]
    if row["started"]:
        words.append(f"{row['started']:%Y-%m-%dT%H:%M}")
    if row["epoch"] is not None:
        words.append(f"epoch={row['epoch']}")
    if row["stage"]:
        words.append(f"{clean(row['model'])}@{clean(row['stage'])}")
    words += [f"{clean(name)}={clean_value(name, value)}" for name, value in row["values"].items()]
    return " ".join(words)


def _lifecycle(info: RunInfo) -> str:
    if info.lifecycle == ACTIVE:
        return ""
    return f" ({info.lifecycle})"


def _add_trouble(desk: Desk, reply: Reply, info: RunInfo) -> None:
    """Add why its trial failed or waits, where the catalog knows, and what was lost of its points."""
    sweep = info.parent.get("sweep")
    trial = info.parent.get("trial")
    if isinstance(sweep, str) and isinstance(trial, int):
        with desk.catalog.read() as session:
            row = session.get(TrialRow, (sweep, trial))
        if row is not None and row.error:
            reply.add(f"error: {clean(row.error, 150)}")
    for attempt in info.attempts:
        if attempt.dropped_points or attempt.rejected_values:
            reply.add(
                f"attempt {attempt.number}: {attempt.dropped_points or 0} points dropped, "
                f"{attempt.rejected_values or 0} values rejected"
            )


def _rows_of(desk: Desk, info: RunInfo, part: str) -> list[str]:
    if part == "params":
        return [f"  {pairs({name: value})}" for name, value in info.flat_params.items()]
    if part == "tags":
        return [f"  {pairs({name: value})}" for name, value in info.tags.items()]
    if part == "environment":
        return [f"  {pairs({name: value}, 60)}" for name, value in environment_of(info).items()]
    if part == "packages":
        packages = info.provenance.get("packages") or {}
        return [f"  {clean(name)} {clean(version, 10)}" for name, version in packages.items()]
    if part == "attempts":
        return [
            f"  #{attempt.number} {clean(attempt.status)} {attempt.started[:19]} {duration(attempt.seconds)}"
            for attempt in reversed(info.attempts)
        ]
    return [
        f"  {clean(key)}: last {number(value.last)} min {number(value.min)} max {number(value.max)} "
        f"n {value.points}"
        for key, value in read_extremes(desk.store, info).items()
    ]


_OFFSET = Argument("offset", "integer", default=0)
TOOLS = (
    Tool(
        "find_runs",
        "List runs, e.g. filter='status = failed and params.lr < 0.1 order by metrics.loss'. Fields: "
        "project, run, status, started, sweep, params.X, metrics.X (last), min(metrics.X), max(metrics.X), "
        "tags.X; operators = != < <= > >= in, like, between, and, or, not.",
        (
            Argument("filter", default=""),
            Argument("columns", about="values to show, e.g. params.lr,min(metrics.loss)", default=""),
            Argument("project", default=""),
            Argument("limit", "integer", default=30, low=1, high=MAX_RUNS),
            _OFFSET,
        ),
        find_runs,
    ),
    Tool(
        "describe_run",
        "One run: status, error, params, code, tags, attempts, metrics.",
        (
            Argument("run", about="project/run"),
            Argument("part", default="all", choices=("all", *_PARTS)),
            _OFFSET,
        ),
        describe_run,
    ),
    Tool(
        "compare_runs",
        "What differs between 2 to 10 runs.",
        (
            Argument("runs", about="project/run, with commas"),
            Argument("part", default="all", choices=("all", *SECTIONS)),
            _OFFSET,
        ),
        compare_runs,
    ),
)
