"""The table of runs in a browser.

The view stays while runs come, keys reach all of it, and an empty table says what to do.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from halving.store.store import Store
from resources.backend import Backend
from resources.sweep_spec import parse_spec
from server.settings import Settings
from tests.backends import SMALL
from tests.indexed_runs import add_record, with_trial
from tests.server.browser.conftest import serving

_RUNS = 60
_LINE = 30  # px


@contextmanager
def _serve_runs(folder: Path, runs: int) -> Iterator[tuple[Store, str]]:
    backend = Backend(root=str(folder / "root"))
    for number in range(runs):
        add_record(backend.store, f"run-{number:02}", {"lr": 0.001 * number}, loss=float(number))
    with serving(Settings(root=backend.store.root)) as url:
        yield backend.store, url
    backend.catalog.close()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[tuple[Store, str]]:
    """A store that a test adds runs to, and the address of its server."""
    with _serve_runs(tmp_path, _RUNS) as served:
        yield served


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _serve_runs(tmp_path_factory.mktemp("full"), _RUNS) as (_, url):
        yield url


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _serve_runs(tmp_path_factory.mktemp("empty"), 0) as (_, url):
        yield url


def _grid(page: Page) -> Locator:
    return page.get_by_role("grid", name="Runs")


def _line(page: Page, run: str) -> Locator:
    return page.locator(f'[data-run="digits/{run}"]')


def _total(page: Page, runs: int) -> None:
    expect(_grid(page)).to_have_attribute("aria-rowcount", str(runs + 1))


def _top(line: Locator) -> float:
    box = line.bounding_box()
    assert box is not None
    return box["y"]


def test_the_keys_stay_on_their_run_when_one_comes_above_it(growing: tuple[Store, str], page: Page) -> None:
    store, url = growing
    page.goto(url)
    _total(page, _RUNS)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(_line(page, "run-58")).to_have_class(re.compile(r"\bat\b"))
    add_record(store, "new", {}, loss=1.0)
    _total(page, _RUNS + 1)
    expect(_line(page, "run-58")).to_have_class(re.compile(r"\bat\b"))
    page.keyboard.press("x")
    expect(_line(page, "run-58")).to_have_attribute("aria-selected", "false")
    assert "hide=digits/run-58" in page.url
    page.keyboard.press("j")
    expect(_line(page, "run-57")).to_have_class(re.compile(r"\bat\b"))


def test_lines_that_are_looked_at_stay_in_their_place_when_runs_come_above_them(
    growing: tuple[Store, str], page: Page
) -> None:
    store, url = growing
    page.goto(url)
    _total(page, _RUNS)
    _grid(page).evaluate(f"(grid) => grid.scrollTo(0, {20 * _LINE})")
    line = _line(page, "run-35")
    expect(line).to_be_visible()
    before = _top(line)
    for name in ("new", "newer"):
        add_record(store, name, {}, loss=1.0)
    _total(page, _RUNS + 2)
    expect(_grid(page)).to_have_js_property("scrollTop", 22 * _LINE)
    assert _top(line) == before


def test_lines_do_not_move_under_the_pointer(growing: tuple[Store, str], page: Page) -> None:
    store, url = growing
    page.goto(url)
    _line(page, "run-57").hover()
    before = _top(_line(page, "run-57"))
    add_record(store, "new", {}, loss=1.0)
    _total(page, _RUNS + 1)
    expect(_grid(page)).to_have_js_property("scrollTop", _LINE)
    assert _top(_line(page, "run-57")) == before


def test_the_table_is_where_it_was_when_the_reader_comes_back(url: str, page: Page) -> None:
    page.goto(url)
    _total(page, _RUNS)
    _grid(page).evaluate(f"(grid) => grid.scrollTo(0, {20 * _LINE})")
    _line(page, "run-35").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("run-35")
    page.go_back()
    expect(_grid(page)).to_have_js_property("scrollTop", 20 * _LINE)
    expect(_line(page, "run-35")).to_be_visible()
    page.get_by_label("Filter of runs").fill("order by run")
    page.keyboard.press("Enter")
    expect(_grid(page)).to_have_js_property("scrollTop", 0)


def test_runs_are_sorted_by_keys_alone(url: str, page: Page) -> None:
    page.goto(f"{url}/?columns=metrics.loss")
    _total(page, _RUNS)
    _grid(page).focus()
    for name in ("Run", "Status", "loss"):
        page.keyboard.press("Tab")
        expect(_grid(page).get_by_role("button", name=name, exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("columnheader", name="loss")).to_have_attribute("aria-sort", "ascending")
    expect(page.get_by_label("Filter of runs")).to_have_value("order by metrics.loss")


def test_after_a_sweep_the_table_shows_its_objective_and_params_best_first(
    backend: Backend, page: Page
) -> None:
    with_trial(backend, parse_spec(SMALL))
    with serving(Settings(root=backend.store.root)) as url:
        page.goto(url)
        expect(page).to_have_url(f"{url}/?filter=order+by+metrics.score+desc&columns=metrics.score,params.x")
        expect(page.get_by_role("columnheader", name="score")).to_have_attribute("aria-sort", "descending")
        expect(page.get_by_role("columnheader", name="x", exact=True)).to_be_visible()
        page.get_by_label("Filter of runs").fill("")
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{url}/?columns=metrics.score,params.x")
        expect(page.get_by_role("columnheader", name="score")).to_have_attribute("aria-sort", "none")
        page.get_by_role("link", name="Models").first.click()
        page.go_back()
        expect(page).to_have_url(f"{url}/?columns=metrics.score,params.x")
        page.goto("about:blank")  # before its server ends


def test_columns_are_chosen_by_keys_one_after_the_other(url: str, page: Page) -> None:
    page.goto(url)
    _total(page, _RUNS)
    page.keyboard.press("j")
    chooser = page.get_by_role("button", name="Columns")
    chooser.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("searchbox", name="Find columns")).to_be_focused()
    box = page.get_by_role("checkbox", name="metrics.loss")
    box.focus()
    page.keyboard.press("Space")
    page.wait_for_url(re.compile("columns=metrics.loss"))
    expect(box).to_be_checked()
    expect(box).to_be_focused()
    page.keyboard.press("Enter")  # which is the box's, not the table's: it opens no run
    page.keyboard.press("Escape")
    expect(chooser).to_be_focused()
    assert page.url.endswith("/?columns=metrics.loss")


def test_keys_go_on_after_the_smoothing_was_moved(url: str, page: Page) -> None:
    page.goto(url)
    _total(page, _RUNS)
    page.get_by_label("Smoothing").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("j")
    expect(_line(page, "run-59")).to_have_class(re.compile(r"\bat\b"))


def test_a_page_that_is_opened_has_the_focus_and_is_announced(url: str, page: Page) -> None:
    page.goto(url)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Sweeps").click()
    expect(page.locator("main")).to_be_focused()
    expect(page.get_by_role("status").filter(has_text="Sweeps · Halving")).to_have_count(1)
    page.go_back()
    expect(page.get_by_role("status").filter(has_text="Compare · Halving")).to_have_count(1)
    expect(page.locator("main")).to_be_focused()


def test_where_no_run_matches_the_filter_is_offered_to_be_cleared(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('metrics.loss > 1000')}")
    expect(page.get_by_text("No run matches the filter.")).to_be_visible()
    page.get_by_role("button", name="Clear the filter").click()
    _total(page, _RUNS)
    expect(page.get_by_text("No run matches the filter.")).to_have_count(0)


def test_where_nothing_was_recorded_the_page_says_what_to_run(empty: str, page: Page) -> None:
    page.goto(empty)
    expect(page.get_by_role("heading", name="No run was recorded yet")).to_be_visible()
    expect(page.get_by_text("halving sweep sweeps/digits.yaml")).to_be_visible()


def test_the_side_is_made_wider_by_the_pointer_or_by_keys_and_stays_so(url: str, page: Page) -> None:
    page.goto(url)
    _total(page, _RUNS)
    side = page.get_by_role("region", name="Runs").first
    handle = page.get_by_role("separator", name="Width of the runs")
    handle.hover()
    page.mouse.down()
    page.mouse.move(600, 300, steps=3)
    page.mouse.up()
    expect(side).to_have_js_property("offsetWidth", 600)
    handle.focus()
    page.keyboard.press("ArrowLeft")
    expect(side).to_have_js_property("offsetWidth", 580)
    page.reload()
    expect(side).to_have_js_property("offsetWidth", 580)
    handle.focus()
    page.keyboard.press("End")
    expect(side).to_have_js_property("offsetWidth", 1280 - 320)
    page.keyboard.press("Enter")
    expect(side).to_have_js_property("offsetWidth", 435)


def test_whole_numbers_in_columns_have_all_their_digits(growing: tuple[Store, str], page: Page) -> None:
    store, url = growing
    for name, number in (("seconds", 1_700_000_123), ("id", 12345678901234), ("long", 2**60 + 1)):
        add_record(store, name, {"value": number})
        page.goto(f"{url}/?columns=params.value&filter=run = {name}")
        expect(_line(page, name)).to_contain_text(str(number))


def test_a_narrow_window_has_the_tools_in_a_line_and_the_second_column(url: str, page: Page) -> None:
    page.goto(f"{url}/?columns=metrics.loss,params.lr")
    _total(page, _RUNS)
    grid = _grid(page)
    assert grid.evaluate("(grid) => grid.scrollWidth <= grid.clientWidth")
    for tools in (page.locator(".tools"), page.locator(".side-line")):
        heights = tools.evaluate(
            "(tools) => [...tools.children].map((tool) => tool.getBoundingClientRect()).filter((box) => "
            "box.width).map((box) => box.top)"
        )
        assert max(heights) - min(heights) < 15, "one of them is in a second line"
