"""Moving pictures that a run logs: a file as it is, or frames as an animated GIF, MP4 or WebM."""

import io
import sys
import tempfile
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.ingest.device_tensors import array_of_tensor
from halving.ingest.media import Media
from halving.ingest.media_files import MAX_BYTES, MEDIA_TYPES, format_of, read_medium
from halving.ingest.video_facts import facts_of

if TYPE_CHECKING:
    import numpy as np

_FORMATS = frozenset({"mp4", "webm", "gif", "ogv"})
_FILES = "an MP4, WebM, GIF or Ogg file"
_CODECS = {"mp4": "libx264", "webm": "libvpx-vp9"}
_MAX_FPS = 240
_MAX_GIF_FPS = 50  # Browsers slow a GIF's frame of less than 2 hundredths of a second down to a tenth.


class Video(Media):
    """A moving picture, stored as the file that it is, or as GIF, MP4 or WebM made of frames.

    Args:
        data: the path or bytes of an MP4, WebM, GIF or Ogg file. Or frames: a numpy array of shape
            (frames, height, width, channels) with 1 (grey) or 3 (RGB) channels, or a torch tensor of shape
            (frames, channels, height, width) (one on a GPU is waited for); uint8, or floats or bools within
            0..1.
        fps: of an array or tensor: frames a second, from above 0 to 240 (``gif``: to 50).
        format: of an array or tensor: ``gif`` (needs Pillow), ``mp4`` or ``webm`` (both need imageio-ffmpeg).
        caption: a line to show beside it.

    Raises:
        InvalidInput: ``data`` is none of these, ``fps`` or ``format`` is none that is accepted, or the
            package that encodes is not installed.
    """

    kind = "video"

    def __init__(
        self, data: Any, *, fps: float | None = None, format: str = "gif", caption: str | None = None
    ) -> None:
        if isinstance(data, (str, Path, bytes, bytearray)):
            encoded, named = read_medium(self.kind, data, _FILES)
            name = format_of(encoded)
            if name not in _FORMATS:
                raise InvalidInput(f"{named} is not accepted: give {_FILES}")
            if fps is not None:
                raise InvalidInput(f"video fps {fps!r:.40} is not accepted with a file: the file has its own")
        else:
            name = format
            _check_encoding(name, fps)
            encoded = _encode(_frames(data), float(fps or 4), name)
        self.media_type = MEDIA_TYPES[name]
        self.suffix = f".{name}"
        super().__init__(encoded, facts_of(encoded, name), caption)


def _check_encoding(name: str, fps: Any) -> None:
    if name != "gif" and name not in _CODECS:
        raise InvalidInput(f"video format {name!r:.40} is not accepted: give 'gif', 'mp4' or 'webm'")
    limit = _MAX_FPS
    module = "imageio_ffmpeg"
    package = "imageio-ffmpeg"
    if name == "gif":
        limit = _MAX_GIF_FPS
        module = "PIL"
        package = "pillow"
    number = isinstance(fps, (int, float)) and not isinstance(fps, bool)
    if fps is not None and not (number and 0 < fps <= limit):
        raise InvalidInput(
            f"video fps {fps!r:.40} is not accepted: give frames a second, from above 0 to {limit} for "
            f"{name!r}"
        )
    if find_spec(module) is None:
        raise InvalidInput(
            f"video frames as {name!r} are not accepted: {package} is not installed, which encodes them: "
            f"pip install {package}, or give a file"
        )


def _frames(data: Any) -> "np.ndarray[Any, Any]":
    """The frames as (frames, height, width, 1 or 3) of uint8."""
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        if data.ndim != 4:
            raise InvalidInput(
                f"video tensor of shape {tuple(data.shape)} is not accepted: give (frames, channels, height, "
                "width)"
            )
        data = array_of_tensor(data.permute(0, 2, 3, 1))
    if not hasattr(data, "__array__"):
        raise InvalidInput(
            f"video {data!r:.80} of type {type(data).__qualname__} is not accepted: give an array, a torch "
            f"tensor, or the path or bytes of {_FILES}"
        )
    array = np.asarray(data)
    if array.ndim != 4 or array.shape[3] not in (1, 3) or 0 in array.shape:
        raise InvalidInput(
            f"video array of shape {np.shape(data)} is not accepted: give (frames, height, width, channels) "
            "with 1 or 3 channels"
        )
    if array.size > MAX_BYTES:
        raise InvalidInput(
            f"video of {array.size >> 20} MiB of pixels is not accepted: give at most {MAX_BYTES >> 20} MiB"
        )
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint8:
        return array
    low = high = float("nan")
    if np.issubdtype(array.dtype, np.floating):
        low = float(array.min())
        high = float(array.max())
    if not (low >= 0 and high <= 1):
        raise InvalidInput(
            f"video array of type {array.dtype} with values from {low:g} to {high:g} is not accepted: give "
            "uint8, or floats within 0..1"
        )
    return np.rint(array.astype(np.float32) * 255).astype(np.uint8)


def _encode(frames: "np.ndarray[Any, Any]", fps: float, name: str) -> bytes:
    if name == "gif":
        return _gif(frames, fps)
    return _encode_with_ffmpeg(frames, fps, name)


def _gif(frames: "np.ndarray[Any, Any]", fps: float) -> bytes:
    from PIL import Image

    pictures = [Image.fromarray(frame.squeeze(-1) if frame.shape[2] == 1 else frame) for frame in frames]
    # GIF counts hundredths of a second; the sum of the frames is as long as the video.
    ends = [round(100 * number / fps) for number in range(len(pictures) + 1)]
    pauses = [10 * (end - begin) for begin, end in pairwise(ends)]
    buffer = io.BytesIO()
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:], duration=pauses, loop=0)
    return buffer.getvalue()


def _encode_with_ffmpeg(frames: "np.ndarray[Any, Any]", fps: float, name: str) -> bytes:
    import imageio_ffmpeg
    import numpy as np

    if frames.shape[3] == 1:
        frames = np.repeat(frames, 3, axis=3)
    height, width = frames.shape[1:3]
    # Both codecs halve the resolution of colours, so an odd side gets a last line once more.
    frames = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    with tempfile.TemporaryDirectory(prefix="halving-video-") as folder:
        path = Path(folder) / f"video.{name}"
        size = (frames.shape[2], frames.shape[1])
        writer = imageio_ffmpeg.write_frames(
            str(path), size, fps=fps, codec=_CODECS[name], macro_block_size=1, ffmpeg_log_level="error"
        )
        try:
            writer.send(None)
            for frame in frames:
                writer.send(np.ascontiguousarray(frame))
            writer.close()
            return path.read_bytes()
        except (OSError, RuntimeError) as error:
            raise InvalidInput(
                f"video frames are not accepted: ffmpeg did not encode them ({error})"
            ) from None
