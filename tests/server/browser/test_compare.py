"""Compare in a browser: runs chosen one by one, their curves over each other, grouped, compared, live."""

import re
from urllib.parse import quote

from playwright.sync_api import Browser, Page, Request, expect

import halving
from tests.server.browser.conftest import fits
from tests.server.browser.demo import apply_filter, expect_text, panel_of, question_of, row_of


def test_runs_are_chosen_one_by_one_and_lie_over_each_other(demo_url: str, page: Page) -> None:
    page.goto(f"{demo_url}/?top=2")
    expect_text(page, "2 shown of 6 runs")
    expect(panel_of(page, "loss")).to_have_attribute("data-state", "drawn")
    with page.expect_request(lambda request: bool(question_of(request))) as request_info:
        row_of(page, 0).get_by_role("checkbox").click()
    assert question_of(request_info.value)["runs"] == ["demo/run-0"], "what is there is not asked for again"
    expect_text(page, "3 shown of 6 runs")
    row_of(page, 5).get_by_role("checkbox").click()
    expect_text(page, "2 shown of 6 runs")
    assert "show=demo/run-0" in page.url
    assert "hide=demo/run-5" in page.url
    panel = panel_of(page, "loss")
    panel.get_by_role("button", name="loss as a table").click()
    expect(panel.get_by_role("rowheader")).to_have_text(["run-4", "run-0"])


def test_the_panels_that_are_seen_together_are_one_or_two_questions(demo_url: str, page: Page) -> None:
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request) if request.url.endswith("/curves") else None)
    page.goto(demo_url)
    for name in ("loss", "val/accuracy"):
        expect(panel_of(page, name)).to_have_attribute("data-state", "drawn")
    keys = [key for request in requests for key in question_of(request)["keys"]]
    assert sorted(keys) == ["loss", "val/accuracy"]
    assert len(requests) <= 2


def test_what_is_asked_for_early_is_what_the_page_needs(demo_url: str, page: Page) -> None:
    page.goto(f"{demo_url}/?filter={quote('params.lr < 1 order by run')}&columns=params.lr")
    expect(panel_of(page, "loss")).to_have_attribute("data-state", "drawn")
    assert page.evaluate("window.early.answers.size") == 0, "all of its answers were taken"
    addresses = page.evaluate(
        "performance.getEntriesByType('resource').map((entry) => new URL(entry.name).pathname)"
    )
    named = page.evaluate(
        "[...document.querySelectorAll('link[rel=modulepreload]')].map((link) => new URL(link.href).pathname)"
    )
    modules = {path for path in addresses if path.endswith(".js") and not path.endswith("/early.js")}
    assert modules == set(named), "a module that is not named waits until another one was read"


def test_an_answer_that_breaks_off_is_said_and_asked_for_again(demo_url: str, page: Page) -> None:
    page.route(
        "**/api/v1/runs?*",
        lambda route: route.fulfill(content_type="application/json", body='{"total": 6, "runs": ['),
        times=1,
    )
    page.goto(demo_url)
    expect(page.get_by_role("alert")).to_contain_text(
        "The server does not answer: is halving serve still running? Retrying."
    )
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # rather than after some seconds
    expect_text(page, "6 shown of 6 runs")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_look_that_the_server_failed_at_is_said_and_repeated(
    demo_url: str, page: Page, expected_errors: list[str]
) -> None:
    expected_errors.append("500")
    page.clock.install()
    page.goto(demo_url)
    expect_text(page, "6 shown of 6 runs")
    page.route(
        "**/api/v1/runs?*",
        lambda route: route.fulfill(status=500, json={"status": 500, "detail": "the server made an error"}),
        times=1,
    )
    page.clock.fast_forward(2_000)  # the next look
    expect(page.get_by_role("alert")).to_have_text(
        "The server made an error. Showing the runs as they were, retrying."
    )
    expect_text(page, "6 shown of 6 runs")
    page.clock.fast_forward(5_000)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_slider_that_is_drawn_writes_the_url_seldom_and_its_last_value_for_sure(
    demo_url: str, page: Page
) -> None:
    page.add_init_script(
        "const own = history.replaceState; history.replaceState = function () { window.written += 1; "
        "own.apply(this, arguments); }"
    )
    page.goto(demo_url)
    slider = page.get_by_label("Smoothing")
    expect(slider).to_be_visible()
    slider.evaluate("""(slider) => {
        window.written = 0;
        for (let step = 1; step <= 90; step++) {
            slider.value = step / 100;
            slider.dispatchEvent(new Event("input", {bubbles: true}));
        }
    }""")
    page.wait_for_url(re.compile(r"smooth=0\.9$"))
    assert page.evaluate("window.written") <= 5
    expect(page.locator("output").first).to_have_text("0.90")


def test_groups_have_mean_and_deviation_and_lead_to_their_runs(demo_url: str, page: Page) -> None:
    page.goto(f"{demo_url}/?columns=params.lr")
    page.get_by_label("Group by").select_option("params.optimizer")
    group = page.locator('[data-group="sgd"]')
    expect(group).to_contain_text("0.004 ± 0.002")
    group.get_by_role("button").click()
    expect_text(page, "3 shown of 3 runs")
    expect(page.get_by_label("Filter of runs")).to_have_value("params.optimizer = 'sgd'")


def test_columns_are_chosen_and_are_in_the_url(demo_url: str, page: Page) -> None:
    page.goto(demo_url)
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="tags.team").check()
    expect(row_of(page, 3)).to_contain_text("vision")
    assert "columns=tags.team" in page.url


def test_the_difference_of_the_shown_runs(demo_url: str, page: Page) -> None:
    page.goto(f"{demo_url}/?filter={quote('order by run')}&top=2")
    expect_text(page, "2 shown of 6 runs")
    page.keyboard.press("d")
    diff = page.get_by_role("region", name="Differences")
    expect(diff.get_by_role("rowheader", name="optimizer")).to_be_visible()
    expect(diff.get_by_role("rowheader", name="same", exact=True)).to_have_count(0)
    page.keyboard.press("d")
    expect(panel_of(page, "loss")).to_have_attribute("data-state", "drawn")


def test_what_a_run_logs_is_appended_while_zoom_and_scroll_stay(
    demo_root: str, demo_url: str, page: Page
) -> None:
    run = halving.init("demo", {"lr": 1.0}, root=demo_root, id="live", system_metrics=None)
    try:
        for step in range(10):
            run.log({"loss": 3.0, "val/accuracy": 0.5}, step=step)
        run.flush()
        page.goto(f"{demo_url}/?filter={quote('run = live')}&zoom=2_30")
        panel = panel_of(page, "loss")
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


def test_a_view_is_the_same_in_another_browser(demo_url: str, page: Page, browser: Browser) -> None:
    page.goto(demo_url)
    expect_text(page, "6 shown of 6 runs")
    apply_filter(page, "params.lr > 0.002 order by metrics.loss desc")
    expect_text(page, "4 shown of 4 runs")
    row_of(page, 5).get_by_role("checkbox").click()
    page.get_by_label("Horizontal axis").select_option("relative")
    page.get_by_role("button", name="log y").click()
    page.get_by_label("Find metrics").fill("loss")
    expect(panel_of(page, "val/accuracy")).to_have_count(0)
    other = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        second = other.new_page()
        second.goto(page.url)
        expect_text(second, "3 shown of 4 runs")
        expect(second.get_by_label("Filter of runs")).to_have_value(
            "params.lr > 0.002 order by metrics.loss desc"
        )
        expect(second.get_by_label("Horizontal axis")).to_have_value("relative")
        expect(second.get_by_role("button", name="log y")).to_have_attribute("aria-pressed", "true")
        expect(second.locator("[data-metric]")).to_have_count(1)
        assert second.url == page.url
    finally:
        other.close()


def test_sections_that_are_folded_are_in_the_url(demo_url: str, page: Page) -> None:
    page.goto(demo_url)
    expect(panel_of(page, "val/accuracy")).to_have_attribute("data-state", "drawn")
    page.get_by_role("button", name="val 1 metric").click()
    page.get_by_role("button", name="other 1 metric").click()
    expect(page.locator("[data-metric]")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("button", name="val 1 metric")).to_have_attribute("aria-expanded", "false")
    expect(page.locator("[data-metric]")).to_have_count(0)
    page.get_by_role("button", name="val 1 metric").click()
    page.get_by_role("button", name="other 1 metric").click()
    expect(page.locator("[data-metric]")).to_have_count(2)
    assert page.url == f"{demo_url}/"


def test_all_of_it_by_keys(demo_url: str, page: Page) -> None:
    page.goto(demo_url)
    expect_text(page, "6 shown of 6 runs")
    for key in ("j", "j", "x"):
        page.keyboard.press(key)
    expect_text(page, "5 shown of 6 runs")
    expect(row_of(page, 4)).to_have_attribute("aria-selected", "false")
    page.keyboard.press("k")
    page.keyboard.press("o")
    expect_text(page, "1 shown of 6 runs")
    page.keyboard.press("/")
    expect(page.get_by_label("Filter of runs")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("what differs between the shown runs")


def test_it_fits_a_phone(demo_url: str, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(demo_url)
    expect(panel_of(page, "loss")).to_have_attribute("data-state", "drawn")
    fits(page, 390)
    page.get_by_role("button", name="Runs", exact=True).click()
    expect(page.get_by_role("grid", name="Runs")).to_be_hidden()
