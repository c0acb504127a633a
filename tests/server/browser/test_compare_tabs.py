"""Compare's other tabs in a browser: parameters that become a filter, media at a step, differences and what is equal."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import halving
from resources.backend import Backend
from server.settings import Settings
from tests.server.browser.conftest import serving

_RUNS = 8


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Eight runs whose loss grows with ``lr`` and has nothing to do with ``same``; the first two logged an image and a text, twice."""
    backend = Backend(root=str(tmp_path / "root"))
    for number in range(_RUNS):
        config = {"lr": 0.1 * (number + 1), "optimizer": "sgd" if number % 2 else "adam", "same": 1}
        with halving.init("demo", config, root=backend.store.root, id=f"run-{number}", system_metrics=None) as run:
            for step in (0, 10):
                run.log({"val_loss": float(number)}, step=step)
                if number < 2:
                    pixels = np.full((8, 8), 20 * step, np.uint8)
                    run.log({"samples": halving.Image(pixels), "note": halving.Text(f"run {number} at {step}")}, step=step)
    with serving(Settings(root=backend.store.root)) as url:
        yield url
    backend.catalog.close()


def test_a_marked_part_of_an_axis_becomes_the_filter(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=parameters&axes=params.lr,metrics.val_loss")
    chart = page.get_by_role("img", name=re.compile("Parallel coordinates of 8 runs"))
    expect(chart).to_be_visible()
    box = chart.bounding_box()
    assert box is not None
    left, top = box["x"] + 56, box["y"] + 34  # the first axis's upper end
    height = box["height"] - 34 - 46
    page.mouse.move(left, top + 0.45 * height)
    page.mouse.down()
    page.mouse.move(left, top + 1.05 * height, steps=4)
    page.mouse.up()
    expect(page.get_by_text("4 runs within what is marked")).to_be_visible()
    page.get_by_role("button", name="Filter by it").click()
    expect(page.get_by_label("Filter of runs")).to_have_value(re.compile(r"params\.lr between 0\.1 and 0\.4\d*"))
    expect(page.get_by_role("img", name=re.compile("Parallel coordinates of 4 runs"))).to_be_visible()


def test_the_param_that_the_metric_goes_with_comes_first(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=parameters")
    related = page.get_by_role("region", name="Rank correlation").get_by_role("row")
    expect(related.nth(1)).to_contain_text("lr")
    expect(related.nth(1)).to_contain_text("+1.00")
    expect(related).to_have_count(2)  # its header, and the only number that differs
    page.get_by_label("Across").select_option("params.optimizer")
    page.wait_for_url(re.compile(r"sx=params\.optimizer"))
    expect(page.get_by_role("img", name="metrics.val_loss against params.optimizer of 8 runs")).to_be_visible()


def test_media_are_shown_at_the_step_that_is_chosen(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=media")
    images = page.get_by_role("region", name="samples").get_by_role("img")
    expect(images).to_have_count(2)
    expect(images.first).to_have_js_property("naturalWidth", 8)
    expect(images.first).to_have_attribute("alt", re.compile("at step 10"))
    expect(page.get_by_text("run 0 at 10")).to_be_visible()
    page.get_by_label("Step", exact=True).fill("0")
    expect(images.first).to_have_attribute("alt", re.compile("at step 0"))
    expect(page.get_by_text("run 0 at 0")).to_be_visible()
    page.wait_for_url(re.compile("media-step=0"))


def test_what_is_equal_is_shown_when_it_is_asked_for(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=diff&top=2")
    table = page.get_by_role("table")
    expect(table.get_by_role("rowheader", name="lr")).to_be_visible()
    expect(table.get_by_role("rowheader", name="same")).to_have_count(0)
    page.get_by_label("Differences only").uncheck()
    expect(table.get_by_role("rowheader", name="same")).to_be_visible()
    page.wait_for_url(re.compile("all=1"))


def test_a_panel_fills_the_screen_and_comes_back(url: str, page: Page) -> None:
    page.goto(url)
    panel = page.locator('[data-metric="val_loss"]')
    before = panel.bounding_box()
    panel.get_by_role("button", name="val_loss on the whole screen").click()
    page.wait_for_function("document.fullscreenElement !== null")
    expect(panel).to_have_js_property("clientWidth", page.evaluate("screen.width"))
    expect(panel.locator("canvas").first).to_have_js_property("clientWidth", page.evaluate("screen.width") - 24)
    panel.get_by_role("button", name="val_loss on the whole screen").click()
    page.wait_for_function("document.fullscreenElement === null")
    assert before is not None
    expect(panel).to_have_js_property("clientWidth", round(before["width"]) - 2)
