"""Images, tables, histograms and text: what is stored is what was given, as other programs read it."""

import datetime
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from halving.errors import InvalidInput
from halving.ingest.media import Histogram, Image, Media, Table, Text
from tests.sdk.conftest import Script

PICTURE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


class Stream:
    """Says that it speaks Arrow, and does not."""

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        raise TypeError("no stream")


def decode(image: Image) -> "np.ndarray[Any, Any]":
    """The pixels as Pillow reads them."""
    return np.asarray(PIL.Image.open(io.BytesIO(image.encode())))


def read(table: Table) -> pa.Table:
    return pq.read_table(io.BytesIO(table.encode()))


def parse_stored(histogram: Histogram) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(histogram.encode())
    return content


def file_of(kind: str) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(PICTURE).save(buffer, kind)
    return buffer.getvalue()


# Every kind


@pytest.mark.parametrize(
    ("media", "kind", "media_type", "suffix", "facts"),
    [
        (Image(PICTURE), "image", "image/png", ".png", {"width": 7, "height": 5}),
        (Image(file_of("JPEG")), "image", "image/jpeg", ".jpg", {"width": 7, "height": 5}),
        (
            Table(columns=["a", "b"], rows=[(1, "x")]),
            "table",
            "application/vnd.apache.parquet",
            ".parquet",
            {"rows": 1, "columns": 2},
        ),
        (
            Histogram([1.0, 3.0], bins=2),
            "histogram",
            "application/json",
            ".json",
            {"bins": 2, "count": 2, "low": 1.0, "high": 3.0, "nan": 0, "inf": 0, "-inf": 0},
        ),
        (Text("né"), "text", "text/plain", ".txt", {"length": 2}),
        (Text("# né", markdown=True), "text", "text/markdown", ".md", {"length": 4}),
    ],
)
def test_every_kind_says_what_it_is(
    media: Media, kind: str, media_type: str, suffix: str, facts: dict[str, Any]
) -> None:
    assert (media.kind, media.media_type, media.suffix, media.describe(), media.caption) == (
        kind,
        media_type,
        suffix,
        facts,
        None,
    )
    assert isinstance(media.encode(), bytes)
    json.dumps(media.describe())
    media.describe().clear()
    assert media.describe() == facts
    assert repr(media).startswith(f"{type(media).__name__}(")


@pytest.mark.parametrize(
    "make",
    [
        lambda c: Image(PICTURE, caption=c),
        lambda c: Histogram([1], caption=c),
        lambda c: Text("t", caption=c),
    ],
)
def test_a_caption_is_a_string(make: Any) -> None:
    assert make("a line").caption == "a line"
    with pytest.raises(InvalidInput, match="caption 3 is not accepted: give a string"):
        make(3)


def test_equal_content_gives_equal_bytes() -> None:
    assert Image(PICTURE).encode() == Image(PICTURE.copy()).encode()
    described = pa.table({"a": [1, 2]}).replace_schema_metadata({"made by": "version 3"})
    assert Table(described).encode() == Table(columns=["a"], rows=[[1], [2]]).encode()
    assert Histogram([1, 2, 3]).encode() == Histogram(torch.tensor([3, 2, 1])).encode()


def test_what_is_logged_is_what_was_given_even_if_it_changes_afterwards() -> None:
    picture = PICTURE.copy()
    values = np.arange(10.0)
    rows = [[1]]
    image = Image(picture)
    histogram = Histogram(values)
    table = Table(columns=["a"], rows=rows)
    before = image.encode(), histogram.encode(), table.encode()
    picture[:] = 0
    values[:] = 0
    rows[0][0] = 0
    assert (image.encode(), histogram.encode(), table.encode()) == before
    assert np.array_equal(decode(image), PICTURE)


@pytest.mark.slow
def test_importing_the_module_imports_no_heavy_package(script: Script) -> None:
    done = script(
        "import halving.ingest.media, sys; print([n for n in ('numpy', 'torch', 'pyarrow', 'PIL', "
        "'pandas') if n in sys.modules])"
    )
    assert done.stdout == "[]\n", done.stderr


# Images


@given(
    arrays.arrays(
        np.uint8,
        st.one_of(
            st.tuples(st.integers(1, 9), st.integers(1, 9)),
            st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3, 4])),
        ),
    )
)
def test_any_uint8_picture_is_read_back_pixel_by_pixel(picture: Any) -> None:
    expected = picture[:, :, 0] if picture.ndim == 3 and picture.shape[2] == 1 else picture
    image = Image(picture)
    assert np.array_equal(decode(image), expected)
    assert image.describe() == {"width": picture.shape[1], "height": picture.shape[0]}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_from_0_to_1_become_the_nearest_of_256_levels(dtype: Any) -> None:
    image = Image(np.array([[0.0, 0.5, 1.0], [-0.0005, 1.0005, 0.25]], dtype))
    assert decode(image).tolist() == [[0, 128, 255], [0, 255, 64]]


def test_a_mask_is_black_and_white() -> None:
    assert decode(Image(np.array([[True, False]]))).tolist() == [[255, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_a_torch_image_has_its_channels_first(dtype: torch.dtype) -> None:
    tensor = torch.zeros(3, 2, 4)
    tensor[1, 0, 3] = 1
    tensor = (tensor * 255).to(dtype) if dtype == torch.uint8 else tensor.to(dtype).requires_grad_()
    pixels = decode(Image(tensor))
    assert pixels.shape == (2, 4, 3)
    assert pixels[0, 3].tolist() == [0, 255, 0]
    assert pixels.sum() == 255
    assert decode(Image(tensor[1])).tolist() == [[0, 0, 0, 255], [0, 0, 0, 0]]


def test_slices_and_transposed_views_are_read_as_they_look() -> None:
    assert np.array_equal(decode(Image(PICTURE[::2, ::-1])), PICTURE[::2, ::-1])
    assert np.array_equal(decode(Image(PICTURE.transpose(1, 0, 2))), PICTURE.transpose(1, 0, 2))


def test_a_file_is_stored_as_it_is(tmp_path: Path) -> None:
    for kind, suffix in (("PNG", ".png"), ("JPEG", ".jpg")):
        content = file_of(kind)
        path = tmp_path / f"picture{suffix}"
        path.write_bytes(content)
        for given_as in (content, path, str(path), bytearray(content)):
            image = Image(given_as)
            assert (image.encode(), image.suffix, image.describe()) == (
                content,
                suffix,
                {"width": 7, "height": 5},
            )


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "LA", "I;16"])
def test_a_pillow_image_is_saved_by_pillow(mode: str) -> None:
    given_image = PIL.Image.new(mode, (3, 2))
    image = Image(given_image)
    assert (image.suffix, image.describe()) == (".png", {"width": 3, "height": 2})
    assert PIL.Image.open(io.BytesIO(image.encode())).mode == mode


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (np.zeros((2, 2, 2), np.uint8), r"array of shape \(2, 2, 2\) .* give HxW, or HxWxC with 1, 3 or 4"),
        (np.zeros((3, 8, 8), np.uint8), r"array of shape \(3, 8, 8\) .* give HxW"),
        (np.zeros((0, 8), np.uint8), r"array of shape \(0, 8\)"),
        (np.zeros(4, np.uint8), r"array of shape \(4,\)"),
        (np.zeros((2, 2), np.int64), r"type int64 .* give uint8, or floats within 0\.\.1"),
        (np.array([["a"]]), "type <U1"),
        (np.array([[0.0, 200.0]]), "values from 0 to 200 .* give floats within"),
        (np.array([[0.0, np.nan]]), "values from nan to nan"),
        (torch.zeros(8, 8, 3), r"tensor of shape \(8, 8, 3\) .* CxHxW"),
        ([[1, 2]], "type list is not accepted: give an array"),
        (None, "type NoneType"),
        ("nowhere.png", "path 'nowhere.png' is not accepted: give an existing PNG or JPEG"),
        ("\0", "path .* is not accepted: give an existing"),
        (b"GIF89a", "6 bytes is not accepted: give a complete PNG or JPEG"),
        (file_of("PNG")[:-10], "give a complete PNG or JPEG"),
        (file_of("JPEG")[:-10], "give a complete PNG or JPEG"),
        (b"\xff\xd8\xff\xd9", "give a complete PNG or JPEG"),
        (PIL.Image.new("CMYK", (1, 1)), "mode 'CMYK' is not accepted: convert it to RGB"),
    ],
)
def test_what_is_no_image_is_refused_with_what_is(bad: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"image .*{said}"):
        Image(bad)


# Tables


def test_rows_of_every_plain_kind_are_read_back() -> None:
    day = datetime.date(2026, 1, 2)
    rows = [
        [1, 0.5, "é", True, b"\0", day, [1, 2], None],
        [np.int64(2), torch.tensor(1.5), "", False, b"", day, [], None],
    ]
    table = read(Table(columns=["i", "f", "s", "b", "y", "d", "l", "n"], rows=rows))
    assert table.to_pylist() == [
        {"i": 1, "f": 0.5, "s": "é", "b": True, "y": b"\0", "d": day, "l": [1, 2], "n": None},
        {"i": 2, "f": 1.5, "s": "", "b": False, "y": b"", "d": day, "l": [], "n": None},
    ]


def test_a_table_may_have_no_rows() -> None:
    table = Table(columns=["a"], rows=[])
    assert (table.describe(), read(table).column_names) == ({"rows": 0, "columns": 1}, ["a"])


def test_arrow_tables_and_streams_keep_their_types() -> None:
    arrow = pa.table(
        {"t": pa.array([1, 2], pa.timestamp("ms", "UTC")), "f": pa.array([0.5, math.nan], pa.float32())}
    )
    assert read(Table(arrow)).schema == arrow.schema
    assert read(Table(duckdb.sql("select 7 as answer"))).to_pylist() == [{"answer": 7}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give data alone, or columns and rows"),
        ({"columns": ["a"]}, "give data alone, or columns and rows"),
        ({"data": pa.table({}), "columns": ["a"], "rows": []}, "give data alone, or columns and rows"),
        ({"data": [[1]]}, "type list is not accepted: give a pyarrow.Table, a DataFrame"),
        ({"columns": "ab", "rows": []}, "columns 'ab' are not accepted: give different names"),
        ({"columns": ["a", "a"], "rows": []}, "give different names"),
        ({"columns": ["a", 2], "rows": []}, "give different names"),
        ({"columns": ["a"], "rows": [[1], [1, 2]]}, r"row 1 \[1, 2\] is not accepted: give 1 values"),
        ({"columns": ["a"], "rows": ["x"]}, "row 0 'x' is not accepted"),
        ({"columns": ["a"], "rows": [3]}, "row 0 3 is not accepted"),
        (
            {"columns": ["a", "b"], "rows": [[1, 1], [1, "x"]]},
            "column 'b' is not accepted: give values of one kind",
        ),
        ({"columns": ["a"], "rows": [[object()]]}, "column 'a' is not accepted"),
        ({"columns": ["a"], "rows": [["\ud800"]]}, "column 'a' is not accepted"),
        ({"columns": ["a"], "rows": [[2**70]]}, "column 'a' is not accepted"),
        ({"data": Stream()}, "type Stream is not accepted: Arrow does not hold it"),
    ],
)
def test_what_is_no_table_is_refused_with_what_is(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"table .*{said}"):
        Table(**arguments)


# Histograms


def test_values_are_counted_in_bins_of_equal_width() -> None:
    content = parse_stored(Histogram([0, 1, 1, 2, 4], bins=4))
    assert content == {
        "counts": [1, 2, 1, 1],
        "edges": [0.0, 1.0, 2.0, 3.0, 4.0],
        "nan": 0,
        "inf": 0,
        "-inf": 0,
    }


def test_values_that_are_not_finite_are_counted_apart() -> None:
    histogram = Histogram([math.nan, math.inf, math.inf, -math.inf, 1.0, 2.0], bins=1)
    assert parse_stored(histogram) == {"counts": [2], "edges": [1.0, 2.0], "nan": 1, "inf": 2, "-inf": 1}
    assert histogram.describe()["count"] == 2


@pytest.mark.parametrize("values", [[], [math.nan], np.full((2, 2), -np.inf), torch.tensor([])])
def test_values_without_a_finite_number_are_still_a_histogram(values: Any) -> None:
    assert parse_stored(Histogram(values, bins=3))["counts"] == [0, 0, 0]


@given(st.lists(st.floats(), max_size=20), st.integers(1, 70))
def test_any_floats_are_all_counted_once_between_growing_edges(values: list[float], bins: int) -> None:
    content = parse_stored(Histogram(values, bins=bins))
    assert sum(content["counts"]) + content["nan"] + content["inf"] + content["-inf"] == len(values)
    assert len(content["edges"]) == bins + 1
    assert all(math.isfinite(edge) for edge in content["edges"])
    assert content["edges"] == sorted(content["edges"])
    finite = [value for value in values if math.isfinite(value)]
    if finite:
        assert content["edges"][0] <= min(finite)
        assert max(finite) <= content["edges"][-1]


@pytest.mark.parametrize("value", [0.0, 5e-324, -1e-310, 1.0, 1e20, sys.float_info.max, -sys.float_info.max])
@pytest.mark.parametrize("other", [0.0, 1e-320, 1e-17])
def test_values_too_close_for_the_bins_are_counted_all_the_same(value: float, other: float) -> None:
    content = parse_stored(Histogram([value, value + other]))
    assert sum(content["counts"]) == 2
    assert all(math.isfinite(edge) for edge in content["edges"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.bool])
def test_tensors_of_any_shape_and_type_are_counted(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1], [1, 1]]).to(dtype)
    assert parse_stored(Histogram(tensor.requires_grad_() if tensor.is_floating_point() else tensor, bins=2))[
        "counts"
    ] == [1, 3]


def test_finished_counts_are_kept_as_they_are() -> None:
    content = parse_stored(Histogram(counts=np.array([2, 0, 0.5]), edges=[0, 1, 2, 4]))
    assert (content["counts"], content["edges"]) == ([2, 0, 0.5], [0.0, 1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give values alone, or counts and edges"),
        ({"counts": [1]}, "give values alone, or counts and edges"),
        ({"values": [1], "counts": [1], "edges": [0, 1]}, "give values alone, or counts and edges"),
        ({"values": "abc"}, "values 'abc' of type str are not accepted: give real numbers"),
        ({"values": [1, "a"]}, "give real numbers"),
        ({"values": [[1], [1, 2]]}, "give real numbers"),
        ({"values": [1j]}, "give real numbers"),
        ({"values": torch.tensor([1j])}, "give real numbers"),
        ({"values": [2**70]}, "give real numbers"),
        ({"values": [None]}, "give real numbers"),
        ({"values": [1], "bins": 0}, "bins 0 is not accepted: give an integer from 1"),
        ({"values": [1], "bins": True}, "bins True is not accepted"),
        ({"values": [1], "bins": 2.0}, r"bins 2\.0 is not accepted"),
        (
            {"counts": [-1], "edges": [0, 1]},
            r"counts \[-1\] are not accepted: give finite numbers, none negative",
        ),
        ({"counts": [math.nan], "edges": [0, 1]}, "counts"),
        ({"counts": [], "edges": [0]}, "counts"),
        ({"counts": [1], "edges": [0]}, r"edges \[0\] are not accepted: give 2 finite, growing numbers"),
        ({"counts": [1], "edges": [1, 1]}, "edges"),
        ({"counts": [1], "edges": [0, math.inf]}, "edges"),
    ],
)
def test_what_is_no_histogram_is_refused_with_what_is(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"histogram .*{said}"):
        Histogram(**arguments)


# Text


def test_text_is_stored_in_utf_8() -> None:
    assert Text("naïve 🙂").encode().decode() == "naïve 🙂"


@pytest.mark.parametrize(
    ("bad", "said"), [(b"bytes", "type bytes is not accepted: give a string"), ("\ud800", "no UTF-8 form")]
)
def test_what_is_no_text_is_refused_with_what_is(bad: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"text .*{said}"):
        Text(bad)
