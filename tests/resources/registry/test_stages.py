"""Who may make which version the champion, and the record of it: gates, approval, force, rollback, events."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import DBAPIError

from halving import InvalidInput, NotFound
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog import Catalog, ModelVersionRow, RegisteredModelRow, RegistryEventRow, SweepRow
from resources.catalog.models import champion_of, versions_of
from resources.registry import annotations, by_hand, client_versions, stages
from resources.registry.events import events_of, what_happened
from resources.registry.history import model_story, newest_events, search_versions
from resources.registry.registered_models import create_model, delete_model
from resources.registry.verdicts import PromotionRefused, check_whole
from resources.registry.versions import register, register_held
from tests.resources.registry.winners import winner

PASSED = {"name": "finite_metrics", "passed": True, "reason": "every test metric is finite"}
HELD = {
    "name": "improvement",
    "passed": False,
    "reason": "too little evidence: 310 more rows would settle it",
}


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


@pytest.fixture
def registers(backend: Backend, sweeps: list[str]) -> Callable[..., ModelVersionRow]:
    """Register the next sweep's winner, judged against the champion of now."""
    left = iter(sweeps)

    def add(
        *gates: dict[str, Any], auto_promote: bool = False, approval: dict[str, Any] | None = None
    ) -> ModelVersionRow:
        sweep = next(left)
        with backend.catalog.write() as session:
            session.get_one(SweepRow, sweep).spec = {
                "auto_promote": auto_promote,
                **({"approval": approval} if approval else {}),
            }
            champion = champion_of(session, "digits")
        new = winner(sweep, gates=list(gates or (PASSED,)))
        return register(
            backend.catalog,
            new,
            judged_against=champion.version if champion else None,
            auto_promote=auto_promote,
        )

    return add


def client_version() -> ModelVersionRow:
    return ModelVersionRow(source="s3://bucket/net", storage="s3://bucket/net", tags={})


def champion(backend: Backend) -> str | None:
    with backend.catalog.read() as session:
        row = champion_of(session, "digits")
    return row.version if row else None


def story(backend: Backend) -> list[tuple[str, str, str | None]]:
    with backend.catalog.read() as session:
        return [(row.actor, what_happened(row), row.note) for row in events_of(session, "digits")]


def test_a_version_that_a_gate_holds_back_is_promoted_only_by_recorded_force(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    held = registers(HELD)
    with pytest.raises(
        PromotionRefused, match=r"gate improvement did not pass: too little evidence.*--force --note WHY"
    ):
        stages.promote(backend.catalog, "digits", held.version, actor="ann")
    with pytest.raises(InvalidInput, match="not forced without a note"):
        stages.promote(backend.catalog, "digits", held.version, actor="ann", note=" ", force=True)
    assert champion(backend) == "1.0.0"
    stages.promote(
        backend.catalog, "digits", held.version, actor="ann", note="the old one is on fire", force=True
    )
    assert champion(backend) == held.version
    assert story(backend)[-2:] == [
        ("ann", "1.0.0 replaced: champion → archived", "by 1.0.1"),
        ("ann", "1.0.1 forced: staging → champion", "the old one is on fire"),
    ]


def test_a_version_that_was_judged_against_an_older_champion_is_not_promoted(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    second = registers()
    third = registers()
    stages.promote(backend.catalog, "digits", second.version, actor="ann")
    with pytest.raises(
        PromotionRefused,
        match=r"judged against champion 1\.0\.0, and the champion is 1\.0\.1 now: judge it again",
    ):
        stages.promote(backend.catalog, "digits", third.version, actor="ann")
    stages.archive(backend.catalog, "digits", second.version, actor="ann")
    # without a champion there is none to be worse than
    stages.promote(backend.catalog, "digits", third.version, actor="ann")
    assert champion(backend) == third.version


def test_of_two_promotions_at_once_one_is_refused(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    rivals = [registers().version, registers().version]
    both = Barrier(2)

    def promote(version: str) -> bool:
        with closing(Catalog(backend.catalog.url)) as catalog:
            both.wait()
            with suppress(PromotionRefused):
                return stages.promote(catalog, "digits", version, actor=version).stage == "champion"
            return False

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(promote, rivals))
    assert sorted(done) == [False, True]
    assert champion(backend) == rivals[done.index(True)]
    assert [what for _, what, _ in story(backend) if "champion" in what and "promoted" in what][1:] == [
        f"{champion(backend)} promoted: staging → champion"
    ]


def test_a_version_waits_for_the_approval_of_those_who_are_named(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    rule = {"required": True, "by": ["ann", "bob", "eve"], "at_least": 2}
    version = registers(approval=rule).version
    assert champion(backend) is None, "green gates are not enough"
    with pytest.raises(
        PromotionRefused,
        match=r"waits for the approval of 2 of ann, bob, eve: halving approve digits 1\.0\.0 --note",
    ):
        stages.promote(backend.catalog, "digits", version, actor="ann")
    with pytest.raises(InvalidInput, match="mallory is not among those who decide about it, ann, bob, eve"):
        stages.approve(backend.catalog, "digits", version, actor="mallory", note="fine")
    with pytest.raises(InvalidInput, match="without a note"):
        stages.approve(backend.catalog, "digits", version, actor="ann", note="")
    for _ in range(2):  # one person counts once
        stages.approve(backend.catalog, "digits", version, actor="ann", note="fine")
    with pytest.raises(PromotionRefused, match="and ann approved so far"):
        stages.promote(backend.catalog, "digits", version, actor="ann")
    row = stages.approve(backend.catalog, "digits", version, actor="bob", note="fine by me")
    assert row.stage == "champion", "there is no other, so the last approval makes it the champion"
    with pytest.raises(InvalidInput, match="is the champion already"):
        stages.reject(backend.catalog, "digits", version, actor="eve", note="no")


def test_an_approval_of_an_earlier_report_does_not_count_and_a_rejection_of_it_does(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    version = registers(approval={"required": True}).version
    stages.approve(backend.catalog, "digits", version, actor="ann", note="fine")
    with backend.catalog.write() as session:
        session.get_one(ModelVersionRow, ("digits", version)).report = "sha256:another"
    with pytest.raises(PromotionRefused, match="waits for the approval of 1"):
        stages.promote(backend.catalog, "digits", version, actor="ann")
    stages.reject(backend.catalog, "digits", version, actor="ann", note="no")
    with backend.catalog.write() as session:
        session.get_one(ModelVersionRow, ("digits", version)).report = "sha256:a third"
    with pytest.raises(PromotionRefused, match="ann rejected it: no"):
        stages.promote(backend.catalog, "digits", version, actor="bob")


def test_decisions_about_a_deleted_model_do_not_count_for_the_next_of_its_name(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    with backend.catalog.write(exclusive=True) as session:
        model = create_model(session, "digits", actor="mallory")
        client_versions.add_version(session, model, client_version(), actor="mallory")
    stages.approve(backend.catalog, "digits", "1.0.0", actor="ann", note="fine")
    stages.promote(backend.catalog, "digits", "1.0.0", actor="ann")
    with backend.catalog.write(exclusive=True) as session:
        delete_model(session, session.get_one(RegisteredModelRow, "digits"), actor="mallory")
    assert registers(approval={"required": True}).stage == "staging"
    with pytest.raises(NotFound, match="had no champion before"):
        stages.rollback(backend.catalog, "digits", actor="ann")


def test_a_clients_version_needs_the_approval_of_its_models_newest_sweep(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    rule = {"required": True, "by": ["ann"]}
    registers(approval=rule)
    stages.approve(backend.catalog, "digits", "1.0.0", actor="ann", note="fine")
    with backend.catalog.write(exclusive=True) as session:
        session.scalars(select(SweepRow).order_by(SweepRow.created_at.desc())).first().spec = {
            "approval": rule
        }  # type: ignore[union-attr]
        model = session.get_one(RegisteredModelRow, "digits")
        row = client_versions.add_version(session, model, client_version(), actor="mallory")
        with pytest.raises(PromotionRefused, match="waits for the approval of 1 of ann"):
            client_versions.set_alias(session, model, "champion", row, actor="mallory")
    with pytest.raises(InvalidInput, match="mallory is not among those who decide"):
        stages.approve(backend.catalog, "digits", row.version, actor="mallory", note="mine")
    stages.archive(backend.catalog, "digits", "1.0.0", actor="ann")
    assert (
        stages.approve(backend.catalog, "digits", row.version, actor="ann", note="fine").stage == "staging"
    ), "nobody promoted it yet"
    assert stages.promote(backend.catalog, "digits", row.version, actor="mallory").stage == "champion"


def test_beside_a_champion_an_approved_version_waits_unless_the_spec_promotes_it(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    by_hand = registers(approval={"required": True})
    assert (
        stages.approve(backend.catalog, "digits", by_hand.version, actor="ann", note="good").stage
        == "staging"
    )
    assert stages.promote(backend.catalog, "digits", by_hand.version, actor="ann").stage == "champion"
    by_itself = registers(approval={"required": True}, auto_promote=True)
    assert by_itself.stage == "staging"
    assert (
        stages.approve(backend.catalog, "digits", by_itself.version, actor="ann", note="good").stage
        == "champion"
    )


def test_a_rejected_version_is_not_promoted_until_the_same_person_approves_it(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    version = registers().version
    stages.reject(backend.catalog, "digits", version, actor="ann", note="misses night scenes")
    stages.approve(backend.catalog, "digits", version, actor="bob", note="I like it")
    with pytest.raises(PromotionRefused, match="ann rejected it: misses night scenes"):
        stages.promote(backend.catalog, "digits", version, actor="bob")
    stages.approve(backend.catalog, "digits", version, actor="ann", note="I was wrong")
    assert stages.promote(backend.catalog, "digits", version, actor="bob").stage == "champion"


def test_each_rollback_goes_back_to_the_champion_before(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    with pytest.raises(NotFound, match="no model 'digits'"):
        stages.rollback(backend.catalog, "digits", actor="ann")
    for _ in range(3):
        registers(auto_promote=True)
    assert champion(backend) == "1.0.2"
    assert (
        stages.rollback(backend.catalog, "digits", actor="ann", note="worse in the evening").version
        == "1.0.1"
    )
    assert stages.rollback(backend.catalog, "digits", actor="ann").version == "1.0.0"
    with pytest.raises(NotFound, match=r"had no champion before 1\.0\.0"):
        stages.rollback(backend.catalog, "digits", actor="ann")
    registers(auto_promote=True)
    assert stages.rollback(backend.catalog, "digits", actor="ann").version == "1.0.0", (
        "not to what was rolled back"
    )
    assert ("ann", "1.0.1 rolled back: archived → champion", "worse in the evening") in story(backend)


def test_a_champion_that_was_archived_is_not_what_a_rollback_goes_back_to(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    for _ in range(2):
        registers(auto_promote=True)
    stages.archive(backend.catalog, "digits", "1.0.1", actor="ann", note="leaks names")
    assert stages.rollback(backend.catalog, "digits", actor="ann").version == "1.0.0"


@pytest.mark.parametrize("unfit", [stages.archive, stages.reject])
def test_a_rejected_former_champion_is_passed_over_until_it_is_promoted_again(
    backend: Backend, registers: Callable[..., ModelVersionRow], unfit: Callable[..., ModelVersionRow]
) -> None:
    for _ in range(3):
        registers(auto_promote=True)
    unfit(backend.catalog, "digits", "1.0.1", actor="ann", note="leaks names")
    assert story(backend)[-1][2] == "leaks names"
    stages.promote(backend.catalog, "digits", "1.0.1", actor="ann", note="it does not", force=True)
    stages.promote(backend.catalog, "digits", "1.0.2", actor="ann", note="the newest", force=True)
    assert stages.rollback(backend.catalog, "digits", actor="ann").version == "1.0.1", "it was promoted again"
    stages.promote(backend.catalog, "digits", "1.0.2", actor="ann", note="the newest", force=True)
    unfit(backend.catalog, "digits", "1.0.1", actor="ann", note="it does")
    assert stages.rollback(backend.catalog, "digits", actor="ann").version == "1.0.0"


def test_an_archived_champion_does_not_come_back_when_another_one_took_over(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    for _ in range(2):
        registers(auto_promote=True)
    stages.archive(backend.catalog, "digits", "1.0.1", actor="ann", note="leaks names")
    registers()
    assert champion(backend) == "1.0.2"
    assert stages.rollback(backend.catalog, "digits", actor="ann").version == "1.0.0"


def test_a_rollback_reads_of_a_long_history_only_what_it_decides_by(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    for _ in range(2):
        registers(auto_promote=True)
    with backend.catalog.write(exclusive=True) as session:
        row = session.get_one(RegisteredModelRow, "digits")
        for number in range(500):
            annotations.set_tag(session, row, "round", str(number), actor="ann")
    loaded: list[object] = []

    def count(row: object, _context: object) -> None:
        loaded.append(row)

    event.listen(RegistryEventRow, "load", count)
    try:
        stages.rollback(backend.catalog, "digits", actor="ann")
        with pytest.raises(PromotionRefused):
            stages.promote(backend.catalog, "digits", registers(HELD).version, actor="ann")
    finally:
        event.remove(RegistryEventRow, "load", count)
    assert loaded == []


def test_a_history_is_told_in_pages(backend: Backend, registers: Callable[..., ModelVersionRow]) -> None:
    registers()
    with backend.catalog.read() as session:
        newest, earlier = newest_events(session, "digits", None, 2)
        assert [event["kind"] for event in newest] == ["registered", "promoted"]
        oldest, end = newest_events(session, "digits", earlier, 2)
    assert ([event["kind"] for event in oldest], end) == (["created"], None)


def test_a_held_winner_that_passes_later_is_the_same_version_with_new_verdicts(
    backend: Backend, registers: Callable[..., ModelVersionRow], sweeps: list[str]
) -> None:
    registers()
    register_held(
        backend.catalog,
        winner(sweeps[1], gates=[HELD]),
        judged_against="1.0.0",
        actor="ann",
        note="to look at it",
    )
    new = winner(sweeps[1], gates=[PASSED], report="sha256:newer", manifest="sha256:m")
    row = register(backend.catalog, new, judged_against="1.0.0", auto_promote=True)
    assert (row.version, row.report, row.manifest, row.gates, row.stage) == (
        "1.0.1",
        "sha256:newer",
        "sha256:m",
        [PASSED],
        "champion",
    )
    assert ("sweep digits-1", "1.0.1 judged", "against 1.0.0: all gates passed") in story(backend)
    with backend.catalog.read() as session:
        assert len(versions_of(session, "digits")) == 2


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


@pytest.mark.folder
def test_an_altered_report_or_a_lost_checkpoint_blocks_the_promotion(
    backend: Backend, sweeps: list[str]
) -> None:
    report = backend.store.put_blob(b'{"metrics": {"accuracy": 0.4}}')
    checkpoint = backend.store.put_blob(b"weights")
    new = winner(sweeps[0], report=report, checkpoint=checkpoint, gates=[PASSED])
    register(backend.catalog, new, judged_against=None, auto_promote=False)
    check_whole(backend.store, backend.catalog, "digits", "1.0.0")
    assert backend.store.folder is not None
    file = backend.store.folder / blob_name(report)
    kept = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(kept.replace(b"0.4", b"0.9"))

    def decide_all(refusal: str) -> None:
        with pytest.raises(PromotionRefused, match=refusal):
            by_hand.promote(backend, "digits", "1.0.0", pytest.fail, actor="ann")
        with pytest.raises(PromotionRefused, match=refusal):
            by_hand.promote(backend, "digits", "1.0.0", pytest.fail, actor="ann", note="now", force=True)
        with pytest.raises(PromotionRefused, match=refusal):
            by_hand.approve(backend, "digits", "1.0.0", pytest.fail, actor="ann", note="good")
        with backend.catalog.read() as session:
            assert [event.kind for event in events_of(session, "digits")] == before

    with backend.catalog.read() as session:
        before = [event.kind for event in events_of(session, "digits")]
    decide_all("its report was altered or is damaged")
    file.write_bytes(kept)
    (backend.store.folder / blob_name(checkpoint)).unlink()
    decide_all(r"its checkpoint sha256:.* is gone")


def test_versions_keep_by_what_they_were_judged(
    backend: Backend, registers: Callable[..., ModelVersionRow]
) -> None:
    registers()
    registers(PASSED, HELD)
    with backend.catalog.read() as session:
        kept = [(row.judged_against, row.gates) for row in versions_of(session, "digits")]
    assert kept == [(None, [PASSED]), ("1.0.0", [PASSED, HELD])]
