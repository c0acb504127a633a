"""Which queries of Compare's address are kept as views."""

import re
import time
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving.errors import InvalidInput
from resources.views.view_query import MANY, MAX_LENGTH, NAMES, check_query
from server.sharing.view import parse_view
from tests.properties import examples

WHOLE_VIEW = (
    'filter=params.lr+<+0.1+order+by+metrics.val_loss&columns=params.lr,metrics."top 1,5"&top=5'
    "&show=digits/a,b/c&hide=p/r&tab=parameters&x=relative&logy=1&smooth=0.6&band=0&zoom=1_20&zoom-y=val/loss:0.1_0.5"
    "&zoom-y=acc:0_1e-3&mark=params.optimizer:(adam)_(sgd)&fold=train&fold=%0A"
    "&color=metrics.loss&axes=params.lr"
    "&sx=a&sy=b&media-step=3&media-size=large&all=1&sysx=time&group=params.optimizer&metrics=loss&logx=1"
)


def test_all_that_compare_writes_into_its_address_is_kept_as_it_is() -> None:
    kept = check_query(f"?{WHOLE_VIEW}")
    assert parse_qsl(kept) == parse_qsl(WHOLE_VIEW)
    assert check_query(kept) == kept
    assert parse_view(kept).filter == "params.lr < 0.1 order by metrics.val_loss"
    assert {name for name, _ in parse_qsl(kept)} >= set(NAMES) - {"zoom-time", "zoom-relative"}


def test_what_is_empty_is_left_out_and_an_empty_view_is_all_runs() -> None:
    assert check_query("filter=&tab=&columns=params.lr") == "columns=params.lr"
    assert check_query("") == check_query("?") == ""


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("utm_source=mail", "name 'utm_source' is not accepted: a view of Compare has filter, columns,"),
        ("best+by+lr", "name 'best by lr' is not accepted"),
        ("filter=status+==", "filter = 'status =='"),
        ("filter=a&filter=b", "filter is there twice"),
        ("columns=params.", "columns = 'params.'"),
        ("group=params.a,params.b", "group = 'params.a,params.b' is not accepted: give one field"),
        ("top=1001", "top = '1001' is not accepted: give a whole number from 0 to 1000"),
        ("top=-1", "top = '-1'"),
        ("tab=secrets", "tab = 'secrets' is not accepted: give curves or"),
        ("x=loss", "x = 'loss'"),
        ("smooth=1", "smooth = '1'"),
        ("smooth=nan", "smooth = 'nan'"),
        ("zoom=5_1", "zoom = '5_1' is not accepted: give LOW_HIGH"),
        ("zoom=1_1e999", "zoom = '1_1e999'"),
        ("zoom-y=loss:(a)_(b)", "zoom-y = 'loss:(a)_(b)' is not accepted: give METRIC:LOW_HIGH"),
        ("zoom-y=loss:2_1", "zoom-y = 'loss:2_1'"),
        ("mark=a", "mark = 'a' is not accepted: give NAME:LOW_HIGH"),
        ("show=a", "show = 'a' is not accepted: give runs as project/run"),
        ("metrics=%00", "metrics holds NUL"),
        ("media-step=1e999", "media-step = '1e999'"),
        (f"metrics={'a' * MAX_LENGTH}", f"at most {MAX_LENGTH}"),
    ],
)
def test_what_is_no_view_of_compare_is_refused_by_its_field(query: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        check_query(query)


@pytest.mark.parametrize(
    "query",
    [
        f"zoom={'1' * 15_000}",
        f"zoom-y=a:1_{'1' * 15_000}x",
        f"smooth={'1' * 15_000}x",
        f"mark=a:{'1' * 900}",
        f"mark={':(' * 7_000}",
    ],
)
def test_a_long_value_is_refused_in_a_time_that_grows_with_its_length(query: str) -> None:
    begin = time.process_time()
    with pytest.raises(InvalidInput):
        check_query(query)
    assert time.process_time() - begin < 1  # with the square of its length it would be three to ten


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.text(min_size=1, max_size=20)), max_size=6))
def test_any_query_is_kept_as_it_is_or_refused_as_input(pairs: list[tuple[str, str]]) -> None:
    try:
        query = urlencode(pairs)
    except UnicodeEncodeError:
        return
    try:
        kept = check_query(query)
    except InvalidInput:
        return
    assert parse_qsl(kept) == pairs
    assert check_query(kept) == kept
    parse_view(kept)  # by which a link to it builds its page
    assert {name for name in NAMES if [each for each, _ in pairs].count(name) > 1} <= set(MANY)
