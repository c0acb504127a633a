"""Curves that grow in Compare: nothing that was streamed is lost, whatever is asked for meanwhile."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

import halving
from resources.backend import Backend
from server.settings import Settings
from tests.server import plain_http
from tests.server.browser.conftest import serving
from tests.server.processes import server_of
from tests.waiting import wait_for

_MANY = 3_000  # more than a panel has rows: buckets of 3


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    backend = Backend(root=str(tmp_path / "root"))
    yield backend.store.root
    backend.catalog.close()


@pytest.fixture
def url(root: str, page: Page) -> Iterator[str]:
    with serving(Settings(root=root)) as url:
        yield url
        page.unroute_all(behavior="ignoreErrors")
        page.goto("about:blank")


@pytest.fixture
def begin(root: str) -> Iterator[Callable[..., Any]]:
    """Begins a run, or another attempt at it, that has logged a loss equal to its step."""
    begun = []

    def run(name: str = "live", steps: int = 10, **options: Any) -> Any:
        begun.append(halving.init("demo", {}, root=root, id=name, system_metrics=None, **options))
        _log(begun[-1], 0, steps)
        return begun[-1]

    yield run
    for live in begun:
        live.finish()


def _log(run: Any, first: int, end: int) -> None:
    for step in range(first, end):
        run.log({"loss": float(step)}, step=step)
    run.flush()


def _row(page: Page, run: str = "live") -> Locator:
    panel = page.locator('[data-metric="loss"]')
    panel.wait_for(timeout=60_000)  # the index looks at a new run again after some seconds
    table = panel.get_by_role("button", name="loss as a table")
    if table.get_attribute("aria-pressed") == "false":
        table.click()
    return panel.get_by_role("row", name=run)


def _points(page: Page, count: int, last: int) -> None:
    row = _row(page)
    expect(row).to_contain_text(f"step {last}")
    expect(row.get_by_role("cell").last).to_have_text(f"{count}")


def test_points_that_are_streamed_while_curves_are_asked_for_again_are_kept(
    page: Page, url: str, begin: Callable[..., Any]
) -> None:
    run = begin(steps=10)
    page.goto(url)
    _points(page, 10, 9)
    waiting: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if waiting or (route.request.post_data_json or {}).get("x") != "relative":
            route.continue_()
        else:
            waiting.append(route)

    page.route("**/api/v1/curves", hold_the_first)
    axis = page.get_by_label("Horizontal axis")
    axis.select_option("relative")
    wait_for(lambda: page.wait_for_timeout(10) or waiting, 60, "the question is held")
    answer = waiting[0].fetch()  # what the store had then
    _log(run, 10, 20)
    axis.select_option("step")
    _points(page, 20, 19)
    axis.select_option("relative")
    waiting[0].fulfill(response=answer)
    expect(_row(page).get_by_role("cell").last).to_have_text("20")


def test_a_zoom_that_holds_the_end_grows(page: Page, url: str, begin: Callable[..., Any]) -> None:
    run = begin(steps=_MANY)
    page.goto(f"{url}/?zoom={_MANY - 100}_{2 * _MANY}")
    panel = page.locator('[data-metric="loss"]')
    expect(panel).to_have_attribute("data-state", "drawn")
    # it is refined, though the zoom came with the address
    expect(panel.get_by_text("buckets of 3")).to_be_hidden()
    _log(run, _MANY, _MANY + 50)
    expect(_row(page).get_by_role("cell").last).to_have_text("150")
    expect(_row(page).get_by_role("cell").nth(3)).to_have_text(f"{_MANY + 49}")  # the greatest


def test_another_attempt_replaces_what_a_bucketed_curve_had_at_its_steps(
    page: Page, url: str, root: str
) -> None:
    killed = f"""
import halving, os
run = halving.init("demo", {{}}, root={root!r}, id="live", system_metrics=None)
for step in range({_MANY}):
    run.log({{"loss": float(step)}}, step=step)
run.flush()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", killed], check=False, timeout=60)
    page.goto(url)
    expect(_row(page).get_by_role("cell").last).to_have_text(f"{_MANY}")
    with halving.init("demo", {}, root=root, id="live", system_metrics=None) as resumed:
        resumed.log({"loss": 7777.0}, step=100)
        resumed.flush()
        expect(_row(page)).to_contain_text("7777")


def test_a_run_that_the_filter_leaves_out_is_live_when_it_is_shown_by_its_id(
    page: Page, url: str, begin: Callable[..., Any]
) -> None:
    begin("other").finish()
    run = begin()
    page.goto(f"{url}/?filter=run = other&show=demo/live,demo/gone,bad")
    expect(page.get_by_text("2 runs of this address are not there")).to_be_visible()
    _points(page, 10, 9)
    expect(_row(page, "other")).to_contain_text("step 9")
    _log(run, 10, 20)
    _points(page, 20, 19)


def test_curves_that_are_refused_say_so_and_the_others_stay(
    page: Page, url: str, begin: Callable[..., Any], expected_errors: list[str]
) -> None:
    expected_errors.append("404")
    begin().finish()
    page.route("**/api/v1/curves", lambda route: route.fulfill(status=404, json={"detail": "no run"}))
    page.goto(url)
    panel = page.locator('[data-metric="loss"]')
    expect(panel.get_by_text("Could not be read")).to_be_visible()
    expect(page.get_by_text("no run")).to_be_visible()


def test_scrolling_and_live_runs_share_one_stream_and_one_question(
    page: Page, url: str, begin: Callable[..., Any]
) -> None:
    runs = [begin(f"live-{number}") for number in range(4)]
    wait_for(
        lambda: plain_http.get(f"{url}/api/v1/runs?filter=metrics.loss >= 0").json()["total"] == len(runs),
        60,
        "the runs' metrics are indexed",
    )
    questions: list[int] = []
    streams: list[str] = []
    page.on(
        "request",
        lambda request: (
            questions.append(len(request.post_data_json["runs"])) if request.url.endswith("/curves") else None
        ),
    )
    page.on("request", lambda request: streams.append(request.url) if "/live?" in request.url else None)
    page.goto(url)
    for number, run in enumerate(runs):
        _log(run, 10, 20)
        expect(_row(page, f"live-{number}")).to_contain_text("step 19")
    assert (len(streams), questions) == (1, [4, 4])  # at first, and when the stream began


def test_a_stream_that_is_refused_is_said(
    page: Page, url: str, begin: Callable[..., Any], expected_errors: list[str]
) -> None:
    expected_errors.append("414")
    begin()
    page.route(
        "**/api/v1/live?*",
        lambda route: route.fulfill(status=414, json={"detail": "the address is too long"}),
    )
    page.goto(url)
    expect(page.get_by_text("not live: the address is too long")).to_be_visible()


def test_a_zoom_of_steps_is_none_of_what_the_machine_measured(page: Page, url: str, root: str) -> None:
    run = halving.init("demo", {}, root=root, id="machine", system_metrics=None)
    for step in range(20):
        run.log({"loss": 1.0, "system/cpu": 1.0}, step=step)
    run.finish()
    page.goto(f"{url}/runs/demo/machine?zoom=5_12")
    page.get_by_text("The machine").click()
    panel = page.locator('[data-metric="system/cpu"]')
    panel.get_by_role("button", name="as a table").click()
    expect(panel.get_by_role("row").last.get_by_role("cell").last).to_have_text("20")


def test_panels_below_the_fold_are_neither_mounted_nor_fetched_before_scrolling(
    page: Page, url: str, root: str
) -> None:
    run = halving.init("demo", {}, root=root, id="wide", system_metrics=None)
    run.log({f"m{number:03}": float(number) for number in range(100)}, step=0)
    run.finish()
    metrics: set[str] = set()
    page.on(
        "request",
        lambda request: (
            metrics.update(request.post_data_json["keys"]) if request.url.endswith("/curves") else None
        ),
    )
    page.goto(url)
    expect(page.locator('[data-metric="m000"]')).to_have_attribute("data-state", "drawn")
    assert "m000" in metrics
    assert "m099" not in metrics
    assert len(metrics) < 50
    expect(page.locator('[data-metric="m099"]')).to_have_count(0)
    as_table = page.locator('[data-metric="m000"]').get_by_role("button", name="m000 as a table")
    as_table.click()
    page.get_by_role("region", name="Curves").evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    expect(page.locator('[data-metric="m099"]')).to_have_attribute("data-state", "drawn")
    assert "m099" in metrics
    assert "m050" not in metrics, "what was only passed over"
    expect(page.locator('[data-metric="m000"]')).to_have_count(0)
    page.get_by_role("region", name="Curves").evaluate("(box) => box.scrollTo(0, 0)")
    expect(as_table).to_have_attribute("aria-pressed", "true")


def test_an_open_page_says_that_its_server_is_away_and_catches_up_with_the_next_one(
    page: Page, root: str, begin: Callable[..., Any], expected_errors: list[str]
) -> None:
    expected_errors.extend(
        [
            "ERR_CONNECTION_REFUSED",
            "ERR_CONNECTION_RESET",
            "ERR_INCOMPLETE_CHUNKED_ENCODING",
            "ERR_EMPTY_RESPONSE",
        ]
    )
    run = begin(steps=10)
    with server_of(root) as server:
        page.clock.install()
        page.goto(server.address)
        page.evaluate("window.sameDocument = true")
        _points(page, 10, 9)
        _log(run, 10, 20)
        _points(page, 20, 19)
        # later than now however slow the way to the page is
        page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 20)
        server.kill()
        tries: list[str] = []
        page.on("request", lambda request: tries.append(request.url) if "/live?" in request.url else None)
        wait_for(lambda: page.clock.run_for(100) or len(tries) >= 2, 60, "two more tries", every=0)
        # three seconds after the kill; the tries have not put off what is said then
        page.clock.run_for(2_000)
        expect(page.get_by_text("not live:")).to_be_visible()
        page.clock.resume()
        expect(_row(page)).to_contain_text("step 19")  # what was known stays
        _log(run, 20, 30)
        begin("new").finish()
        server.start()
        page.clock.fast_forward(10_000)
        _points(page, 30, 29)
        expect(_row(page, "new")).to_contain_text("step 9")
        expect(page.get_by_text("not live:")).to_have_count(0)
        assert page.evaluate("window.sameDocument"), "the page was loaded again"
        page.goto("about:blank")
