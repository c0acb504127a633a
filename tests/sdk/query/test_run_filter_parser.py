"""Filters as text: what they mean, and what is said of those that mean nothing."""

import math
import pickle
import re
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from halving import InvalidInput
from halving.query.run_filter import (
    MAX_CHARACTERS,
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_ORDERS,
    MAX_TEXT,
    RUN_FIELDS,
    And,
    Between,
    Comparison,
    Condition,
    Field,
    In,
    InvalidFilter,
    IsNull,
    Not,
    Or,
    Order,
    RunFilter,
    Value,
)
from halving.query.run_filter_parser import parse_fields, parse_filter
from tests.run_filters import CASES, NOW

LR = Field("params", "lr")
LOSS = Field("metrics", "loss")
TEAM = Field("tags", "team")
STATUS = Field("run", "status")
SECONDS = Field("run", "seconds")
STARTED = Field("run", "started")


def where(text: str) -> Condition | None:
    parsed = parse_filter(text, NOW)
    assert (parsed.order, parsed.limit) == ((), None)
    return parsed.where


def refusal_of(text: str) -> InvalidFilter:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(text, NOW)
    assert str(caught.value) == f"column {caught.value.column}: {caught.value.reason}"
    return caught.value


def test_a_filter_has_a_condition_an_order_and_a_limit() -> None:
    text = (
        "params.lr between 1e-4 and 1e-3 and status = finished and tags.team in (vision, 'nlp x') and "
        "started > 2026-11-01 "
        "order by metrics.loss desc, started limit 100"
    )
    assert parse_filter(text, NOW) == RunFilter(
        And(
            (
                Between(LR, 1e-4, 1e-3),
                Comparison(STATUS, "=", "finished"),
                In(TEAM, ("vision", "nlp x")),
                Comparison(STARTED, ">", "2026-11-01T00:00:00+00:00"),
            )
        ),
        (Order(LOSS, descending=True), Order(STARTED)),
        100,
    )
    assert parse_filter("ORDER BY metrics.loss ASC LIMIT 3", NOW) == RunFilter(None, (Order(LOSS),), 3)
    assert parse_filter(" \n\t", NOW) == RunFilter()


def test_a_field_knows_its_column() -> None:
    parsed = parse_filter("status = a and min( metrics.loss ) > 1 order by tags.team", NOW)
    assert [(str(field), field.column) for field in parsed.fields] == [
        ("status", 1),
        ("min(metrics.loss)", 16),
        ("tags.team", 49),
    ]


def test_and_binds_before_or_and_not_before_both() -> None:
    a, b, c = (Comparison(STATUS, "=", name) for name in "abc")
    assert where("status = a or status = b and status = c") == Or((a, And((b, c))))
    assert where("(status = a or status = b) and status = c") == And((Or((a, b)), c))
    assert where("not status = a and status = b") == And((Not(a), b))
    assert where("not (status = a and status = b)") == Not(And((a, b)))
    assert where("((status = a))") == a


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("params.optimizer/lr", Field("params", "optimizer/lr")),
        ("params.a-b.c@d:e+f_g/1", Field("params", "a-b.c@d:e+f_g/1")),
        ('params."my lr"', Field("params", "my lr")),
        ('params."say ""hi"""', Field("params", 'say "hi"')),
        ('metrics."and"', Field("metrics", "and")),
        ("metrics.order", Field("metrics", "order")),
        ("tags.größe", Field("tags", "größe")),
        ("tags.params.x", Field("tags", "params.x")),
        ("min(metrics.val/loss)", Field("metrics", "val/loss", "min")),
        ("MAX (metrics.loss)", Field("metrics", "loss", "max")),
        ('best(metrics."val loss")', Field("metrics", "val loss", "best")),
        *((name, Field("run", name)) for name in RUN_FIELDS),
    ],
)
def test_a_field_is_named_and_written_back(text: str, field: Field) -> None:
    assert where(f"{text} is null") == IsNull(field)
    assert parse_fields(text) == parse_fields(str(field)) == (field,)
    assert where(f"{field}is null" if str(field)[-1] in ')"' else f"{field} is null") == IsNull(field)


def test_columns_are_fields_with_commas_between() -> None:
    assert parse_fields(' params.lr ,min(metrics."a,b"), status') == (
        LR,
        Field("metrics", "a,b", "min"),
        STATUS,
    )
    assert parse_fields(" ") == ()
    for text, column in (
        ("params.lr status", 11),
        ("params.lr,", 11),
        (",status", 1),
        ("params.lr = 3", 11),
        ("nonsense", 1),
    ):
        with pytest.raises(InvalidFilter) as caught:
            parse_fields(text)
        assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("params.lr = 1", 1.0),
        ("params.lr = -1.5e-3", -0.0015),
        ("params.lr = +.5", 0.5),
        ("params.lr = 5.", 5.0),
        ("params.lr = 1E3", 1000.0),
        ("params.lr = -inf", -math.inf),
        ("params.lr = INFINITY", math.inf),
        ("params.lr = true", True),
        ("params.lr = False", False),
        ("params.lr = '1'", "1"),
        ('params.lr = "true"', "true"),
        ("params.lr = 1e", "1e"),
        ("params.lr = 1_000", "1_000"),
        ("params.lr = 2026-11-01", "2026-11-01"),
        ("params.lr = 'and'", "and"),
        ("params.lr = ''", ""),
        ("params.lr = '''it''s'''", "'it's'"),
        ("params.lr = finished", "finished"),
        ("tags.team = 1e-4", "1e-4"),
        ("tags.team = True", "True"),
        ("tags.team = nan", "nan"),
        ("commit = 1234567", "1234567"),
        ("sweep = digits-7f3a", "digits-7f3a"),
        ("started > 2026-11-01", "2026-11-01T00:00:00+00:00"),
        ("started > 2026-11-01T12:00", "2026-11-01T12:00:00+00:00"),
        ("started = '2026-11-01 12:00:01.25'", "2026-11-01T12:00:01.250000+00:00"),
        ("started > '2026-11-01 12:00+02:00'", "2026-11-01T10:00:00+00:00"),
        ("started > 2026-11-01t12:00z", "2026-11-01T12:00:00+00:00"),
        ("started > 7d ago", "2024-11-15T12:00:00+00:00"),
        ("started > 1.5h ago", "2024-11-22T10:30:00+00:00"),
        ("started > 30m AGO", "2024-11-22T11:30:00+00:00"),
        ("started > 30min ago", "2024-11-22T11:30:00+00:00"),
        ("started > 90s ago", "2024-11-22T11:58:30+00:00"),
        ("ended > 2W ago", "2024-11-08T12:00:00+00:00"),
    ],
)
def test_a_literal_is_what_the_field_beside_it_takes_it_for(text: str, value: Value) -> None:
    condition = where(text)
    assert isinstance(condition, Comparison)
    assert (condition.value, type(condition.value)) == (value, type(value))


def test_nan_is_a_literal_of_its_own() -> None:
    condition = where("metrics.loss != NaN")
    assert isinstance(condition, Comparison)
    assert isinstance(condition.value, float)
    assert math.isnan(condition.value)


def test_what_is_ago_counts_from_now_in_any_time_zone() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=9)))
    assert parse_filter("started > 1d ago", there) == parse_filter("started > 1d ago", NOW)
    assert parse_filter("started > 1d ago") != parse_filter("started > 1d ago", NOW)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        # What stands where a field is expected.
        (
            "stauts = x",
            1,
            "'stauts' is not a field: close to it: status, started; the fields are project, run, status,",
        ),
        ("Status = x", 1, "close to it: status"),
        ("status = a and loss < 3", 16, "'loss' is not a field: the fields are"),
        ("param.lr = 1", 1, "'param.lr' is not a field: close to it: params.lr; "),
        ("metric.loss < 1", 1, "close to it: metrics.loss"),
        (
            "params. = 1",
            1,
            "'params.' has no name: give params.NAME, quoted if it has spaces: params.\"my name\"",
        ),
        ('params."" = 1', 1, "has no name"),
        ("params = 1", 1, "'params' is not a field"),
        ("'status' = x", 1, "'status' stands where a field is expected"),
        ("5 < seconds", 1, "'5' is not a field"),
        ("not", 4, "the filter ends where a field is expected"),
        ("()", 2, "')' stands where a field is expected"),
        ("status = a and and", 16, "'and' stands where a field is expected"),
        (
            "min(params.lr) > 1",
            5,
            "'params.lr' is not accepted here: min(…) is of a metric: min(metrics.NAME)",
        ),
        ("max(min(metrics.loss)) > 1", 5, "'min' is not accepted here: max(…) is of a metric"),
        ("min(loss) > 1", 5, "'loss' is not a field"),
        ("best(", 6, "the filter ends here: best(…) is of a metric"),
        ("best(metrics.loss > 1", 19, "'>' is not accepted here: the ) of best( is expected"),
        ("mean(metrics.loss) > 1", 1, "'mean' is not a field"),
        # What follows a field.
        (
            "status",
            7,
            (
                "the filter ends here: behind status stands one of =, !=, <, <=, >, >=, between, in, like, "
                "is "
                "null, not in,"
            ),
        ),
        ("status finished", 8, "'finished' is not accepted here: behind status stands one of ="),
        ("status == x", 8, "'==' is not accepted: give ="),
        ("status <> x", 8, "'<>' is not accepted: give !="),
        ("status =< x", 8, "'=<' is not accepted: give <="),
        ("status = a && run = b", 12, "'&&' is not accepted: give and"),
        ("! status = a", 1, "'!' is not accepted: give != or not"),
        ("status is x", 11, "'x' is not accepted here: null, or not null, stands behind is"),
        ("status not = x", 12, "'=' is not accepted here: in, like or between stands behind not"),
        # Values.
        ("seconds = abc", 11, "'abc' is not accepted: seconds is a number, such as 5, 1e-4, inf or nan"),
        ("seconds = '5'", 11, "'5' is not accepted: seconds is a number"),
        ("seconds = true", 11, "'true' is not accepted: seconds is a number"),
        ("metrics.loss < 0.1.2", 16, "'0.1.2' is not accepted: metrics.loss is a number"),
        ("seconds =", 10, "the filter ends where a value is expected: seconds is a number"),
        ("seconds = (5)", 11, "'(' stands where a value is expected"),
        ('seconds = params."x"', 11, "'params.x' stands where a value is expected"),
        (
            "status = and",
            10,
            (
                "'and' is a word of the language: status is text, such as abc or 'a b'; in quotes ('and') it "
                "is text"
            ),
        ),
        ("status = a b", 12, "'b' is not accepted here: and, or, order by, limit or the end is expected"),
        (
            "status > 7d ago",
            10,
            "'7d ago' is not accepted: status is text, such as abc or 'a b'; started and ended are times",
        ),
        (
            "params.x > 7d ago",
            12,
            (
                "'7d ago' is not accepted: params.x is compared with a number, text, true or false; started "
                "and ended are"
            ),
        ),
        (
            "started > 5",
            11,
            (
                "'5' is not accepted: started is a time, such as 2026-11-01, 2026-11-01T12:00 or 7d ago "
                "(UTC, "
                "or with +02:00)"
            ),
        ),
        ("started > 7d", 11, "'7d' is not accepted: started is a time"),
        ("started > 7 ago", 11, "'7 ago' is not accepted"),
        ("started > 7y ago", 11, "'7y ago' is not accepted"),
        ("started > 999999999w ago", 11, "'999999999w ago' is not accepted"),
        ("started > 2026-13-01", 11, "'2026-13-01' is not accepted: started is a time"),
        ("started > 0001-01-01T00:00+02:00", 11, "is not accepted: started is a time"),
        ("started > 2026-11-01 12:00", 22, "'12:00' is not accepted here"),
        (
            "started = 2026-11-01",
            11,
            "with =: a day is no moment: give started >= 2026-11-01 and started < the next day, or a time as",
        ),
        ("started in (2026-11-01)", 13, "'2026-11-01' is not accepted with in: a day is no moment"),
        ("params.x < true", 12, "'true' is not accepted with <: give =, != or in"),
        ("metrics.loss >= nan", 17, "'nan' is not accepted with >=: give =, != or in"),
        ("seconds between nan and 1", 17, "'nan' is not accepted with between"),
        (
            "seconds between 1",
            18,
            "the filter ends here: seconds is between two values: and stands between them",
        ),
        ("seconds between 1, 2", 18, "',' is not accepted here: seconds is between two values"),
        ("params.x between 1 and b", 24, "'b' is text, but the lower value is a number: give two of a kind"),
        ("params.x between b and 1", 24, "'1' is a number, but the lower value is text"),
        ("seconds in 5", 12, "'5' is not accepted here: values stand in brackets: seconds in (a, b)"),
        ("seconds in ()", 13, "')' stands where a value is expected"),
        ("seconds in (1, 2", 17, "the filter ends here: a comma and another value, or ), is expected"),
        ("seconds in (1 2)", 15, "'2' is not accepted here: a comma and another value, or ), is expected"),
        (
            "seconds like '5%'",
            9,
            "like is not accepted: seconds is a number, such as 5, 1e-4, inf or nan, and like is for text",
        ),
        ("started not like '5%'", 13, "like is not accepted: started is a time"),
        ("status like", 12, "the filter ends here: behind like stands text"),
        ("status like and", 13, "'and' is not accepted here: behind like stands text"),
        ("status like 'a\\'", 13, "a \\ at the end is not accepted"),
        # Quotes, characters and brackets.
        ("status = 'x", 10, "the quote ' is not closed: end it with ' (one inside is written twice: '')"),
        ('params."x = 3', 8, 'the quote " is not closed'),
        ("status = #x", 10, "'#' is not accepted here: letters, digits and _ - / . @ : + need no quotes"),
        ("status = x\0", 11, "the character '\\x00' is not accepted in a filter"),
        ("status = '\ud800'", 11, "the character '\\ud800' is not accepted in a filter"),
        ("(status = x", 12, "the filter ends here: and, or, or the ) of the ( in column 1 is expected"),
        ("status = x)", 11, "')' is not accepted here: and, or, order by, limit or the end is expected"),
        # The order and the limit.
        ("order run", 7, "'run' is not accepted here: by stands behind order"),
        ("order by", 9, "the filter ends where a field is expected"),
        (
            "order by run desc asc",
            19,
            "'asc' is not accepted here: a comma and another field, asc, desc, limit or the end is expected",
        ),
        ("order by run and status = x", 14, "'and' is not accepted here"),
        ("limit", 6, "the filter ends here: limit is a whole number from 1 to 999,999,999"),
        ("limit 0", 7, "'0' is not accepted here: limit is a whole number from 1; leave it out for all runs"),
        ("limit 1.5", 7, "'1.5' is not accepted here"),
        ("limit -1", 7, "'-1' is not accepted here"),
        ("limit 9999999999", 7, "'9999999999' is not accepted here"),
        ("limit 5 order by run", 9, "'order' is not accepted here: nothing stands behind the limit"),
    ],
)
def test_a_wrong_filter_is_refused_where_it_is_wrong(text: str, column: int, says: str) -> None:
    error = refusal_of(text)
    assert (error.column, says in error.reason) == (column, True), error


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        (
            "status = " + "x" * 9_991,
            MAX_CHARACTERS + 1,
            "a filter of 10,000 characters is not accepted: at most 8,000",
        ),
        (
            "(" * 200 + "status = x" + ")" * 200,
            MAX_DEPTH + 1,
            f"conditions are nested at most {MAX_DEPTH} deep",
        ),
        ("not " * 200 + "status = x", 4 * MAX_DEPTH + 1, f"conditions are nested at most {MAX_DEPTH} deep"),
        ("min(" * 2_000, 5, "min(…) is of a metric"),
        (
            "seed = 1 or " * 201 + "seed = 2",
            12 * MAX_CONDITIONS + 1,
            f"a filter has at most {MAX_CONDITIONS} conditions",
        ),
        (
            f"status in (a, '{'x' * 700}')",
            15,
            f"it has 700 characters, and of a text filters know the first {MAX_TEXT}; give those",
        ),
        ("order by " + "run," * MAX_ORDERS + "run", 9 + 4 * MAX_ORDERS + 1, f"at most {MAX_ORDERS} fields"),
    ],
    ids=["characters", "brackets", "nots", "functions", "conditions", "texts", "orders"],
)
def test_a_filter_that_asks_too_much_is_refused(text: str, column: int, says: str) -> None:
    error = refusal_of(text)
    assert (error.column, says in error.reason, len(str(error)) < 500) == (column, True, True), error


def test_as_much_as_is_accepted_is_understood() -> None:
    assert where("(" * MAX_DEPTH + "status = x" + ")" * MAX_DEPTH) == Comparison(STATUS, "=", "x")
    assert where(" or ".join(["seed=1"] * MAX_CONDITIONS))
    assert where(f"status like {'x' * (MAX_CHARACTERS - 12)}")
    assert where(f"status = {'x' * MAX_TEXT}") == Comparison(STATUS, "=", "x" * MAX_TEXT)


def test_a_wrong_filter_is_an_invalid_input_that_can_be_sent_to_another_process() -> None:
    error = refusal_of("seconds = abc")
    assert isinstance(error, InvalidInput)
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.column, copied.reason) == (str(error), error.column, error.reason)


@pytest.mark.parametrize("text", [text for text, _ in CASES], ids=[text[:80] for text, _ in CASES])
def test_what_is_written_back_is_read_as_the_same(text: str) -> None:
    assert str(parse_filter(str(parse_filter(text, NOW)))) == str(parse_filter(text, NOW))


def test_the_documentation_has_every_field_and_examples_that_are_accepted() -> None:
    page = (Path(__file__).parents[3] / "docs" / "filter.md").read_text()
    (examples,) = re.findall(r"```filter\n(.*?)```", page, re.DOTALL)
    assert len(examples.splitlines()) >= 10
    for text in examples.splitlines():
        assert parse_filter(text).where
    table = page.partition("## Fields")[2].partition("##")[0]
    assert {name for name in RUN_FIELDS if f"`{name}`" in table} == set(RUN_FIELDS)
    for limit in (MAX_CHARACTERS, MAX_CONDITIONS, MAX_DEPTH, MAX_TEXT):
        assert f" {limit:,} " in page
