"""Functions of the page's modules, imported in the browser and called with tables of cases."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from server.settings import Settings
from tests.server.browser.conftest import Served, serving

_CALL = (
    "async ([module, name, cases]) => { const named = (await import(module))[name]; return "
    "cases.map((values) => named(...values)); }"
)


@pytest.fixture
def modules(page: Page, served: Served) -> Page:
    page.goto(f"{served.url}/login")  # any page that has the import map
    return page


def _call(page: Page, module: str, name: str, cases: list[list[Any]]) -> list[Any]:
    """What a module's function answers to each list of arguments."""
    return list(page.evaluate(_CALL, [module, name, cases]))


def _check(page: Page, module: str, name: str, table: dict[tuple[Any, ...], Any]) -> None:
    answers = _call(page, module, name, [list(arguments) for arguments in table])
    assert dict(zip(table, answers, strict=True)) == table


def test_a_filter_is_narrowed_before_its_order_and_limit_and_names_are_no_keywords(modules: Page) -> None:
    table = {
        "": "x = 1",
        "a = 1": "a = 1 and x = 1",
        "a = 1 or b = 2": "(a = 1 or b = 2) and x = 1",
        "a = 'this or that'": "a = 'this or that' and x = 1",
        "order by a": "x = 1 order by a",
        "a = 1 ORDER  BY b desc LIMIT 5": "a = 1 and x = 1 ORDER  BY b desc LIMIT 5",
        "limit 5": "x = 1 limit 5",
        "params.limit >= 0": "params.limit >= 0 and x = 1",
        "params.order = 1 order by params.limit desc limit 3": (
            "params.order = 1 and x = 1 order by params.limit desc limit 3"
        ),
        'params."order by" > 1': 'params."order by" > 1 and x = 1',
        "run = 'it''s order by limit 5'": "run = 'it''s order by limit 5' and x = 1",
        "params.a/limit > 1 limit 2": "params.a/limit > 1 and x = 1 limit 2",
        "params.größe = 1 order by run": "params.größe = 1 and x = 1 order by run",
    }
    answers = _call(modules, "/compare/filter-text.js", "narrowed", [[text, ["x = 1"]] for text in table])
    assert dict(zip(table, answers, strict=True)) == table


def test_a_click_on_a_column_orders_upwards_then_downwards_then_not_at_all(modules: Page) -> None:
    table = {
        ("", "run"): "order by run",
        ("order by run", "run"): "order by run desc",
        ("order by run desc", "run"): "",
        ("a = 1 order by b, c limit 5", "run"): "a = 1 order by run limit 5",
        (
            "params.limit > 0 order by params.limit limit 5",
            "params.limit",
        ): "params.limit > 0 order by params.limit desc limit 5",
        (
            'order by metrics."top 1, limit 5" asc, run',
            'metrics."top 1, limit 5"',
        ): 'order by metrics."top 1, limit 5" desc',
        ("run = 'order by x'", "run"): "run = 'order by x' order by run",
    }
    _check(modules, "/compare/filter-text.js", "orderedBy", table)


def test_fields_are_parted_at_commas_that_are_not_in_quotes(modules: Page) -> None:
    table = {
        ("",): [],
        ("run",): ["run"],
        ("run, params.lr,",): ["run", "params.lr"],
        ('metrics."acc,top5",params."a""b,c"',): ['metrics."acc,top5"', 'params."a""b,c"'],
        ('min(metrics."a,b"),run',): ['min(metrics."a,b")', "run"],
    }
    _check(modules, "/compare/filter-text.js", "fieldsOf", table)


def test_repeated_failures_are_retried_ever_later_and_an_absent_server_steadily(
    modules: Page,
) -> None:
    table = {(500, 0): 5, (500, 1): 10, (502, 2): 20, (500, 9): 60, (429, 1): 10, (0, 0): 5, (0, 9): 5}
    _check(modules, "/lib/api.js", "pauseAfter", table)


def test_a_status_is_completed_by_its_values(modules: Page) -> None:
    table = {
        "status = ": 7,
        "status = f": 2,
        "status != fa": 1,
        "a = 1 and status in (failed, c": 1,
        "mystatus = f": 0,
        "status = failed": 0,
    }
    answers = _call(modules, "/compare/names.js", "suggestions", [[before] for before in table])
    assert {
        before: len(answer["completions"]) for before, answer in zip(table, answers, strict=True)
    } == table
    assert [completion["text"] for completion in answers[1]["completions"]] == ["finished", "failed"]


def test_the_metric_that_a_filter_orders_by_is_found_whatever_its_name(modules: Page) -> None:
    metrics = ["metrics.loss", 'metrics."val loss"', "metrics.acc"]
    table = {
        "": 'metrics."val loss"',
        "order by params.lr": 'metrics."val loss"',
        "params.lr > 1 order by metrics.acc desc limit 3": "metrics.acc",
        'order by metrics."val loss"': 'metrics."val loss"',
        'order by metrics."top 1, limit (5)" desc': 'metrics."top 1, limit (5)"',
        'order by min(metrics."a ""b"" c)") desc, run': 'metrics."a ""b"" c)"',
        "run = 'order by metrics.acc'": 'metrics."val loss"',
    }
    answers = _call(
        modules, "/compare/parameters.js", "objectiveOf", [[metrics, filter_text] for filter_text in table]
    )
    assert dict(zip(table, answers, strict=True)) == table


def test_ranges_are_read_from_the_url_as_they_are_written_there_and_others_are_named(modules: Page) -> None:
    texts = [
        "val/loss:-0.5_1e-3",
        "a:1_2:3_4",
        "params.optimizer:(adam)_(a ))_(b)))",
        'metrics."val loss":0_0',
    ]
    wrong = ["loss", "loss:1", "loss:2_1", "loss:1_(a)", "loss:1_1e999", ":1_2"]
    script = """async (texts) => {
        const { rangesOf, textsOf } = await import("/compare/ranges.js");
        const { ranges, wrong } = rangesOf(texts);
        return [[...ranges], textsOf(ranges), wrong];
    }"""
    ranges, written, left = modules.evaluate(script, [*texts, *wrong])
    assert dict(ranges) == {
        "val/loss": {"low": -0.5, "high": 0.001},
        "a:1_2": {"low": 3, "high": 4},
        "params.optimizer": {"low": "adam", "high": "a )_(b)"},
        'metrics."val loss"': {"low": 0, "high": 0},
    }
    assert written == ["val/loss:-0.5_0.001", *texts[1:]]
    assert left == wrong


def test_whole_numbers_keep_all_their_digits(modules: Page) -> None:
    """Numbers keep their digits from JSON to text and back, and find the nearest place on an axis."""
    script = """async (texts) => {
        const { parsed } = await import("/lib/json.js");
        const { display } = await import("/lib/format.js");
        const { numberOf } = await import("/charts/axis.js");
        return texts.map((text) => {
            const value = parsed(text);
            return [display(value), JSON.stringify(value), String(numberOf(value))];
        });
    }"""
    table = {
        "9007199254740991": ["9007199254740991", "9007199254740991", "9007199254740991"],
        "9007199254740993": ["9007199254740993", "9007199254740993", "9007199254740992"],
        "-9007199254740993": ["\u22129007199254740993", "-9007199254740993", "-9007199254740992"],
        "12345678901234567890": ["12345678901234567890", "12345678901234567890", "12345678901234567000"],
        "9" * 40: ["9" * 40, "9" * 40, "1e+40"],
        "12345678901": ["12345678901", "12345678901", "12345678901"],
        '"9007199254740993"': ["9007199254740993", '"9007199254740993"', "NaN"],
        "[1,-9007199254740993,9007199254740995]": ["[1,-9007199254740993,9007199254740995]"] * 2 + ["NaN"],
        '{"id": 9007199254740993, "lr": 0.1}': ['{"id":9007199254740993,"lr":0.1}'] * 2 + ["NaN"],
        '{"step": 9007199254740993}': ['{"step":9007199254740992}'] * 2 + ["NaN"],
        "0.12345678901234567": ["0.123457", "0.12345678901234566", "0.12345678901234566"],
        "1234567890123456.5": ["1.23457e15", "1234567890123456.5", "1234567890123456.5"],
        "1e300": ["1e300", "1e+300", "1e+300"],
        "9007199254740993.0": ["9.0072e15", "9007199254740992", "9007199254740992"],
        "0.1": ["0.1", "0.1", "0.1"],
        "-3": ["\u22123", "-3", "-3"],
        "null": ["\u2013", "null", "NaN"],
        "true": ["true", "true", "NaN"],
        '"NaN"': ["NaN", '"NaN"', "NaN"],
    }
    assert dict(zip(table, modules.evaluate(script, list(table)), strict=True)) == table
    answered = """async () => {
        const { jsonOf } = await import("/lib/api.js");
        return String((await jsonOf(new Response('{"params": {"id": 9007199254740993}}'))).params.id);
    }"""
    assert modules.evaluate(answered) == "9007199254740993"


def test_tables_are_ordered_by_numbers_of_any_size(modules: Page) -> None:
    script = """async (text) => {
        const { parsed } = await import("/lib/json.js");
        const { setQuery } = await import("/lib/url-state.js");
        const { ordered } = await import("/components/sorting.js");
        const values = parsed(text);
        return ["id", "-id"].map((order) => {
            setQuery({ order });
            return ordered(values, (value) => value).map((value) => JSON.stringify(value));
        });
    }"""
    values = [
        "9007199254740995",
        '"b"',
        "-9007199254740993",
        "0.5",
        "null",
        "9007199254740993",
        "-9007199254740994",
        "1e+300",
        "-3",
        '"a"',
    ]
    upwards = [
        "-9007199254740994",
        "-9007199254740993",
        "-3",
        "0.5",
        "9007199254740993",
        "9007199254740995",
        "1e+300",
        '"a"',
        '"b"',
    ]
    assert modules.evaluate(script, f"[{','.join(values)}]") == [
        [*upwards, "null"],
        [*reversed(upwards), "null"],
    ]


def test_a_params_value_is_shown_as_it_was_written(modules: Page) -> None:
    values: list[Any] = [
        None,
        [64, 64],
        [],
        {},
        {"name": "sgd", "decay": None},
        [None, True],
        "null",
        True,
        3,
        0.001,
        "",
    ]
    expected = [
        "null",
        "[64,64]",
        "[]",
        "{}",
        '{"name":"sgd","decay":null}',
        "[null,true]",
        "null",
        "true",
        "3",
        "0.001",
        "",
    ]
    assert _call(modules, "/lib/format.js", "param", [[value] for value in values]) == expected


BASE = "/user/ada"


@pytest.fixture
def below(page: Page, served: Served) -> Iterator[Page]:
    """A page that a proxy shows below a path."""
    with serving(Settings(root=served.backend.store.root, base_path=BASE)) as address:
        page.goto(f"{address}{BASE}/login")
        yield page


def test_only_paths_below_the_base_path_are_the_pages_own(below: Page) -> None:
    table = {
        (BASE,): "/",
        (f"{BASE}/",): "/",
        (f"{BASE}/sweeps",): "/sweeps",
        (f"{BASE}/models/a%2Fb",): "/models/a%2Fb",
        (f"{BASE}{BASE}/",): f"{BASE}/",
        (f"{BASE}/api/v1/runs",): "/api/v1/runs",
        ("/",): "/",
        ("/sweeps",): "/sweeps",
        ("/user",): "/user",
        ("/user/adam/sweeps",): "/user/adam/sweeps",
        ("/user/ada2",): "/user/ada2",
        ("/USER/ADA/",): "/USER/ADA/",
    }
    _check(below, "/lib/base.js", "within", table)
    _check(
        below,
        "/lib/base.js",
        "isHere",
        {(path,): path == BASE or path.startswith(f"{BASE}/") for (path,) in table},
    )


def test_addresses_in_templates_are_put_below_the_base_path(below: Page) -> None:
    own = ["/", "/sweeps", "/runs/p/a%20b", "/?filter=a", "/api/v1/blobs/sha256:0?run=p%2Fr"]
    others = [
        "",
        "?version=1",
        "#main",
        "//example.org/a",
        "https://example.org/a",
        "data:image/png;base64,AA==",
        "blob:a",
        None,
    ]
    results = below.evaluate(
        """async (addresses) => {
            const { html } = await import("/lib/html.js");
            const Link = () => null;
            const one = (of) => [
                html`<a class="b" href=${of} />`, html`<img src=${of} />`, html`<${Link} href=${of} />`,
            ].map((node) => node.props);
            return [addresses.map(one), html`<p>plain</p>`.props.children];
        }""",
        [*own, *others],
    )
    for address, (link, image, component) in zip([*own, *others], results[0], strict=True):
        below_it = f"{BASE}{address}" if address in own else address
        assert (link, image) == ({"class": "b", "href": below_it}, {"src": below_it}), address
        assert component == {"href": address}, "a component's own templates do it"
    assert results[1] == "plain"
