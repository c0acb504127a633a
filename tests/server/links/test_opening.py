"""A link opens one page, for whoever has it, until it ends; and nothing beside it."""

from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from resources.catalog import SharedLinkRow, TokenRow, utcnow
from server.identity.tokens import revoke_token
from server.links import opening
from server.settings import Settings
from tests.server.clients import client_of
from tests.server.links.conftest import REPORT, Place


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong secrets are answered at once; that they are delayed is a test of tokens."""
    monkeypatch.setattr("server.access.authentication._WRONG_SECONDS", 0.0)


def test_a_link_shows_its_page_without_a_token_and_the_page_reaches_nothing(place: Place) -> None:
    link = place.create(place.header("ada", scope="write"), kind="report", target=place.sweep)
    page = place.client.get(link["path"])
    assert (page.status_code, page.content) == (200, REPORT)
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy
    assert page.headers["Cache-Control"] == "private, no-store"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert "noindex" in page.headers["X-Robots-Tag"]
    assert "set-cookie" not in page.headers


@pytest.mark.parametrize("by", ["revoked", "expired", "token revoked", "token too old", "project lost"])
def test_what_ends_a_link_ends_it_at_once_and_it_looks_like_one_that_never_was(place: Place, by: str) -> None:
    header = place.header("ada", scope="write", projects=["mine"])
    link = place.create(header, kind="report", target=place.sweep)
    unknown = place.client.get(f"/shared/hlk_{'x' * 32}")
    assert place.client.get(link["path"]).status_code == 200
    past = utcnow() - timedelta(seconds=1)
    if by == "revoked":
        assert place.client.delete(f"/api/v1/links/{link['id']}", headers=header).json()["ended"] == by
    elif by == "token revoked":
        revoke_token(place.backend.catalog, "ada")
    else:
        change = {
            "expired": update(SharedLinkRow).values(expires_at=past),
            "token too old": update(TokenRow).values(expires_at=past),
            "project lost": update(TokenRow).values(projects=["other"]),
        }[by]
        with place.backend.catalog.write() as session:
            session.execute(change)
    ended = place.client.get(link["path"])
    assert (
        (ended.status_code, ended.content) == (unknown.status_code, unknown.content) == (404, ended.content)
    )
    assert ended.headers.items() == unknown.headers.items()


def test_a_link_that_is_revoked_on_one_server_ends_on_another_at_once(place: Place) -> None:
    header = place.header("ada", scope="write")
    link = place.create(header, kind="report", target=place.sweep)
    with client_of(Settings(root=place.backend.store.root, tokens=True)) as other:
        assert other.get(link["path"]).status_code == 200
        place.client.delete(f"/api/v1/links/{link['id']}", headers=header)
        assert other.get(link["path"]).status_code == 404


def test_wrong_secrets_count_against_their_address_and_right_ones_do_not(place: Place) -> None:
    link = place.create(place.header("ada", scope="write"), kind="report", target=place.sweep)
    answers = [place.client.get(f"/shared/hlk_{number:032}") for number in range(45)]
    assert {answer.status_code for answer in answers} == {404, 429}
    waiting = next(answer for answer in answers if answer.status_code == 429)
    assert 1 <= int(waiting.headers["Retry-After"]) <= 60
    assert place.client.get("/api/v1/session", headers={"Authorization": "Bearer hlv_x"}).status_code == 429
    assert place.client.get(link["path"]).status_code == 200


def test_a_link_that_goes_around_is_told_to_wait(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MAX_OPENS", 3)
    link = place.create(place.header("ada", scope="write"), kind="report", target=place.sweep)
    answers = [place.client.get(link["path"]) for _ in range(9)]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert all("Retry-After" in answer.headers for answer in answers if answer.status_code == 429)


def test_a_link_is_opened_below_the_path_where_a_proxy_shows_the_server(place: Place) -> None:
    link = place.create(place.header("ada", scope="write"), kind="report", target=place.sweep)
    with client_of(Settings(root=place.backend.store.root, tokens=True, base_path="/halving")) as below:
        assert below.get(f"/halving{link['path']}").content == REPORT
        assert below.get(f"/halving/{link['path']}").status_code == 404


def test_a_server_without_tokens_opens_links_for_this_machine_alone(place: Place) -> None:
    link = place.create(place.header("ada", scope="write"), kind="report", target=place.sweep)
    with client_of(Settings(root=place.backend.store.root)) as local:
        assert local.get(link["path"]).status_code == 200
        for headers in ({"Host": "elsewhere.example"}, {"X-Forwarded-For": "203.0.113.9"}):
            assert local.get(link["path"], headers=headers).status_code == 421


def test_while_the_catalog_is_away_a_link_says_so_and_nothing_of_the_inside(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = place.create(place.header("ada", scope="write"), kind="report", target=place.sweep)
    away = OperationalError("SELECT secret", {}, Exception("connection refused"), connection_invalidated=True)

    def fail(*_: object) -> None:
        raise away

    monkeypatch.setattr(opening, "find_link", fail)
    answer = place.client.get(link["path"])
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    assert "SELECT" not in answer.text
    assert answer.headers["Cache-Control"] == "private, no-store"
