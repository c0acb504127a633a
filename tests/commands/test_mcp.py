"""``halving mcp``: nothing but MCP on the standard output, and what the command allows."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from benchmarks.agents import ask_all
from benchmarks.agents_questions import MAX_CALLS, QUESTIONS
from benchmarks.agents_store import prepare
from resources.agents.budget import MAX_TOKENS
from resources.backend import Backend
from tests.backends import CHECKOUT
from tests.indexed_runs import add_run

pytestmark = pytest.mark.slow
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "sdk"), str(CHECKOUT)])}


def command(backend: Backend, *options: str) -> StdioServerParameters:
    arguments = ["-m", "halving.cli.main", "mcp", "--root", backend.store.root, *options]
    return StdioServerParameters(command=sys.executable, args=arguments, env=ENVIRONMENT)


def test_ten_of_ten_questions_are_answered_over_stdio(backend: Backend) -> None:
    prepared = prepare(backend, 20_000)

    async def ask() -> None:
        async with Client(command(backend)) as connection:
            answers = await ask_all(connection, prepared, 1)
        assert len(answers) == len(QUESTIONS) == 10
        for question, [(is_right, calls, tokens, _)] in answers.items():
            assert is_right, question
            assert calls <= MAX_CALLS
            assert tokens <= MAX_TOKENS

    asyncio.run(ask())


def test_it_offers_what_the_command_allows_and_sees_new_runs(backend: Backend) -> None:
    add_run(backend.store, "a", project="mine", loss=[1.0])
    add_run(backend.store, "b", project="other", loss=[1.0])

    async def ask() -> None:
        async with Client(command(backend, "--read-only", "--project", "mine")) as connection:
            names = {tool.name for tool in (await connection.list_tools()).tools}
            assert "control_sweep" not in names
            refused = await connection.call_tool("control_sweep", {"sweep": "a", "action": "stop"})
            assert refused.is_error
            add_run(backend.store, "c", project="mine", loss=[1.0])
            text = str((await connection.call_tool("find_runs", {})).content[0].text)
            assert "mine/a" in text
            assert "mine/c" in text
            assert "other" not in text

    asyncio.run(ask())


def test_the_standard_output_has_messages_alone(backend: Backend) -> None:
    info = {"name": "test", "version": "1"}
    began = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": began},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "find_runs", "arguments": {}}},
    ]
    add_run(backend.store, "a", loss=[1.0])
    process = subprocess.Popen(
        [sys.executable, "-m", "halving.cli.main", "mcp", "--root", backend.store.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        answers = []
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            if "id" in message:
                answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0
    assert [answer["id"] for answer in answers] == [1, 2]


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "halving.cli.main", "mcp", "--root", str(tmp_path / "none")],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert "there is no such folder" in process.stderr
    assert not (tmp_path / "none").exists()
