"""Saved views: one of each name, and no save is lost without who made it being told."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from halving.errors import AlreadyExists, InvalidInput, NotFound
from resources.catalog import Catalog, utcnow
from resources.tenancy.projects import rename_project, set_project
from resources.views.saved_views import SavedView, delete_view, list_views, load_view, save_view


def save(catalog: Catalog, name: str, query: str, revision: str | None = None, by: str = "ada") -> SavedView:
    with catalog.write() as session:
        return save_view(session, "digits", name, query, revision=revision, by=by)


def load(catalog: Catalog, name: str, project: str = "digits") -> SavedView:
    with catalog.read() as session:
        return load_view(session, project, name)


def test_a_view_is_saved_listed_and_deleted(catalog: Catalog) -> None:
    saved = save(catalog, "best by lr", "?tab=parameters")
    assert (saved.project, saved.query, saved.by) == ("digits", "tab=parameters", "ada")
    assert saved.at <= utcnow()
    assert load(catalog, "best by lr") == saved
    with catalog.read() as session:
        assert list_views(session, ["digits"]) == list_views(session, None) == [saved]
        assert list_views(session, ["other"]) == []
    with catalog.write() as session:
        assert delete_view(session, "digits", "best by lr") == saved
    with pytest.raises(NotFound, match="has no view 'best by lr'; it has none yet"):
        load(catalog, "best by lr")


def test_of_two_saves_of_what_both_saw_the_second_is_refused(catalog: Catalog) -> None:
    before = save(catalog, "a", "tab=diff")
    first = save(catalog, "a", "tab=media", before.revision, by="ben")
    with pytest.raises(AlreadyExists, match=r"another one by now: ben saved it at .* UTC.*"):
        save(catalog, "a", "tab=system", before.revision)
    with pytest.raises(AlreadyExists, match="has a view 'a' already: ben saved it"):
        save(catalog, "a", "tab=system")
    assert load(catalog, "a") == first
    assert save(catalog, "a", "tab=system", first.revision).query == "tab=system"


def test_a_view_that_was_deleted_and_saved_anew_is_another_one(catalog: Catalog) -> None:
    before = save(catalog, "a", "")
    with catalog.write() as session:
        delete_view(session, "digits", "a", revision=before.revision)
    with pytest.raises(NotFound, match="deleted meanwhile"):
        save(catalog, "a", "tab=diff", before.revision)
    save(catalog, "a", "")
    with pytest.raises(AlreadyExists):
        save(catalog, "a", "tab=diff", before.revision)
    with pytest.raises(AlreadyExists), catalog.write() as session:
        delete_view(session, "digits", "a", revision=before.revision)


def test_of_two_who_save_a_new_name_at_once_one_is_refused(any_catalog: str, catalog: Catalog) -> None:
    with closing(Catalog(any_catalog)) as other, ThreadPoolExecutor(1) as threads:
        with catalog.write() as session:
            first = save_view(session, "digits", "a", "tab=diff", revision=None, by="ada")
            second = threads.submit(save, other, "a", "tab=media", by="ben")
        with pytest.raises(AlreadyExists, match="has a view 'a' already"):
            second.result(60)
    assert load(catalog, "a") == first


def test_a_project_is_meant_by_each_of_its_names(catalog: Catalog) -> None:
    saved = save(catalog, "a", "tab=diff")
    set_project(catalog, "digits", weight=2)
    rename_project(catalog, "digits", "numbers")
    assert load(catalog, "a", "numbers").project == load(catalog, "a", "digits").project == "numbers"
    with catalog.write() as session:
        save_view(session, "numbers", "a", "tab=media", revision=saved.revision, by="ben")
    with catalog.read() as session:
        assert [view.query for view in list_views(session, ["digits"])] == ["tab=media"]


@pytest.mark.parametrize("name", ["", " a", "a/b", ".", "..", "a\n", "a" * 101, "\x00"])
def test_a_name_that_no_address_can_have_is_refused(catalog: Catalog, name: str) -> None:
    with pytest.raises(InvalidInput, match="name = "):
        save(catalog, name, "")
