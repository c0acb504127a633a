"""Versions that clients register beside those of sweeps, their aliases and stages."""

import pytest

from halving import InvalidInput, NotFound
from resources.backend import Backend
from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.catalog.models import champion_of, versions_of
from resources.registry import client_versions
from resources.registry.client_versions import (
    add_version,
    aliases_of,
    change_stage,
    delete_version,
    set_alias,
)
from resources.registry.registered_models import create_model, delete_model, rename_model
from resources.registry.stages import archive, promote
from resources.registry.versions import register
from resources.retention.protection import find_protected
from tests.resources.registry.winners import winner


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


def add_client_version(
    backend: Backend, model: str = "digits", project: str | None = None, run: str | None = None
) -> ModelVersionRow:
    """A new version of a model, which is made where there is none."""
    with backend.catalog.write(exclusive=True) as session:
        row = session.get(RegisteredModelRow, model) or create_model(session, model, actor="ann")
        new = ModelVersionRow(
            source="s3://bucket/net", storage="s3://bucket/net", project=project, run=run, tags={}
        )
        return add_version(session, row, new, actor="ann")


def list_versions(backend: Backend, model: str = "digits") -> list[tuple[str, int, str, str]]:
    with backend.catalog.read() as session:
        return [(row.version, row.number, row.stage, row.mlflow_stage) for row in versions_of(session, model)]


def test_versions_of_clients_and_of_sweeps_are_counted_together(backend: Backend, sweeps: list[str]) -> None:
    add_client_version(backend)
    add_client_version(backend)
    register(backend.catalog, winner(sweeps[0]), judged_against=None, auto_promote=False)
    add_client_version(backend)
    register(backend.catalog, winner(sweeps[1]), judged_against="2.0.0", auto_promote=False)
    assert list_versions(backend) == [
        ("1.0.0", 1, "staging", "None"),
        ("1.0.1", 2, "staging", "None"),
        ("2.0.0", 3, "champion", "Production"),  # nothing is known of the schema of those before
        ("2.0.1", 4, "staging", "None"),
        ("2.0.2", 5, "staging", "Staging"),
    ]


def test_the_name_of_a_deleted_version_is_not_given_again(backend: Backend) -> None:
    add_client_version(backend)
    newest = add_client_version(backend)
    with backend.catalog.write(exclusive=True) as session:
        model = session.get_one(RegisteredModelRow, "digits")
        row = session.get_one(ModelVersionRow, ("digits", newest.version))
        set_alias(session, model, "best", row, actor="ann")
        delete_version(session, model, row, actor="ann")
        assert aliases_of(session, model) == {}
    add_client_version(backend)
    assert [(version, number) for version, number, _, _ in list_versions(backend)] == [
        ("1.0.0", 1),
        ("1.0.2", 3),
    ]


def test_our_champion_is_the_alias_champion_which_leaves_stages_as_they_are(backend: Backend) -> None:
    for _ in range(3):
        add_client_version(backend)
    promote(backend.catalog, "digits", "1.0.1", actor="ann")
    with backend.catalog.write(exclusive=True) as session:
        model = session.get_one(RegisteredModelRow, "digits")
        assert aliases_of(session, model) == {"champion": 2}
        set_alias(
            session, model, "champion", session.get_one(ModelVersionRow, ("digits", "1.0.2")), actor="ann"
        )
        set_alias(session, model, "first", session.get_one(ModelVersionRow, ("digits", "1.0.0")), actor="ann")
    assert list_versions(backend)[1:] == [
        ("1.0.1", 2, "archived", "Production"),
        ("1.0.2", 3, "champion", "None"),
    ]
    with backend.catalog.write(exclusive=True) as session:
        model = session.get_one(RegisteredModelRow, "digits")
        client_versions.delete_alias(session, model, "champion", actor="ann")
        client_versions.delete_alias(session, model, "champion", actor="ann")
        assert (aliases_of(session, model), champion_of(session, "digits")) == ({"first": 1}, None)
    archive(backend.catalog, "digits", "1.0.0", actor="ann")
    assert list_versions(backend)[0] == ("1.0.0", 1, "archived", "Archived")


def test_several_versions_may_be_in_production_and_one_is_the_champion(backend: Backend) -> None:
    for _ in range(3):
        add_client_version(backend)
    for version, archive_others in (("1.0.0", False), ("1.0.1", False), ("1.0.2", True)):
        with backend.catalog.write(exclusive=True) as session:
            model = session.get_one(RegisteredModelRow, "digits")
            row = session.get_one(ModelVersionRow, ("digits", version))
            change_stage(session, model, row, "Production", archive_others=archive_others, actor="ann")
        if not archive_others:
            assert {stage for _, _, _, stage in list_versions(backend)[: row.number]} == {"Production"}
            assert [number for _, number, stage, _ in list_versions(backend) if stage == "champion"] == [
                row.number
            ]
    assert [(stage, theirs) for _, _, stage, theirs in list_versions(backend)] == [
        ("archived", "Archived")
    ] * 2 + [("champion", "Production")]
    with backend.catalog.write(exclusive=True) as session:
        model = session.get_one(RegisteredModelRow, "digits")
        row = session.get_one(ModelVersionRow, ("digits", "1.0.2"))
        change_stage(session, model, row, "None", archive_others=False, actor="ann")
    assert list_versions(backend)[-1] == ("1.0.2", 3, "staging", "None")


def test_the_winner_of_a_sweep_is_neither_deleted_nor_renamed(backend: Backend, sweeps: list[str]) -> None:
    register(backend.catalog, winner(sweeps[0]), judged_against=None, auto_promote=False)
    with backend.catalog.write(exclusive=True) as session:
        model = session.get_one(RegisteredModelRow, "digits")
        row = session.get_one(ModelVersionRow, ("digits", "1.0.0"))
        with pytest.raises(InvalidInput, match="is the winner of sweep digits-0: archive it instead"):
            delete_version(session, model, row, actor="ann")
        with pytest.raises(
            InvalidInput, match=r"cannot be deleted: its version 1\.0\.0 is the winner of a sweep"
        ):
            delete_model(session, model, actor="ann")
        with pytest.raises(InvalidInput, match="cannot be renamed"):
            rename_model(session, model, "other", actor="ann")


def test_a_renamed_model_keeps_its_versions_and_aliases(backend: Backend) -> None:
    add_client_version(backend)
    with backend.catalog.write(exclusive=True) as session:
        model = session.get_one(RegisteredModelRow, "digits")
        set_alias(session, model, "best", session.get_one(ModelVersionRow, ("digits", "1.0.0")), actor="ann")
        rename_model(session, model, "numbers", actor="ann")
    add_client_version(backend, "numbers")
    assert [version for version, *_ in list_versions(backend, "numbers")] == ["1.0.0", "1.0.1"]
    with backend.catalog.read() as session:
        assert aliases_of(session, session.get_one(RegisteredModelRow, "numbers")) == {"best": 1}
    with pytest.raises(NotFound, match=r"no version '1\.0\.0' of model 'digits'"):
        promote(backend.catalog, "digits", "1.0.0", actor="ann")


def test_the_runs_of_versions_in_use_are_kept(backend: Backend) -> None:
    add_client_version(backend, "net", "a", "r1")
    add_client_version(backend, "net", "b", "r2")
    add_client_version(backend, "net")
    archive(backend.catalog, "net", "1.0.1", actor="ann")
    assert set(find_protected(backend.store, backend.catalog).runs) == {("a", "r1")}
