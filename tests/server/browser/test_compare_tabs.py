"""Compare's other tabs in a browser: parameters, media and differences."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import halving
from resources.backend import Backend
from server.settings import Settings
from tests.server.browser.conftest import can_be_read, serving
from tests.waiting import wait_for

_RUNS = 8


@pytest.fixture(scope="session")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of :func:`url`, to be copied."""
    root = tmp_path_factory.mktemp("logged") / "root"
    for number in range(_RUNS):
        config = {"lr": 0.1 * (number + 1), "optimizer": "sgd" if number % 2 else "adam", "same": 1}
        with halving.init("demo", config, root=str(root), id=f"run-{number}", system_metrics=None) as run:
            for step in (0, 10):
                run.log({"val_loss": float(number)}, step=step)
                if number < 2:
                    pixels = np.full((8, 8), 20 * step, np.uint8)
                    weights = halving.Histogram(counts=[1, 0, 3], edges=[0.0, 1.0, 2.0, 4.0])
                    wrong = halving.Table(
                        columns=["label", "score"], rows=[[f"<b>{row}", row / 7] for row in range(150)]
                    )
                    note = halving.Text(f"run {number} at {step}")
                    run.log(
                        {"samples": halving.Image(pixels), "note": note, "weights": weights, "wrong": wrong},
                        step=step,
                    )
    return root


@pytest.fixture
def url(backend: Backend, logged: Path) -> Iterator[str]:
    """Eight runs whose loss grows with ``lr`` and not with ``same``; the first two logged media, twice."""
    shutil.copytree(logged, backend.store.root, dirs_exist_ok=True)
    with serving(Settings(root=backend.store.root)) as url:
        yield url


def test_a_marked_part_of_an_axis_becomes_the_filter(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=parameters&axes=params.lr,metrics.val_loss")
    chart = page.get_by_role("img", name=re.compile("Parallel coordinates of 8 runs"))
    expect(chart).to_be_visible()
    box = chart.bounding_box()
    assert box is not None
    # the first axis's upper end
    left = box["x"] + 56
    top = box["y"] + 34
    height = box["height"] - 34 - 46
    page.mouse.move(left, top + 0.45 * height)
    page.mouse.down()
    page.mouse.move(left, top + 1.05 * height, steps=4)
    page.mouse.up()
    expect(page.get_by_text("4 runs within what is marked")).to_be_visible()
    page.get_by_role("button", name="Filter by it").click()
    expect(page.get_by_label("Filter of runs")).to_have_value(
        re.compile(r"params\.lr between 0\.1 and 0\.4\d*")
    )
    expect(page.get_by_role("img", name=re.compile("Parallel coordinates of 4 runs"))).to_be_visible()


def test_marks_are_in_the_url_and_another_browser_shows_them_until_cleared(
    url: str, page: Page, browser: Browser
) -> None:
    page.goto(f"{url}/?tab=parameters&sx=params.lr&sy=params.optimizer")
    chart = page.get_by_role("img", name="params.optimizer against params.lr of 8 runs")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    left = box["x"] + 74
    bottom = box["y"] + box["height"] - 50
    width = box["width"] - 98
    height = box["height"] - 72
    page.mouse.move(left + 0.1 * width, bottom - 0.3 * height)
    page.mouse.down()
    page.mouse.move(left + 0.6 * width, bottom, steps=4)  # lr from 0.17 to 0.52, and adam
    page.mouse.up()
    marked = page.get_by_text("2 runs within what is marked")
    expect(marked).to_be_visible()
    page.wait_for_url(
        re.compile(r"mark=params\.lr:0\.1[\d.]+_0\.5[\d.]+&mark=params\.optimizer:\(adam\)_\(adam\)$")
    )
    other = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        second = other.new_page()
        second.goto(page.url)
        expect(second.get_by_text("2 runs within what is marked")).to_be_visible()
        second.get_by_role("button", name="Clear").click()
        second.wait_for_url(re.compile(r"sy=params\.optimizer$"))
        expect(second.get_by_text("within what is marked")).to_have_count(0)
    finally:
        other.close()
    page.get_by_role("button", name="Filter by it").click()
    expect(page.get_by_label("Filter of runs")).to_have_value(
        re.compile(r"params\.lr between .* and params\.optimizer in \('adam'\)")
    )
    assert "mark=" not in page.url
    page.go_back()
    expect(marked).to_be_visible()


def test_marks_of_the_url_that_no_run_can_have_are_left_out_with_the_reason(url: str, page: Page) -> None:
    page.goto(
        f"{url}/?tab=parameters&mark=params.lr:0.1&mark=params.none:1_2&mark=params.optimizer:1_2&mark=params.lr:0.15_0.45"
    )
    expect(page.get_by_text("3 runs within what is marked")).to_be_visible()
    said = page.get_by_role("alert")
    expect(said.first).to_contain_text("In the address mark=params.lr:0.1 is ignored: give NAME:LOW_HIGH")
    expect(said.last).to_contain_text(
        "In the address mark=params.none is ignored: these runs have no such values of it"
    )
    expect(said.last).to_contain_text("mark=params.optimizer is ignored")


def test_the_param_that_explains_most_of_the_metric_comes_first(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=parameters")
    related = page.get_by_role("region", name="Importance").get_by_role("row")
    expect(related.nth(1)).to_contain_text("lr")
    expect(related.nth(1)).to_contain_text("+1.00")
    expect(related.nth(2)).to_contain_text("optimizer")
    expect(related.nth(2)).to_contain_text("0.05")  # ranks 1, 3, 5, 7 and 2, 4, 6, 8: 8 · 0.5² of 42
    expect(related).to_have_count(3)  # its header, and what differs
    page.get_by_label("Across").select_option("params.optimizer")
    page.wait_for_url(re.compile(r"sx=params\.optimizer"))
    expect(
        page.get_by_role("img", name="metrics.val_loss against params.optimizer of 8 runs")
    ).to_be_visible()


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


def test_histograms_are_drawn_in_compare_and_on_the_run_page(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=media")
    drawn = page.get_by_role("region", name="weights").get_by_role(
        "img", name=re.compile("^Histogram of weights of demo.run-")
    )
    expect(drawn).to_have_count(2)
    bars = [
        [float(bar.get_attribute(name) or "") for name in ("x", "y", "width", "height")]
        for bar in drawn.first.locator("rect").all()
    ]
    assert bars == [[0, 100 - 100 / 3, 25, 100 / 3], [50, 0, 50, 100]], (
        "as wide as its bin, as high as its count; no bar for none"
    )
    page.goto(f"{url}/runs/demo/run-0")
    page.get_by_role("link", name=re.compile("weights step 10")).scroll_into_view_if_needed()
    expect(
        page.get_by_role("img", name=re.compile("^Histogram of weights at step 10: 4 values from 0 to 4"))
    ).to_be_visible()


def test_the_first_rows_of_tables_are_read_in_compare_and_on_the_run_page(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=media")
    table = page.get_by_role("region", name="Rows of wrong of demo/run-1 at step 10")
    table.scroll_into_view_if_needed()
    expect(table.get_by_role("row").nth(8)).to_have_text("<b>71")
    expect(table.get_by_role("row").nth(2)).to_have_text("<b>10.14286")
    expect(table.get_by_role("row")).to_have_count(101)
    expect(
        page.get_by_role("region", name="wrong", exact=True).get_by_text("The first 100 of 150 rows.")
    ).to_have_count(2)
    page.goto(f"{url}/runs/demo/run-1")
    table = page.get_by_role("region", name="Rows of wrong at step 10")
    table.scroll_into_view_if_needed()
    expect(table.get_by_role("columnheader", name="score")).to_be_visible()
    expect(page.get_by_text("run 1 at 10")).to_be_visible()


def test_images_are_as_large_as_it_is_chosen_and_the_url_says(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=media")
    image = page.get_by_role("region", name="samples").get_by_role("img").first
    image.evaluate("(image) => image.decode()")
    before = image.bounding_box()
    assert before is not None
    page.get_by_label("Size").select_option("large")
    page.wait_for_url(re.compile("media-size=large"))

    def is_larger() -> bool:
        after = image.bounding_box()
        return (
            after is not None
            and after["width"] > 1.5 * before["width"]
            and after["height"] > 1.5 * before["height"]
        )

    wait_for(is_larger, 60, "the image is larger")


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
    expect(page.locator('[data-metric="val_loss"]:fullscreen')).to_be_visible()
    expect(panel).to_have_js_property("clientWidth", page.evaluate("screen.width"))
    expect(panel.locator("canvas").first).to_have_js_property(
        "clientWidth", page.evaluate("screen.width") - 24
    )
    panel.get_by_role("button", name="val_loss on the whole screen").click()
    expect(page.locator(":fullscreen")).to_have_count(0)
    assert before is not None
    expect(panel).to_have_js_property("clientWidth", round(before["width"]) - 2)


def test_every_tab_of_compare_and_the_help_can_be_read_by_everybody(url: str, page: Page) -> None:
    page.goto(f"{url}/?tab=parameters")
    expect(page.get_by_role("img", name=re.compile("Parallel coordinates"))).to_be_visible()
    can_be_read(page)
    for tab, selector in (("System", ".nothing"), ("Media", "img"), ("Diff", "table")):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel").locator(selector).first).to_be_visible()
        can_be_read(page)
    page.goto(f"{url}/?group=params.optimizer")
    expect(page.get_by_role("region", name="Groups").get_by_role("row")).to_have_count(3)
    can_be_read(page)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    can_be_read(page)


def test_axes_keep_names_with_commas_and_quotes(page: Page, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    for number in range(3):
        with halving.init(
            "demo", {'top "k", 5': number, "lr": 0.1 * number}, root, id=f"run-{number}", system_metrics=None
        ) as run:
            run.log({"loss, mean": float(number)}, step=0)
    with serving(Settings(root=root)) as url:
        page.goto(f"{url}/?tab=parameters")
        page.get_by_text("Axes", exact=False).first.click()
        page.get_by_role("checkbox", name="params.lr").uncheck()
        page.wait_for_url(re.compile("axes="))
        page.reload()
        drawn = page.get_by_role(
            "img", name='Parallel coordinates of 3 runs on params."top ""k"", 5", metrics."loss, mean".'
        )
        expect(drawn).to_be_visible()
        page.goto("about:blank")
