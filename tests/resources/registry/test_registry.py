"""Versions, and one champion at any time."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from halving import InvalidInput, NotFound
from resources.backend import Backend
from resources.catalog import Catalog, ModelVersionRow
from resources.catalog.models import champion_of, versions_of
from resources.registry.stages import archive, promote
from resources.registry.versions import ChampionChanged, parse_version, register
from tests.resources.registry.winners import winner


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


def register_version(
    catalog: Catalog, new: ModelVersionRow, *, auto_promote: bool = False
) -> ModelVersionRow:
    """Register a winner that is as good as any champion, whichever that is."""
    while True:
        with catalog.read() as session:
            champion = champion_of(session, new.model)
        with suppress(ChampionChanged):
            return register(
                catalog, new, judged_against=champion.version if champion else None, auto_promote=auto_promote
            )


def stages(backend: Backend) -> dict[str, str]:
    with backend.catalog.read() as session:
        return {row.version: row.stage for row in versions_of(session, "digits")}


def test_the_first_version_becomes_champion_and_later_ones_wait_as_staging(
    backend: Backend, sweeps: list[str]
) -> None:
    for sweep in sweeps[:3]:
        register_version(backend.catalog, winner(sweep))
    assert stages(backend) == {"1.0.0": "champion", "1.0.1": "staging", "1.0.2": "staging"}


def test_auto_promote_makes_the_new_version_champion_and_archives_the_old(
    backend: Backend, sweeps: list[str]
) -> None:
    for sweep in sweeps[:2]:
        register_version(backend.catalog, winner(sweep), auto_promote=True)
    assert stages(backend) == {"1.0.0": "archived", "1.0.1": "champion"}


def test_promotion_by_hand_works_in_both_directions_and_twice(backend: Backend, sweeps: list[str]) -> None:
    for sweep in sweeps[:2]:
        register_version(backend.catalog, winner(sweep))
    promote(backend.catalog, "digits", "1.0.1", actor="ann")
    promote(backend.catalog, "digits", "1.0.1", actor="ann")
    assert stages(backend) == {"1.0.0": "archived", "1.0.1": "champion"}
    promote(backend.catalog, "digits", "1.0.0", actor="ann")
    assert stages(backend) == {"1.0.0": "champion", "1.0.1": "archived"}


def test_without_its_champion_a_model_takes_the_next_winner(backend: Backend, sweeps: list[str]) -> None:
    register_version(backend.catalog, winner(sweeps[0]))
    archive(backend.catalog, "digits", "1.0.0", actor="ann")
    register_version(backend.catalog, winner(sweeps[1]))
    assert stages(backend) == {"1.0.0": "archived", "1.0.1": "champion"}


def test_a_sweep_has_one_version_however_often_it_is_registered(backend: Backend, sweeps: list[str]) -> None:
    for _ in range(3):
        register_version(backend.catalog, winner(sweeps[0]))
    assert stages(backend) == {"1.0.0": "champion"}


@pytest.mark.parametrize("judged_against", ["1.0.0", None])
def test_a_winner_that_was_not_judged_against_the_champion_is_not_registered(
    backend: Backend, sweeps: list[str], judged_against: str | None
) -> None:
    for sweep in sweeps[:2]:
        register_version(backend.catalog, winner(sweep), auto_promote=True)
    with pytest.raises(
        ChampionChanged, match=rf"was judged against champion {judged_against}; the champion is 1\.0\.1"
    ):
        register(backend.catalog, winner(sweeps[2]), judged_against=judged_against, auto_promote=True)
    assert stages(backend) == {"1.0.0": "archived", "1.0.1": "champion"}


def test_versions_follow_what_changed(backend: Backend, sweeps: list[str]) -> None:
    register_version(backend.catalog, winner(sweeps[0]))
    register_version(backend.catalog, winner(sweeps[1], snapshot="sha256:s1"))
    register_version(backend.catalog, winner(sweeps[2], snapshot="sha256:s1"))
    register_version(backend.catalog, winner(sweeps[3], input_schema={"z": "float"}))
    assert list(stages(backend)) == ["1.0.0", "1.1.0", "1.1.1", "2.0.0"]


def test_winners_registered_at_once_get_versions_of_their_own_and_one_champion(
    backend: Backend, sweeps: list[str]
) -> None:
    def registers(sweep: str) -> None:
        with closing(Catalog(backend.catalog.url)) as catalog:
            register_version(catalog, winner(sweep), auto_promote=True)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(registers, sweeps))
    assert sorted(stages(backend)) == ["1.0.0", "1.0.1", "1.0.2", "1.0.3"]
    assert list(stages(backend).values()).count("champion") == 1


def test_an_unknown_version_is_answered_with_those_that_exist(backend: Backend, sweeps: list[str]) -> None:
    with pytest.raises(NotFound, match="no versions yet: run a sweep first"):
        promote(backend.catalog, "digits", "9.9.9", actor="ann")
    register_version(backend.catalog, winner(sweeps[0]))
    with pytest.raises(
        NotFound, match=r"no version '9\.9\.9' of model 'digits'; there are digits 1\.0\.0 \(champion\)"
    ):
        promote(backend.catalog, "digits", "9.9.9", actor="ann")


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"version '1\.x' is not accepted: give MAJOR\.MINOR\.PATCH"):
        parse_version("1.x")
