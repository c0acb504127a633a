"""A rollback goes back to an earlier champion, and passes over those that people found unfit."""

from collections.abc import Callable

import pytest
from sqlalchemy import event

from halving import NotFound
from resources.backend import Backend
from resources.catalog import ModelVersionRow, RegisteredModelRow, RegistryEventRow
from resources.registry import annotations, stages
from resources.registry.verdicts import PromotionRefused
from tests.resources.registry.winners import HELD, champion, story


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


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
