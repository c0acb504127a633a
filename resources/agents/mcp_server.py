"""The tools as a server of MCP, by its official SDK; the only module that knows the SDK."""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext

from halving import __version__
from resources.agents.arguments import Tool
from resources.agents.desk import Agent
from resources.agents.toolbox import INSTRUCTIONS, Result, tools_for

AgentOf = Callable[[Any], Agent]
"""Says who asks, by the request of HTTP that brought the message; None on other transports."""
Call = Callable[[Any, str, dict[str, Any]], Awaitable[Result]]
"""Calls a tool for the sender of such a request, in a thread."""


def create_server(agent_of: AgentOf, call: Call) -> Server[Any]:
    """Create a server of MCP for the tools; it keeps nothing between two messages."""

    async def list_tools(
        context: ServerRequestContext[Any], _: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(tool) for tool in tools_for(agent_of(context.request))])

    async def call_tool(
        context: ServerRequestContext[Any], asked_for: types.CallToolRequestParams
    ) -> types.CallToolResult:
        result = await call(context.request, asked_for.name, dict(asked_for.arguments or {}))
        content: list[Any] = [types.TextContent(type="text", text=result.text)]
        return types.CallToolResult(content=content, is_error=result.failed)

    return Server(
        "halving",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def described(tool: Tool) -> types.Tool:
    """A tool as ``tools/list`` sends it."""
    annotations = types.ToolAnnotations(read_only_hint=tool.effect == "reads")
    if tool.effect != "reads":
        annotations.destructive_hint = tool.destructive
    return types.Tool(
        name=tool.name, description=tool.about, input_schema=tool.schema(), annotations=annotations
    )
