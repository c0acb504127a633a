"""What a shared page holds of a view, a run or a sweep, and whose."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

import halving
from halving.errors import InvalidInput, NotFound
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.journal import add_note, subject_of
from resources.sweep_spec import SweepSpec
from resources.views.saved_views import save_view
from server.sharing import page as page_module
from server.sharing.page import build
from server.sharing.places import without_folders
from server.sharing.target import Target, filter_query, parse_target
from tests.indexed_runs import add_record, record_of
from tests.server.registry import promote_winner
from tests.server.sharing.shared import fill, page_of, read_page, view_of


def test_a_page_shows_what_its_view_shows(backend: Backend) -> None:
    fill(backend, 5)
    fill(backend, 2, project="other")
    query = (
        "filter=project = demo order by metrics.loss desc&columns=min(metrics.loss),tags.team&top=3"
        "&hide=demo/r3&show=other/r1&x=time&logy=1&smooth=0.5&band=0&zoom-time=1_2&zoom-y=loss:0_1"
    )
    page = page_of(backend, view_of(query, made_by="ada"))
    assert page.runs == ["r4", "r2", "r1"]
    assert page.facts["runs"][-1]["id"] == "other/r1"
    assert page.facts["columns"] == ["min(metrics.loss)", "tags.team"]
    assert page.facts["runs"][0]["columns"] == {"min(metrics.loss)": 4 + 1 / 30, "tags.team": "vision"}
    assert page.facts["drawing"] == {
        "axis": "time",
        "logX": False,
        "logY": True,
        "smoothing": 0.5,
        "band": False,
        "zooms": {"time": [1, 2]},
        "metricZooms": {"loss": [0, 1]},
    }
    assert page.facts["by"] == "ada"
    assert page.facts["leftOut"] == ["2 of 5 runs of the filter"]


def test_params_that_are_equal_everywhere_are_no_column(backend: Backend) -> None:
    fill(backend)
    assert page_of(backend, view_of("filter=project = demo")).facts["params"] == ["lr"]


def test_curves_are_of_the_metrics_that_are_named(backend: Backend) -> None:
    fill(backend)
    page = page_of(backend, view_of("filter=project = demo", metrics=("val/accuracy",)))
    assert page.facts["metrics"] == ["val/accuracy"]
    assert page.facts["leftOut"] == ["curves of loss"]
    with pytest.raises(InvalidInput, match="'lost' is not accepted: none of the runs has it; they have loss"):
        page_of(backend, view_of("", metrics=("lost",)))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("top=many", "top 'many' in the address is not accepted"),
        ("x=epoch", "x 'epoch' in the address is not accepted: give step, time, relative"),
        (
            "group=params.lr,params.x",
            "group 'params.lr,params.x' in the address is not accepted: give one field",
        ),
        ("smooth=1", "smooth '1' in the address is not accepted"),
        ("zoom=5_1", "zoom '5_1' in the address is not accepted: give LOW_HIGH"),
        ("zoom-y=loss", "zoom-y 'loss' in the address is not accepted: give METRIC:LOW_HIGH"),
        ("filter=status =", "column 9"),
        ("show=demo/%00", "show 'demo/.x00' in the address is not accepted: no text has NUL"),
    ],
)
def test_an_address_with_a_wrong_value_is_refused(backend: Backend, query: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        page_of(backend, view_of(query))


def test_what_a_person_names_is_a_run_a_sweep_a_filter_or_an_address(backend: Backend) -> None:
    fill(backend, 1)

    def parsed(text: str) -> tuple[str, str]:
        return parse_target(text, backend.store, backend.catalog)

    assert parsed("r0") == parsed("demo/r0") == ("run", "demo/r0")
    assert parsed("project = demo limit 7") == ("view", filter_query("project = demo limit 7"))
    assert "top=7" in filter_query("project = demo limit 7")
    assert parsed("https://halving.example/ada/?filter=project+%3D+demo") == (
        "view",
        "filter=project+%3D+demo",
    )
    assert parsed("/runs/demo/r0") == parsed("http://h:1/base/runs/demo/r0?x=1") == ("run", "demo/r0")
    assert parsed("/sweeps/digits-7f3a") == ("sweep", "digits-7f3a")
    for text in ("/models/digits", "https://halving.example/datasets", "https://halving.example/x/journal"):
        with pytest.raises(InvalidInput, match="shows no curves: give a filter"):
            parsed(text)
    with pytest.raises(NotFound, match="nor is there a sweep 'nowhere': give a filter"):
        parsed("nowhere")


def test_a_saved_view_is_looked_up_by_its_name(backend: Backend) -> None:
    with backend.catalog.write() as session:
        save_view(session, "demo", "best runs", "filter=project = demo", revision=None, by="ada")
    named = parse_target("view:demo/best runs", backend.store, backend.catalog)
    assert named == ("view", "filter=project+%3D+demo")
    with pytest.raises(NotFound, match="it has 'best runs'"):
        parse_target("view:demo/other", backend.store, backend.catalog)
    with pytest.raises(InvalidInput, match="give view:PROJECT/NAME"):
        parse_target("view:demo", backend.store, backend.catalog)


def test_other_projects_are_on_no_page(backend: Backend) -> None:
    fill(backend, 2)
    fill(backend, 2, project="secretproj")
    mine = frozenset(["demo"])
    page = page_of(backend, view_of("show=secretproj/r1&top=20", projects=mine))
    assert {run["project"] for run in page.facts["runs"]} == {"demo"}
    assert "secretproj" not in str(page.facts)
    for target in (
        Target(kind="run", name="secretproj/r1", projects=mine),
        Target(kind="sweep", name="secretproj-1", projects=mine),
        view_of("filter=project = secretproj", projects=mine),
    ):
        with pytest.raises(NotFound):
            page_of(backend, target)


def test_a_run_has_its_record_and_no_place_of_its_machine(backend: Backend) -> None:
    fill(backend, 1)
    page = page_of(backend, Target(kind="run", name="demo/r0"))
    assert page.facts["record"]["params"]["optimizer"] == {"name": "adam"}
    assert page.facts["record"]["attempts"][0]["status"] == "finished"
    assert page.facts["record"]["provenance"]["command"]
    assert backend.store.root not in str(page.facts)
    assert "host" not in page.facts["record"]["provenance"]["hardware"]
    assert not [word for word in page.facts["record"]["provenance"]["command"] if word.startswith("/")]


def test_a_sweep_has_its_trials_and_its_objective_first(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    sweep = promote_winner(backend, small_spec(name="digits", max_trials=1), curves=True).sweep
    record = record_of(backend.store, f"{sweep}.0000")
    record.write_text(record.read_text().replace('"parent": {}', f'"parent": {{"sweep": "{sweep}"}}'))
    Refresher(backend.store, backend.catalog).refresh()
    page = page_of(backend, Target(kind="sweep", name=sweep))
    assert page.runs == [f"{sweep}.0000"]
    assert page.facts["metrics"] == ["score"]
    assert page.facts["columns"] == ["metrics.score"]
    assert page.facts["sweep"]["started"] == 1
    assert page.facts["sweep"]["objective"] == "score"
    with pytest.raises(NotFound, match="no sweep"):
        page_of(backend, Target(kind="sweep", name=sweep, projects=frozenset(["other"])))


def test_folders_of_the_machine_are_taken_out_of_texts() -> None:
    texts = {
        "/home/ada/venv/bin/python": "…/python",
        "--data=/data/teams/a.csv": "--data=…/a.csv",
        "in '/srv/x y/' and /tmp/a/b": "in '…/x y/' and …/b",
        "s3://lake/clicks/day=1": "s3://lake/clicks/day=1",
        "https://host:80/a/b": "https://host:80/a/b",
        "file:///home/ada/a.csv and sqlite:////home/ada/b.db": "file://…/a.csv and sqlite:///…/b.db",
        "PATH=/usr/bin/x:/home/ada/bin/y": "PATH=…/x:…/y",
        "val/loss and ./a/b": "val/loss and ./a/b",
        "1 / 2 / 3": "1 / 2 / 3",
    }
    assert without_folders(list(texts)) == list(texts.values())
    assert without_folders({"path": ("/data/x/y", 3)}) == {"path": ["…/y", 3]}


def test_what_does_not_fit_is_refused_before_all_of_it_is_read(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(backend, 3, steps=900, noise=0.5)
    small = build(backend.store, backend.catalog, view_of(""))
    assert small.rows == 1000
    limit = len(small.html) - 4_000
    monkeypatch.setattr(page_module, "MAX_BYTES", limit)
    fewer = build(backend.store, backend.catalog, view_of(""))
    assert fewer.rows < 900
    assert len(fewer.html) <= limit
    monkeypatch.setattr(page_module, "MAX_BYTES", 1_000)
    with pytest.raises(InvalidInput, match="3 runs with 2 metrics do not fit into a page of 1,000 bytes"):
        build(backend.store, backend.catalog, view_of(""))


def test_notes_on_the_runs_of_a_page_are_on_it_newest_first(backend: Backend) -> None:
    fill(backend, 2)
    fill(backend, 1, project="secretproj")
    with backend.catalog.write() as session:
        for name, text in (("demo/r0", "first"), ("demo/r1", "second"), ("secretproj/r0", "third")):
            add_note(session, subject_of(session, "run", name), text, actor="ann")
    page = page_of(backend, view_of("filter=project = demo"))
    assert [(note["subject"], note["actor"], note["text"]) for note in page.facts["notes"]] == [
        ("demo/r1", "ann", "second"),
        ("demo/r0", "ann", "first"),
    ]
    assert [note["text"] for note in page_of(backend, Target(kind="run", name="demo/r0")).facts["notes"]] == [
        "first"
    ]


def test_a_run_that_names_a_sweep_brings_no_note_on_it(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    sweep = promote_winner(backend, small_spec(name="secretproj", max_trials=1)).sweep
    add_record(backend.store, "r0", parent={"sweep": sweep})
    Refresher(backend.store, backend.catalog).refresh()
    with backend.catalog.write() as session:
        add_note(session, subject_of(session, "sweep", sweep), "for us alone", actor="ann")
    mine = frozenset(["digits"])
    for target in (Target(kind="run", name="digits/r0", projects=mine), view_of("", projects=mine)):
        page = page_of(backend, target)
        assert page.facts["runs"][0]["sweep"] == sweep
        assert page.facts["notes"] == []
    [note] = page_of(backend, Target(kind="sweep", name=sweep)).facts["notes"]
    assert note["text"] == "for us alone"


def test_secrets_that_runs_recorded_are_on_no_page(backend: Backend) -> None:
    key = "k3yOfTheStore99"
    token = "ghp_" + "a1B2" * 9
    params = {"lr": 0.1, "api_key": key, "store": {"password": key, "url": f"s3://ada:{key}@lake/x"}}
    tags = {"token": key, "say": f"use {token}"}
    run = halving.init("demo", params, backend.store.root, id="r0", tags=tags, system_metrics=None)
    run.log({"loss": 1.0}, step=0)
    run.log({"sample": halving.Text(f"api_key = '{key}'")}, step=0)
    run.finish()
    Refresher(backend.store, backend.catalog).refresh()
    with backend.catalog.write() as session:
        add_note(session, subject_of(session, "run", "demo/r0"), f"it needs {token}", actor="ann")
    columns = 'columns=params.api_key,params."store/password",tags.token'
    for target in (Target(kind="run", name="demo/r0"), view_of(columns)):
        page = page_of(backend, target)
        assert page.runs == ["r0"]
        assert page.facts["runs"][0]["params"]["lr"] == 0.1
        assert page.facts["notes"][0]["text"] == "it needs …"
        assert key not in str(page.facts)
        assert token not in str(page.facts)


def test_the_server_gives_the_page_as_a_file(
    backend: Backend, guarded: TestClient, bearer: Callable[..., dict[str, Any]]
) -> None:
    fill(backend, 2)
    fill(backend, 1, project="secretproj")
    mine = bearer("ada", scope="read", projects=["demo"])
    sent = guarded.get("/api/v1/shared-page", params={"view": "filter=status = finished"}, headers=mine)
    assert sent.status_code == 200
    assert sent.headers["Content-Type"] == "text/html; charset=utf-8"
    assert sent.headers["Content-Disposition"].startswith(
        'attachment; filename="filter-status-finished.html"'
    )
    assert sent.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    page = read_page(sent.content)
    assert {run["project"] for run in page.facts["runs"]} == {"demo"}
    assert page.facts["by"] == "ada"
    assert guarded.get("/api/v1/shared-page", params={"run": "demo/r0"}).status_code == 401
    for params, status in (
        ({"run": "secretproj/r0"}, 404),
        ({"sweep": "nowhere"}, 404),
        ({}, 422),
        ({"run": "demo/r0", "sweep": "x"}, 422),
        ({"view": "x=epoch"}, 422),
    ):
        answer = guarded.get("/api/v1/shared-page", params=params, headers=mine)
        assert answer.status_code == status, (params, answer.text)
        assert backend.store.root not in answer.text
