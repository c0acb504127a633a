"""Runs of a project ``demo``, and what is done with them on the Compare page."""

import math
from typing import Any

from playwright.sync_api import Locator, Page, Request, expect

import halving

RUNS = 6
STEPS = 40


def train(root: str, number: int, *, steps: int = STEPS, optimizer: str = "adam") -> str:
    """A finished run; its losses lie over those of the runs before."""
    config = {"lr": 0.001 * (number + 1), "optimizer": optimizer, "same": 1}
    with halving.init(
        "demo", config, root=root, id=f"run-{number}", tags={"team": "vision"}, system_metrics=None
    ) as run:
        for step in range(steps):
            run.log({"loss": number + math.exp(-step / 10), "val/accuracy": 1 - 1 / (step + 2)}, step=step)
    return f"demo/run-{number}"


def row_of(page: Page, number: int) -> Locator:
    return page.locator(f'[data-run="demo/run-{number}"]')


def panel_of(page: Page, name: str) -> Locator:
    return page.locator(f'[data-metric="{name}"]')


def expect_text(page: Page, text: str) -> None:
    expect(page.get_by_text(text, exact=True)).to_be_visible()


def apply_filter(page: Page, text: str) -> None:
    line = page.get_by_label("Filter of runs")
    line.fill(text)
    line.press("Enter")


def drag(page: Page, panel: Locator, start: float, end: float) -> None:
    box = panel.locator(".u-over").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=5)
    page.mouse.up()


def drawn_panels(page: Page) -> list[str]:
    """The panels that were drawn, one for each time."""
    return list(page.evaluate("performance.getEntriesByName('halving:painted').map((mark) => mark.detail)"))


def question_of(request: Request) -> dict[str, Any]:
    """What a request asks of curves; empty for any other."""
    return (request.post_data_json or {}) if request.url.endswith("/api/v1/curves") else {}
