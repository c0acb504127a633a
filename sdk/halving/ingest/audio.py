"""Sound that a run logs: a file as it is, or samples as a WAV file of 16 bits."""

import io
import struct
import sys
import wave
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.ingest.device_tensors import array_of_tensor
from halving.ingest.media import Media
from halving.ingest.media_files import MAX_BYTES, MEDIA_TYPES, format_of, read_medium

if TYPE_CHECKING:
    import numpy as np

_FORMATS = frozenset({"wav", "mp3", "flac", "ogg"})
_FILES = "a WAV, MP3, FLAC or Ogg file"
_MAX_CHANNELS = 64
_MAX_RATE = 768_000  # samples a second
_ROUNDING = 1e-3  # Float samples may exceed -1..1 by this: what a filter's rounding leaves.


class Audio(Media):
    """Sound, stored as the file that it is, or as WAV.

    Args:
        data: the path or bytes of a WAV, MP3, FLAC or Ogg file. Or samples, written as 16-bit WAV: a numpy
            array of shape (samples,) or (samples, channels), or a torch tensor of shape (samples,) or
            (channels, samples) (one on a GPU is waited for); int16, or floats within -1..1.
        sample_rate: of an array or tensor, in samples a second.
        caption: a line to show beside it.

    Raises:
        InvalidInput: ``data`` is none of these, ``sample_rate`` is missing, or is given for a file.
    """

    kind = "audio"

    def __init__(self, data: Any, *, sample_rate: int | None = None, caption: str | None = None) -> None:
        if isinstance(data, (str, Path, bytes, bytearray)):
            encoded, named = read_medium(self.kind, data, _FILES)
            name = format_of(encoded)
            if name not in _FORMATS:
                raise InvalidInput(f"{named} is not accepted: give {_FILES}")
            if sample_rate is not None:
                raise InvalidInput(
                    f"audio sample_rate {sample_rate!r:.40} is not accepted with a file: the file has its own"
                )
        else:
            name = "wav"
            encoded = _wav(_samples(data), _checked_rate(sample_rate))
        self.media_type = MEDIA_TYPES[name]
        self.suffix = f".{name}"
        super().__init__(encoded, facts_of(encoded, name), caption)


def facts_of(encoded: bytes, name: str) -> dict[str, Any]:
    """What an audio file's head says: ``seconds``, ``sample_rate``, ``channels``; only what it does say."""
    try:
        if name == "wav":
            return _wav_facts(encoded)
        if name == "flac":
            return _flac_facts(encoded)
        if name == "ogg":
            return _ogg_facts(encoded)
    except (struct.error, IndexError, ZeroDivisionError):  # A damaged head says nothing.
        return {}
    return {}


def _checked_rate(rate: Any) -> int:
    whole = not isinstance(rate, bool) and hasattr(rate, "__index__") and 1 <= int(rate) <= _MAX_RATE
    if not whole:
        raise InvalidInput(
            f"audio sample_rate {rate!r:.40} is not accepted: give samples a second, an integer from 1 to "
            f"{_MAX_RATE:,}"
        )
    return int(rate)


def _samples(data: Any) -> "np.ndarray[Any, Any]":
    """The samples as (samples, channels) of int16."""
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        data = array_of_tensor(data)
        if data.ndim == 2:
            data = data.T
    if not hasattr(data, "__array__"):
        raise InvalidInput(
            f"audio {data!r:.80} of type {type(data).__qualname__} is not accepted: give an array, a torch "
            f"tensor, or the path or bytes of {_FILES}"
        )
    array = np.asarray(data)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or not 1 <= array.shape[1] <= _MAX_CHANNELS:
        raise InvalidInput(
            f"audio array of shape {np.shape(data)} is not accepted: give (samples,) or (samples, channels), "
            f"with at most {_MAX_CHANNELS} channels"
        )
    if 2 * array.size > MAX_BYTES:
        raise InvalidInput(
            f"audio of {array.size:,} samples is not accepted: give at most {MAX_BYTES // 2:,}"
        )
    if array.dtype == np.int16:
        return array
    if not np.issubdtype(array.dtype, np.floating):
        raise InvalidInput(
            f"audio array of type {array.dtype} is not accepted: give int16, or floats within -1..1"
        )
    loudest = float(np.abs(array).max(initial=0.0))
    if not loudest <= 1 + _ROUNDING:  # NaN too
        raise InvalidInput(
            f"audio array with values up to {loudest:g} is not accepted: give floats within -1..1 (divide by "
            "the largest, or clip), or int16"
        )
    return np.rint(array.clip(-1, 1).astype(np.float64) * 32_767).astype(np.int16)


def _wav(samples: "np.ndarray[Any, Any]", rate: int) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return buffer.getvalue()


def _wav_facts(encoded: bytes) -> dict[str, Any]:
    """Read the chunks ``fmt`` and ``data`` (Multimedia Programming Interface 1.0, IBM, 1991)."""
    facts: dict[str, Any] = {}
    frame = 0
    place = 12
    while place + 8 <= len(encoded):
        name = encoded[place : place + 4]
        size = int.from_bytes(encoded[place + 4 : place + 8], "little")
        if name == b"fmt ":
            _, channels, rate, _, frame, _ = struct.unpack_from("<HHIIHH", encoded, place + 8)
            facts = {"sample_rate": rate, "channels": channels}
        if name == b"data" and facts:
            size = min(size, len(encoded) - place - 8)  # A stream's header may say more than there is.
            return {"seconds": round(size / frame / facts["sample_rate"], 3), **facts}
        place += 8 + size + size % 2
    return facts


def _flac_facts(encoded: bytes) -> dict[str, Any]:
    """Read the block STREAMINFO, the first of every file (RFC 9639, section 8.2)."""
    bits = int.from_bytes(encoded[18:26], "big")
    rate = bits >> 44
    samples = bits & (2**36 - 1)
    facts = {"sample_rate": rate, "channels": (bits >> 41 & 7) + 1}
    if samples:
        return {"seconds": round(samples / rate, 3), **facts}
    return facts


def _ogg_facts(encoded: bytes) -> dict[str, Any]:
    """Read the first packet of Vorbis or Opus, and the last page's position (RFC 3533, section 6)."""
    head = encoded[:200]
    if (place := head.find(b"\x01vorbis")) >= 0:
        channels, rate = struct.unpack_from("<BI", head, place + 11)
        unit = rate
    elif (place := head.find(b"OpusHead")) >= 0:
        channels, _, rate = struct.unpack_from("<BHI", head, place + 9)
        unit = 48_000  # Opus counts in samples of 48 kHz, whatever the input had (RFC 7845, section 4).
    else:
        return {}
    position = int.from_bytes(encoded[encoded.rfind(b"OggS") + 6 :][:8], "little", signed=True)
    return {"seconds": round(position / unit, 3), "sample_rate": rate, "channels": channels}
