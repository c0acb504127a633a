"""Links over HTTP: who may make, list and revoke them, and what is said of them."""

import json
import logging

import pytest
from sqlalchemy import text

from resources.tenancy.projects import set_project
from resources.views.saved_views import save_view
from tests.server.links.conftest import Place

LINKS = "/api/v1/links"


def test_a_secret_is_shown_once_and_is_nowhere_afterwards(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    admin = place.header("root", scope="admin")
    header = {**place.header("ada", scope="write"), "Idempotency-Key": "0b1c"}
    body = {"kind": "report", "target": place.sweep, "note": "for Ben", "days": 3}
    link = place.create(header, **body)
    secret = link["path"].rpartition("/")[2]
    again = place.client.post(LINKS, json=body, headers=header)
    assert (again.status_code, again.json()) == (201, {**link, "path": None})
    place.client.get(link["path"])
    place.client.get(f"/api/v1{link['path']}", headers=admin)
    place.client.delete(f"{LINKS}/{secret}", headers=admin)
    listed = place.client.get(LINKS, headers=admin).json()["links"]
    assert [each["id"] for each in listed] == [link["id"]]
    entries = place.client.get("/api/v1/write-log", headers=admin).json()["entries"]
    assert {entry["target"] for entry in entries} >= {LINKS, f"{LINKS}/hlk_…"}
    assert secret not in json.dumps([listed, entries])
    own = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    assert secret not in " ".join(own), "of the server; the rest is the client's own log"
    with place.backend.catalog.read() as session:
        for table in ("shared_links", "answers", "write_log", "tokens", "secrets"):
            assert secret not in str(session.execute(text(f"SELECT * FROM {table}")).all())


def test_who_may_only_read_makes_and_revokes_no_links_but_sees_them(place: Place) -> None:
    link = place.create(place.header("ada", scope="write"), kind="report", target=place.sweep)
    reader = place.header("ben", scope="read")
    assert (
        place.client.post(LINKS, json={"kind": "report", "target": place.sweep}, headers=reader).status_code
        == 403
    )
    assert place.client.delete(f"{LINKS}/{link['id']}", headers=reader).status_code == 403
    listed = place.client.get(LINKS, headers=reader).json()["links"]
    assert listed == [{name: value for name, value in link.items() if name != "path"}]


def test_links_of_other_projects_are_neither_made_nor_listed_nor_revoked(place: Place) -> None:
    link = place.create(place.header("ada", scope="write"), kind="report", target=place.other)
    header = place.header("eve", scope="write", projects=["mine"])
    for body in (
        {"kind": "report", "target": place.other},
        {"kind": "sweep", "target": place.other},
        {"kind": "run", "target": "other/a"},
        {"kind": "view", "target": "tab=diff", "projects": ["mine", "other"]},
    ):
        assert place.client.post(LINKS, json=body, headers=header).status_code == 404, body
    assert place.client.get(LINKS, headers=header).json() == {"links": []}
    refused = place.client.delete(f"{LINKS}/{link['id']}", headers=header)
    unknown = place.client.delete(f"{LINKS}/{'0' * 16}", headers=header)
    assert (refused.status_code, unknown.status_code) == (404, 404)
    assert place.client.get(link["path"]).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"kind": "model", "target": "a"}, 422, "kind = 'model' is not accepted"),
        ({"kind": "run", "target": "a"}, 422, "target = 'a' is not accepted: give a run as project/run"),
        ({"kind": "run", "target": "mine/none"}, 404, "none"),
        ({"kind": "sweep", "target": "none-1234"}, 404, "no sweep 'none-1234'"),
        ({"kind": "view", "target": "tab=diff"}, 422, "projects is missing"),
        ({"kind": "view", "target": "tab=x", "projects": ["mine"]}, 422, "tab = 'x' is not accepted"),
        ({"kind": "view", "target": "tab=diff", "projects": ["mne"]}, 404, "no project 'mne'"),
        ({"kind": "view", "target": "mine/none"}, 404, "has no view 'none'"),
        ({"kind": "run", "target": "mine/a", "projects": ["mine"]}, 422, "projects is not accepted"),
        ({"kind": "run", "target": "mine/a", "days": 0}, 422, "days = 0 is not accepted"),
        ({"kind": "run", "target": "mine/a", "days": "NaN"}, 422, "days"),
    ],
)
def test_what_no_link_can_show_is_refused_before_one_is_made(
    place: Place, body: dict[str, object], status: int, message: str
) -> None:
    header = place.header("ada", scope="write")
    refused = place.client.post(LINKS, json=body, headers=header)
    assert (refused.status_code, message in refused.json()["detail"]) == (status, True), refused.text
    assert place.client.get(LINKS, headers=header).json() == {"links": []}


def test_a_link_to_a_saved_view_keeps_what_the_view_was(place: Place) -> None:
    set_project(place.backend.catalog, "mine", weight=1)
    with place.backend.catalog.write() as session:
        save_view(session, "mine", "best", "tab=diff", revision=None, by="ben")
    link = place.create(place.header("ada", scope="write"), kind="view", target="mine/best")
    assert (link["target"], link["projects"]) == ("tab=diff", ["mine"])
