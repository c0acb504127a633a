"""Ten questions with known answers are answered from the tools' text alone."""

import asyncio
from typing import Any

import pytest
from mcp import Client as McpClient

from benchmarks.agents_questions import MAX_CALLS, QUESTIONS, Client
from benchmarks.agents_store import Prepared, prepare
from resources.agents.budget import MAX_TOKENS, count_tokens
from resources.agents.desk import Agent, Desk
from resources.agents.mcp_server import create_server
from resources.agents.toolbox import Result, call_tool
from resources.backend import Backend
from resources.execution.external_loops import ExternalLoops


@pytest.fixture
def prepared(backend: Backend) -> Prepared:
    return prepare(backend, 20_000)


def _server(backend: Backend) -> Any:
    agent = Agent("agent")
    desk = Desk(backend.store, backend.catalog, agent, lambda study: ExternalLoops(backend.catalog, study))

    async def call(_: Any, name: str, arguments: dict[str, Any]) -> Result:
        return call_tool(desk, name, arguments)

    return create_server(lambda _: agent, call)


@pytest.mark.slow
def test_ten_of_ten_questions_are_answered_in_at_most_three_calls(prepared: Prepared) -> None:
    async def ask_all() -> dict[str, tuple[object, object]]:
        answers = {}
        async with McpClient(_server(prepared.backend)) as connection:

            async def call(name: str, **arguments: object) -> str:
                result = await connection.call_tool(name, arguments)
                text = str(result.content[0].text)
                assert not result.is_error, text
                return text

            for question, answer in QUESTIONS.items():
                client = Client(call)
                answers[question] = await answer(client, prepared)
                assert client.calls <= MAX_CALLS
                assert all(count_tokens(text) <= MAX_TOKENS for text in client.texts)
        return answers

    answers = asyncio.run(ask_all())
    assert len(answers) == 10
    assert {question: pair[0] for question, pair in answers.items()} == {
        question: pair[1] for question, pair in answers.items()
    }
