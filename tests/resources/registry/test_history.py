"""A model's history: its events, its pages, and the search for versions."""

from collections.abc import Callable

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from halving import NotFound
from resources.backend import Backend
from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.catalog.models import versions_of
from resources.registry import annotations, client_versions
from resources.registry.history import model_story, newest_events, search_versions
from resources.registry.verdicts import PromotionRefused
from tests.resources.registry.winners import HELD, PASSED, story


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


def test_a_history_is_told_in_pages(backend: Backend, registers: Callable[..., ModelVersionRow]) -> None:
    registers()
    with backend.catalog.read() as session:
        newest, earlier = newest_events(session, "digits", None, 2)
        assert [event["kind"] for event in newest] == ["registered", "promoted"]
        oldest, end = newest_events(session, "digits", earlier, 2)
    assert ([event["kind"] for event in oldest], end) == (["created"], None)


def test_events_are_only_ever_added(backend: Backend, registers: Callable[..., ModelVersionRow]) -> None:
    registers()
    before = story(backend)
    changes = ["UPDATE registry_events SET actor = 'someone else'", "DELETE FROM registry_events"]
    if backend.catalog.url.startswith("sqlite"):
        changes.append(
            "INSERT OR REPLACE INTO registry_events (id, model, kind, actor, at) VALUES (1, 'digits', 'x', "
            "'x', '2026-01-01')"
        )
    else:
        changes.append("TRUNCATE registry_events")
    for change in changes:
        with pytest.raises(DBAPIError, match="append-only"), backend.catalog.engine.begin() as connection:
            connection.execute(text(change))
    assert story(backend) == before


def test_what_clients_of_mlflow_change_is_an_event_and_gates_hold_for_them(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    held = registers(HELD).version
    with backend.catalog.write(exclusive=True) as session:
        model = session.get_one(RegisteredModelRow, "digits")
        row = session.get_one(ModelVersionRow, ("digits", held))
        for change in (
            lambda: client_versions.set_alias(session, model, "champion", row, actor="client"),
            lambda: client_versions.change_stage(
                session, model, row, "Production", archive_others=True, actor="client"
            ),
        ):
            with pytest.raises(PromotionRefused, match="gate improvement did not pass"):
                change()
        client_versions.set_alias(session, model, "candidate", row, actor="client")
        client_versions.delete_alias(session, model, "candidate", actor="client")
        client_versions.change_stage(session, model, row, "Archived", archive_others=False, actor="client")
        annotations.set_tag(session, row, "task", "digits", actor="client")
        annotations.delete_tag(session, row, "task", actor="client")
        annotations.describe(session, model, "reads digits", actor="client")
        client_versions.delete_alias(session, model, "champion", actor="client")
    assert [what for actor, what, _ in story(backend) if actor == "client"] == [
        "1.0.1 alias candidate = 1.0.1",
        "1.0.1 alias candidate = 1.0.1 taken away",
        "1.0.1 archived: staging → archived",
        "1.0.1 tag task=digits",
        "1.0.1 tag task=digits taken away",
        "description reads digits",
        "1.0.0 staged: champion → staging",
    ]


def test_the_story_of_a_model_tells_its_versions_and_its_events(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    story = model_story(backend.catalog, "digits")
    assert (story["aliases"], [version["version"] for version in story["versions"]]) == (
        {"champion": "1.0.0"},
        ["1.0.0"],
    )
    assert [(event["actor"], event["summary"], event["report"]) for event in story["events"]] == [
        ("sweep digits-0", "created", None),
        ("sweep digits-0", "1.0.0 registered: staging", "sha256:r"),
        ("sweep digits-0", "1.0.0 promoted: staging → champion", "sha256:r"),
    ]
    with pytest.raises(NotFound, match="no model 'letters'; there are digits"):
        model_story(backend.catalog, "letters")


def test_versions_are_found_by_the_words_that_are_said_of_them(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    with backend.catalog.write(exclusive=True) as session:
        annotations.set_tag(
            session, session.get_one(ModelVersionRow, ("digits", "1.0.0")), "team", "Vision", actor="ann"
        )
    assert [version["version"] for version in search_versions(backend.catalog, "CHAMPION team=vision")] == [
        "1.0.0"
    ]
    assert search_versions(backend.catalog, "champion team=audio") == []


def test_versions_keep_by_what_they_were_judged(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    registers(PASSED, HELD)
    with backend.catalog.read() as session:
        kept = [(row.judged_against, row.gates) for row in versions_of(session, "digits")]
    assert kept == [(None, [PASSED]), ("1.0.0", [PASSED, HELD])]
