"""What the store says of models: always what the catalog says, or what the next command makes it say."""

import sqlite3
from contextlib import closing

import pytest

import halving
from halving import NotFound, StoreError
from halving.errors import StoreUnavailable
from halving.store.store import Store
from resources.backend import Backend
from resources.catalog import Catalog, ModelVersionRow, RegisteredModelRow, SweepRow
from resources.catalog.models import champion_of
from resources.registry import annotations, client_versions, stages
from resources.registry.publishing import publish
from resources.registry.registered_models import create_model, delete_model, rename_model
from resources.registry.versions import register
from tests.resources.registry.winners import winner

DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def two(either_backend: Backend, sweeps: list[str]) -> Backend:
    """A model whose second version replaced the first; both were published."""
    register_versions(either_backend, sweeps[:2])
    return either_backend


def register_versions(backend: Backend, sweeps: list[str]) -> None:
    for sweep in sweeps:
        with backend.catalog.read() as session:
            champion = champion_of(session, "digits")
        new = winner(sweep, checkpoint=DIGEST, gates=[{"name": "finite", "passed": True, "reason": "finite"}])
        register(
            backend.catalog, new, judged_against=champion.version if champion else None, auto_promote=True
        )
    assert publish(backend.store, backend.catalog) == []


def test_references_are_found_in_the_store_alone(two: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    with two.catalog.write(exclusive=True) as session:
        model = session.get_one(RegisteredModelRow, "digits")
        row = session.get_one(ModelVersionRow, ("digits", "1.0.0"))
        client_versions.set_alias(session, model, "fallback", row, actor="ann")
        annotations.set_tag(session, row, "team", "vision", actor="ann")
    assert publish(two.store, two.catalog) == []
    with monkeypatch.context() as away:
        for opened in ("sqlite3.connect", "psycopg.connect", "sqlalchemy.create_engine"):
            away.setattr(opened, lambda *_args, **_options: pytest.fail("a database was asked"))
        version = halving.resolve("digits@champion", root=two.store.root)
        assert (version.version, version.stage, version.digest) == ("1.0.1", "champion", DIGEST)
        assert version.uri.endswith("artifacts/sha256/ab/" + "ab" * 32)
        assert (version.input_schema, version.gates[0]["name"]) == ({"x": "double"}, "finite")
        for reference in ("digits@1.0.0", "digits@fallback"):
            version = halving.resolve(reference, root=two.store.root)
            assert (version.version, version.stage) == ("1.0.0", "archived")
        assert halving.resolve("digits@1.0.0", root=two.store.root).tags == {"team": "vision"}


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("digits", r"give MODEL@champion, MODEL@1\.0\.0 or MODEL@ALIAS"),
        ("letters@champion", "no model 'letters' in the store"),
        ("digits@2.0.0", r"no version '2\.0\.0' in the store .*; it has 1\.0\.0, 1\.0\.1"),
        ("digits@best", "no alias 'best'; it has champion"),
    ],
)
def test_a_wrong_reference_is_answered_with_what_there_is(two: Backend, reference: str, said: str) -> None:
    with pytest.raises((NotFound, halving.InvalidInput), match=said):
        halving.resolve(reference, root=two.store.root)


def test_a_model_without_a_champion_says_so(two: Backend) -> None:
    stages.archive(two.catalog, "digits", "1.0.1", actor="ann")
    publish(two.store, two.catalog)
    with pytest.raises(NotFound, match="has no champion now"):
        halving.resolve("digits@champion", root=two.store.root)


def test_only_what_changed_is_written_again(two: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    replace = Store.replace
    monkeypatch.setattr(
        Store, "replace", lambda self, name, data: (written.append(name), replace(self, name, data))
    )
    assert publish(two.store, two.catalog) == []
    assert written == []
    stages.rollback(two.catalog, "digits", actor="ann")
    publish(two.store, two.catalog)
    assert [name.rpartition("/")[2] for name in written] == [
        "1.0.0.json",
        "1.0.1.json",
        "champion.json",
        "aliases.json",
    ]


def add_clients_version(backend: Backend, name: str) -> None:
    """A version that a client registers of a model, which it creates first where there is none."""
    with backend.catalog.write(exclusive=True) as session:
        model = session.get(RegisteredModelRow, name) or create_model(session, name, actor="ann")
        new = ModelVersionRow(source=f"s3://bucket/{name}", storage=f"s3://bucket/{name}", tags={})
        client_versions.add_version(session, model, new, actor="ann")


def test_a_model_with_an_earlier_models_name_has_only_its_own_versions_in_the_store(
    two: Backend,
) -> None:
    for _ in range(2):
        add_clients_version(two, "net")
    publish(two.store, two.catalog)
    with two.catalog.write(exclusive=True) as session:
        rename_model(session, session.get_one(RegisteredModelRow, "net"), "old", actor="ann")
    add_clients_version(two, "other")
    with two.catalog.write(exclusive=True) as session:
        rename_model(session, session.get_one(RegisteredModelRow, "other"), "net", actor="ann")
    assert publish(two.store, two.catalog) == []
    assert sorted(two.store.names("models/net")) == ["1.0.0.json", "aliases.json", "champion.json"]
    assert halving.resolve("net@1.0.0", root=two.store.root).uri == "s3://bucket/other"
    with two.catalog.write(exclusive=True) as session:
        delete_model(session, session.get_one(RegisteredModelRow, "net"), actor="ann")
        rename_model(session, session.get_one(RegisteredModelRow, "old"), "net", actor="ann")
    assert publish(two.store, two.catalog) == []
    assert halving.resolve("net@1.0.1", root=two.store.root).uri == "s3://bucket/net"


def test_a_renamed_model_goes_back_to_the_champion_under_its_earlier_name(two: Backend) -> None:
    for version in ("1.0.0", "1.0.1"):
        add_clients_version(two, "net")
        stages.promote(two.catalog, "net", version, actor="ann")
    for before, after in (("net", "other"), ("other", "net")):
        with two.catalog.write(exclusive=True) as session:
            rename_model(session, session.get_one(RegisteredModelRow, before), after, actor="ann")
    assert stages.rollback(two.catalog, "net", actor="ann").version == "1.0.0"


def test_files_of_models_that_clients_delete_or_rename_go_away(two: Backend) -> None:
    add_clients_version(two, "net")
    publish(two.store, two.catalog)
    assert halving.resolve("net@1.0.0", root=two.store.root).uri == "s3://bucket/net"
    with two.catalog.write(exclusive=True) as session:
        rename_model(session, session.get_one(RegisteredModelRow, "net"), "a net/of mine", actor="ann")
    publish(two.store, two.catalog)
    assert two.store.names("models/net") == []
    assert halving.resolve("a net/of mine@1.0.0", root=two.store.root).version == "1.0.0"
    with two.catalog.write(exclusive=True) as session:
        delete_model(session, session.get_one(RegisteredModelRow, "a net/of mine"), actor="ann")
    publish(two.store, two.catalog)
    with pytest.raises(NotFound, match="no model"):
        halving.resolve("a net/of mine@1.0.0", root=two.store.root)
    assert publish(two.store, two.catalog) == []


def test_while_the_store_is_away_a_change_stands_and_is_published_later(
    two: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages.rollback(two.catalog, "digits", actor="ann")
    with monkeypatch.context() as away:
        away.setattr(Store, "replace", lambda *_: (_ for _ in ()).throw(StoreError("the disk is full")))
        (problem,) = publish(two.store, two.catalog)
    assert (
        "may be behind the catalog: the disk is full; the next command of the registry, or a server, "
        "writes them again"
    ) in problem
    assert halving.resolve("digits@champion", root=two.store.root).version == "1.0.1"
    assert publish(two.store, two.catalog) == []
    assert halving.resolve("digits@champion", root=two.store.root).version == "1.0.0"


def test_a_store_that_is_away_is_waited_for_once_and_not_for_each_model(
    two: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def away(_store: Store, name: str, _data: bytes) -> None:
        names.append(name)
        raise StoreUnavailable("no answer")

    with two.catalog.write(exclusive=True) as session:
        create_model(session, "letters", actor="ann")
    stages.rollback(two.catalog, "digits", actor="ann")
    monkeypatch.setattr(Store, "replace", away)
    (problem,) = publish(two.store, two.catalog)
    assert "(as may be those of 1 more): no answer" in problem
    assert len(names) == 1


def test_who_finds_another_process_writing_does_not_wait_for_as_long_as_it_may(
    two: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resources.catalog.catalog._PUBLISHING_SECONDS", 0.1)
    stages.rollback(two.catalog, "digits", actor="ann")
    with closing(Catalog(two.catalog.url)) as other, other.publishing():
        (problem,) = publish(two.store, two.catalog)
    assert "another process has been writing into it for more than 0.1 s" in problem
    assert publish(two.store, two.catalog) == []


@pytest.mark.folder
def test_a_catalog_that_goes_away_after_the_store_was_written_finds_it_right(
    backend: Backend, sweeps_of_backend: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    register_versions(backend, sweeps_of_backend[:2])
    stages.rollback(backend.catalog, "digits", actor="ann")
    with closing(Catalog(backend.catalog.url, patience=0.1)) as catalog:
        held = sqlite3.connect(backend.catalog.url.removeprefix("sqlite:///"), isolation_level=None)
        replace = Store.replace

        def replace_file(self: Store, name: str, data: bytes) -> None:
            replace(self, name, data)
            if name.endswith("aliases.json"):
                held.execute("BEGIN EXCLUSIVE")  # from now on the catalog takes nothing

        with monkeypatch.context() as patched:
            patched.setattr(Store, "replace", replace_file)
            (problem,) = publish(backend.store, catalog)
        assert "may be behind" in problem
        assert halving.resolve("digits@champion", root=backend.store.root).version == "1.0.0"
        held.execute("ROLLBACK")
        held.close()
        assert publish(backend.store, catalog) == []
    assert halving.resolve("digits@champion", root=backend.store.root).version == "1.0.0"


@pytest.fixture
def sweeps_of_backend(backend: Backend) -> list[str]:
    from resources.catalog import utcnow
    from tests.backends import snapshot_row

    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s0"))
        session.flush()
        for number in range(3):
            about = {
                "name": "digits",
                "spec": {},
                "spec_digest": "d",
                "snapshot": "sha256:s0",
                "driver": "job",
                "status": "evaluating",
            }
            session.add(SweepRow(id=f"digits-{number}", ordinal=number, created_at=utcnow(), **about))
    return [f"digits-{number}" for number in range(3)]
