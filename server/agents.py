"""``/mcp``: the tools for agents, as MCP's streamable HTTP.

Every message is answered by itself and nothing is kept between two, so that any replica answers. Who asks,
from where and with which scope was checked before, as for every other address.
"""

import logging
from functools import cache, partial
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from resources.agents.desk import Agent, Desk
from resources.agents.toolbox import Result, call_tool
from server.access.policy import MAX_BODY, RoutePolicy
from server.errors import Busy, problem
from server.identity.caller import Caller
from server.state import State

ADDRESS = "/mcp"
POLICIES = [RoutePolicy(ADDRESS, scope="read")]  # The tools that write ask for more themselves.


class AgentMessages:
    """Answers MCP's messages; an ASGI application.

    Attributes:
        is_logged: tools that write add an entry to the write log in their own transaction.
    """

    is_logged = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = _refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            server = await anyio.to_thread.run_sync(_server)
        except ImportError:
            missing = problem(404, "MCP's SDK is not installed here: pip install 'halving-platform[mcp]'")
            await missing(scope, receive, send)
            return
        # A manager cannot be run twice, and without sessions there is nothing in it to keep.
        manager = StreamableHTTPSessionManager(
            app=server, json_response=True, stateless=True, max_request_body_size=MAX_BODY
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)


ROUTE = Route(ADDRESS, AgentMessages(), include_in_schema=False)


def _refusal(scope: Scope) -> Any:
    if scope["method"] != "POST":
        # MCP lets a server have no stream of its own, and no sessions that could be deleted.
        return problem(405, "send MCP's messages by POST", {"Allow": "POST"})
    caller: Caller = scope["halving.caller"]
    if caller.session:
        return problem(403, "agents send a token: Authorization: Bearer hlv_…")
    return None


@cache
def _server() -> Any:
    from resources.agents.mcp_server import create_server

    # It says at each message that it starts and ends.
    logging.getLogger("mcp.server.streamable_http_manager").setLevel(logging.WARNING)
    return create_server(_agent_of, _call)


def _agent_of(request: Request) -> Agent:
    caller: Caller = request.scope["halving.caller"]
    return Agent(caller.actor, writes=caller.may("write"), projects=caller.projects, over_http=True)


async def _call(request: Request, name: str, arguments: dict[str, Any]) -> Result:
    state: State = request.app.state.halving
    agent = _agent_of(request)
    desk = Desk(state.store, state.catalog, agent, state.studies.of)
    try:
        async with state.agent_queue.turn(agent.actor):
            return await anyio.to_thread.run_sync(partial(call_tool, desk, name, arguments))
    except Busy as error:
        return Result(str(error), failed=True)
