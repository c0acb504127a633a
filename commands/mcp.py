"""``halving mcp``: the tools for agents, over the standard input and output."""

import argparse
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from commands.shared import existing_backend
from halving.cli.parser import add_command
from halving.errors import ExtraMissing
from halving.identifiers import check_name

if TYPE_CHECKING:
    from resources.agents.desk import Agent
    from resources.agents.toolbox import Result
    from resources.execution.external_loops import ExternalLoops

_LOOK_SECONDS = 0.2
"""For bringing the index of runs up to date before a call that asks it."""
_OF_THE_INDEX = ("find_runs", "curve_summary", "journal")


def add_mcp_command(commands: Any) -> None:
    """Add ``halving mcp``."""
    command = add_command(
        commands,
        "mcp",
        "serve the tools for agents over the standard input and output (MCP; docs/agents.md)",
        run_mcp,
    )
    command.add_argument("--read-only", action="store_true", help="offer only tools that change nothing")
    command.add_argument(
        "--project",
        "-p",
        action="append",
        metavar="NAME",
        help="only what is of this project; may be given several times",
    )


def run_mcp(arguments: argparse.Namespace) -> int:
    """Serve MCP's messages until the client closes the standard input.

    Nothing else is printed there; what libraries print goes to the standard error.

    Raises:
        ExtraMissing: MCP's SDK is not installed.
    """
    import anyio

    from resources.agents.desk import Agent
    from resources.registry.by_hand import user

    try:
        from mcp.server.stdio import stdio_server

        from resources.agents.mcp_server import create_server
    except ImportError:
        raise ExtraMissing("halving mcp needs MCP's SDK: pip install 'halving-platform[mcp]'") from None
    backend = existing_backend(arguments)
    projects = None
    if arguments.project:
        projects = _all_names(backend, [check_name("project", name) for name in arguments.project])
    agent = Agent(f"{user()} (agent)", writes=not arguments.read_only, projects=projects)
    calls = _Calls(backend, agent)
    server = create_server(lambda _: agent, calls.call)

    async def serve() -> None:
        async with stdio_server() as (messages, answers):
            await server.run(messages, answers, server.create_initialization_options())

    calls.start()
    try:
        anyio.run(serve)
    finally:
        calls.close()
    return 0


class _Calls:
    """Calls tools in threads, on an index of runs that is as new as the store."""

    def __init__(self, backend: Any, agent: "Agent") -> None:
        from resources.agents.desk import Desk
        from resources.analysis.run_index import Refresher

        self._refresher = Refresher(backend.store, backend.catalog)
        self._turn = threading.Lock()
        self._loops = _Loops(backend.catalog)
        self._desk = Desk(backend.store, backend.catalog, agent, self._loops)

    def start(self) -> None:
        """Read runs that are new to the index, and start a process for SQL, beside the first calls."""
        threading.Thread(target=self._refresh, name="halving-index", daemon=True).start()
        threading.Thread(target=_prepare_sql, name="halving-sql", daemon=True).start()

    async def call(self, _: Any, name: str, arguments: dict[str, Any]) -> "Result":
        import anyio.to_thread

        return await anyio.to_thread.run_sync(partial(self._call, name, arguments))

    def close(self) -> None:
        self._loops.close()

    def _call(self, name: str, arguments: dict[str, Any]) -> "Result":
        from resources.agents.toolbox import call_tool

        # Else curve_summary names its runs, which need not be in the index.
        is_filter = any(letter in str(arguments.get("runs", "=")) for letter in " =<>")
        if name in _OF_THE_INDEX and is_filter:
            self._refresh(_LOOK_SECONDS)
        return call_tool(self._desk, name, arguments)

    def _refresh(self, seconds: float = float("inf")) -> None:
        import logging

        if not self._turn.acquire(timeout=min(seconds, 3600.0)):
            return  # The first look still goes on; what it has read is there.
        try:
            self._refresher.refresh(seconds)
        except Exception as error:  # noqa: BLE001
            # The tools answer all the same, from the index as it is.
            logging.getLogger(__name__).warning("the index of runs was not refreshed: %s", error)
        finally:
            self._turn.release()


def _prepare_sql() -> None:
    from resources.agents.sql_process import prepare

    prepare()


class _Loops:
    """The studies whose external loop the agent is."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._studies: dict[str, ExternalLoops] = {}

    def __call__(self, study: str) -> "ExternalLoops":
        from resources.execution.external_loops import ExternalLoops

        with self._lock:
            if study not in self._studies:
                self._studies[study] = ExternalLoops(self._catalog, study)
            return self._studies[study]

    def close(self) -> None:
        for study in self._studies.values():
            study.close()


def _all_names(backend: Any, names: list[str]) -> frozenset[str]:
    """Every name that these projects have or had."""
    from resources.tenancy.projects import all_names_of

    with backend.catalog.read() as session:
        return frozenset(all_names_of(session, names)) | frozenset(names)
