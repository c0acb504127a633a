"""W&B's data types: what they are stored as is what code for W&B gave them."""

import io
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import plotly.graph_objects as go
import pyarrow.parquet as pq
import pytest
import torch

from halving import Store
from halving.errors import InvalidInput
from halving.ingest.audio import Audio as StoredAudio
from halving.wandb import data_types
from halving.wandb.data_types import to_media
from halving.wandb.errors import NameMissing

PICTURE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def decode(value: Any) -> "np.ndarray[Any, Any]":
    return np.asarray(PIL.Image.open(io.BytesIO(to_media(value).encode())))


def read(table: Any) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = pq.read_table(io.BytesIO(to_media(table).encode())).to_pydict()
    return columns


# Pictures


@pytest.mark.parametrize(
    "data",
    [
        PICTURE,
        PICTURE.astype(np.int64),
        PICTURE.astype(np.float32),
        PICTURE / 255,
        PICTURE[None],
        PIL.Image.fromarray(PICTURE),
        torch.from_numpy(PICTURE).permute(2, 0, 1),
        torch.from_numpy(PICTURE / 255).permute(2, 0, 1).requires_grad_(),
    ],
)
def test_every_form_of_a_picture_is_the_same_picture(data: Any) -> None:
    assert np.array_equal(decode(data_types.Image(data)), PICTURE)


def test_grey_pictures_have_one_channel_and_modes_convert() -> None:
    assert decode(data_types.Image(PICTURE[:, :, :1])).shape == (5, 7)
    assert decode(data_types.Image(torch.zeros(1, 5, 7))).shape == (5, 7)
    assert decode(data_types.Image(PICTURE, mode="L")).shape == (5, 7)
    assert to_media(data_types.Image(PICTURE, file_type="jpg")).media_type == "image/jpeg"


def test_a_file_is_kept_and_one_of_another_kind_becomes_png(tmp_path: Path) -> None:
    for suffix, media_type in ((".png", "image/png"), (".jpg", "image/jpeg"), (".bmp", "image/png")):
        path = tmp_path / f"picture{suffix}"
        PIL.Image.fromarray(PICTURE).save(path)
        image = to_media(data_types.Image(str(path), caption="said"))
        assert (image.media_type, image.caption, image.describe()) == (
            media_type,
            "said",
            {"width": 7, "height": 5},
        )
        if suffix != ".bmp":
            assert image.encode() == path.read_bytes()


def test_boxes_masks_and_classes_are_stored_beside_their_picture() -> None:
    box = {"position": {"minX": 0.1, "maxX": 0.2, "minY": 0.3, "maxY": 0.4}, "class_id": 1}
    boxes = {"predictions": {"box_data": [box], "class_labels": {1: "cat"}}}
    mask = np.arange(35).reshape(5, 7) % 3
    masks = {"truth": {"mask_data": mask, "class_labels": {0: "sky", 1: "cat"}}}
    classes = data_types.Classes([{"id": 1, "name": "cat"}])
    stored = to_media(data_types.Image(PICTURE, boxes=boxes, masks=masks, classes=classes))
    assert {name: medium.kind for name, medium in stored.items()} == {
        "image": "image",
        "boxes/predictions": "text",
        "masks/truth": "image",
        "masks/truth/classes": "text",
        "classes": "text",
    }
    assert json.loads(stored["boxes/predictions"].encode())["box_data"] == [box]
    pixels = np.asarray(PIL.Image.open(io.BytesIO(stored["masks/truth"].encode())))
    assert np.array_equal(pixels, mask)
    assert json.loads(stored["classes"].encode()) == [{"id": 1, "name": "cat"}]


def test_lists_of_pictures_get_their_numbers() -> None:
    stored = to_media([data_types.Image(PICTURE, caption=f"c{number}") for number in range(3)])
    captions = {name: medium.caption for name, medium in stored.items()}
    assert captions == {"0": "c0", "1": "c1", "2": "c2"}


def test_what_is_logged_does_not_change_with_its_source() -> None:
    picture = PICTURE.copy()
    image = data_types.Image(picture)
    picture[:] = 0
    assert np.array_equal(decode(image), PICTURE)
    assert np.array_equal(decode(data_types.Image(image)), PICTURE)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: data_types.Image("nowhere.png"), InvalidInput, "path 'nowhere.png' is not accepted"),
        (lambda: data_types.Image(np.zeros((3, 4, 5))), ValueError, "with 1, 3 or 4 channels"),
        (lambda: data_types.Image(np.zeros(4)), InvalidInput, "give HxW"),
        (lambda: data_types.Image(PICTURE, file_type="tiff"), ValueError, "file_type 'tiff'"),
        (lambda: data_types.Image(PICTURE, boxes=[1]), ValueError, "boxes of type list .* give a dict"),
        (
            lambda: to_media(data_types.Image(PICTURE, masks={"a": {}})),
            ValueError,
            "mask 'a' is not accepted",
        ),
        (lambda: data_types.Audio(np.zeros(3)), ValueError, "sample_rate is missing"),
        (lambda: data_types.Video(np.zeros((2, 3, 4, 4))), ValueError, "format None is not accepted"),
        (lambda: data_types.Video(np.zeros((3, 4, 4)), format="gif"), ValueError, r"shape \(3, 4, 4\)"),
        (lambda: data_types.Html(3), ValueError, "type int is not accepted"),
        (lambda: data_types.Histogram([1], num_bins=513), ValueError, "give at most 512"),
        (lambda: data_types.Object3D("nowhere.obj"), InvalidInput, "path 'nowhere.obj'"),
        (lambda: data_types.Object3D(np.zeros((2, 5))), InvalidInput, r"shape \(2, 5\)"),
        (lambda: data_types.Plotly(3), ValueError, "type int is not accepted"),
        (
            lambda: data_types.Molecule("x.pdb"),
            NameMissing,
            "Molecule is not there in Halving: save the file",
        ),
    ],
)
def test_what_is_not_accepted_is_refused_with_what_is(make: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        make()


# Sound, videos, HTML


def test_sound_is_cut_off_where_it_is_too_loud() -> None:
    tone = np.array([0.0, 0.5, -2.0, 3.0])
    expected = StoredAudio(tone.clip(-1, 1), sample_rate=8_000).encode()
    for data in (tone, tone.tolist(), torch.from_numpy(tone)):
        assert to_media(data_types.Audio(data, sample_rate=8_000)).encode() == expected
    whole = np.array([1 << 16, -(1 << 16)], np.int32)
    assert (
        to_media(data_types.Audio(whole, sample_rate=8)).encode()
        == StoredAudio(np.array([1, -1], np.int16), sample_rate=8).encode()
    )


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 3, 4, 6), (6, 4)), ((2, 3, 1, 4, 6), (12, 4)), ((5, 3, 3, 4, 6), (24, 8))]
)
def test_a_batch_of_videos_is_one_video_in_rows_and_columns(
    shape: tuple[int, ...], size: tuple[int, int]
) -> None:
    frames = np.zeros(shape, np.uint8)
    frames[..., 1:, :, :, :] = 200
    video = to_media(data_types.Video(frames, fps=2, format="gif", caption="said"))
    facts = video.describe()
    assert (facts["width"], facts["height"], video.caption) == (*size, "said")
    assert facts["seconds"] == 1.5


def test_html_is_taken_from_texts_files_and_open_files(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<b>x</b>")
    for data in ("<b>x</b>", str(path), path, io.StringIO("<b>x</b>"), io.BytesIO(b"<b>x</b>")):
        assert to_media(data_types.Html(data)).encode() == b"<b>x</b>"
    assert to_media(data_types.Html(str(path), data_is_not_path=True)).encode() == str(path).encode()
    assert to_media(data_types.Html("<p>" * 1_000 + ".html")).kind == "html"


# Histograms and figures


def test_a_histogram_is_numpys() -> None:
    values = np.random.default_rng(0).normal(size=100)
    counts, edges = np.histogram(values, 64)
    for histogram in (
        data_types.Histogram(values),
        data_types.Histogram(values.tolist()),
        data_types.Histogram(torch.from_numpy(values).requires_grad_()),
        data_types.Histogram(np_histogram=(counts, edges)),
    ):
        assert (histogram.histogram, histogram.bins) == (counts.tolist(), edges.tolist())
        assert json.loads(to_media(histogram).encode())["counts"] == counts.tolist()
    assert sum(data_types.Histogram([1.0, float("nan"), float("inf")]).histogram) == 1


def test_plotly_figures_are_html_that_needs_no_network() -> None:
    for value in (go.Figure(go.Scatter(y=[1, 3, 2])), data_types.Plotly(go.Figure(go.Scatter(y=[1, 3, 2])))):
        stored = to_media(value)
        assert stored.kind == "html"
        assert b"Plotly.newPlot" in stored.encode()
        assert b"cdn.plot.ly" not in stored.encode().split(b"</script>")[0][:2_000]


def test_points_and_3d_files_are_kept_as_files(tmp_path: Path) -> None:
    path = tmp_path / "part.obj"
    path.write_bytes(b"v 0 0 0")
    assert to_media(data_types.Object3D(path)).encode() == b"v 0 0 0"
    assert to_media(data_types.Object3D(path)).suffix == ".obj"
    points = to_media(data_types.Object3D(np.arange(6).reshape(2, 3)))
    assert (points.suffix, json.loads(points.encode())) == (".pts.json", [[0, 1, 2], [3, 4, 5]])
    scene = to_media(data_types.Object3D({"type": "lidar/beta", "points": np.zeros((1, 3)), "boxes": []}))
    assert json.loads(scene.encode())["points"] == [[0.0, 0.0, 0.0]]


# Tables


def test_a_table_that_grew_is_stored_with_what_it_has() -> None:
    table = data_types.Table(columns=["a", 1])
    table.add_data(1, "x")
    table.add_data(2.5, None)
    table.add_column("c", np.array([True, False]))
    table.add_computed_columns(lambda number, row: {"d": row["a"] * 2})
    assert read(table) == {"a": [1.0, 2.5], "1": ["x", None], "c": [True, False], "d": [2.0, 5.0]}
    assert table.get_column("a") == [1, 2.5]
    assert table.get_column("a", convert_to="numpy").tolist() == [1, 2.5]
    assert [number for number, _ in table.iterrows()] == [0, 1]
    assert table.get_dataframe()["d"].tolist() == [2, 5]


def test_half_a_surrogate_pair_in_a_table_is_a_question_mark() -> None:
    table = data_types.Table(columns=["a\ud83d"], data=[["cut \ud83d"], ["whole"]])
    assert read(table) == {"a?": ["cut ?", "whole"]}


def test_a_cell_that_holds_itself_is_refused_and_a_nested_one_is_not() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidInput, match="nested deeper than 50, or holds itself"):
        data_types.Table(columns=["a"], data=[[endless]]).to_media()
    assert read(data_types.Table(columns=["a"], data=[[[{"b": [1, 2]}]]])) == {"a": [[{"b": [1, 2]}]]}


def test_frames_and_arrays_are_tables() -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": ["a", "b"]})
    for table in (data_types.Table(dataframe=frame), data_types.Table(data=frame), frame):
        assert read(table) == {"x": [1, 2], "y": ["a", "b"]}
    table = data_types.Table(columns=["a", "b"], data=np.arange(4).reshape(2, 2))
    assert read(table) == {
        "a": [0, 2],
        "b": [1, 3],
    }
    assert read(data_types.Table()) == {"Input": [], "Output": [], "Expected": []}


def test_a_column_of_several_kinds_is_refused_or_becomes_text() -> None:
    rows = [[1], ["a"], [None], [[1, 2]], [{"b": float("nan")}]]
    with pytest.raises(TypeError, match="column 'x' has values of the kind number, and 'a' is string"):
        data_types.Table(columns=["x"], data=rows)
    table = data_types.Table(columns=["x"], data=rows, allow_mixed_types=True)
    assert read(table) == {"x": ["1", "a", None, "[1, 2]", '{"b": "NaN"}']}


def test_pictures_and_sound_in_cells_are_stored_in_the_table() -> None:
    image = data_types.Image(PICTURE)
    sound = data_types.Audio(np.zeros(4), sample_rate=4)
    table = data_types.Table(columns=["picture", "sound"], data=[[image, sound], [None, None]])
    columns = read(table)
    assert columns["picture"] == [{"bytes": to_media(image).encode(), "path": "image.png"}, None]
    assert columns["sound"][0] == {"bytes": to_media(sound).encode(), "path": "audio.wav"}


@pytest.mark.parametrize("value", [1, "text", [1, 2], {"a": 1}, np.zeros(3), None, [], object()])
def test_what_is_no_data_type_is_left_to_others(value: Any) -> None:
    assert to_media(value) is None


def test_a_call_of_log_takes_figures_frames_and_lists_as_they_are(wandb: ModuleType, store: Store) -> None:
    figure = go.Figure(go.Scatter(y=[1, 3, 2]))
    frame = pd.DataFrame({"a": [1, 2]})
    pictures = [wandb.Image(PICTURE), wandb.Image(PICTURE)]
    masked = wandb.Image(PICTURE, masks={"truth": {"mask_data": np.zeros((5, 7), np.uint8)}})
    with wandb.init(project="p", id="r") as run:
        run.log({"figure": figure, "frame": frame, "pictures": pictures, "nested": {"masked": masked}})
    rows = [json.loads(path.read_text()) for path in Path(store.root).glob("runs/*/r/media/*.json")]
    assert {row["key"]: row["kind"] for row in rows} == {
        "figure": "html",
        "frame": "table",
        "pictures/0": "image",
        "pictures/1": "image",
        "nested/masked/image": "image",
        "nested/masked/masks/truth": "image",
    }


@pytest.mark.slow
def test_matplotlibs_figures_axes_and_plt_are_pictures() -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(2, 1), dpi=100)
    axes.plot([1, 3, 2])
    for value in (figure, axes, pyplot, data_types.Plotly(figure), data_types.Image(pyplot)):
        stored = to_media(value)
        assert (stored.kind, stored.describe()) == ("image", {"width": 200, "height": 100})
    pyplot.close(figure)
