"""Sound: what is stored is what was given, as other programs read it."""

import io
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halving.errors import InvalidInput
from halving.ingest.audio import Audio

RAMP = np.arange(-4, 4, dtype=np.int16) * 1_000


def read(audio: Audio) -> tuple[int, int, "np.ndarray[Any, Any]"]:
    """Rate, channels and samples as Python's own reader has them."""
    with wave.open(io.BytesIO(audio.encode())) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return file.getframerate(), file.getnchannels(), samples


def wav(samples: bytes, kind: int = 1, bits: int = 16, channels: int = 1) -> bytes:
    """A WAV file with a chunk between its head and its samples, as many programs write it."""
    frame = channels * bits // 8
    head = struct.pack("<HHIIHH", kind, channels, 8_000, 8_000 * frame, frame, bits)
    chunks = b"fmt " + struct.pack("<I", 16) + head + b"LIST\x03\0\0\0abc\0"
    chunks += b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def test_an_array_is_read_back_sample_by_sample() -> None:
    audio = Audio(RAMP, sample_rate=8_000, caption="a ramp")
    rate, channels, samples = read(audio)
    assert (rate, channels, samples.tolist()) == (8_000, 1, RAMP.tolist())
    assert (audio.kind, audio.media_type, audio.suffix, audio.caption) == (
        "audio",
        "audio/wav",
        ".wav",
        "a ramp",
    )
    assert audio.describe() == {"seconds": 0.001, "sample_rate": 8_000, "channels": 1}


def test_channels_are_last_in_an_array_and_first_in_a_tensor() -> None:
    stereo = np.stack([RAMP, -RAMP], axis=1)
    assert read(Audio(stereo, sample_rate=8))[1:][1].tolist() == stereo.ravel().tolist()
    assert (
        Audio(torch.from_numpy(stereo.T.copy()), sample_rate=8).encode()
        == Audio(stereo, sample_rate=8).encode()
    )
    assert Audio(stereo, sample_rate=8).describe() == {"seconds": 1.0, "sample_rate": 8, "channels": 2}


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_floats_become_the_nearest_of_16_bits(values: list[float]) -> None:
    samples = read(Audio(np.array(values), sample_rate=8_000))[2]
    assert np.abs(samples / 32_767 - np.array(values)).max() <= 0.5 / 32_767 + 1e-12


def test_a_file_is_stored_as_it_is_and_its_head_is_read(tmp_path: Path) -> None:
    flac = (
        b"fLaC\x80\0\0\x22"
        + bytes(10)
        + ((44_100 << 44) | (1 << 41) | (15 << 36) | 88_200).to_bytes(8, "big")
    )
    page = b"OggS\0\x04" + struct.pack("<q", 96_000)
    opus = b"OggS\0\x02" + bytes(22) + b"OpusHead\x01\x02" + struct.pack("<HI", 0, 44_100) + page
    vorbis = b"OggS\0\x02" + bytes(22) + b"\x01vorbis" + struct.pack("<IBI", 0, 1, 48_000) + page
    for content, name, facts in (
        (wav(bytes(16_000)), "wav", {"seconds": 1.0, "sample_rate": 8_000, "channels": 1}),
        (wav(bytes(64_000), 3, 32, 2), "wav", {"seconds": 1.0, "sample_rate": 8_000, "channels": 2}),
        (flac + bytes(16), "flac", {"seconds": 2.0, "sample_rate": 44_100, "channels": 2}),
        (opus, "ogg", {"seconds": 2.0, "sample_rate": 44_100, "channels": 2}),
        (vorbis, "ogg", {"seconds": 2.0, "sample_rate": 48_000, "channels": 1}),
        (b"ID3\x04" + bytes(20), "mp3", {}),
        (b"\xff\xfb\x90\x00" + bytes(20), "mp3", {}),
    ):
        path = tmp_path / "sound"
        path.write_bytes(content)
        for given_as in (content, path, str(path), bytearray(content)):
            audio = Audio(given_as)
            assert (audio.encode(), audio.suffix, audio.describe()) == (content, f".{name}", facts)


@given(st.sampled_from([wav(bytes(40)), b"fLaC" + bytes(40), b"OggS" + bytes(40) + b"OpusHead"]), st.data())
def test_a_file_that_was_cut_off_is_stored_with_what_can_be_read(whole: bytes, data: st.DataObject) -> None:
    cut = whole[: data.draw(st.integers(12, len(whole)))]
    assert Audio(cut).encode() == cut


@pytest.mark.parametrize(
    ("data", "rate", "said"),
    [
        (RAMP, None, "sample_rate None is not accepted: give samples a second"),
        (RAMP, 0, "sample_rate 0"),
        (RAMP, True, "sample_rate True"),
        (RAMP, 44_100.0, "sample_rate 44100"),
        (wav(b""), 8_000, "sample_rate 8000 is not accepted with a file"),
        (RAMP.reshape(2, 2, 2), 8, r"shape \(2, 2, 2\) is not accepted: give \(samples,\)"),
        (np.zeros((1, 65)), 8, "at most 64 channels"),
        (RAMP.astype(np.int64), 8, "type int64 is not accepted: give int16, or floats"),
        (np.array([0.0, 2.5]), 8, r"values up to 2.5 is not accepted: give floats within -1\.\.1"),
        (np.array([np.nan]), 8, "values up to nan"),
        ([0.1], 8, "type list is not accepted: give an array"),
        ("nowhere.wav", None, "path 'nowhere.wav' is not accepted: give a WAV"),
        (b"GIF89a", None, "6 bytes is not accepted: give a WAV, MP3, FLAC or Ogg file"),
        (b"", None, "0 bytes is not accepted"),
    ],
)
def test_what_is_no_sound_is_refused_with_what_is(data: Any, rate: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"audio .*{said}"):
        Audio(data, sample_rate=rate)


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    with path.open("wb") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(InvalidInput, match=r"at most 256 MiB, and store a larger file by run\.log_artifact"):
        Audio(path)
