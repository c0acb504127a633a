"""Runs as their own records have them: one as a whole, and what differs between several."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from halving.errors import InvalidInput, StoreError
from halving.identifiers import check_name
from halving.query.run_details import details_of
from halving.query.run_diff import diff_of, patch_of, read_for_diff
from halving.query.runs import RunInfo, in_threads, read_run
from resources.analysis.run_index.outcomes import with_stopped_runs
from resources.analysis.run_index.reading import reading
from resources.analysis.run_index.select import select_run, values_of
from resources.catalog.retry import catalog_is_away
from server.answers import answer
from server.errors import CATALOG_AWAY, Busy, store_fault
from server.identity.caller import Caller, Viewer
from server.state import Shared, State
from server.store_threads import reads_store

router = APIRouter(prefix="/runs", tags=["runs"])

MAX_COMPARED = 50
_FILES_SECONDS = 10.0  # how long a run's files are waited for, before the index answers
_IN_FILES_ALONE = ("determinism", "provenance", "attempts", "artifacts", "media", "checkpoints", "files")
# Addresses and folders, which some who may see a run must not see.
_OF_THE_MACHINE = ("store", "journals")


class Row(BaseModel):
    """What runs have under a name."""

    differs: bool
    values: list[Any] = Field(
        description="One for each run, in their order; null where it has none.", examples=[[0.1, 0.01]]
    )


class Diff(BaseModel):
    """Runs side by side; what differs comes first.

    ``runs`` have what ``halving runs --json`` gives of each.
    """

    runs: list[dict[str, Any]]
    params: dict[str, Row]
    code: dict[str, Row]
    environment: dict[str, Row]
    packages: dict[str, Row]
    metrics: dict[str, Row] = Field(description="Last values.")
    patches: dict[str, str | None] = Field(
        description=(
            "By run, what its code had changed over its commit, as a unified diff; of a long one the "
            "beginning. Null: nothing."
        )
    )


@router.get("/diff", response_model=Diff)
@reads_store
def diff_runs(
    state: Shared,
    caller: Viewer,
    run: Annotated[
        list[str],
        Query(description=f"Runs as project/run, 2 to {MAX_COMPARED}.", examples=[["digits/a", "digits/b"]]),
    ],
) -> Response:
    """What differs between runs, as ``halving compare --json`` gives it.

    With the changes of each run's code over its commit.
    """
    pairs = list(dict.fromkeys(_pair(caller, name) for name in run))
    if not 2 <= len(pairs) <= MAX_COMPARED:
        raise InvalidInput(
            f"run is given for {len(pairs)} runs, which is not accepted: give 2 to {MAX_COMPARED} "
            "different ones"
        )
    infos = _as_they_ended(state, read_for_diff(state.store, pairs))
    patches = in_threads(lambda info: patch_of(state.store, info), infos)
    named = {f"{info.project}/{info.run}": patch for info, patch in zip(infos, patches, strict=True)}
    return answer({**diff_of(infos), "patches": named})


@router.get("/{project}/{run}", response_model=dict[str, Any])
async def one_run(
    state: Shared,
    project: Annotated[str, Path(examples=["digits"])],
    run: Annotated[str, Path(examples=["digits-7f3a.0007"])],
) -> Response:
    """All that is known of a run, from its own files.

    What ``halving show --json`` gives, but not where the store and the journals are (``params``, ``tags``,
    ``parent``, ``seed``, ``determinism``, ``provenance``, ``attempts``, ``metrics``, ``artifacts``,
    ``media``, ``checkpoints``, ``files``…), ``index``, its row in the index, null until it is there, and
    ``unavailable``: what cannot be read now and why, or null.

    While the store does not answer, it is what the index has of the run: ``determinism``, ``provenance``,
    ``attempts``, ``artifacts``, ``media``, ``checkpoints`` and ``files`` are null, and nested ``params`` are
    flat, ``optimizer/lr``.
    """
    check_name("project", project)
    check_name("run id", run)
    try:
        return answer(
            await state.store_threads.read(_from_files, state, project, run, seconds=_FILES_SECONDS)
        )
    except (StoreError, Busy) as error:
        indexed = await run_in_threadpool(_from_index, state, project, run, error)
        if indexed is None:
            raise
        return answer(indexed)


def _from_files(state: State, project: str, run: str) -> dict[str, Any]:
    info = read_run(state.store, project, run)
    index, unavailable = _read_index(state, project, run)
    if unavailable is None:
        [info] = _as_they_ended(state, [info])
    details = details_of(state.store, info)
    files = {name: value for name, value in details["files"].items() if name not in _OF_THE_MACHINE}
    return {"id": f"{project}/{run}", **details, "files": files, "index": index, "unavailable": unavailable}


def _from_index(state: State, project: str, run: str, error: StoreError | Busy) -> dict[str, Any] | None:
    """What the index has of a run whose files cannot be read.

    None: it has nothing, or cannot be read either.
    """
    try:
        with reading(state.catalog) as session:
            row = select_run(session, project, run)
            values = values_of(session, project, run)
    except (DBAPIError, NoConnectionLeft) as away:
        if not catalog_is_away(away):
            raise
        return None
    if row is None:
        return None
    reason = str(error)
    if isinstance(error, StoreError):
        reason = store_fault(error)
    return {
        **{
            name: row[name]
            for name in (
                "id",
                "project",
                "run",
                "status",
                "lifecycle",
                "started",
                "ended",
                "seconds",
                "attempt",
                "epoch",
                "seed",
            )
        },
        **values,
        "metrics": {key: {**value, "points": None} for key, value in values["metrics"].items()},
        "parent": {
            name: row[name] for name in ("sweep", "trial", "dataset", "snapshot") if row[name] is not None
        },
        **dict.fromkeys(_IN_FILES_ALONE),
        "index": row,
        "unavailable": (
            f"{reason}; what is here is from the index of runs, without {', '.join(_IN_FILES_ALONE)}"
        ),
    }


def _read_index(state: State, project: str, run: str) -> tuple[Any, str | None]:
    """A run's row in the index, or the reason why it cannot be read now.

    The run's own files are shown without the catalog, too.
    """
    try:
        with reading(state.catalog) as session:
            return select_run(session, project, run), None
    except (DBAPIError, NoConnectionLeft) as error:
        if not catalog_is_away(error):
            raise
        return None, CATALOG_AWAY


def _as_they_ended(state: State, runs: list[RunInfo]) -> list[RunInfo]:
    """Runs with the outcomes that the catalog has; while it is away, as their records say."""
    try:
        return with_stopped_runs(state.catalog, runs)
    except (DBAPIError, NoConnectionLeft) as error:
        if not catalog_is_away(error):
            raise
        return runs


def _pair(caller: Caller, name: str) -> tuple[str, str]:
    project, _, run = name.partition("/")
    caller.check(check_name("project", project), f"run {name!r}")
    return project, check_name("run id", run)
