"""A shared page in a real browser, from a file and without a network."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import halving
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.journal import add_note, subject_of
from resources.sweep_spec import parse_spec
from server.settings import Settings
from server.sharing.page import build_page
from server.sharing.target import Target
from tests.backends import SMALL
from tests.browser import errors_of
from tests.server.browser.conftest import can_be_read, serving
from tests.server.browser.demo import drag, panel_of, train
from tests.server.registry import promote_winner
from tests.waiting import wait_for

HOSTILE = "</script><script>document.title = 'taken'</script><img src=x onerror=alert(1)>"


@pytest.fixture
def alone(browser: Browser) -> Iterator[Page]:
    """A tab without a network, whose console says no error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    errors = errors_of(page)
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    yield page
    context.close()
    assert errors == []
    assert [address for address in requested if not address.startswith(("file:", "data:"))] == []


@pytest.fixture
def opened(backend: Backend, tmp_path: Path, alone: Page) -> Callable[..., Page]:
    """Opens the page of a target as a file: ``opened("view", "filter=…")``."""

    def open_page(kind: Any, name: str, **fields: Any) -> Page:
        Refresher(backend.store, backend.catalog).refresh()
        file = tmp_path / "page.html"
        target = Target(kind=kind, name=name, **fields)
        file.write_bytes(build_page(backend.store, backend.catalog, target))
        alone.goto(file.as_uri())
        return alone

    return open_page


def _drawn(page: Page) -> int:
    return int(page.evaluate("performance.getEntriesByName('halving:painted').length"))


def _pixels(page: Page, metric: str) -> str:
    return str(
        page.evaluate(
            "(name) => document.querySelector(`[data-metric='${name}'] canvas`).toDataURL()", metric
        )
    )


@pytest.mark.smoke
def test_a_shared_view_draws_sorts_and_zooms_without_a_network(
    backend: Backend, opened: Callable[..., Page]
) -> None:
    for number in range(3):
        train(backend.store.root, number)
    page = opened("view", "filter=project = demo order by metrics.loss desc", made_by="ada")
    expect(page.get_by_text("by ada: 3 runs with 6 curves")).to_be_visible()
    wait_for(lambda: _drawn(page) >= 2, 60, "both charts are drawn")
    runs = page.locator(".shared-runs tbody tr")
    assert runs.nth(0).get_attribute("data-run") == "demo/run-2"
    page.get_by_role("button", name="loss", exact=True).click()
    expect(runs.nth(0)).to_have_attribute("data-run", "demo/run-0")
    whole = _pixels(page, "loss")
    drag(page, panel_of(page, "loss"), 0.2, 0.6)
    expect(page.get_by_role("button", name="Whole range")).to_be_visible()
    wait_for(lambda: _pixels(page, "loss") != whole, 60, "the chart shows a part")
    panel_of(page, "loss").locator(".u-over").dblclick()
    expect(page.get_by_role("button", name="Whole range")).to_be_hidden()
    wait_for(lambda: _pixels(page, "loss") == whole, 60, "the chart shows all again")
    page.get_by_role("checkbox", name="Show run-1").click()
    expect(page.get_by_text("2 of 3 runs shown")).to_be_visible()
    wait_for(lambda: _pixels(page, "loss") != whole, 60, "a run is hidden")
    for axis in ("time", "relative"):
        before = _drawn(page)
        page.get_by_label("Horizontal axis").select_option(axis)
        wait_for(lambda before=before: _drawn(page) > before, 60, f"the chart is drawn by {axis}")


def test_the_curve_under_the_pointer_is_named(backend: Backend, opened: Callable[..., Page]) -> None:
    train(backend.store.root, 0)
    page = opened("view", "filter=project = demo")
    wait_for(lambda: _drawn(page) >= 2, 60, "both charts are drawn")
    box = panel_of(page, "val/accuracy").locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 8)
    tip = panel_of(page, "val/accuracy").locator(".tip")
    expect(tip).to_contain_text("run-0")
    expect(tip).to_contain_text("step 39")
    assert 0.97 < float(tip.locator("span").first.inner_text().split()[0]) < 0.98


def test_values_of_many_decades_keep_their_digits_and_infinity_stays(
    backend: Backend, opened: Callable[..., Page]
) -> None:
    with halving.init("demo", {}, backend.store.root, id="r0", system_metrics=None) as run:
        for step in range(40):
            run.log({"norm": math.inf if step == 5 else 10 ** (-step / 4)}, step=step)
    page = opened("view", "logy=1")
    wait_for(lambda: _drawn(page) >= 1, 60, "the chart is drawn")
    box = panel_of(page, "norm").locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] - 12)
    tip = panel_of(page, "norm").locator(".tip")
    expect(tip).to_contain_text("step 39")
    value = tip.locator("span").first.inner_text().split()[0].replace("\N{MINUS SIGN}", "-")
    assert float(value) == pytest.approx(10 ** (-39 / 4), rel=2e-3)


def test_grouped_runs_are_one_line_for_each_group(backend: Backend, opened: Callable[..., Page]) -> None:
    for number in range(4):
        train(backend.store.root, number, optimizer="sgd" if number % 2 else "adam")
    page = opened("view", "filter=project = demo&group=params.optimizer")
    wait_for(lambda: _drawn(page) >= 2, 60, "both charts are drawn")
    expect(panel_of(page, "loss").locator(".panel-note")).to_have_text("mean ± std of groups")
    box = panel_of(page, "loss").locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(panel_of(page, "loss").locator(".tip")).to_contain_text("mean of 2 runs")


def test_what_runs_logged_is_text_and_never_markup(backend: Backend, opened: Callable[..., Page]) -> None:
    with halving.init(
        "demo", {HOSTILE: HOSTILE, "lr": 1}, backend.store.root, id="r0", tags={"team": HOSTILE},
        system_metrics=None,
    ) as run:  # fmt: skip
        run.log({f"loss {HOSTILE}": 1.0, "said": halving.Text(HOSTILE)}, step=0)
    with halving.init("demo", {"lr": 2}, backend.store.root, id="r1", system_metrics=None) as run:
        run.log({"other": 1.0}, step=0)
    Refresher(backend.store, backend.catalog).refresh()
    with backend.catalog.write() as session:
        add_note(session, subject_of(session, "run", "demo/r0"), HOSTILE, actor=HOSTILE)
    for kind, name in (("view", "columns=tags.team"), ("run", "demo/r0")):
        page = opened(kind, name, title=HOSTILE, made_by=HOSTILE)
        expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
        wait_for(lambda page=page: _drawn(page) >= 1, 60, "a chart is drawn")
        assert page.title() == f"{HOSTILE} · Halving"
        assert page.locator(".note-text").inner_text() == HOSTILE
        assert page.locator("img, iframe").count() == 0
        assert page.locator("script").count() == 2, "the data and the page's own"
    assert page.locator("pre.media-text").inner_text() == HOSTILE


def test_a_shared_page_may_load_and_run_nothing_else(
    backend: Backend, opened: Callable[..., Page], tmp_path: Path, browser: Browser
) -> None:
    train(backend.store.root, 0)
    opened("run", "demo/run-0")
    context = browser.new_context()  # whose console may say what was blocked
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    directives = page.evaluate(
        """async () => {
          const directives = [];
          const blocked = (count) => new Promise((done) => document.addEventListener(
            "securitypolicyviolation",
            (event) => directives.push(event.effectiveDirective) === count && done(),
          ));
          const both = blocked(2);
          fetch("data:text/plain,x").catch(() => {});
          const script = document.createElement("script");
          document.body.append(Object.assign(script, {textContent: "window.ran = 1"}));
          await both;
          return directives;
        }"""
    )
    assert set(directives) == {"connect-src", "script-src-elem"}
    assert page.evaluate("window.ran ?? null") is None
    context.close()


def test_a_shared_sweep_has_its_rungs_leaderboard_and_scores(
    backend: Backend, opened: Callable[..., Page]
) -> None:
    sweep = promote_winner(backend, parse_spec({**SMALL, "max_trials": 3}), curves=True).sweep
    page = opened("sweep", sweep)
    for heading in ("Rung ladder", "Leaderboard", "On held-out data", "What was launched"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_role("region", name="Leaderboard").locator("tbody tr")).to_have_count(3)


def test_a_shared_page_can_be_read_on_a_phone_and_in_the_dark(
    backend: Backend, opened: Callable[..., Page], tmp_path: Path, browser: Browser
) -> None:
    train(backend.store.root, 0)
    train(backend.store.root, 1)
    opened("view", "filter=project = demo")
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce")
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    wait_for(lambda: _drawn(page) >= 2, 60, "both charts are drawn")
    can_be_read(page)
    context.close()


def test_the_button_saves_what_compare_shows(backend: Backend, page: Page, tmp_path: Path) -> None:
    for number in range(3):
        train(backend.store.root, number)
    with serving(Settings(root=backend.store.root)) as url:
        page.goto(f"{url}/?filter=project = demo&hide=demo/run-1&logy=1")
        expect(page.locator('[data-run="demo/run-2"]')).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Share as a file").click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        assert file.suffix == ".html"
        page.goto(file.as_uri())
        expect(page.get_by_text("2 of 2 runs shown")).to_be_visible()
        expect(page.get_by_role("button", name="log y")).to_have_attribute("aria-pressed", "true")
        page.goto(f"{url}/runs/demo/run-0")
        with page.expect_download() as download:
            page.get_by_role("button", name="Share as a file").click()
        assert download.value.suggested_filename == "demo-run-0.html"


def test_the_button_says_why_there_is_no_file(
    backend: Backend, page: Page, expected_errors: list[str]
) -> None:
    train(backend.store.root, 0)
    expected_errors.append("404")
    with serving(Settings(root=backend.store.root)) as url:
        page.goto(f"{url}/?filter=run = nothing")
        page.get_by_role("button", name="Share as a file").click()
        expect(page.get_by_role("alert")).to_contain_text("No run is shown by 'run = nothing'")
