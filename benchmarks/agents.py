"""Ten questions of a scripted agent, over stdio and over HTTP: calls, tokens, seconds."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client as McpClient
from mcp import StdioServerParameters

from benchmarks.agents_questions import MAX_CALLS, QUESTIONS, Client
from benchmarks.agents_store import Prepared, prepare
from benchmarks.machine import CHECKOUT, Setting
from benchmarks.results import Part, Table, Target, number, spread
from benchmarks.server_process import running_server
from resources.agents.budget import MAX_DESCRIPTION_TOKENS, MAX_TOKENS, count_tokens
from resources.agents.mcp_server import described
from resources.agents.toolbox import INSTRUCTIONS, TOOLS
from resources.backend import Backend

_TEXT = """
A scripted client of the official SDK asks ten questions with known answers, over `halving mcp` and over a
server's `/mcp`, and reads the tools' text alone. A question's time is that of all its calls. The store has a
curve of a million points, and is in the page cache. Tokens are an estimate from above: three ASCII letters
are one.
"""
MAX_SECONDS = 0.5
Rounds = dict[str, list[tuple[bool, int, int, float]]]
"""By question, for each round: whether the answer was right, calls, tokens of the longest answer, seconds."""


def measure(setting: Setting) -> Part:
    """Prepare the store and ask, each question a few times."""
    root = setting.work / "agents"
    prepared = prepare(Backend(root=str(root)), setting.choose(20_000, 1_000_000))
    rounds = setting.choose(1, 5)
    part = Part("agents", "Questions of an agent", _TEXT)
    turns = {"halving mcp": asyncio.run(_ask_over_stdio(prepared, rounds))}
    with running_server(str(root)) as (_, port):
        turns["HTTP"] = asyncio.run(_ask_over_http(prepared, rounds, port))
    part.tables = [_table(way, answers) for way, answers in turns.items()]
    every = [turn for answers in turns.values() for rows in answers.values() for turn in rows]
    right = [sum(all(row[0] for row in rows) for rows in answers.values()) for answers in turns.values()]
    sent = sum(
        count_tokens(described(tool).model_dump_json(by_alias=True, exclude_none=True)) for tool in TOOLS
    )
    part.targets = [
        Target("questions answered rightly", "of 10", [float(min(right))], len(QUESTIONS), at_most=False),
        Target("calls of a question, at most", "calls", [float(max(row[1] for row in every))], MAX_CALLS),
        Target("the slowest question", "s", [_slowest(answers) for answers in turns.values()], MAX_SECONDS),
        Target("the longest answer", "tokens", [float(max(row[2] for row in every))], MAX_TOKENS),
        Target(
            "descriptions of all tools",
            "tokens",
            [float(sent + count_tokens(INSTRUCTIONS))],
            MAX_DESCRIPTION_TOKENS,
        ),
    ]
    return part


async def ask_all(connection: McpClient, prepared: Prepared, rounds: int) -> Rounds:
    """Ask every question some times."""
    await connection.list_tools()

    async def call(name: str, **arguments: Any) -> str:
        result = await connection.call_tool(name, arguments)
        if result.is_error:
            raise AssertionError(result.content)
        return str(result.content[0].text)  # type: ignore[union-attr]

    answers: Rounds = {question: [] for question in QUESTIONS}
    for _ in range(rounds):
        for question, answer in QUESTIONS.items():
            client = Client(call)
            began = time.perf_counter()
            said, expected = await answer(client, prepared)
            seconds = time.perf_counter() - began
            tokens = max(map(count_tokens, client.texts))
            answers[question].append((said == expected, client.calls, tokens, seconds))
    return answers


@asynccontextmanager
async def stdio_connection(root: str) -> AsyncIterator[McpClient]:
    """A client of ``halving mcp`` on a store, in a process of its own."""
    path = os.pathsep.join([str(CHECKOUT / "sdk"), str(CHECKOUT)])
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "halving.cli.main", "mcp", "--root", root],
        env={**os.environ, "PYTHONPATH": path},
        cwd=str(Path(root).parent),
    )
    async with McpClient(command) as connection:
        yield connection


async def _ask_over_stdio(prepared: Prepared, rounds: int) -> Rounds:
    async with stdio_connection(prepared.backend.store.root) as connection:
        return await ask_all(connection, prepared, rounds)


async def _ask_over_http(prepared: Prepared, rounds: int, port: int) -> Rounds:
    async with McpClient(f"http://127.0.0.1:{port}/mcp") as connection:
        return await ask_all(connection, prepared, rounds)


def _table(way: str, answers: Rounds) -> Table:
    rows = []
    for question, turns in answers.items():
        verdict = "yes"
        if not all(row[0] for row in turns):
            verdict = "**no**"
        seconds = spread([row[3] for row in turns])
        rows.append([question, verdict, str(turns[0][1]), number(max(row[2] for row in turns)), seconds])
    return Table(["question", "right", "calls", "tokens of its longest answer", "s"], rows, f"Over {way}")


def _slowest(answers: Rounds) -> float:
    """The median time of the slowest question."""
    return max(sorted(row[3] for row in turns)[len(turns) // 2] for turns in answers.values())
