"""``halving models`` and the commands by which people decide about versions."""

from pathlib import Path

import pytest

from halving import Store, load_model, resolve
from halving.errors import StoreUnavailable
from resources.catalog import SweepRow, utcnow
from resources.catalog.models import champion_of
from resources.registry import by_hand
from resources.registry.publishing import publish
from resources.registry.registered_models import create_model
from resources.registry.versions import register
from tests.backends import snapshot_row
from tests.commands.shell import Shell, Swept, on_swept
from tests.resources.registry.winners import winner


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A model with a champion, and a version that waits for the approval of ann or bob."""
    monkeypatch.setenv("HALVING_USER", "ann")
    shell = Shell(tmp_path)
    backend = shell.backend
    approval = {"approval": {"required": True, "by": ["ann", "bob"]}}
    about = {
        "name": "digits",
        "spec_digest": "d",
        "snapshot": "sha256:s0",
        "driver": "job",
        "status": "evaluating",
    }
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s0"))
        session.flush()
        for number, spec in enumerate([{}, approval]):
            session.add(
                SweepRow(id=f"digits-{number}", ordinal=number, spec=spec, created_at=utcnow(), **about)
            )
    digest = backend.store.put_blob(b"weights")
    for sweep, against in (("digits-0", None), ("digits-1", "1.0.0")):
        new = winner(sweep, checkpoint=digest, report=backend.store.put_blob(b"{}"), gates=[])
        register(backend.catalog, new, judged_against=against, auto_promote=False)
    publish(backend.store, backend.catalog)
    return shell


def test_people_approve_promote_and_roll_back_and_the_story_tells_it(two: Shell) -> None:
    assert two.fails("promote", "digits", "1.0.1").startswith(
        "halving promote: digits 1.0.1 is not promoted: it waits for the approval of 1"
    )
    two.data("reject", "digits", "1.0.1", "--note", "too slow")
    two.data("approve", "digits", "1.0.1", "--note", "fast now")
    assert two.data("promote", "digits", "1.0.1")["stage"] == "champion"
    assert resolve("digits@champion", two.backend.store.root).version == "1.0.1"
    assert two.data("rollback", "digits", "--note", "worse")["version"] == "1.0.0"
    assert resolve("digits@champion", two.backend.store.root).version == "1.0.0"
    assert two.fails("promote", "digits", "1.0.1", "--force").startswith(
        "halving promote: a promotion is not forced without a note"
    )
    events = two.data("models", "show", "digits")["events"]
    assert [
        (event["actor"], event["summary"], event["note"]) for event in events if event["actor"] == "ann"
    ] == [
        ("ann", "1.0.1 rejected", "too slow"),
        ("ann", "1.0.1 approved", "fast now"),
        ("ann", "1.0.0 replaced: champion → archived", "by 1.0.1"),
        ("ann", "1.0.1 promoted: staging → champion", None),
        ("ann", "1.0.1 replaced: champion → archived", "by 1.0.0"),
        ("ann", "1.0.0 rolled back: archived → champion", "worse"),
    ]


def test_models_are_described_tagged_named_and_found(two: Shell) -> None:
    two.data("models", "describe", "digits", "reads digits")
    two.data("models", "tag", "digits@1.0.1", "team=vision")
    two.data("models", "alias", "digits", "candidate", "1.0.1")
    assert resolve("digits@candidate", two.backend.store.root).tags == {"team": "vision"}
    assert [row["version"] for row in two.data("models", "search", "vision")["models"]] == ["1.0.1"]
    story = two.data("models", "show", "digits")
    assert (story["description"], story["aliases"]) == (
        "reads digits",
        {"candidate": "1.0.1", "champion": "1.0.0"},
    )
    two.data("models", "tag", "digits@1.0.1", "team=")
    two.data("models", "alias", "digits", "candidate")
    assert two.data("models", "search", "vision")["models"] == []
    assert "halving promote digits 1.0.1 makes a version the champion" in two.fails(
        "models", "alias", "digits", "champion", "1.0.1"
    )
    assert "give NAME=VALUE" in two.fails("models", "tag", "digits", "vision")
    assert [version["version"] for version in two.data("models", "list", "digits")["models"]] == [
        "1.0.0",
        "1.0.1",
    ]
    assert "no version of a model 'letters'" in two.fails("models", "list", "letters")


def test_an_approval_says_what_is_still_missing_and_a_model_may_have_an_at_sign(two: Shell) -> None:
    backend = two.backend
    with backend.catalog.write(exclusive=True) as session:
        session.get_one(SweepRow, "digits-1").spec = {"approval": {"required": True, "at_least": 2}}
        create_model(session, "a@b", actor="ann")
    notes: list[str] = []
    first = by_hand.approve(backend, "digits", "1.0.1", notes.append, actor="ann", note="fine")
    assert first.missing == [
        "it waits for the approval of 2, and ann approved so far: halving approve digits 1.0.1 --note WHY"
    ]
    second = by_hand.approve(backend, "digits", "1.0.1", notes.append, actor="bob", note="fine")
    assert (second.row.stage, second.missing, second.event and second.event.actor) == ("staging", [], "bob")
    assert two.data("models", "describe", "a@b", "an odd name")["model"] == "a@b"
    assert notes == []


def test_what_people_wrote_is_shown_as_it_is_and_is_no_markup(two: Shell) -> None:
    two.data("models", "describe", "digits", "see [/etc] and [red]x[/red]")
    two.data("models", "tag", "digits", "[bold]team=[/]")
    two.data("reject", "digits", "1.0.1", "--note", "[/b] too slow")
    status, out, _ = two.call("models", "show", "digits")
    assert status == 0
    for written in ("see [/etc] and [red]x[/red]", "[bold]team", "[/b] too slow"):
        assert written in out


def test_a_rollback_does_not_wait_for_the_store_with_the_change(
    two: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.data("promote", "digits", "1.0.1", "--force", "--note", "now")
    champions = set[str]()

    def away(*_: object) -> None:
        with two.backend.catalog.read() as session:
            row = champion_of(session, "digits")
        champions.add(row.version if row else "")
        raise StoreUnavailable("no answer")

    with two.backend.catalog.write(exclusive=True) as session:  # what the store was not told of yet
        create_model(session, "another", actor="ann")
    monkeypatch.setattr(Store, "replace", away)
    notes: list[str] = []
    monkeypatch.setattr("commands.models._warn", notes.append)
    assert two.data("rollback", "digits")["version"] == "1.0.0"
    assert len(notes) == 1
    assert champions == {"1.0.0"}, "it was the champion before the store was asked"


@on_swept
def test_a_champion_is_exported_and_loaded(swept_lab: Swept, tmp_path: Path) -> None:
    shell = swept_lab.shell.copy(tmp_path)
    folder = shell.data("models", "export", "small@champion", str(tmp_path / "out"))["folder"]
    assert (Path(folder) / "README.md").read_text().startswith("# small 1.0.0\n")
    assert list(load_model("small@champion", shell.backend.store.root).predict({"x": [0.9]})) == ["high"]
    status, out, _ = shell.call("models", "show", "small")
    assert (status, "1.0.0 promoted: staging → champion" in out) == (0, True)
    assert "is not judged again: it is the champion" in shell.fails("models", "judge", "small", "1.0.0")
