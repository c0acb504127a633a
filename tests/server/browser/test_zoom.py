"""Zoom on the Compare page: drawn once, in the URL, refined by the server, by mouse and by fingers."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from server.settings import Settings
from tests.server.browser.conftest import serving
from tests.server.browser.demo import STEPS, drag, drawn_panels, panel_of, question_of, train
from tests.waiting import wait_for

_MANY = 5_000
_PIXELS = "document.querySelector('[data-metric=loss] canvas').toDataURL()"


def test_a_zoom_draws_each_panel_once(demo_url: str, page: Page) -> None:
    page.goto(demo_url)
    wait_for(lambda: set(drawn_panels(page)) == {"loss", "val/accuracy"}, 60, "both panels are drawn")
    page.evaluate("performance.clearMarks('halving:painted')")
    drag(page, panel_of(page, "loss"), 0.3, 0.6)
    wait_for(lambda: "val/accuracy" in drawn_panels(page), 60, "the other panel is drawn")
    assert drawn_panels(page) == ["val/accuracy"], "the dragged one was drawn when it was let go"


def test_a_panel_is_not_drawn_before_the_charts_module_is_there(demo_url: str, page: Page) -> None:
    waiting: list[Route] = []
    page.route("**/line-chart.js*", lambda route: waiting.append(route))
    with page.expect_response("**/api/v1/curves"):
        page.goto(demo_url)
    wait_for(lambda: page.wait_for_timeout(10) or waiting, 60, "the module is asked for")
    panel = panel_of(page, "loss")
    expect(panel.get_by_text("…")).to_be_visible()
    for _ in range(5):  # frames, in which the curves that have come would be drawn
        page.evaluate("new Promise((then) => requestAnimationFrame(() => setTimeout(then, 20)))")
    assert panel.get_attribute("data-state") == "loading"
    for route in waiting:
        route.continue_()
    expect(panel).to_have_attribute("data-state", "drawn")
    assert page.evaluate(_PIXELS)


def test_a_zoom_of_both_axes_stays_when_the_panel_is_drawn_again(demo_url: str, page: Page) -> None:
    page.goto(demo_url)
    panel = panel_of(page, "loss")
    expect(panel).to_have_attribute("data-state", "drawn")
    box = panel.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile(r"zoom="))
    page.mouse.move(0, 0)
    zoomed = page.evaluate(_PIXELS)
    page.evaluate("performance.clearMarks('halving:painted')")
    page.get_by_role("button", name="band").click()  # these curves have none, so nothing else is drawn
    wait_for(lambda: "loss" in drawn_panels(page), 60, "the panel is drawn again")
    assert page.evaluate(_PIXELS) == zoomed


def test_a_zoom_of_values_is_in_the_url_until_it_is_reset(
    demo_url: str, page: Page, browser: Browser
) -> None:
    page.goto(demo_url)
    panel = panel_of(page, "loss")
    expect(panel).to_have_attribute("data-state", "drawn")
    whole = page.evaluate(_PIXELS)
    box = panel.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.52 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile(r"\?zoom-y=loss:[\d.]+_[\d.]+$"))
    page.mouse.move(0, 0)
    zoomed = page.evaluate(_PIXELS)
    assert zoomed != whole
    other = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        second = other.new_page()
        second.goto(page.url)
        expect(panel_of(second, "loss")).to_have_attribute("data-state", "drawn")
        wait_for(lambda: second.evaluate(_PIXELS) == zoomed, 60, "what the address says is seen")
        second.get_by_role("button", name="Whole range").click()
        second.wait_for_url(f"{demo_url}/")
        wait_for(lambda: second.evaluate(_PIXELS) == whole, 60, "the whole range is seen")
    finally:
        other.close()
    panel.locator(".u-over").dblclick()
    page.wait_for_url(f"{demo_url}/")


def test_a_zoom_that_the_url_has_wrong_is_left_out_with_the_reason(demo_url: str, page: Page) -> None:
    page.goto(f"{demo_url}/?zoom=9_1&zoom-y=loss:5_low&zoom-y=val/accuracy:2_1")
    expect(panel_of(page, "loss")).to_have_attribute("data-state", "drawn")
    said = page.get_by_role("alert")
    expect(said).to_contain_text(
        "In the address zoom=9_1 is ignored: give LOW_HIGH, two numbers, the lower one first"
    )
    expect(said).to_contain_text("in the address zoom-y=loss:5_low is ignored: give METRIC:LOW_HIGH")
    expect(said).to_contain_text("in the address zoom-y=val/accuracy:2_1 is ignored")


def test_a_zoom_is_in_the_url_and_is_refined_by_the_server(page: Page, demo_root: str) -> None:
    train(demo_root, 9, steps=_MANY)
    with serving(Settings(root=demo_root)) as url:
        page.goto(f"{url}/?top=1")
        panel = panel_of(page, "loss")
        expect(panel.get_by_text("buckets of 5")).to_be_visible()
        with page.expect_request(lambda request: question_of(request).get("low") is not None) as request_info:
            drag(page, panel, 0.5, 0.6)
        window = question_of(request_info.value)
        assert 0.4 * _MANY < window["low"] < window["high"] < 0.7 * _MANY
        page.wait_for_url(re.compile(r"zoom="))
        expect(panel.get_by_text("buckets of 5")).to_be_hidden()
        panel.locator(".u-over").dblclick()
        page.wait_for_url(re.compile(r"^(?!.*zoom=)"))
        expect(panel.get_by_text("buckets of 5")).to_be_visible()
        page.goto("about:blank")


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    yield context.new_page()
    context.close()


def _touch(page: Page, *steps: list[tuple[float, float]]) -> None:
    """Fingers that are put down at the first places, moved to the others in turn, and taken up."""
    session = page.context.new_cdp_session(page)
    for number, places in enumerate(steps):
        points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
        session.send(
            "Input.dispatchTouchEvent",
            {"type": "touchMove" if number else "touchStart", "touchPoints": points},
        )
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_two_fingers_zoom_a_chart_on_a_phone_and_one_scrolls_the_page(demo_url: str, phone: Page) -> None:
    phone.goto(demo_url)
    panel = panel_of(phone, "loss")
    expect(panel).to_have_attribute("data-state", "drawn")
    box = panel.locator(".u-over").bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    y = box["y"] + box["height"] / 2
    _touch(phone, *([(middle - reach, y), (middle + reach, y)] for reach in (30, 45, 60)))
    phone.wait_for_url(re.compile(r"\?zoom="))
    low, high = map(float, phone.url.partition("zoom=")[2].split("_"))
    assert (low, high) == (
        pytest.approx((STEPS - 1) / 4, abs=0.5),
        pytest.approx((STEPS - 1) * 3 / 4, abs=0.5),
    ), "twice as wide"
    phone.get_by_role("button", name="Whole range").click()
    phone.wait_for_url(f"{demo_url}/")
    box = panel.locator(".u-over").bounding_box()
    assert box is not None
    _touch(phone, *([(middle, box["y"] + box["height"] / 2 - moved)] for moved in (0, 20, 40, 60, 80)))
    top = "document.querySelector('[data-metric=loss] .u-over').getBoundingClientRect().top"
    wait_for(lambda: phone.evaluate(top) < box["y"] - 20, 60, "the page scrolls")
    assert phone.url == f"{demo_url}/"
