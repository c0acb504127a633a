"""Evaluation reports: their scores as data, and their pages as they were made."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy import select

from halving.errors import NotFound
from resources.catalog import ReportRow, SweepRow
from resources.evaluation.report import load_report
from resources.evaluation.report_page import read_page
from resources.registry.gates.judge import judge_lineage_again
from resources.registry.leaderboard import outcome_of
from resources.tenancy.projects import all_names_of
from server.answers import Number, answer
from server.errors import without_root
from server.identity.caller import Viewer
from server.routes.sweeps import sweep_of
from server.state import Shared
from server.store_threads import reads_store

router = APIRouter(prefix="/reports", tags=["reports"])

SweepId = Annotated[str, Path(description="The sweep's id.", examples=["digits-7f3a"])]

# A report holds texts of trials: of exceptions, params, labels. They are escaped there. Should that fail one
# day, their script runs in an origin of its own, without this origin's cookie, and can load nothing. The
# report's own scripts, Plotly and the figures, are inline.
_INERT = {
    "Content-Security-Policy": "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'self'",
    "Cache-Control": "private, no-cache",
}


class Report(BaseModel):
    """A sweep's evaluation report."""

    sweep: str = Field(examples=["digits-7f3a"])
    metrics: dict[str, Number | None] = Field(
        description="The winner's, on the test split; null: not finite.", examples=[{"accuracy": 0.97}]
    )
    digest: str = Field(description="Of its data.")
    html: str = Field(description="The digest of its page.")
    created_at: datetime
    page: str = Field(description="Where the page is.", examples=["/api/v1/reports/digits-7f3a/page"])


class ListedReport(BaseModel):
    """A report among others."""

    sweep: str = Field(examples=["digits-7f3a"])
    project: str = Field(
        description="The sweep's project, which is the name of its model, too.", examples=["digits"]
    )
    created_at: datetime
    metrics: dict[str, Number | None] = Field(
        description="The winner's, on the test split; null: not finite.", examples=[{"accuracy": 0.97}]
    )
    digest: str = Field(description="Of its data.", examples=["sha256:2c26b46b…"])
    page: str = Field(description="Where the page is.", examples=["/api/v1/reports/digits-7f3a/page"])


class Reports(BaseModel):
    """The newest reports first."""

    reports: list[ListedReport]


@router.get("", response_model=Reports)
def list_reports(
    state: Shared,
    caller: Viewer,
    project: Annotated[
        str | None, Query(description="Only reports on sweeps of this project.", examples=["digits"])
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """The newest reports first, with their scores."""
    names = caller.visible_projects
    if project is not None:
        names = [project]
    query = select(ReportRow, SweepRow.project).join(SweepRow, SweepRow.id == ReportRow.sweep)
    query = query.order_by(ReportRow.created_at.desc(), ReportRow.sweep).limit(limit)
    with state.catalog.read() as session:
        if names is not None:
            query = query.where(SweepRow.project.in_(all_names_of(session, names)))
        rows = session.execute(query).all()
    fields = ("sweep", "created_at", "metrics", "digest")
    listed = [
        {**{name: getattr(row, name) for name in fields}, "project": name, "page": _page_of(row.sweep)}
        for row, name in rows
    ]
    return answer({"reports": listed})


@router.get("/{sweep}", response_model=Report)
def one_report(sweep: SweepId, state: Shared, caller: Viewer) -> Response:
    """The scores of a sweep's winner on data that it was not trained on."""
    sweep_of(state, caller, sweep)
    report, _ = outcome_of(state.catalog, sweep)
    if report is None:
        raise NotFound(f"sweep {sweep} has no evaluation report yet")
    names = ("sweep", "metrics", "digest", "html", "created_at")
    return answer({**{name: getattr(report, name) for name in names}, "page": _page_of(sweep)})


class Judged(BaseModel):
    """A gate, and what it says of the winner."""

    name: str = Field(description="The gate's kind.", examples=["non_inferior"])
    outcome: Literal["pass", "fail", "too little evidence"]
    passed: bool = Field(description="Whether the outcome is pass.")
    reason: str = Field(
        examples=["accuracy 0.9694 against 0.9610 of the champion digits 1.0.0 on the same 360 rows: …"]
    )
    about: str | None = Field(description="The metric, or what else was looked at.", examples=["accuracy"])
    figure: Number | None = Field(
        description="What was measured; of comparisons the gain over the champion.", examples=[0.0083]
    )
    threshold: Number | None = Field(description="What the figure is held to.", examples=[-0.03])
    low: Number | None = Field(description="Of the figure's interval at 95 %.")
    high: Number | None = Field(description="Of the figure's interval at 95 %.")
    needed: int | None = Field(
        description="With too little evidence: about how many rows of the test split would settle it."
    )
    needed_seeds: int | None = Field(
        description="And how many seeds of both recipes would, where a final training has trained several."
    )


class Gates(BaseModel):
    """The verdicts of all gates."""

    gates: list[Judged]


@router.get("/{sweep}/gates", response_model=Gates)
@reads_store
def gates(sweep: SweepId, state: Shared, caller: Viewer) -> Response:
    """What each gate says of the sweep's winner: by its report, and the lineage as it is now."""
    sweep_of(state, caller, sweep)
    if outcome_of(state.catalog, sweep)[0] is None:
        raise NotFound(f"sweep {sweep} has no evaluation report yet")
    report = load_report(state.store, state.catalog, sweep)
    judged = []
    if report.data.get("gates") is not None:
        judged = judge_lineage_again(state.store, report.data, with_rows=False)
    root = state.store.root
    return answer(
        {
            "gates": [
                {**verdict.as_dict(), "passed": verdict.passed, "reason": without_root(verdict.reason, root)}
                for verdict in judged
            ]
        }
    )


@router.get("/{sweep}/page", response_class=Response, responses={200: {"content": {"text/html": {}}}})
@reads_store
def page(sweep: SweepId, state: Shared, caller: Viewer) -> Response:
    """The report as people read it: one HTML page with its figures.

    The page can reach neither this server nor any network.

    A sweep without a winner has a page, too, which shows what happened.
    """
    sweep_of(state, caller, sweep)
    content = read_page(state.store, state.catalog, sweep)
    return Response(content, media_type="text/html; charset=utf-8", headers=_INERT)


def _page_of(sweep: str) -> str:
    return f"/api/v1/reports/{sweep}/page"
