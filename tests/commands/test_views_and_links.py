"""``halving views``, ``halving links``, and ``halving runs --view``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import halving
from halving.cli.main import main
from resources.analysis.run_index import Refresher
from resources.backend import Backend

Call = Callable[..., tuple[int, Any]]
QUERY = "filter=params.lr+<+1+order+by+params.lr+desc&columns=params.lr,metrics.loss&tab=diff"


@pytest.fixture
def call(backend: Backend, capsys: pytest.CaptureFixture[str]) -> Call:
    """A command's status and JSON, or what it says on the standard error, on a store with three runs."""
    for run, rate in (("a", 0.1), ("b", 0.5), ("c", 2.0)):
        with halving.init(
            "digits", {"lr": rate}, Path(backend.store.root), id=run, system_metrics=None
        ) as training:
            training.log({"loss": rate, "acc": 1.0}, step=1)
    Refresher(backend.store, backend.catalog).refresh()

    def call(*arguments: str) -> tuple[int, Any]:
        status = main([*arguments, "--root", backend.store.root, "--json"])
        printed = capsys.readouterr()
        return status, json.loads(printed.out) if printed.out else printed.err

    return call


def test_a_view_is_saved_shown_replaced_and_deleted(call: Call) -> None:
    save = ("views", "save", "best", "-p", "digits")
    status, saved = call(*save, f"http://127.0.0.1:3001/?{QUERY}")
    assert (status, saved["name"]) == (0, "best")
    assert call("views", "show", "best", "-p", "digits") == (0, saved)
    assert call("views", "list") == (0, {"views": [saved]})
    status, message = call(*save, "tab=media")
    assert (status, saved["revision"] in message) == (1, True)
    status, changed = call(*save, "tab=media", "--revision", saved["revision"])
    assert (status, changed["query"]) == (0, "tab=media")
    assert call("views", "delete", "best", "-p", "digits") == (0, changed)
    assert call("views", "show", "best", "-p", "digits")[0] == 1


def test_runs_are_listed_as_a_view_filters_orders_and_shows_them(
    call: Call, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    call("views", "save", "best", "-p", "digits", QUERY)
    status, listed = call("runs", "--view", "best", "--project", "digits")
    assert (status, [run["run"] for run in listed["runs"]]) == (0, ["b", "a"])
    main(["runs", "--view", "best", "-p", "digits", "--root", backend.store.root])
    table = capsys.readouterr().out
    assert "params.lr" in table
    assert "loss" in table
    assert "acc" not in table
    for arguments, message in (
        (("--view", "best"), "say whose it is, --project NAME"),
        (("status = finished", "--view", "best", "-p", "digits"), "beside a filter"),
        (("--view", "none", "-p", "digits"), "has no view 'none'; it has 'best'"),
    ):
        status, text = call("runs", *arguments)
        assert (status, message in " ".join(text.split())) == (1, True), text


def test_a_link_is_made_listed_and_revoked(call: Call) -> None:
    status, link = call(
        "links", "create", "digits/a", "--note", "for Ben", "--url", "https://h.example/halving/"
    )
    assert (status, link["url"]) == (0, f"https://h.example/halving{link['path']}")
    listed = {name: value for name, value in link.items() if name not in ("path", "url")}
    assert call("links", "list") == (0, {"links": [listed]})
    assert call("links", "list", "-p", "other") == (0, {"links": []})
    assert call("links", "revoke", link["id"])[1]["ended"] == "revoked"
    assert call("links", "revoke", "none")[0] == 1


@pytest.mark.parametrize(
    ("target", "kind", "name"),
    [
        ("a", "run", "digits/a"),
        ("run:digits/a", "run", "digits/a"),
        ("https://h.example/halving/runs/digits/a", "run", "digits/a"),
        ("view:digits/best", "view", "tab=media"),
        ("view:digits/lr=0.1", "view", "tab=system"),
        ("https://h.example/?tab=diff", "view", "tab=diff"),
    ],
)
def test_what_a_link_shows_is_named_as_people_name_it(call: Call, target: str, kind: str, name: str) -> None:
    call("views", "save", "best", "-p", "digits", "tab=media")
    call("views", "save", "lr=0.1", "-p", "digits", "tab=system")
    projects = ("-p", "digits") if kind == "view" else ()
    status, link = call("links", "create", target, *projects)
    assert (status, link["kind"], link["target"]) == (0, kind, name), link


def test_what_no_link_can_show_is_refused(call: Call) -> None:
    for arguments, message in (
        (("digits/none",), "none"),
        (("https://h.example/models",), "is not accepted"),
        (("?tab=diff",), "projects is missing"),
        (("a", "--days", "0"), "days = 0"),
        (("report:none-1234",), "no sweep 'none-1234'"),
        (("view:best", "-p", "digits"), "give a saved view as view:PROJECT/NAME"),
        (("a", "--url", "h.example"), "url = 'h.example' is not accepted: give the server's address"),
    ):
        status, text = call("links", "create", *arguments)
        assert (status, message in text) == (1, True), text
