"""Who may make which version the champion, and the record of it: gates, approval, force, rollback, events."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Barrier

import pytest
from sqlalchemy import select

from halving import InvalidInput, NotFound
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog import Catalog, ModelVersionRow, RegisteredModelRow, SweepRow
from resources.catalog.models import versions_of
from resources.registry import by_hand, client_versions, stages
from resources.registry.events import events_of
from resources.registry.registered_models import create_model, delete_model
from resources.registry.verdicts import PromotionRefused, check_whole
from resources.registry.versions import register, register_held
from tests.resources.registry.winners import HELD, PASSED, champion, client_version, story, winner


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


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
