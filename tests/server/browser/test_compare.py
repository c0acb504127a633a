"""Compare in a browser: runs chosen by a filter or one by one, their curves over each other, zoomed, grouped, compared, live."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, expect

import halving
from resources.backend import Backend
from server.settings import Settings
from tests.server.browser.conftest import serving
from tests.waiting import wait_for

_RUNS, _STEPS, _MANY = 6, 40, 5_000


def _train(root: str, number: int, *, steps: int = _STEPS, optimizer: str = "adam") -> str:
    """A finished run; its losses lie over those of the runs before."""
    config = {"lr": 0.001 * (number + 1), "optimizer": optimizer, "same": 1}
    with halving.init("demo", config, root=root, id=f"run-{number}", tags={"team": "vision"}, system_metrics=None) as run:
        for step in range(steps):
            run.log({"loss": number + math.exp(-step / 10), "val/accuracy": 1 - 1 / (step + 2)}, step=step)
    return f"demo/run-{number}"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    """A store with runs 0 to 5, the even ones by adam, and one of many points that is only shown when it is asked for."""
    backend = Backend(root=str(tmp_path / "root"))
    for number in range(_RUNS):
        _train(backend.store.root, number, optimizer="sgd" if number % 2 else "adam")
    yield backend.store.root
    backend.catalog.close()


@pytest.fixture
def url(root: str) -> Iterator[str]:
    with serving(Settings(root=root)) as url:
        yield url


def _row(page: Page, number: int) -> Locator:
    return page.locator(f'[data-run="demo/run-{number}"]')


def _panel(page: Page, name: str) -> Locator:
    return page.locator(f'[data-metric="{name}"]')


def _shown(page: Page, text: str) -> None:
    expect(page.get_by_text(text, exact=True)).to_be_visible()


def _apply(page: Page, text: str) -> None:
    line = page.get_by_label("Filter of runs")
    line.fill(text)
    line.press("Enter")


def _drag(page: Page, panel: Locator, start: float, end: float) -> None:
    box = panel.locator(".u-over").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=5)
    page.mouse.up()


def _drawn(page: Page) -> list[str]:
    """The panels that were drawn, one for each time."""
    return list(page.evaluate("performance.getEntriesByName('halving:painted').map((mark) => mark.detail)"))


def _question(request: Request) -> dict[str, Any]:
    """What a request asks of curves; empty for any other."""
    return (request.post_data_json or {}) if request.url.endswith("/api/v1/curves") else {}


def test_runs_are_chosen_one_by_one_and_lie_over_each_other(url: str, page: Page) -> None:
    page.goto(f"{url}/?top=2")
    _shown(page, "2 shown of 6 runs")
    expect(_panel(page, "loss")).to_have_attribute("data-state", "drawn")
    with page.expect_request(lambda request: bool(_question(request))) as asked:
        _row(page, 0).get_by_role("checkbox").click()
    assert _question(asked.value)["runs"] == ["demo/run-0"], "what is there is not asked for again"
    _shown(page, "3 shown of 6 runs")
    _row(page, 5).get_by_role("checkbox").click()
    _shown(page, "2 shown of 6 runs")
    assert "show=demo/run-0" in page.url
    assert "hide=demo/run-5" in page.url
    panel = _panel(page, "loss")
    panel.get_by_role("button", name="loss as a table").click()
    expect(panel.get_by_role("rowheader")).to_have_text(["run-4", "run-0"])


def test_the_panels_that_are_seen_together_are_one_or_two_questions(url: str, page: Page) -> None:
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if request.url.endswith("/curves") else None)
    page.goto(url)
    for name in ("loss", "val/accuracy"):
        expect(_panel(page, name)).to_have_attribute("data-state", "drawn")
    keys = [key for request in asked for key in _question(request)["keys"]]
    assert sorted(keys) == ["loss", "val/accuracy"]
    assert len(asked) <= 2


def test_what_is_asked_for_early_is_what_the_page_needs(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('params.lr < 1 order by run')}&columns=params.lr")
    expect(_panel(page, "loss")).to_have_attribute("data-state", "drawn")
    assert page.evaluate("window.early.answers.size") == 0, "all of its answers were taken"
    asked = page.evaluate("performance.getEntriesByType('resource').map((entry) => new URL(entry.name).pathname)")
    named = page.evaluate("[...document.querySelectorAll('link[rel=modulepreload]')].map((link) => new URL(link.href).pathname)")
    modules = {path for path in asked if path.endswith(".js") and not path.endswith("/early.js")}
    assert modules == set(named), "a module that is not named waits until another one was read"


def test_an_answer_that_breaks_off_is_said_and_asked_for_again(url: str, page: Page) -> None:
    page.route("**/api/v1/runs?*", lambda route: route.fulfill(content_type="application/json", body='{"total": 6, "runs": ['), times=1)
    page.goto(url)
    expect(page.get_by_role("alert")).to_contain_text("the server does not answer")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # rather than after some seconds
    _shown(page, "6 shown of 6 runs")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_zoom_draws_each_panel_once(url: str, page: Page) -> None:
    page.goto(url)
    wait_for(lambda: set(_drawn(page)) == {"loss", "val/accuracy"}, 20, "both panels are drawn")
    page.evaluate("performance.clearMarks('halving:painted')")
    _drag(page, _panel(page, "loss"), 0.3, 0.6)
    wait_for(lambda: "val/accuracy" in _drawn(page), 20, "the other panel is drawn")
    assert _drawn(page) == ["val/accuracy"], "the dragged one was drawn when it was let go"


def test_a_zoom_of_both_axes_stays_when_the_panel_is_drawn_again(url: str, page: Page) -> None:
    page.goto(url)
    panel = _panel(page, "loss")
    expect(panel).to_have_attribute("data-state", "drawn")
    box = panel.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile(r"zoom="))
    page.mouse.move(0, 0)
    seen = "document.querySelector('[data-metric=loss] canvas').toDataURL()"
    zoomed = page.evaluate(seen)
    page.evaluate("performance.clearMarks('halving:painted')")
    page.get_by_role("button", name="band").click()  # these curves have none, so nothing else is drawn
    wait_for(lambda: "loss" in _drawn(page), 20, "the panel is drawn again")
    assert page.evaluate(seen) == zoomed


def test_a_zoom_is_in_the_url_and_is_refined_by_the_server(page: Page, root: str) -> None:
    _train(root, 9, steps=_MANY)
    with serving(Settings(root=root)) as url:
        page.goto(f"{url}/?top=1")
        panel = _panel(page, "loss")
        expect(panel.get_by_text("buckets of 5")).to_be_visible()
        with page.expect_request(lambda request: _question(request).get("low") is not None) as asked:
            _drag(page, panel, 0.5, 0.6)
        window = _question(asked.value)
        assert 0.4 * _MANY < window["low"] < window["high"] < 0.7 * _MANY
        page.wait_for_url(re.compile(r"zoom="))
        expect(panel.get_by_text("buckets of 5")).to_be_hidden()
        panel.locator(".u-over").dblclick()
        page.wait_for_url(re.compile(r"^(?!.*zoom=)"))
        expect(panel.get_by_text("buckets of 5")).to_be_visible()


def test_a_filter_chooses_and_orders(url: str, page: Page) -> None:
    page.goto(url)
    _shown(page, "6 shown of 6 runs")
    _apply(page, "params.optimizer = sgd order by params.lr")
    _shown(page, "3 shown of 3 runs")
    expect(page.locator("[data-run]").first).to_have_attribute("data-run", "demo/run-1")
    page.get_by_role("button", name="Run", exact=True).last.click()
    expect(page.get_by_label("Filter of runs")).to_have_value("params.optimizer = sgd order by run")
    page.go_back()
    _shown(page, "6 shown of 6 runs")


def test_names_are_completed(url: str, page: Page) -> None:
    page.goto(url)
    _shown(page, "6 shown of 6 runs")
    line = page.get_by_label("Filter of runs")
    line.press_sequentially("accu")
    expect(page.get_by_role("option").first).to_contain_text("metrics.val/accuracy")
    line.press("Tab")
    expect(line).to_have_value("metrics.val/accuracy ")


def test_a_wrong_filter_says_where_it_is_wrong_and_the_runs_stay(url: str, page: Page, expected_errors: list[str]) -> None:
    expected_errors.append("422")
    page.goto(url)
    _shown(page, "6 shown of 6 runs")
    _apply(page, "params.lr < 0.1 and stts = finished")
    expect(page.get_by_role("alert")).to_contain_text("column 21")
    expect(page.locator(".filter-under u")).to_have_text("stts")
    expect(page.get_by_label("Filter of runs")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("[data-run]")).to_have_count(6)
    _apply(page, "params.lr < 0.1")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_groups_have_mean_and_deviation_and_lead_to_their_runs(url: str, page: Page) -> None:
    page.goto(f"{url}/?columns=params.lr")
    page.get_by_label("Group by").select_option("params.optimizer")
    group = page.locator('[data-group="sgd"]')
    expect(group).to_contain_text("0.004 ± 0.002")
    group.get_by_role("button").click()
    _shown(page, "3 shown of 3 runs")
    expect(page.get_by_label("Filter of runs")).to_have_value("params.optimizer = 'sgd'")


def test_columns_are_chosen_and_are_in_the_url(url: str, page: Page) -> None:
    page.goto(url)
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="tags.team").check()
    expect(_row(page, 3)).to_contain_text("vision")
    assert "columns=tags.team" in page.url


def test_the_difference_of_the_shown_runs(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('order by run')}&top=2")
    _shown(page, "2 shown of 6 runs")
    page.keyboard.press("d")
    diff = page.get_by_role("region", name="Differences")
    expect(diff.get_by_role("rowheader", name="optimizer")).to_be_visible()
    expect(diff.get_by_role("rowheader", name="same", exact=True)).to_have_count(0)
    page.keyboard.press("d")
    expect(_panel(page, "loss")).to_have_attribute("data-state", "drawn")


def test_what_a_run_logs_is_appended_while_zoom_and_scroll_stay(root: str, url: str, page: Page) -> None:
    run = halving.init("demo", {"lr": 1.0}, root=root, id="live", system_metrics=None)
    try:
        for step in range(10):
            run.log({"loss": 3.0, "val/accuracy": 0.5}, step=step)
        run.flush()
        page.goto(f"{url}/?filter={quote('run = live')}&zoom=2_30")
        panel = _panel(page, "loss")
        panel.get_by_role("button", name="loss as a table").click()
        expect(panel.get_by_role("row", name=re.compile("live"))).to_contain_text("step 9")
        page.wait_for_load_state("load")
        for step in range(10, 20):
            run.log({"loss": 2.5, "val/accuracy": 0.5}, step=step)
        run.flush()
        expect(panel.get_by_role("row", name=re.compile("live"))).to_contain_text("step 19")
        assert "zoom=2_30" in page.url
    finally:
        run.finish()
    expect(page.locator('[data-run="demo/live"] .status')).to_have_text("finished")


def test_a_view_is_the_same_in_another_browser(url: str, page: Page, browser: Browser) -> None:
    page.goto(url)
    _shown(page, "6 shown of 6 runs")
    _apply(page, "params.lr > 0.002 order by metrics.loss desc")
    _shown(page, "4 shown of 4 runs")
    _row(page, 5).get_by_role("checkbox").click()
    page.get_by_label("Horizontal axis").select_option("relative")
    page.get_by_role("button", name="log y").click()
    page.get_by_label("Find metrics").fill("loss")
    expect(_panel(page, "val/accuracy")).to_have_count(0)
    other = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        second = other.new_page()
        second.goto(page.url)
        _shown(second, "3 shown of 4 runs")
        expect(second.get_by_label("Filter of runs")).to_have_value("params.lr > 0.002 order by metrics.loss desc")
        expect(second.get_by_label("Horizontal axis")).to_have_value("relative")
        expect(second.get_by_role("button", name="log y")).to_have_attribute("aria-pressed", "true")
        expect(second.locator("[data-metric]")).to_have_count(1)
        assert second.url == page.url
    finally:
        other.close()


def test_all_of_it_by_keys(url: str, page: Page) -> None:
    page.goto(url)
    _shown(page, "6 shown of 6 runs")
    for key in ("j", "j", "x"):
        page.keyboard.press(key)
    _shown(page, "5 shown of 6 runs")
    expect(_row(page, 4)).to_have_attribute("aria-selected", "false")
    page.keyboard.press("k")
    page.keyboard.press("o")
    _shown(page, "1 shown of 6 runs")
    page.keyboard.press("/")
    expect(page.get_by_label("Filter of runs")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("what differs between the shown runs")


def test_it_fits_a_phone(url: str, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(url)
    expect(_panel(page, "loss")).to_have_attribute("data-state", "drawn")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Runs", exact=True).click()
    expect(page.get_by_role("grid", name="Runs")).to_be_hidden()
