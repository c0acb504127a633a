"""A feature view is checked field by field; its definition decides what may change in a version."""

from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput
from halving.features import parse_reference
from resources.features.compatibility import check_change
from resources.features.view import code_of_view, load_view, load_views, micros_of, parse_view, view_of
from tests.resources.features.histories import TRANSFORMS, view

SPEC = """
name: clicks
version: 1
entity: [user_id]
event_time: ts
created: loaded_at
ttl: 7d
source: {delta: s3://lake/clicks, version: 418}
transform: my_project:clicks
schema: {ctr: double, night: bool not null}
online: true
"""


def test_a_view_is_read_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "clicks.yaml").write_text(SPEC)
    loaded = load_view(tmp_path / "clicks.yaml")
    assert (loaded.key, loaded.entity, loaded.types, loaded.required) == (
        "clicks@1",
        ["user_id"],
        {"ctr": "double", "night": "bool"},
        ["night"],
    )
    assert (loaded.ttl_micros, loaded.source.place, loaded.source.version) == (
        7 * 86_400_000_000,
        "delta: s3://lake/clicks",
        418,
    )
    assert parse_view(loaded.as_dict()) == loaded
    assert load_views(tmp_path) == {"clicks@1": loaded}
    assert load_views(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entity": None}, "entity is missing"),
        ({"entity": []}, "entity = [] is not accepted: give at least 1 item"),
        (
            {"entity": ["user", "user"]},
            "entity and schema have user twice, whatever the case: give each another name",
        ),
        ({"entity": ["_user"]}, "names that begin with _ are the store's own"),
        (
            {"name": "my clicks"},
            "name = 'my clicks' is not accepted: give 1-128 letters, digits or _, beginning with a letter",
        ),
        ({"version": 0}, "version = 0 is not accepted"),
        ({"created": None}, "give created (the column that says when a row was known) or delay"),
        ({"delay": "1h"}, "and not both: without them a join would use what was not known yet"),
        (
            {"created": None, "delay": "soon"},
            (
                "delay = 'soon' is not accepted: give a whole number and a unit of us, ms, s, m, h, d, for "
                "example 7d"
            ),
        ),
        ({"ttl": "0d"}, "no row would ever count"),
        ({"ttl": "100000d"}, "and at most 36525d"),
        ({"ttl": 7}, "ttl = 7 is not accepted"),
        ({"timezone": "Berlin"}, "give a time zone's name, for example UTC or Europe/Berlin"),
        ({"schema": {}}, "schema = {} is not accepted: give at least 1 item"),
        (
            {"schema": {"ctr": "number"}},
            "schema.ctr = 'number' is not accepted: give one of binary, bool, double, float, int32",
        ),
        ({"schema": {"ctr": "doubel"}}, "did you mean 'double'?; after it may be said: not null"),
        ({"schema": {"c-t-r": "double"}}, "give 1-128 letters, digits or _, beginning with a letter"),
        ({"schema": {"user": "double"}}, "entity and schema have user twice"),
        ({"schema": {"User": "double"}}, "entity and schema have User, user twice, whatever the case"),
        (
            {"schema": {"ctr": "double", "CTR": "double"}},
            "entity and schema have CTR, ctr twice, whatever the case",
        ),
        ({"source": {}}, "give exactly one of files, delta, function; got nothing"),
        ({"source": {"files": "a", "function": "a:b"}}, "got files, function"),
        ({"source": {"delta": "lake"}}, "give version with delta, and only with it"),
        ({"source": {"files": "a", "version": 1}}, "give version with delta, and only with it"),
        ({"source": {"function": "clicks"}}, "give module:function"),
        ({"transform": "clicks"}, "transform = 'clicks' is not accepted: give module:function"),
        (
            {"labels": "x"},
            "labels = 'x' is not accepted: there is no such field; accepted are created, delay, entity",
        ),
    ],
)
def test_each_wrong_field_is_named_with_what_is_accepted(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match="the feature view is not accepted:\n  - ") as refused:
        view(**change)
    assert message in str(refused.value)


def test_all_wrong_fields_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "clicks.yaml").write_text("{name: 3, version: one, source: {}, schema: {a: b}}")
    with pytest.raises(InvalidInput, match=r"the feature view in .*clicks.yaml is not accepted") as refused:
        load_view(tmp_path / "clicks.yaml")
    for field in (
        "name = 3",
        "version = 'one'",
        "entity is missing",
        "event_time is missing",
        "source",
        "schema.a = 'b'",
    ):
        assert f"  - {field}" in str(refused.value)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("{name: [")
    with pytest.raises(InvalidInput, match="is not YAML"):
        load_view(tmp_path / "broken.yaml")
    with pytest.raises(InvalidInput, match="No such file or directory; give the path of a YAML file"):
        load_view(tmp_path / "none.yaml")
    (tmp_path / "broken.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not YAML"):
        load_view(tmp_path / "broken.yaml")
    (tmp_path / "broken.yaml").write_text(SPEC)
    (tmp_path / "again.yaml").write_text(SPEC)
    with pytest.raises(InvalidInput, match=r"another file in its folder has clicks@1, too"):
        load_views(tmp_path)


def test_a_reference_finds_its_view_or_says_what_there_is() -> None:
    views = {"clicks@1": view()}
    assert view_of(parse_reference("clicks@1:value"), views) is views["clicks@1"]
    with pytest.raises(
        InvalidInput, match=r"there is no feature view clicks@2, did you mean 'clicks@1'.; there are clicks@1"
    ):
        view_of(parse_reference("clicks@2:value"), views)
    with pytest.raises(
        InvalidInput, match=r"clicks@1 has no such feature, did you mean 'value'.; it has value"
    ):
        view_of(parse_reference("clicks@1:valeu"), views)


def test_durations_are_microseconds() -> None:
    assert [micros_of(text) for text in ("3us", "2ms", "1s", "1m", "1h", "1d")] == [
        3,
        2000,
        10**6,
        6 * 10**7,
        36 * 10**8,
        864 * 10**8,
    ]
    with pytest.raises(InvalidInput, match="for example 7d"):
        micros_of("-1d")


def test_a_new_feature_that_may_be_null_keeps_the_version() -> None:
    before = view()
    assert check_change(before, before) == []
    assert check_change(before, view(schema={"more": "string", "value": "double", "most": "bool"})) == [
        "more",
        "most",
    ]
    assert check_change(before, view(online=True)) == []
    pinned = [view(source={"delta": "lake", "version": version}) for version in (1, 2)]
    assert check_change(*pinned) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": {"value": "double", "more": "bool not null"}}, "schema.more is new and must not be null"),
        ({"schema": {"value": "float"}}, "schema.value was double and is float"),
        ({"schema": {"value": "double not null"}}, "schema.value was double and is double not null"),
        ({"schema": {"worth": "double"}}, "schema.value is gone"),
        ({"entity": ["user", "ts2"]}, "entity was user and is user, ts2"),
        ({"event_time": "when"}, "event_time was ts and is when"),
        (
            {"created": None, "delay": "1h"},
            "created was loaded and is not given; delay was not given and is 1h",
        ),
        ({"ttl": "7d"}, "ttl was not given and is 7d"),
        ({"timezone": "UTC"}, "timezone was not given and is UTC"),
        ({"transform": "a:b"}, "transform was not given and is a:b"),
        (
            {"source": {"files": "x"}},
            "source was function: tests.resources.features.histories:source_rows and is files: x",
        ),
    ],
)
def test_any_other_change_needs_a_new_version(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=r"clicks@1 is not accepted, .* Give version: 2") as refused:
        check_change(view(), view(**change))
    assert reason in str(refused.value)


def test_other_code_of_a_function_needs_a_new_version_or_a_reason_for_same_values() -> None:
    same = view(transform=f"{TRANSFORMS}:rate")
    code = code_of_view(same)
    assert list(code) == ["transform", "source.function"]
    assert check_change(same, same, code, code) == check_change(same, same, {}, code) == []
    for field, changed in ((field, {**code, field: "0" * 64}) for field in code):
        with pytest.raises(
            InvalidInput,
            match=rf"the code that {field} stands on changed. Give version: 2 .* --accept-same-values",
        ) as refused:
            check_change(same, same, code, changed)
        assert str(refused.value).count("stands on changed") == 1
        assert check_change(same, same, code, changed, same_values=True) == []
        with pytest.raises(InvalidInput, match=r"ttl was not given and is 7d\. Give version: 2"):
            check_change(
                same, view(transform=f"{TRANSFORMS}:rate", ttl="7d"), code, changed, same_values=True
            )
    assert code_of_view(view(source={"files": "x"})) == {}


def test_two_views_are_not_compared() -> None:
    with pytest.raises(InvalidInput, match="clicks@1 and clicks@2 are not accepted"):
        check_change(view(), view(version=2))
