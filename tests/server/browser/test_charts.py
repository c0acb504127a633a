"""What Compare's charts and names say of the shown runs: metrics, lines and numbers."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

import halving
from halving.query.curve_table import smoother_of as ema
from halving.query.run_filter import Between, Condition, In
from halving.query.run_filter_parser import parse_filter
from resources.backend import Backend
from server.settings import Settings
from tests.server.browser.conftest import serving


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with three projects of runs.

    ``small`` and ``wide`` share ``loss`` and have a metric each that the other has not, with runs of two
    optimizers. The one run of ``signs`` has many points, some of them below zero.
    """
    backend = Backend(root=str(tmp_path_factory.mktemp("charts") / "root"))
    for project, own in (("small", "margin"), ("wide", "gradient/norm")):
        for number in range(4):
            config = {"optimizer": "sgd" if number % 2 else "adam"}
            with halving.init(
                project, config, root=backend.store.root, id=f"{project}-{number}", system_metrics=None
            ) as run:
                for step in range(10):
                    run.log({"loss": float(number + step), own: float(step)}, step=step)
    with halving.init("signs", {}, root=backend.store.root, id="signs", system_metrics=None) as run:
        for step in range(3_000):
            run.log(
                {
                    "mixed": float(step - 1_000),
                    "negative": -1.0 - step,
                    "system/memory/used": 4e10 + 1e6 * step,
                },
                step=step,
            )
    for number in range(3):
        params = {f"p{place:03}": place * number for place in range(320)}
        with halving.init(
            "many", params, root=backend.store.root, id=f"many-{number}", system_metrics=None
        ) as run:
            run.log({"loss": float(number)}, step=0)
    with serving(Settings(root=backend.store.root)) as url:
        yield url
    backend.catalog.close()


@pytest.fixture
def module(url: str, page: Page) -> Callable[..., Any]:
    """Runs a function on a module of the page: ``module("charts/curves.js", "(module, x) => …", x)``."""
    page.goto(f"{url}/login")

    def run(path: str, function: str, argument: object = None) -> Any:
        script = f"""async ([path, given]) => {{
            const app = document.querySelector('script[src$="app.js"]').src;
            return ({function})(await import(app.replace("app.js", path)), given);
        }}"""
        return page.evaluate(script, [path, argument])

    return run


def _panel(page: Page, name: str) -> Locator:
    return page.locator(f'[data-metric="{name}"]')


def test_panels_and_columns_are_those_of_the_runs_that_the_filter_chooses(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('project = small')}")
    expect(_panel(page, "margin")).to_have_attribute("data-state", "drawn")
    expect(page.locator("[data-metric]")).to_have_count(2)
    page.get_by_role("button", name="Columns").click()
    columns = page.get_by_role("dialog", name="Columns")
    expect(columns.get_by_text("metrics.margin")).to_be_visible()
    expect(columns.get_by_text("metrics.gradient/norm")).to_have_count(0)


def test_a_filter_may_name_what_only_other_runs_have(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('project = small')}")
    page.get_by_label("Filter of runs").press_sequentially(" or gradient")
    expect(page.get_by_role("option", name=re.compile("gradient.norm"))).to_be_visible()


def test_metrics_that_no_shown_run_has_come_last_and_folded(url: str, page: Page) -> None:
    page.goto(f"{url}/?top=0&show=small/small-1")
    expect(_panel(page, "margin")).to_have_attribute("data-state", "drawn")
    expect(_panel(page, "gradient/norm")).to_have_count(0)
    section = page.get_by_role("button", name="no shown run has these")
    expect(section).to_have_attribute("aria-expanded", "false")
    section.click()
    expect(_panel(page, "gradient/norm")).to_have_attribute("data-state", "empty")


_STYLES = """({ dress, styleOf }, steps) => steps.map((ids) => {
    dress(ids);
    return ids.map((id) => [styleOf(id).index, String(styleOf(id).dash)]);
})"""


def test_no_two_of_the_shown_runs_look_alike_while_there_are_styles(module: Callable[..., Any]) -> None:
    for count in (20, 48):
        (styles,) = module("lib/colours.js", _STYLES, [[f"demo/run-{number}" for number in range(count)]])
        assert len({tuple(style) for style in styles}) == count


def test_few_lines_have_colours_of_their_own(module: Callable[..., Any]) -> None:
    (styles,) = module("lib/colours.js", _STYLES, [[f"demo/run-{number}" for number in range(12)]])
    assert len({colour for colour, _ in styles}) == 12


def test_a_run_keeps_its_style_while_others_come_and_go(module: Callable[..., Any]) -> None:
    ids = [f"demo/run-{number}" for number in range(40)]
    first, fewer, others, back = module(
        "lib/colours.js", _STYLES, [ids[:20], ids[10:20], ids[10:30], ids[:20]]
    )
    assert fewer == first[10:]
    assert others[:10] == fewer
    assert back[10:] == fewer
    assert len({tuple(style) for style in back}) == 20


def test_first_runs_look_the_same_in_whatever_order_they_come(module: Callable[..., Any], page: Page) -> None:
    ids = [f"demo/run-{number}" for number in range(30)]
    (style,) = module("lib/colours.js", _STYLES, [ids])
    page.reload()
    (other,) = module("lib/colours.js", _STYLES, [ids[::-1]])
    assert other == style[::-1]


def test_the_table_shows_a_dozen_runs_in_colours_of_their_own(url: str, page: Page) -> None:
    page.goto(url)
    swatches = page.locator(".runs .swatch path")
    expect(swatches).to_have_count(12)
    assert (
        len(set(swatches.evaluate_all("(paths) => paths.map((path) => path.getAttribute('stroke'))"))) == 12
    )


_SMOOTH = """({ smoothed, append }, { x, value, min, points, whole, more, weight }) => {
    const made = ({ x, value, min, points }) => ({
        run: "a/b", key: "m", length: x.length, points,
        x: Float64Array.from(x), value: Float32Array.from(value),
        min: min && Float32Array.from(min), max: min && Float32Array.from(min),
    });
    const curve = { ...made({ x, value, min, points }), ...(whole ? { whole: made(whole) } : {}) };
    if (more) append(curve, more.x, more.value);
    return [...smoothed(curve, weight)];
}"""


def _noise(points: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=points) + np.exp(-np.arange(points) / 300)


def _buckets(values: np.ndarray, size: int) -> dict[str, Any]:
    means = values.reshape(-1, size).mean(axis=1).tolist()
    return {"x": list(range(0, len(values), size)), "value": means, "min": means, "points": len(values)}


def test_points_are_smoothed_as_the_sdk_smooths_them(module: Callable[..., Any]) -> None:
    values = _noise(500)
    expected = ema({"ema": 0.9})(values)
    smoothed = module(
        "charts/curves.js",
        _SMOOTH,
        {"x": list(range(500)), "value": values.tolist(), "points": 500, "weight": 0.9},
    )
    np.testing.assert_allclose(smoothed, expected, rtol=1e-4, atol=1e-5)


def test_buckets_are_smoothed_as_the_points_that_they_stand_for(module: Callable[..., Any]) -> None:
    values = _noise(3000)
    expected = ema({"ema": 0.95})(values)
    buckets = _buckets(values, 3)
    smoothed = module("charts/curves.js", _SMOOTH, {**buckets, "weight": 0.95})
    np.testing.assert_allclose(smoothed[50:], expected[2::3][50:], atol=0.15)
    assert np.abs(np.diff(smoothed)).sum() < 1.2 * np.abs(np.diff(expected)).sum()
    more = {"x": [3000, 3001, 3002], "value": [1.0, 1.0, 1.0]}
    grown = module("charts/curves.js", _SMOOTH, {**buckets, "more": more, "weight": 0.95})
    after = smoothed[-1]
    for value in grown[1000:]:
        after = 0.95 * after + 0.05
        assert value == pytest.approx(after, abs=1e-4), "a live point counts once"


def test_a_window_is_smoothed_as_the_same_part_of_the_whole(module: Callable[..., Any]) -> None:
    values = _noise(3000)
    expected = ema({"ema": 0.95})(values)[1500:1700]
    window = {"x": list(range(1500, 1700)), "value": values[1500:1700].tolist(), "points": 200}
    smoothed = module("charts/curves.js", _SMOOTH, {**window, "whole": _buckets(values, 3), "weight": 0.95})
    np.testing.assert_allclose(smoothed, expected, atol=0.02)
    alone = module("charts/curves.js", _SMOOTH, {**window, "weight": 0.95})
    assert abs(alone[1] - expected[1]) > 0.1, "without what was before, the average would begin anew"


_FILTER = """async ({ filterOf }, { name, values, low, high }) => {
    const app = document.querySelector('script[src$="app.js"]').src;
    const { axisOf, shareOf } = await import(app.replace("app.js", "charts/axis.js"));
    const axis = axisOf(name, values);
    const inside = values.filter((value) => shareOf(axis, value) >= low && shareOf(axis, value) <= high);
    return [filterOf(axis, { low, high }, values), inside];
}"""


_MARKED: list[tuple[list[Any], float, float]] = [
    ([98449.0, 98460.0, 98473.0], 0, 1),
    ([0.00123456, 0.01, 0.0984499], 0, 1),
    ([0.1, 0.30000000000000004, 1.0], 0, 0.5),
    ([1.0, 1.0000001, 1.0000002, 2.0], 0, 1.5e-7),
    ([-3e-9, 5e21], 0, 1),
    (["and", "null", "it's", "adam"], 0, 1),
    ([True, False, "true", "NaN", 3], 0, 1),
]


def test_a_filter_chooses_the_runs_that_were_marked(module: Callable[..., Any]) -> None:
    for values, low, high in _MARKED:
        text, inside = module(
            "charts/brush.js", _FILTER, {"name": "params.p", "values": values, "low": low, "high": high}
        )
        where = parse_filter(text).where
        assert [value for value in values if _is_chosen(where, value)] == inside, text


_KEPT = """async ({ brushOf, isWithin, rangeOf }, { values, low, high }) => {
    const app = document.querySelector('script[src$="app.js"]').src;
    const { axisOf } = await import(app.replace("app.js", "charts/axis.js"));
    const axis = axisOf("params.p", values);
    const chosen = (brush) => values.filter((value) => isWithin(axis, brush, value));
    return [chosen({ low, high }), chosen(brushOf(axis, rangeOf(axis, { low, high })))];
}"""


def test_a_marked_range_that_is_kept_by_its_values_chooses_the_same_runs(module: Callable[..., Any]) -> None:
    drags = [each for each in _MARKED if each[2] > 0.01]  # less cannot be seen
    for values, low, high in [
        *drags,
        ([0.001, 0.01, 0.1], 0.4, 0.6),
        ([5, 5, 5], 0.2, 0.8),
        (["a", "b", "c"], 0.4, 1),
    ]:
        drawn, kept = module("charts/brush.js", _KEPT, {"values": values, "low": low, "high": high})
        assert kept == drawn, values


def _is_chosen(where: Condition | None, value: Any) -> bool:
    if isinstance(where, Between):
        assert isinstance(where.low, float)
        assert isinstance(where.high, float)
        return where.low <= value <= where.high
    assert isinstance(where, In)
    if value == "NaN" or type(value) is int:
        value = float(value)
    return any(type(choice) is type(value) and str(choice) == str(value) for choice in where.values)


def test_what_a_logarithmic_axis_hides_is_said(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('project = signs')}&logy=1")
    expect(_panel(page, "mixed").locator(".panel-note")).to_contain_text("log y hides values ≤ 0 of 1 line")
    expect(_panel(page, "negative")).to_contain_text("No value is above 0")
    page.get_by_role("button", name="log y").click()
    expect(_panel(page, "negative")).not_to_contain_text("No value is above 0")
    expect(_panel(page, "mixed").locator(".panel-note")).to_have_text("buckets of 3")


def test_the_table_of_a_bucketed_curve_has_the_last_value_itself_and_says_its_window(
    url: str, page: Page
) -> None:
    page.goto(f"{url}/?filter={quote('project = signs')}&metrics=mixed")
    panel = _panel(page, "mixed")
    expect(panel.locator(".panel-note")).to_have_text("buckets of 3")
    panel.get_by_role("button", name="mixed as a table").click()
    cells = panel.get_by_role("cell")
    expect(cells).to_have_text(["1999", "from step 2997", "\N{MINUS SIGN}1000", "1999", "3000"])
    page.goto(f"{url}/?filter={quote('project = signs')}&metrics=mixed&zoom=100_200")
    expect(panel.locator(".panel-note")).to_have_text("")
    panel.get_by_role("button", name="mixed as a table").click()
    expect(panel.get_by_text("Min, max and points are those from step 100 to step 200")).to_be_visible()
    expect(cells).to_have_text(["1999", "from step 2997", "\N{MINUS SIGN}900", "\N{MINUS SIGN}800", "101"])


def test_bytes_are_written_with_their_units(module: Callable[..., Any], url: str, page: Page) -> None:
    ticks = """({ byteSplits, axisBytes }, [low, high]) => {
        const at = byteSplits(low, high, 4, false);
        return at.map((value) => axisBytes(value, at[1] - at[0], at.at(-1)));
    }"""
    assert module("charts/ticks.js", ticks, [43.1 * 2**30, 43.9 * 2**30]) == [
        "43.2 GB",
        "43.4 GB",
        "43.6 GB",
        "43.8 GB",
    ]
    assert module("charts/ticks.js", ticks, [0, 900]) == ["0", "500 B"]
    names = [
        "system/memory/used",
        "system/network/sent",
        "system/gpu.0/power",
        "system/cpu/percent",
        "system/disk/used",
        "loss",
    ]
    texts = module(
        "compare/units.js", "({ measured }, names) => names.map((name) => measured(name, 246296576))", names
    )
    assert texts == ["235 MB", "235 MB/s", "246296576 W", "246296576 %", "235 MB", "246296576"]
    assert module("lib/format.js", "({ size }) => [0.30000000004, 1023.9, 1023.9 * 1024].map(size)") == [
        "0.3 B",
        "1024 B",
        "1024 kB",
    ]
    page.goto(f"{url}/?filter={quote('project = signs')}&tab=system")
    panel = _panel(page, "system/memory/used")
    panel.get_by_role("button", name="as a table").click()
    expect(panel.get_by_role("cell").first).to_have_text("40 GB")


def test_a_place_in_time_has_its_seconds(module: Callable[..., Any]) -> None:
    places = "({ placeText }) => [placeText('time', 30), placeText('step', 30), placeText('relative', 30)]"
    time, step, relative = module("compare/curve-table.js", places)
    assert time.endswith(":30")
    assert (step, relative) == ("step 30", "30 s")


_GROUP = """({ groupCurve }, curves) => {
    const made = curves.map(({ x, value }) => ({
        run: "a/b", key: "m", length: x.length, points: x.length, min: null, max: null,
        x: Float64Array.from(x), value: Float32Array.from(value),
    }));
    const { x, value, min, max, members } = groupCurve("group", made);
    return { x: [...x], value: [...value], min: [...min], max: [...max], members };
}"""


def test_a_groups_curve_is_mean_and_deviation_over_the_places_of_all(module: Callable[..., Any]) -> None:
    curves = [
        {"x": [0, 2, 4], "value": [0, 2, 4]},
        {"x": [0, 1, 2], "value": [2, 4, 6]},
        {"x": [3], "value": [8]},
    ]
    curve = module("charts/group-curve.js", _GROUP, curves)
    members = [[0, 2], [1, 4], [2, 6], [3, 8], [4]]
    means = [np.mean(values) for values in members]
    deviations = np.array([np.std(values, ddof=1) if len(values) > 1 else 0.0 for values in members])
    assert curve["x"] == [0, 1, 2, 3, 4]
    assert curve["members"] == 3
    np.testing.assert_allclose(curve["value"], means, rtol=1e-6)
    np.testing.assert_allclose(curve["min"], np.subtract(means, deviations), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(curve["max"], np.add(means, deviations), rtol=1e-6)


def test_a_groups_curve_leaves_out_what_is_not_finite_and_stays_small(module: Callable[..., Any]) -> None:
    curves = [{"x": list(range(5_000)), "value": [float(run)] * 5_000} for run in range(4)]
    (values, places) = module(
        "charts/group-curve.js",
        f"(module, curves) => {{ curves[3].value.fill(NaN); const {{ x, value }} = ({_GROUP})(module, "
        "curves); return [value, x]; }",
        curves,
    )
    assert set(values) == {1.0}
    assert len(places) <= 1_000
    assert (places[0], places[-1]) == (0, 4_999)


def test_grouped_runs_are_one_line_for_each_group_in_the_groups_colour(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('project = small')}&group=params.optimizer&metrics=loss")
    panel = _panel(page, "loss")
    expect(panel.locator(".panel-note")).to_have_text("mean ± std of groups")
    panel.get_by_role("button", name="loss as a table").click()
    expect(panel.get_by_role("rowheader")).to_have_text(["sgd", "adam"])
    # 9 and 11 in the mean
    expect(panel.get_by_role("row", name=re.compile("adam"))).to_contain_text("10step 9")
    expect(panel.get_by_role("row", name=re.compile("sgd"))).to_contain_text("11step 9")
    look = "(path) => path.getAttribute('stroke') + path.getAttribute('stroke-dasharray')"
    group = {
        name: page.locator(f'[data-group="{name}"] .swatch path').evaluate(look) for name in ("adam", "sgd")
    }
    assert group["adam"] != group["sgd"]
    for number in range(4):
        swatch = page.locator(f'[data-run="small/small-{number}"] .swatch path')
        assert swatch.evaluate(look) == group["sgd" if number % 2 else "adam"]
    page.get_by_label("Group by").select_option("no groups")
    expect(panel.get_by_role("rowheader")).to_have_count(4)


def test_the_machine_is_compared_from_each_runs_start_or_by_the_clock(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('project = signs')}&tab=system")
    panel = _panel(page, "system/memory/used")
    panel.get_by_role("button", name="as a table").click()
    cell = panel.get_by_role("cell").nth(1)
    expect(cell).to_have_text(re.compile(r"^from [\d.]+ m?s$"))
    page.get_by_label("Horizontal axis").select_option("time")
    expect(cell).to_have_text(re.compile(r"^from .*\d\d:\d\d:\d\d$"))
    assert "sysx=time" in page.url
    page.reload()
    expect(page.get_by_label("Horizontal axis")).to_have_value("time")


def test_parameters_say_which_runs_and_params_they_are_of_and_find_the_others(url: str, page: Page) -> None:
    page.goto(f"{url}/?filter={quote('project = many')}&hide=many/many-0&tab=parameters")
    expect(
        page.get_by_text("3 runs of the filter, hidden ones too; of 320 params the 45 that most runs have")
    ).to_be_visible()
    page.locator("summary", has_text="Axes").click()
    axes = page.get_by_role("group", name="Axes")
    expect(axes.get_by_label("params.p319")).to_have_count(0)
    axes.get_by_label("Find names").fill("p319")
    axes.get_by_label("params.p319").check()
    expect(
        page.get_by_role("img", name=re.compile(r"Parallel coordinates of 3 runs on .*params\.p319"))
    ).to_be_visible()
