"""The runs that a request names, checked against what its caller may see."""

from collections.abc import Iterable
from datetime import UTC, datetime

from fastapi.concurrency import run_in_threadpool

from halving.errors import InvalidInput
from halving.identifiers import check_name
from halving.query.run_filter_parser import parse_filter
from resources.analysis.run_index import select_names
from resources.analysis.run_index.project_names import with_all_names
from resources.analysis.run_index.reading import reading
from server.identity.caller import Caller
from server.state import State


def parse_runs(caller: Caller, ids: Iterable[str]) -> list[tuple[str, str]]:
    """Parse run ids into ``(project, run)``, in their order and without duplicates.

    Raises:
        InvalidInput: an id is not ``project/run``, or there is none.
        NotFound: it is of a project that is not among the caller's.
    """
    pairs: dict[tuple[str, str], None] = {}
    for name in ids:
        project, slash, run = name.partition("/")
        if not slash:
            raise InvalidInput(f"run {name!r} is not accepted: give project/run")
        caller.check(check_name("project", project), f"run {name!r}")
        pairs[project, check_name("run id", run)] = None
    return list(pairs)


async def find_runs(state: State, caller: Caller, text: str, top: int) -> list[str]:
    """The ids of the first runs that a filter finds among the caller's.

    Raises:
        InvalidFilter: it is not accepted.
        Busy: too many questions to the index wait already.
    """
    async with state.index_queue.turn(caller.actor):
        return await run_in_threadpool(_filter_index, state, caller, text, top)


def _filter_index(state: State, caller: Caller, text: str, top: int) -> list[str]:
    chosen = parse_filter(text, now=datetime.now(UTC).replace(microsecond=0))
    with reading(state.catalog) as session:
        projects = caller.visible_projects
        names = select_names(session, with_all_names(session, chosen), projects=projects, limit=top)
    return [f"{project}/{run}" for project, run in names]
