"""Videos and HTML: what is stored is what was given, as other programs read it."""

import importlib.util
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from halving.errors import InvalidInput
from halving.ingest.html import Html
from halving.ingest.video import Video

FRAMES = (np.arange(6)[:, None, None, None] * 40 * np.ones((6, 5, 7, 3))).astype(np.uint8)


def box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + name + content


def element(name: str, content: bytes) -> bytes:
    return bytes.fromhex(name) + (len(content) | 1 << 56).to_bytes(8, "big") + content


TRACK = box(b"trak", box(b"tkhd", bytes(76) + struct.pack(">II", 640 << 16, 480 << 16)))
MP4 = (
    box(b"ftyp", b"isom" + bytes(4))
    + box(b"free", b"")
    + box(b"moov", box(b"mvhd", bytes(12) + struct.pack(">II", 1_000, 2_500) + bytes(80)) + TRACK)
)
TRACKS = element(
    "1654AE6B", element("AE", element("E0", element("B0", b"\x02\x80") + element("BA", b"\x01\xe0")))
)
WEBM = (
    element("1A45DFA3", element("4282", b"webm"))
    + bytes.fromhex("18538067 01FFFFFFFFFFFFFF")
    + element("1549A966", element("2AD7B1", b"\x0f\x42\x40") + element("4489", struct.pack(">d", 2_500.0)))
    + TRACKS
    + element("1F43B675", bytes(9))
)
THEORA = b"OggS\0\x02" + bytes(22) + b"\x80theora" + bytes(9)


def frames_of(video: Video) -> list[int]:
    """The grey level of each frame as Pillow reads it."""
    image = PIL.Image.open(io.BytesIO(video.encode()))
    levels = []
    for number in range(getattr(image, "n_frames", 1)):
        image.seek(number)
        levels.append(int(np.asarray(image.convert("L"))[0, 0]))
    return levels


def test_frames_are_read_back_in_order_as_a_gif_that_plays_on() -> None:
    video = Video(FRAMES, fps=8, caption="brighter")
    assert np.abs(np.array(frames_of(video)) - FRAMES[:, 0, 0, 0]).max() <= 2
    assert (video.kind, video.media_type, video.suffix, video.caption) == (
        "video",
        "image/gif",
        ".gif",
        "brighter",
    )
    assert video.describe() == {"width": 7, "height": 5, "frames": 6, "seconds": 0.75}


def test_equal_frames_of_every_type_are_equal_videos() -> None:
    video = Video(FRAMES, fps=4).encode()
    assert Video(torch.from_numpy(FRAMES).permute(0, 3, 1, 2), fps=4).encode() == video
    assert Video(FRAMES / 255, fps=4).encode() == video
    masks = FRAMES[..., :1] > 100
    assert Video(masks, fps=4).encode() == Video(masks * np.uint8(255), fps=4).encode()


def test_a_single_frame_and_alike_ones_are_a_video_all_the_same() -> None:
    assert Video(FRAMES[:1]).describe() == {"width": 7, "height": 5, "frames": 1, "seconds": 0.25}
    assert Video(np.zeros((4, 2, 2, 3), np.uint8), fps=4).describe()["seconds"] == 1.0


@pytest.mark.parametrize(
    ("content", "suffix", "media_type", "facts"),
    [
        (MP4, ".mp4", "video/mp4", {"seconds": 2.5, "width": 640, "height": 480}),
        (WEBM, ".webm", "video/webm", {"seconds": 2.5, "width": 640, "height": 480}),
        (THEORA, ".ogv", "video/ogg", {}),
        (MP4[:40], ".mp4", "video/mp4", {}),
        (b"GIF89a", ".gif", "image/gif", {}),
    ],
)
def test_a_file_is_stored_as_it_is_and_its_head_is_read(
    content: bytes, suffix: str, media_type: str, facts: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "clip"
    path.write_bytes(content)
    for given_as in (content, path, str(path), bytearray(content)):
        video = Video(given_as)
        assert (video.encode(), video.suffix, video.media_type, video.describe()) == (
            content,
            suffix,
            media_type,
            facts,
        )


def test_a_length_that_is_no_number_is_not_recorded() -> None:
    damaged = WEBM.replace(struct.pack(">d", 2_500.0), struct.pack(">d", float("nan")))
    assert damaged != WEBM
    facts = Video(damaged).describe()
    assert (facts["width"], "seconds" in facts) == (640, False)


@pytest.mark.parametrize("whole", [MP4, WEBM, Video(FRAMES).encode()])
def test_a_file_that_was_cut_off_anywhere_is_stored_all_the_same(whole: bytes) -> None:
    for end in range(48, len(whole)):
        assert Video(whole[:end]).encode() == whole[:end]


@pytest.mark.parametrize(
    ("data", "arguments", "said"),
    [
        (FRAMES[0], {}, r"shape \(5, 7, 3\) is not accepted: give \(frames, height, width, channels\)"),
        (FRAMES[:0], {}, r"shape \(0, 5, 7, 3\)"),
        (FRAMES.transpose(0, 3, 1, 2), {}, r"shape \(6, 3, 5, 7\)"),
        (torch.zeros(3, 5, 7), {}, r"tensor of shape \(3, 5, 7\) is not accepted: give \(frames, channels"),
        (FRAMES.astype(np.int64), {}, "type int64 .* give uint8, or floats"),
        (FRAMES.astype(np.float32), {}, "values from 0 to 200 is not accepted"),
        (FRAMES, {"fps": 0}, "fps 0 is not accepted: give frames a second"),
        (FRAMES, {"fps": 51}, "to 50 for 'gif'"),
        (FRAMES, {"fps": "4"}, "fps '4'"),
        (FRAMES, {"format": "avi"}, "format 'avi' is not accepted: give 'gif', 'mp4' or 'webm'"),
        (MP4, {"fps": 4}, "fps 4 is not accepted with a file"),
        ([1], {}, "type list is not accepted"),
        ("nowhere.mp4", {}, "path 'nowhere.mp4' is not accepted: give an MP4"),
        (b"RIFF1234WAVE", {}, "12 bytes is not accepted: give an MP4, WebM, GIF or Ogg file"),
    ],
)
def test_what_is_no_video_is_refused_with_what_is(data: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"video .*{said}"):
        Video(data, **arguments)


@pytest.mark.skipif(importlib.util.find_spec("imageio_ffmpeg") is not None, reason="it is installed")
def test_a_format_without_its_encoder_says_what_to_install() -> None:
    with pytest.raises(InvalidInput, match=r"imageio-ffmpeg is not installed.* pip install imageio-ffmpeg"):
        Video(FRAMES, format="mp4")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mp4", "webm"])
def test_frames_become_an_mp4_or_webm_of_their_size_and_length(name: str) -> None:
    pytest.importorskip("imageio_ffmpeg")
    video = Video(np.repeat(np.repeat(FRAMES, 9, 1), 9, 2), fps=6, format=name)
    assert video.suffix == f".{name}"
    assert video.describe() == {"width": 64, "height": 46, "seconds": 1.0}


# HTML


def test_html_is_stored_in_utf_8_from_texts_files_and_bytes(tmp_path: Path) -> None:
    text = "<p>naïve 🙂</p>"
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    for data in (text, path, text.encode()):
        page = Html(data, caption="a page")
        assert page.encode().decode() == text
        assert (page.kind, page.media_type, page.suffix, page.caption, page.describe()) == (
            "html",
            "text/html",
            ".html",
            "a page",
            {"length": 14},
        )


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (3, "type int is not accepted: give a string of HTML"),
        (Path("nowhere.html"), "path 'nowhere.html' is not accepted: give an HTML file"),
        (b"\xff", "1 bytes is not accepted: give HTML in UTF-8"),
        ("\ud800", "no UTF-8 form"),
        ("x" * ((64 << 20) + 1), "give at most 64 MiB"),
    ],
)
def test_what_is_no_html_is_refused_with_what_is(bad: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"html .*{said}"):
        Html(bad)
