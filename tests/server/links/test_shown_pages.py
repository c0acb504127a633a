"""What links show of runs, views and sweeps: as they are now, and of the link's projects alone."""

import pytest

from halving.store.store import Store
from resources.analysis.run_index import Refresher
from resources.retention.lifecycle import set_lifecycle
from resources.tenancy.projects import rename_project, set_project
from tests.server.links.conftest import Place
from tests.server.links.shown import data_of


@pytest.fixture(autouse=True)
def each_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is built for each request; that it is kept for seconds is a test of its own."""
    monkeypatch.setattr("server.links.page_cache.FRESH_SECONDS", -1.0)


def open_page(place: Place, **body: object) -> str:
    header = place.header(f"maker-of-a-{body['kind']}", scope="write")
    page = place.client.get(place.create(header, **body)["path"])
    assert page.status_code == 200, page.text
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    return data_of(page.content)


def delete_run(place: Place, project: str, run: str) -> None:
    with place.backend.catalog.write() as session:
        set_lifecycle(session, Store(place.backend.store.root), project, run, "deleted", actor="ada")
    Refresher(place.backend.store, place.backend.catalog).refresh()


def test_a_run_a_view_and_a_sweep_are_shown_with_nothing_of_others(place: Place) -> None:
    text = open_page(place, kind="run", target="mine/a")
    assert '"mine/a"' in text
    assert place.sweep not in text
    text = open_page(place, kind="sweep", target=place.sweep)
    assert f"{place.sweep}.0000" in text
    text += open_page(place, kind="view", target="filter=&show=other/a", projects=["mine"])
    assert place.sweep in text
    assert not [name for name in ("other/a", place.other) if name in text]


def test_a_view_shows_runs_that_came_later_and_drops_those_that_are_deleted(place: Place) -> None:
    header = place.header("ada", scope="write")
    link = place.create(header, kind="view", target="filter=run+=+a&show=other/a", projects=["mine", "other"])
    assert "other/a" in data_of(place.client.get(link["path"]).content)
    delete_run(place, "other", "a")
    after = data_of(place.client.get(link["path"]).content)
    assert ("mine/a" in after, "other/a" in after) == (True, False)
    delete_run(place, "mine", "a")
    assert place.client.get(link["path"]).status_code == 404


def test_a_deleted_run_is_not_shown_until_it_is_restored(place: Place) -> None:
    link = place.create(place.header("ada", scope="write"), kind="run", target="mine/a")
    assert place.client.get(link["path"]).status_code == 200
    delete_run(place, "mine", "a")
    assert place.client.get(link["path"]).status_code == 404
    with place.backend.catalog.write() as session:
        set_lifecycle(session, Store(place.backend.store.root), "mine", "a", "active", actor="ada")
    assert place.client.get(link["path"]).status_code == 200


def test_a_link_shows_a_project_by_all_its_names(place: Place) -> None:
    set_project(place.backend.catalog, "mine", weight=1)
    link = place.create(place.header("ada", scope="write"), kind="view", target="", projects=["mine"])
    rename_project(place.backend.catalog, "mine", "ours")
    assert "mine/a" in data_of(place.client.get(link["path"]).content)
    assert place.sweep in open_page(place, kind="sweep", target=place.sweep)


def test_a_view_that_could_show_the_trash_is_refused(place: Place) -> None:
    body = {"kind": "view", "target": "filter=lifecycle+=+deleted", "projects": ["mine"]}
    refused = place.client.post("/api/v1/links", json=body, headers=place.header("ada", scope="write"))
    assert (refused.status_code, "active runs alone" in refused.json()["detail"]) == (422, True)
