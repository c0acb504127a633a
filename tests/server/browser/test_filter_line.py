"""Compare's filter line: names and values are completed, and errors are shown where they are."""

from urllib.parse import quote

from playwright.sync_api import Page, expect

import halving
from server.settings import Settings
from tests.server.browser.conftest import serving
from tests.server.browser.demo import apply_filter, expect_text


def test_a_filter_chooses_and_orders(demo_url: str, page: Page) -> None:
    page.goto(demo_url)
    expect_text(page, "6 shown of 6 runs")
    apply_filter(page, "params.optimizer = sgd order by params.lr")
    expect_text(page, "3 shown of 3 runs")
    expect(page.locator("[data-run]").first).to_have_attribute("data-run", "demo/run-1")
    page.get_by_role("button", name="Run", exact=True).last.click()
    expect(page.get_by_label("Filter of runs")).to_have_value("params.optimizer = sgd order by run")
    page.go_back()
    expect_text(page, "6 shown of 6 runs")


def test_names_are_completed(demo_url: str, page: Page) -> None:
    page.goto(demo_url)
    expect_text(page, "6 shown of 6 runs")
    line = page.get_by_label("Filter of runs")
    line.press_sequentially("accu")
    expect(page.get_by_role("option").first).to_contain_text("metrics.val/accuracy")
    line.press("Tab")
    expect(line).to_have_value("metrics.val/accuracy ")


def test_values_of_tags_and_sweeps_are_completed_as_a_filter_has_them(page: Page, demo_root: str) -> None:
    with halving.init(
        "demo", {}, root=demo_root, id="odd", tags={"team": "night shift"}, system_metrics=None
    ):
        pass
    requests: list[str] = []
    page.on(
        "request", lambda request: requests.append(request.url) if "/runs/groups?" in request.url else None
    )
    with serving(Settings(root=demo_root)) as url:
        page.goto(url)
        expect_text(page, "7 shown of 7 runs")
        line = page.get_by_label("Filter of runs")
        offered = page.get_by_role("listbox", name="Names").get_by_role("option")
        line.press_sequentially("run != x and tags.team in (")
        expect(offered).to_contain_text(["vision", "'night shift'"])
        line.press_sequentially("night")
        expect(offered).to_have_count(1)
        line.press("Tab")
        expect(line).to_have_value("run != x and tags.team in ('night shift' ")
        line.press_sequentially(")")
        line.press("Enter")
        expect_text(page, "1 shown of 1 run")
        with page.expect_request("**/runs/groups?by=sweep&limit=200"):
            line.fill("sweep = ")
        assert len(requests) == 2, "once for all letters of a value"
        page.goto("about:blank")


def test_a_name_in_quotes_is_completed_as_one_name(page: Page, demo_root: str) -> None:
    with halving.init("demo", {}, root=demo_root, id="odd", system_metrics=None) as run:
        run.log({"top 1, 5": 0.5}, step=0)
    with serving(Settings(root=demo_root)) as url:
        page.goto(url)
        expect_text(page, "7 shown of 7 runs")
        line = page.get_by_label("Filter of runs")
        line.press_sequentially('metrics."top 1')
        expect(page.get_by_role("option").first).to_contain_text('metrics."top 1, 5"')
        line.press("Tab")
        expect(line).to_have_value('metrics."top 1, 5" ')
        page.goto("about:blank")  # before its server ends


def test_a_filter_is_applied_by_enter_alone_and_escape_takes_back_what_was_begun(
    demo_url: str, page: Page
) -> None:
    page.goto(f"{demo_url}/?filter={quote('params.lr < 1')}&hide=demo/run-5")
    expect_text(page, "5 shown of 6 runs")
    line = page.get_by_label("Filter of runs")
    history = page.evaluate("history.length")
    line.fill("params.lr <")
    page.get_by_role("heading", name="Compare").evaluate("document.activeElement.blur()")
    expect(page.get_by_text("Enter applies it, Escape takes it back.")).to_be_visible()
    expect(line).to_have_value("params.lr <")
    line.press("Escape")
    expect(line).to_have_value("params.lr < 1")
    expect(line).not_to_be_focused()
    assert page.evaluate("history.length") == history
    assert "hide=demo/run-5" in page.url
    apply_filter(page, "params.lr < 0.0035")
    expect_text(page, "3 shown of 3 runs")


def test_a_filter_on_a_name_with_a_keyword_is_narrowed_by_a_group(page: Page, demo_root: str) -> None:
    with halving.init(
        "demo", {"limit": 3, "optimizer": "adam"}, root=demo_root, id="limited", system_metrics=None
    ):
        pass
    with serving(Settings(root=demo_root)) as url:
        page.goto(f"{url}/?filter={quote('params.limit >= 0')}&group=params.optimizer")
        page.get_by_role("button", name="adam", exact=True).click()
        expect(page.get_by_label("Filter of runs")).to_have_value(
            "params.limit >= 0 and params.optimizer = 'adam'"
        )
        expect_text(page, "1 shown of 1 run")
        page.goto("about:blank")  # before its server ends


def test_a_wrong_filter_says_where_it_is_wrong_and_the_runs_stay(
    demo_url: str, page: Page, expected_errors: list[str]
) -> None:
    expected_errors.append("422")
    page.goto(demo_url)
    expect_text(page, "6 shown of 6 runs")
    apply_filter(page, "params.lr < 0.1 and stts = finished")
    expect(page.get_by_role("alert")).to_contain_text("column 21")
    expect(page.locator(".filter-under u")).to_have_text("stts")
    expect(page.get_by_label("Filter of runs")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("[data-run]")).to_have_count(6)
    apply_filter(page, "params.lr < 0.1")
    expect(page.get_by_role("alert")).to_have_count(0)
