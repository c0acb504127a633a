"""Links in the catalog: made, listed, revoked, and ended with what they stand on."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from halving.errors import InvalidInput, NotFound
from resources.catalog import Catalog, SharedLinkRow, TokenRow, utcnow
from resources.links.shared_links import (
    KEPT,
    PREFIX,
    SharedLink,
    create_link,
    find_link,
    list_links,
    note_use,
    revoke_link,
)
from resources.links.targets import Target
from resources.tenancy.projects import rename_project, set_project
from server.identity.tokens import create_token, without_tokens

TARGET = Target("sweep", "digits-7f3a", ["digits"])


def create(
    catalog: Catalog, target: Target = TARGET, *, token: str | None = None, days: float = 7, note: str = ""
) -> tuple[SharedLink, str]:
    with catalog.write() as session:
        return create_link(session, target, by="ada", token=token, days=days, note=note)


def look_up(catalog: Catalog, secret: str) -> SharedLink | None:
    with catalog.read() as session:
        return find_link(session, secret)


def test_a_link_is_found_by_its_secret_which_the_catalog_does_not_have(catalog: Catalog) -> None:
    link, secret = create(catalog, note="for Ben")
    assert look_up(catalog, secret) == link
    assert (link.note, link.ended, link.by) == ("for Ben", None, "ada")
    assert len(secret) == len(PREFIX) + 32
    assert without_tokens(f"GET /shared/{secret}") == f"GET /shared/{PREFIX}…"
    with catalog.read() as session:
        row = session.scalars(select(SharedLinkRow)).one()
        assert not [value for value in vars(row).values() if secret[len(PREFIX) :] in str(value)]
    for wrong in ("", PREFIX, secret[:-1], f"{secret}\n", secret.upper(), f"{PREFIX}{'x' * 32}"):
        assert look_up(catalog, wrong) is None


def test_a_revoked_link_stays_as_it_was_revoked_first(catalog: Catalog) -> None:
    link, secret = create(catalog)
    with catalog.write() as session:
        revoked = revoke_link(session, link.id, by="ben")
    with catalog.write() as session:
        assert revoke_link(session, link.id, by="eve") == revoked
    assert (revoked.ended, revoked.revoked_by) == ("revoked", "ben")
    assert look_up(catalog, secret) is None
    with pytest.raises(NotFound, match="no link 'none'"), catalog.write() as session:
        revoke_link(session, "none", by="ben")


def test_a_link_ends_no_later_than_the_token_that_made_it(catalog: Catalog) -> None:
    create_token(catalog, "ada", scope="write", days=1)
    link, secret = create(catalog, token="ada")
    assert link.expires_at <= utcnow() + timedelta(days=1)
    assert look_up(catalog, secret) is not None
    with catalog.write() as session:
        session.execute(update(TokenRow).values(scope="read"))
    assert look_up(catalog, secret) is None, "who may only read makes no links"
    with catalog.read() as session:
        assert [link.ended for link in list_links(session, None)] == ["token"]


def test_a_link_goes_on_when_its_project_is_renamed(catalog: Catalog) -> None:
    create_token(catalog, "ada", scope="write", projects=["digits"])
    link, secret = create(catalog, token="ada")
    set_project(catalog, "digits", weight=2)
    rename_project(catalog, "digits", "numbers")
    assert look_up(catalog, secret) == link
    with catalog.read() as session:
        assert list_links(session, ["numbers"]) == list_links(session, ["digits"]) == [link]
        assert list_links(session, ["other"]) == []


def test_a_link_to_several_projects_is_listed_for_those_alone_who_see_all(catalog: Catalog) -> None:
    both = create(catalog, replace(TARGET, kind="view", target="tab=diff", projects=["a", "b"]))[0]
    with catalog.read() as session:
        assert list_links(session, ["a"]) == [both]
        assert list_links(session, None, limits=["a"]) == []
        assert list_links(session, None, limits=["a", "b"]) == [both]


@pytest.mark.parametrize("days", [0, -1, 367, float("nan"), float("inf")])
def test_days_that_are_no_days_are_refused(catalog: Catalog, days: float) -> None:
    with pytest.raises(InvalidInput, match="days = "):
        create(catalog, days=days)


def test_a_note_is_one_line(catalog: Catalog) -> None:
    for note in ("a\nb", "x" * 501):
        with pytest.raises(InvalidInput, match="note = "):
            create(catalog, note=note)


@pytest.mark.parametrize("end", ["expires_at", "revoked_at"])
def test_a_use_is_noted_and_links_that_ended_long_ago_are_forgotten(catalog: Catalog, end: str) -> None:
    link, _ = create(catalog)
    note_use(catalog, link)
    with catalog.read() as session:
        assert list_links(session, None)[0].last_used_at is not None
    with catalog.write() as session:
        session.execute(update(SharedLinkRow).values({end: utcnow() - KEPT - timedelta(hours=1)}))
    other, _ = create(catalog)
    with catalog.read() as session:
        assert list_links(session, None) == [other]
