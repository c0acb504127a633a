"""Real-world JSON files, in any layout: each value arrives unchanged, or the file is refused with advice."""

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.datasets import json_types, text_files
from resources.datasets.json_files import json_columns, json_rows
from resources.source_files.listing import SourceFile
from tests.properties import examples
from tests.resources.datasets.text_sources import file_of

ROWS = [{"id": number, "text": f"größe {number}", "label": number % 2} for number in range(80)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
LONG = [{**row, "text": "x" * (9 << 20)} if row["id"] == 40 else row for row in ROWS]
ZONED = pa.timestamp("s", "UTC")
INSTANT = datetime.datetime(2024, 1, 30, 22, tzinfo=datetime.UTC)
BIG = 12345678901234567890


def read(
    file: SourceFile, encoding: str | None = None, wanted: pa.Schema | None = None
) -> list[dict[str, Any]]:
    return [row for rows in json_rows(file, wanted, encoding) for row in rows.to_pylist()]


def in_blocks(*rows: dict[str, Any], block: int = 128) -> str:
    """Put each row into a block of its own, among fillers."""
    return "".join(json.dumps({**row, "filler": "-" * block}) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (LINES, ROWS),
        (json.dumps(ROWS), ROWS),
        (json.dumps(ROWS, indent=2), ROWS),
        ("\n\n  " + json.dumps(ROWS, indent="\t") + "\n\n", ROWS),
        (LINES.replace("\n", "\r\n") + "\r\n\r\n", ROWS),
        ("\n\n" + LINES.replace("\n", "\n\n"), ROWS),
        ("\n".join(json.dumps(row, indent=2) for row in ROWS), ROWS),
        ("".join(json.dumps(row) for row in ROWS), ROWS),
        (LINES.rstrip(), ROWS),
        ("[\n" + ",\n".join(json.dumps(row) for row in ROWS) + "\n]\n", ROWS),
        ("[\r\n" + "\r\n, ".join(json.dumps(row) for row in ROWS) + "]", ROWS),
        ("[]", []),
        ("", []),
        ("\n \n", []),
        ('{"a": "}{[]", "b": "\\"\\n"}', [{"a": "}{[]", "b": '"\n'}]),
        ('{"a": [\n1,\nnull\n]}', [{"a": [1, None]}]),
        ('{"a": "} null {"}', [{"a": "} null {"}]),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("block", [64, 8 << 20])
def test_a_file_is_read_in_each_layout(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    rows: list[dict[str, Any]],
    encoding: str,
    block: int,
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", block)
    assert read(file_of(tmp_path, content.encode(encoding), "rows.json")) == rows


@pytest.mark.parametrize(
    "content", ["".join(json.dumps(row) + "\n" for row in LONG), json.dumps(LONG), json.dumps(LONG, indent=2)]
)
def test_an_object_may_be_longer_than_a_block(tmp_path: Path, content: str) -> None:
    assert read(file_of(tmp_path, content, "rows.json")) == LONG


def test_a_compressed_file_and_one_in_another_encoding_are_read(tmp_path: Path) -> None:
    assert read(file_of(tmp_path, gzip.compress(LINES.encode()), "rows.json.gz")) == ROWS
    assert read(file_of(tmp_path, gzip.compress(LINES.encode()), "ROWS.JSON.GZ")) == ROWS
    with pytest.raises(ValueError, match=r"it is compressed; give it a name that ends with \.gz"):
        read(file_of(tmp_path, gzip.compress(LINES.encode()), "rows.jsonl"))
    assert read(file_of(tmp_path, LINES.encode("latin-1"), "rows.jsonl"), "latin-1") == ROWS
    assert read(file_of(tmp_path, LINES.encode("utf-16-be"), "rows.jsonl"), "utf-16-be") == ROWS


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (LINES.encode("latin-1"), "it is not UTF-8; say what it is, for example encoding: latin-1"),
        (LINES.encode("utf-16-le"), "it has NUL bytes, so it is not UTF-8 text; .* encoding: utf-16-le"),
        ("[1, 2]", "it has '1' where an object should begin; give one object per line"),
        ('["a"]', "where an object should begin; give one object per line"),
        ("[[1], [2]]", r"it has '\[' where an object should begin; give one object per line"),
        ("[1]\n[2]\n", "where an object should begin; give one object per line"),
        ('"x"', "where an object should begin; give one object per line"),
        ("id,x\n1,2\n", "where an object should begin; give one object per line"),
        ('{"a": 1}\n[2]\n', "one object per line"),
        ('{"a": 1}\nnull\n', "it has null where an object should be; give one object per line"),
        ('{"a": 1}\n{"a": 2} null', "it has null where an object should be"),
        ('{"a": [\nnull\n]}\nnull', "it has 'n' where an object should begin"),
        (in_blocks({"a": 1}) + "null {}\n" + in_blocks({"a": 1}), "it has null where an object should be"),
        ('[{"a": 1}, null]', "it has 'n' where an object should begin"),
        ('[{"a": 1}', "its array does not end"),
        ('[{"a": 1}, {"a": ', "an object that cannot be read .*one object per line"),
        ('[{"a": 1}]{"a": 2}', "it has '{' behind its array"),
        ('{"a": 1}, {"a": 2}', "it has ',' where an object should begin"),
        ('{"a": 1}\n{"a": 2', "JSON parse error: .*one object per line"),
        ('{"a": 1}\n{"a": tru}\n', "JSON parse error: .*one object per line"),
        ("{'a': 1}", "an object that cannot be read .*one object per line"),
        ('{"a": 1}\n{"a": "x"}\n', r"Column\(/a\) changed from number to string in row 1"),
        ('{"a": true}\n{"a": 1}\n', r"Column\(/a\) changed from boolean to number in row 1"),
        (in_blocks({"a": 5}, {"a": "5"}), "its column 'a' is int64 in some objects and string in others"),
        (
            in_blocks({"a": {"b": [1]}}, {"a": {"b": ["x"]}}),
            r"its column 'a.b\[\]' is int64 in some objects and string in others",
        ),
        (
            in_blocks({"a": {"b": 1}}, {"a": 1}),
            "its column 'a' is struct<b: int64> in some objects and int64 in others",
        ),
        (
            f'{{"a": {"1" * 24}}}',
            f"its column 'a' has the number {'1' * 24}, which a column of doubles would round",
        ),
        (f'{{"a": {2**53 + 1}}}\n{{"a": 0.5}}', "its column 'a' has the number 9007199254740993"),
        (in_blocks({"a": 2**53 + 1}, {"a": 0.5}), "its column 'a' has the number 9007199254740993"),
        (in_blocks({"a": 0.5}, {"a": 2**53 + 1}), "its column 'a' has the number 9007199254740993"),
        (
            in_blocks({"a": {"b": 0.5}}, {"a": {"b": 2**53 + 1}}),
            "its column 'a.b' has the number 9007199254740993",
        ),
        (in_blocks({"a": [0.5, 2**53 + 1]}), r"its column 'a\[\]' has the number 9007199254740993"),
        ('{"a": 1.5}\n{"a": 1e400}', "Number too big to be stored in double"),
        ('{"a": {"b": [0, 25E-0400]}}', r"its column 'a.b\[\]' has the number 25E-0400"),
        (f'{{"a": 0.{"0" * 400}7}}', "its column 'a' has the number 0.0000"),
        (
            f'{{"a": 0.5, "b": "1e-400"}}\n{{"a": {2**53 + 1}.0}}',
            "its column 'a' has the number 9007199254740993.0",
        ),
        (in_blocks({"a": BIG}, {"a": -1}), "its column 'a' has numbers below 0 and beyond"),
        (f'[{{"a": {BIG}}}, {{"a": -1}}]', f"its column 'a' has the number {BIG}"),
    ],
)
def test_what_is_not_accepted_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | str, why: str
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", 128)
    with pytest.raises(ValueError, match=why):
        json_columns(file_of(tmp_path, content, "rows.json"))


@pytest.mark.parametrize(
    ("rows", "kind", "right"),
    [
        ([{"a": 1}, {"a": 1.5}], pa.float64(), [1.0, 1.5]),
        ([{"a": 1.5}, {"a": 1}], pa.float64(), [1.5, 1.0]),
        ([{"a": None}, {"a": "x"}], pa.string(), [None, "x"]),
        ([{}, {}, {"a": "x"}], pa.string(), [None, None, "x"]),
        ([{"a": 1}, {}], pa.int64(), [1, None]),
        ([{"a": None}, {}], pa.null(), [None, None]),
        ([{"a": "2024-01-02"}, {"a": "unknown"}], pa.string(), ["2024-01-02", "unknown"]),
        ([{"a": "unknown"}, {"a": "2024-01-02"}], pa.string(), ["unknown", "2024-01-02"]),
        ([{"a": "2024-01-02"}, {"a": None}], pa.timestamp("s"), [datetime.datetime(2024, 1, 2), None]),
        (
            [{"a": "2024-01-31T00:00:00+02:00"}, {"a": "2024-01-30T22:00:00Z"}, {"a": None}],
            ZONED,
            [INSTANT, INSTANT, None],
        ),
        ([{"a": "2024-01-30 19:30-0230"}, {"a": "2024-01-31 00:00+02"}], ZONED, [INSTANT, INSTANT]),
        ([{"a": {"b": ["2024-01-30T22:00:00Z"]}}], pa.struct([("b", pa.list_(ZONED))]), [{"b": [INSTANT]}]),
        (
            [{"a": "2024-01-30T22:00:00Z"}, {"a": "2024-01-30T22:00:00"}],
            pa.string(),
            ["2024-01-30T22:00:00Z", "2024-01-30T22:00:00"],
        ),
        (
            [{"a": "2024-01-31"}, {"a": "2024-01-30T22:00:00Z"}],
            pa.string(),
            ["2024-01-31", "2024-01-30T22:00:00Z"],
        ),
        (
            [{"a": {"b": 1}}, {"a": {"c": "x"}}],
            pa.struct([("b", pa.int64()), ("c", pa.string())]),
            [{"b": 1, "c": None}, {"b": None, "c": "x"}],
        ),
        ([{"a": {}}, {"a": {}}], pa.struct([]), [{}, {}]),
        ([{"a": {}}, {"a": None}, {}], pa.struct([]), [{}, None, None]),
        ([{"a": {}}, {"a": {"b": 1}}], pa.struct([("b", pa.int64())]), [{"b": None}, {"b": 1}]),
        ([{"a": []}, {"a": [1]}], pa.list_(pa.int64()), [[], [1]]),
        ([{"a": [1]}, {"a": [0.5, None]}], pa.list_(pa.float64()), [[1.0], [0.5, None]]),
        (
            [{"a": [{"b": 1}]}, {"a": [{"b": 0.5}]}],
            pa.list_(pa.struct([("b", pa.float64())])),
            [[{"b": 1.0}], [{"b": 0.5}]],
        ),
        ([{"a": BIG}, {"a": BIG + 1}], pa.uint64(), [BIG, BIG + 1]),
        ([{"a": 1}, {"a": BIG + 1}], pa.uint64(), [1, BIG + 1]),
        (
            [{"a": {"b": [BIG]}}, {"a": {"b": [BIG + 1]}}],
            pa.struct([("b", pa.list_(pa.uint64()))]),
            [{"b": [BIG]}, {"b": [BIG + 1]}],
        ),
        ([{"a": 2**53 + 1}, {"a": None}], pa.int64(), [2**53 + 1, None]),
        ([{"a": 1e300}, {"a": 2**70}], pa.float64(), [1e300, float(2**70)]),
        ([{"a": True}, {"a": False}], pa.bool_(), [True, False]),
        ([{"a": 1e-320}, {"a": 0.0}], pa.float64(), [1e-320, 0.0]),
        ([{"a": "1e-400"}, {"a": "x"}], pa.string(), ["1e-400", "x"]),
        ([{"a": "007"}, {"a": "8"}], pa.string(), ["007", "8"]),
    ],
)
@pytest.mark.parametrize("block", [64, 8 << 20])
@pytest.mark.parametrize("layout", ["lines", "array"])
def test_a_columns_type_is_that_of_all_its_values(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[dict[str, Any]],
    kind: pa.DataType,
    right: list[Any],
    block: int,
    layout: str,
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", block)
    content = in_blocks(*rows)
    if layout == "array":
        content = json.dumps([json.loads(line) for line in content.splitlines()], indent=2)
    file = file_of(tmp_path, content, "rows.json")
    types = json_columns(file).types
    assert types.field("a").type == kind
    assert [row.get("a") for row in read(file)] == right


def test_a_whole_number_that_a_double_of_other_files_would_round_is_refused(tmp_path: Path) -> None:
    file = file_of(tmp_path, json.dumps({"a": 2**53 + 1, "b": {"c": 2**53 + 1}, "d": 1}), "rows.json")
    assert json_columns(file).large == {"a"}
    for name, kind in (("a", pa.float64()), ("b", pa.struct([("c", pa.float64())]))):
        with pytest.raises(ValueError, match=f"its column '{name}.*' has the number 9007199254740993"):
            read(file, wanted=pa.schema([(name, kind)]))
    assert read(file, wanted=pa.schema([("d", pa.float64())]))[0]["d"] == 1.0


def test_a_column_that_only_other_files_have_is_null(tmp_path: Path) -> None:
    file = file_of(tmp_path, '{"a": 1}\n', "rows.json")
    assert json_columns(file).optional
    assert read(file, wanted=pa.schema([("country", pa.string()), ("a", pa.float64())])) == [
        {"country": None, "a": 1.0}
    ]
    nulls = file_of(tmp_path, '{"a": null}\n' * 3, "nulls.json")
    assert (
        read(nulls, wanted=pa.schema([("a", pa.float64()), ("country", pa.string())]))
        == [{"a": None, "country": None}] * 3
    )


KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)


@st.composite
def objects(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Flat objects with the same keys, whose values have one kind for each key."""
    kinds = draw(
        st.dictionaries(
            KEYS,
            st.sampled_from(
                [
                    st.integers(-(2**53), 2**53),
                    st.floats(allow_nan=False, allow_infinity=False),
                    st.booleans(),
                    st.text(max_size=5).map("x{}".format),
                ]
            ),
            min_size=1,
            max_size=4,
        )
    )
    return draw(
        st.lists(
            st.fixed_dictionaries({key: kind | st.none() for key, kind in kinds.items()}),
            min_size=1,
            max_size=6,
        )
    )


@given(rows=objects(), block=st.sampled_from([32, 100, 8 << 20]))
@settings(max_examples=examples(40))
def test_the_layout_of_a_file_is_not_in_its_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], block: int
) -> None:
    folder = tmp_path_factory.mktemp("json")
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    layouts = [
        json.dumps(rows).encode(),
        json.dumps(rows, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        "\n".join(lines).encode("utf-8", "surrogatepass"),
        "\r\n".join(lines).encode("utf-8-sig", "surrogatepass"),
        "\n".join(json.dumps(row, indent=1) for row in rows).encode(),
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_files, "BLOCK", block)
        for number, content in enumerate(layouts):
            assert read(file_of(folder, content, f"{number}.json")) == rows


def test_texts_in_which_digits_look_like_tiny_numbers_cost_no_second_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_again(block: str) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(json_types, "objects_of", read_again)
    uuids = [{"id": f"0f3a5c7d-9b1e-4716-{number}e-676923751168", "a": 0.0} for number in (301, 999)]
    json_types.refuse_rounded(json.dumps(uuids), pa.Table.from_pylist(uuids))
    small = [{"a": 1e-300, "b": 1.5}]
    json_types.refuse_rounded(json.dumps(small), pa.Table.from_pylist(small))
