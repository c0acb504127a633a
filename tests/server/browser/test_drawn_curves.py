"""What a chart of curves paints, read from its canvases.

Lines in colours and dashes, bands, and the run under the pointer.
"""

import base64
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
from tests.waiting import wait_for

_MANY = 3_000  # more than a panel has rows: buckets of 3
_RUNS = ["run-2", "run-3", "run-5", "run-10"]
_METRICS = ["few", "many"]
_LINES = "canvas:not(.chart-overlay)"
_HIGHLIGHT = "canvas.chart-overlay"

_PIXELS = """([metric, canvas]) => {
    const panel = document.querySelector(`[data-metric="${metric}"]`);
    const [found, over] = [panel.querySelector(canvas), panel.querySelector(".u-over")];
    const [outer, inner] = [found.getBoundingClientRect(), over.getBoundingClientRect()];
    const [left, top] = [inner.left - outer.left, inner.top - outer.top].map(Math.round);
    const image = found.getContext("2d").getImageData(left, top, over.clientWidth, over.clientHeight);
    const bytes = Array.from(image.data, (byte) => String.fromCharCode(byte)).join("");
    return [[image.height, image.width, 4], btoa(bytes)];
}"""
_SWATCH = "(path) => [getComputedStyle(path).stroke, getComputedStyle(path).strokeDasharray]"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Runs whose curves are level and far from each other.

    ``few`` has single points, ``many`` has buckets that reach 3 up and down.
    """
    backend = Backend(root=str(tmp_path / "root"))
    for number, name in enumerate(_RUNS):
        with halving.init("demo", {}, root=backend.store.root, id=name, system_metrics=None) as run:
            for step in range(_MANY):
                few = {"few": 10.0 * number} if step < 10 else {}
                run.log({"many": 10.0 * number + (-3, 3, 0)[step % 3], **few}, step=step)
    with serving(Settings(root=backend.store.root)) as url:
        yield url
    backend.catalog.close()


def test_runs_have_colours_dashes_and_bands_and_the_pointed_one_stands_out(url: str, page: Page) -> None:
    page.goto(url)
    swatches = [page.locator(f'[data-run="demo/{run}"] .swatch path').evaluate(_SWATCH) for run in _RUNS]
    dashes = [dash for _, dash in swatches]
    colours = [np.array([int(part) for part in re.findall(r"\d+", stroke)[:3]]) for stroke, _ in swatches]
    assert (len(set(dashes)), dashes.count("none")) == (4, 1), "the runs' names are those of all dashes"

    drawn = {metric: _drawn(page, metric, colours) for metric in _METRICS}
    for metric, pixels in drawn.items():
        places = [_line(pixels, colour) for colour in colours]
        assert [column for column, _ in places] == sorted({column for column, _ in places}, reverse=True), (
            "each run's colour is on its own curve"
        )
        for dash, (_, share) in zip(dashes, places, strict=True):
            assert share > 0.99 if dash == "none" else 0.2 < share < 0.85, (metric, dash, share)
        for colour in colours:
            tall = 0.5 * (places[0][0] - places[1][0])  # 6 of 10, without the line and the grid
            assert _band(pixels, colour) > tall if metric == "many" else _band(pixels, colour) == 0, metric

    chosen = colours[1]
    others = [colours[0], *colours[2:]]
    column, _ = _line(drawn["few"], chosen)
    page.locator('[data-metric="few"] .u-over').hover(position={"x": drawn["few"].shape[1] // 2, "y": column})
    expect(page.locator('[data-metric="few"] .tip')).to_contain_text(_RUNS[1])
    for metric in _METRICS:
        over = _drawn(page, metric, [chosen], _HIGHLIGHT)
        column, share = _line(drawn[metric], chosen)
        assert _line(over, chosen)[1] >= share, metric
        assert _thick(over, chosen, column) > 1.2 * _thick(drawn[metric], chosen, column), metric
        for other in others:
            assert not (_like(over, other) & (over[..., 3] > 20)).any(), (
                "only the run under the pointer is painted again"
            )
            column, _ = _line(drawn[metric], other)
            assert (over[column, :, 3] > 100).all(), "the others lie under a veil"
    page.mouse.move(0, 0)
    for metric in _METRICS:
        expect(page.locator(f'[data-metric="{metric}"] {_HIGHLIGHT}')).to_be_hidden()

    page.get_by_role("button", name="band").click()
    wait_for(lambda: _band(_pixels(page, "many", _LINES), colours[0]) == 0, 60, "the chart without its bands")
    pixels = _pixels(page, "many", _LINES)
    assert [round(_line(pixels, colour)[1], 1) for colour in colours] == [
        round(_line(drawn["many"], colour)[1], 1) for colour in colours
    ]
    assert not any(_band(pixels, colour) for colour in colours)


def _drawn(page: Page, metric: str, colours: list[np.ndarray], canvas: str = _LINES) -> np.ndarray:
    """The pixels of a chart once it has curves of all these colours."""
    expect(page.locator(f'[data-metric="{metric}"]')).to_have_attribute("data-state", "drawn")
    wait_for(
        lambda: all(_line(_pixels(page, metric, canvas), colour)[1] for colour in colours),
        60,
        f"curves on {metric}",
    )
    return _pixels(page, metric, canvas)


def _pixels(page: Page, metric: str, canvas: str) -> np.ndarray:
    """Red, green, blue and opacity of a chart's plotting area: an array (lines, columns, 4)."""
    shape, values = page.evaluate(_PIXELS, [metric, canvas])
    return np.frombuffer(base64.b64decode(values), np.uint8).reshape(shape).astype(float)


def _like(pixels: np.ndarray, colour: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(pixels[..., :3] - colour).max(axis=-1) < 24)


def _line(pixels: np.ndarray, colour: np.ndarray) -> tuple[int, float]:
    """In which line of pixels a level curve lies, and how much of that it paints."""
    painted = (_like(pixels, colour) & (pixels[..., 3] > 150)).mean(axis=1)
    return int(painted.argmax()), float(painted.max())


def _thick(pixels: np.ndarray, colour: np.ndarray, column: int) -> float:
    """The painted height in pixels of a level curve near a column; edge pixels count by their share."""
    opaque = pixels[..., 3:] / 255
    colours = pixels[..., :3] * opaque + 255 * (1 - opaque)  # on white paper
    near = colours[column - 5 : column + 6, _like(pixels[column], colour) & (pixels[column, :, 3] > 150)]
    paper = near[0]
    shares = np.linalg.norm(near - paper, axis=-1) / np.linalg.norm(colour - paper, axis=-1)
    return float(np.median(shares.sum(axis=0)))


def _band(pixels: np.ndarray, colour: np.ndarray) -> float:
    """How many pixels high the faint range around a curve is, in the middle column of the chart."""
    faint = _like(pixels, colour) & (pixels[..., 3] > 20) & (pixels[..., 3] < 60)
    return float((faint.mean(axis=1) > 0.5).sum())
