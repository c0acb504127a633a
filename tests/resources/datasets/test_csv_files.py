"""Real-world CSV files: each value arrives unchanged, or the file is refused with advice."""

import datetime
import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

from resources.datasets import text_files
from resources.datasets.csv_files import csv_columns, csv_rows
from resources.datasets.csv_quotes import Quotes
from resources.datasets.text_files import TextFile
from resources.source_files.columns import unite
from resources.source_files.listing import SourceFile
from tests.properties import examples
from tests.resources.datasets.text_sources import file_of

CITIES = "id,stadt,label\n" + "".join(
    f"{number},{'München' if number % 2 else 'Bonn'},größer\n" for number in range(20)
)
ROWS_OF_CITIES = [
    {"id": number, "stadt": "München" if number % 2 else "Bonn", "label": "größer"} for number in range(20)
]
IDS = [12345678901234567890, 12345678901234567891]


def read(
    file: SourceFile, encoding: str | None = None, wanted: pa.Schema | None = None
) -> list[dict[str, Any]]:
    return [row for rows in csv_rows(file, wanted, encoding) for row in rows.to_pylist()]


def values(file: SourceFile) -> tuple[pa.DataType, list[Any]]:
    """The type and the values of the column x."""
    kind = csv_columns(file).types.field("x").type
    rows = list(csv_rows(file))
    assert {batch.schema.field("x").type for batch in rows} <= {kind}
    return kind, [row["x"] for batch in rows for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (CITIES.encode(), None),
        (CITIES.encode("utf-8-sig"), None),
        (CITIES.encode("utf-16"), None),
        (b"\xff\xfe" + CITIES.encode("utf-16-le"), None),
        (b"\xfe\xff" + CITIES.encode("utf-16-be"), None),
        (CITIES.encode("utf-32"), None),
        (CITIES.encode("latin-1"), "latin-1"),
        (CITIES.encode("cp1252"), "cp1252"),
        (CITIES.encode("utf-16-le"), "utf-16-le"),
        (CITIES.encode("utf-8-sig"), "latin-1"),  # One of the two encodings is marked in its file.
        (CITIES.replace("\n", "\r\n").encode(), None),
        (CITIES.replace("\n", "\r").encode(), None),
        ((CITIES + "\n\n\n").encode(), None),
    ],
)
def test_a_file_is_read_in_its_encoding(tmp_path: Path, content: bytes, encoding: str | None) -> None:
    assert read(file_of(tmp_path, content), encoding) == ROWS_OF_CITIES
    assert read(file_of(tmp_path, gzip.compress(content), "rows.csv.gz"), encoding) == ROWS_OF_CITIES


def test_names_of_columns_have_the_files_encoding_too(tmp_path: Path) -> None:
    file = file_of(tmp_path, "größe,preis in €\n1,2\n".encode("cp1252"))
    assert read(file, "cp1252") == [{"größe": 1, "preis in €": 2}]


@pytest.mark.parametrize(
    ("content", "encoding", "why"),
    [
        (
            CITIES.encode("latin-1"),
            None,
            "its column 'stadt' is not UTF-8; say what it is, for example encoding: latin-1",
        ),
        (
            "id,größe\n1,2\n".encode("latin-1"),
            None,
            "its header is not UTF-8; say what it is, for example encoding: latin-1",
        ),
        (CITIES.encode("latin-1"), "ascii", "it is not ascii; give the encoding"),
        (CITIES * 2, None, "its header is repeated among its rows, .* delete those lines"),
        (CITIES.encode("utf-8-sig") * 2, None, "its header is repeated among its rows"),
        ("id,größe\n1,2\n".encode("latin-1"), "ascii", "its header is not ascii; give the encoding"),
        (
            "id,stadt\n1,Bonn\n".encode("utf-16-le"),
            None,
            "it has NUL bytes, so it is not UTF-8 text; .* encoding: utf-16-le",
        ),
        (
            "id,stadt\n1,Bonn\n".encode("utf-16-le"),
            "latin-1",
            "it has NUL bytes, so it is not iso8859-1 text; .* encoding: utf-16-le",
        ),
        (b"PK\x03\x04\x14\x00\x06\x00", None, "it has NUL bytes"),
        (
            "id;stadt\n1,5;Bonn\n",
            None,
            r"no comma but ';'; give sql: .*read_csv\('rows.csv', delim = ';', decimal_separator = ','\)",
        ),
        (
            "id\tstadt\n1\tBonn\n",
            None,
            r"no comma but '\\t'; give sql: SELECT \* FROM read_csv\('rows.csv', delim = '\\t'\)",
        ),
        ("id|stadt\n1|Bonn\n", None, r"no comma but '\|'; give sql"),
        (",id\n0,1\n", None, "its column 1 has no name; .* index=False"),
        ("id,id\n0,1\n", None, r"its columns are \['id', 'id'\]; give each a name of its own"),
        (
            "id,x\n0,1,2\n",
            None,
            (
                "Expected 2 columns, got 3.*; put a field that holds a comma in quotes; or, where rows are "
                "short, give sql"
            ),
        ),
        (
            "id,x\n0\n",
            None,
            (
                r"Expected 2 columns, got 1.*read_csv\('rows.csv', delim = ',', null_padding = true\), which "
                r"fills with null"
            ),
        ),
        (
            "id;a,b;c\n1;2;3\n4;5\n",
            None,
            r"Expected 2 .*; its header has ';', too: .* give sql: .*delim = ';', decimal_separator = ','\)",
        ),
        (
            "id;a,b\n1;2,5\n3;4,5\n",
            None,
            (
                "its header has commas and ';', and its first rows have as many fields by ';' as it has; "
                "give "
                "sql: .*delim = ';'.*delim = ','"
            ),
        ),
        (
            "id\tcity, state\n1\tBonn, NRW\n",
            None,
            r"its header has commas and '\\t', .* give sql: .*delim = '\\t'\)",
        ),
        (
            f"x\n{'1' * 24}\n",
            None,
            rf"'x' has the number {'1' * 24}, .* read_csv\('rows.csv', types = \{{'x': 'VARCHAR'\}}\)",
        ),
        (
            "x\n9007199254740993\n0.5\n",
            None,
            "'x' has the number 9007199254740993, which a column of doubles would round",
        ),
        ("x\n9007199254740993\n1e5\n", None, "'x' has the number 9007199254740993"),
        ("x\n9007199254740993.0\n", None, "'x' has the number 9007199254740993.0"),
        ("x\n-9007199254740993.\n0.5\n", None, "'x' has the number -9007199254740993."),
        (f"x\n{IDS[0]}\n-1\n", None, f"'x' has the number {IDS[0]}"),
        ("x\n-9223372036854775809\n", None, "'x' has the number -9223372036854775809"),
        ("x\n1.5\n1e400\n", None, "'x' has the number 1e400"),
        ("x\n1.5\n-1E+0400\n", None, r"'x' has the number -1E\+0400"),
        (
            "x\n0.5\n+9007199254740993\n",
            None,
            "'x' has the number 9007199254740993, which a column of doubles would round",
        ),
        (f"x\n+{IDS[0]}\n-1\n", None, "'x' has the number"),
    ],
)
def test_what_is_not_accepted_is_said_in_words(
    tmp_path: Path, content: bytes | str, encoding: str | None, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        csv_columns(file_of(tmp_path, content), encoding)


@pytest.mark.parametrize(
    ("first", "then", "kind", "right"),
    [
        (["1", "2"], ["3"], pa.int64(), [1, 2, 3]),
        (["1", ""], ["NA", " 5"], pa.int64(), [1, None, None, 5]),
        (["1"], ["2.5"], pa.float64(), [1.0, 2.5]),
        (["2.5"], ["1"], pa.float64(), [2.5, 1.0]),
        (["1"], ["abc"], pa.string(), ["1", "abc"]),
        (["abc", "NA"], ["", " 1"], pa.string(), ["abc", "NA", "", " 1"]),
        ([""], ["1.5"], pa.float64(), [None, 1.5]),
        ([""], ["text"], pa.string(), ["", "text"]),
        ([""], ["2024-01-02"], pa.date32(), [None, datetime.date(2024, 1, 2)]),
        ([""], ["NA"], pa.null(), [None, None]),
        (
            ["2024-01-02"],
            ["2024-01-03 04:05:06"],
            pa.timestamp("s"),
            [datetime.datetime(2024, 1, 2), datetime.datetime(2024, 1, 3, 4, 5, 6)],
        ),
        (["2024-01-02"], ["1"], pa.string(), ["2024-01-02", "1"]),
        (["true"], ["false"], pa.bool_(), [True, False]),
        (["true"], ["1"], pa.string(), ["true", "1"]),
        (["00501"], ["10001"], pa.string(), ["00501", "10001"]),
        (["10001"], ["00501"], pa.string(), ["10001", "00501"]),
        (["-07"], ["1.5"], pa.string(), ["-07", "1.5"]),
        (["0x1F"], ["0xFFFFFFFFFFFFFFFF"], pa.string(), ["0x1F", "0xFFFFFFFFFFFFFFFF"]),
        (["31"], ["0x1F"], pa.string(), ["31", "0x1F"]),
        (["0.0", "-0e5"], ["1e-320"], pa.float64(), [0.0, -0.0, 1e-320]),
        (["0", "-0.5"], ["0.25"], pa.float64(), [0.0, -0.5, 0.25]),
        ([str(IDS[0])], [str(IDS[1])], pa.uint64(), IDS),
        (["7"], [str(IDS[1])], pa.uint64(), [7, IDS[1]]),
        ([str(IDS[0])], ["abc"], pa.string(), [str(IDS[0]), "abc"]),
        (["9007199254740993", ""], ["1"], pa.int64(), [9007199254740993, None, 1]),
        (["1e300"], ["1e22"], pa.float64(), [1e300, 1e22]),
        (["10000000000000000000000"], ["0.5"], pa.float64(), [1e22, 0.5]),  # this one is a double
        (["inf"], ["1"], pa.float64(), [float("inf"), 1.0]),
        (["+49151234567"], ["+5", "-6"], pa.int64(), [49151234567, 5, -6]),
        (["1"], ["+2", " +3", "NA", ""], pa.int64(), [1, 2, 3, None, None]),
        (["+9007199254740993"], ["1"], pa.int64(), [2**53 + 1, 1]),
        ([f"+{IDS[0]}"], [str(IDS[1])], pa.uint64(), IDS),
        (["+1.5"], ["+2", "3"], pa.float64(), [1.5, 2.0, 3.0]),
        (["+49151234567"], ["0151234567"], pa.string(), ["+49151234567", "0151234567"]),
        (["+007"], ["5"], pa.string(), ["+007", "5"]),
        (["++5", "+-6"], ["7"], pa.string(), ["++5", "+-6", "7"]),
        (["+5"], ["abc"], pa.string(), ["+5", "abc"]),
    ],
)
@pytest.mark.parametrize("blocks", [1, 12])
def test_a_columns_type_is_that_of_all_its_values(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: list[str],
    then: list[str],
    kind: pa.DataType,
    right: list[Any],
    blocks: int,
) -> None:
    """The rows that follow lie in another block, several blocks later."""
    filled = "-" * 40
    if blocks > 1:
        monkeypatch.setattr(text_files, "BLOCK", 128)
        right = [*(right[: len(first)] * 60), *right[len(first) :]]
        first = first * 60
    content = "x,y\n" + "".join(f"{text},{filled}\n" for text in [*first, *then])
    file = file_of(tmp_path, content)
    assert values(file) == (kind, right)


@pytest.mark.parametrize(
    ("first", "then"),
    [(str(IDS[0]), "-1"), ("-1", str(IDS[0])), (str(2**53 + 1), "0.5"), ("0.5", str(2**53 + 1))],
)
def test_numbers_of_two_blocks_that_no_type_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, then: str
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", 64)
    with pytest.raises(ValueError, match=r"its column 'x' has (the number|numbers below 0 and beyond)"):
        csv_columns(file_of(tmp_path, "x\n" + f"{first}\n" * 20 + f"{then}\n" * 20))


def test_what_is_not_utf_8_in_the_last_block_is_known_before_a_row_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", 64)
    file = file_of(tmp_path, b"id,stadt\n" + b"1,Bonn\n" * 200 + "2,Köln\n".encode("latin-1"))
    with pytest.raises(ValueError, match="its column 'stadt' is not UTF-8"):
        csv_columns(file)


def test_a_row_longer_than_a_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a row of it is longer than 8 MiB; give it as Parquet"):
        csv_columns(file_of(tmp_path, "id,x\n1," + "x" * (17 << 20) + "\n2,y\n"))


@pytest.mark.parametrize("content", [b"", b"\n\n", "".encode("utf-8-sig"), "\n".encode("utf-16")])
def test_an_empty_file_has_no_columns_and_no_rows(tmp_path: Path, content: bytes) -> None:
    file = file_of(tmp_path, content)
    assert csv_columns(file).types.names == []
    assert csv_columns(file).optional  # It may lack columns of other files.
    assert read(file) == []


def test_a_header_alone_says_nothing_of_columns(tmp_path: Path) -> None:
    file = file_of(tmp_path, "id,x\n")
    assert csv_columns(file).types.names == []
    assert csv_columns(file).optional
    assert read(file, None, pa.schema([("id", pa.int64()), ("x", pa.string())])) == []


def test_a_column_is_read_with_the_type_that_other_files_give_it(tmp_path: Path) -> None:
    file = file_of(tmp_path, "a,b,c,d\n1,,,2024-01-02\n")
    wanted = pa.schema(
        [("b", pa.string()), ("a", pa.float64()), ("c", pa.float64()), ("d", pa.timestamp("s"))]
    )
    assert read(file, None, wanted) == [{"a": 1.0, "b": "", "c": None, "d": datetime.datetime(2024, 1, 2)}]


def test_quoted_line_breaks_and_tabs_are_of_the_values(tmp_path: Path) -> None:
    assert read(file_of(tmp_path, 'id,x\n1,"a\nb"\n2,"c,""d"""\n')) == [
        {"id": 1, "x": "a\nb"},
        {"id": 2, "x": 'c,"d"'},
    ]
    assert read(file_of(tmp_path, "id\tx\n1\ta,b\n", "rows.tsv")) == [{"id": 1, "x": "a,b"}]
    with pytest.raises(ValueError, match="its header has no tab but ','"):
        csv_columns(file_of(tmp_path, "id,x\n1,a\n", "rows.tsv"))


@pytest.mark.parametrize("block", [7, 8 << 20])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ('1,"Hello" he said\n', "line 2"),
        ('1,"a \\"b\\" c"\n', "line 2"),
        ('1,x\n2,"open\n3,y\n4,"open\n', "lines 3 to 5"),
        ('1,5" disk\n2,"a"b\n', "line 3"),
        ('1,"a" \n', "line 2"),
        ('1,""a""\n', "line 2"),
        ('1,x\n2,"open\n3,y\n4,z\n', "lines 3 to 5"),
        ('1,"x"\n2,"open', "line 3"),
        ('1,5" disk\n2,"open\n', "line 3"),
    ],
)
def test_a_text_that_goes_on_behind_its_quotes_or_is_not_closed_is_refused_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, lines: str, block: int
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", 1 << 10)
    quotes = Quotes(TextFile("", "utf-8", b"", None), ",")
    whole = f"id,v\n{content}".encode()
    for begin in range(0, len(whole), block):
        quotes.add(whole[begin : begin + block])
    quotes.end()
    assert quotes.is_suspect
    for encoding in ("utf-8", "utf-16"):
        with pytest.raises(ValueError, match=f'in its {lines} a text goes on .* write "" .*escape'):
            csv_columns(file_of(tmp_path, whole.decode().encode(encoding)))


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('1,"a ""b"" c"\n', ['a "b" c']),
        ('1,5" disk\n2,"x"\n', ['5" disk', "x"]),
        ('1,"a\r\nb"\r\n2,""\r\n', ["a\r\nb", ""]),
        ('1,""""\n2,"""x"""\n', ['"', '"x"']),
        ('1,"é,"\n2,"last"', ["é,", "last"]),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_quotes_as_they_should_be_are_read(
    tmp_path: Path, content: str, texts: list[str], encoding: str
) -> None:
    file = file_of(tmp_path, f'"id",v\n{content}'.encode(encoding))
    named = {"cp1252": "cp1252"}.get(encoding)  # The others have a byte order mark, or are UTF-8.
    assert [row["v"] for row in read(file, named)] == texts


def test_whole_numbers_that_no_double_is_are_named_for_other_files(tmp_path: Path) -> None:
    file = file_of(tmp_path, f"a,b,c,d\n{2**53 + 1},{2**53},{IDS[0]},x{IDS[0]}\n")
    assert csv_columns(file).large == {"a", "c"}


def test_whole_numbers_with_a_plus_sign_are_refused_beside_files_of_other_types(
    tmp_path: Path,
) -> None:
    file = file_of(tmp_path, "x\n+5\n-6\n")
    assert read(file, None, pa.schema([("x", pa.float64())])) == [{"x": 5.0}, {"x": -6.0}]
    assert read(file, None, pa.schema([("x", pa.string())])) == [{"x": "+5"}, {"x": "-6"}]
    with pytest.raises(
        ValueError, match=r"its column 'x' does not become uint64, which it is with the other files: .*'-6'"
    ):
        read(file, None, pa.schema([("x", pa.uint64())]))


@pytest.mark.parametrize(
    "content",
    [
        "a;b,c\n1;2,3\n4,5\n",  # One row has no semicolon.
        '"weight; kg",height\n5,6\n',
        '"a;b",c\n1;2,3\n',
        "a&amp;b,c\n1,2\n",
    ],
)
def test_another_mark_in_a_name_alone_is_of_the_name(tmp_path: Path, content: str) -> None:
    assert len(csv_columns(file_of(tmp_path, content)).types) == 2


VALUES = [
    "",
    "NA",
    "1",
    "+2",
    "-3",
    "0.5",
    "007",
    "true",
    "2024-01-02",
    "2024-01-02 03:04:05",
    "2024-01-02T03:04:05Z",
    "03:04:05",
    "x",
]


@given(
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
)
@settings(max_examples=examples(60))
def test_rows_in_two_files_are_what_they_are_in_one(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], then: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    whole, *files = (
        file_of(folder, "x,y\n" + "".join(f"{text},\n" for text in texts), f"{number}.csv")
        for number, texts in enumerate(([*first, *then], first, then))
    )
    types = unite("files", [(file.address, csv_columns(file)) for file in files])
    assert types == csv_columns(whole).types
    assert [row for file in files for row in read(file, None, types)] == read(whole)


@given(
    columns=st.lists(
        st.one_of(
            st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=3, max_size=3),
            st.lists(
                st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=3, max_size=3
            ),
            st.lists(st.one_of(st.none(), st.booleans()), min_size=3, max_size=3),
            st.lists(
                st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1),
                min_size=3,
                max_size=3,
            ).map(lambda texts: [f"x{text}" for text in texts]),
        ),
        min_size=2,
        max_size=4,
    )
)
@settings(max_examples=examples(40))
def test_what_a_table_was_written_as_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, columns: list[list[Any]]
) -> None:
    table = pa.table({f"c{number}": pa.array(values) for number, values in enumerate(columns)})
    sink = io.BytesIO()
    csv.write_csv(table, sink)
    file = file_of(tmp_path_factory.mktemp("csv"), sink.getvalue())
    assert read(file) == table.to_pylist()
