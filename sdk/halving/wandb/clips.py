"""``wandb.Audio``, ``wandb.Video`` and ``wandb.Html``: files, samples and frames as W&B takes them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.ingest.audio import Audio as StoredAudio
from halving.ingest.device_tensors import array_of_tensor
from halving.ingest.html import Html as StoredHtml
from halving.ingest.video import Video as StoredVideo
from halving.wandb.wb_value import BatchableMedia, text_or_none

if TYPE_CHECKING:
    import numpy as np

_DEFAULT_FPS = 4


class Html(BatchableMedia):
    """HTML: a string of it, the path of a file that ends with ``.html``, or an open file.

    Args:
        inject: W&B adds its own style sheet from the network, which the page's sandbox would not load:
            nothing is added.
        data_is_not_path: a string is HTML, even if there is a file of that name.
    """

    _log_type = "html-file"

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        del inject
        is_path = isinstance(data, (str, Path)) and not data_is_not_path and _is_html_file(data)
        if is_path:
            self.html = Path(data).read_text(encoding="utf-8")
        elif isinstance(data, str):
            self.html = data
        elif hasattr(data, "read"):
            if hasattr(data, "seek"):
                data.seek(0)
            content = data.read()
            self.html = content.decode() if isinstance(content, bytes) else content
        else:
            raise ValueError(
                f"html of type {type(data).__qualname__} is not accepted: give a string of HTML, a path that "
                "ends with .html, or an open file"
            )
        self._stored = StoredHtml(self.html)


class Audio(BatchableMedia):
    """Sound: the path of a file, or samples of shape (n) or (n, channels) with their ``sample_rate``.

    Float samples beyond -1..1 are cut off; int32 keeps its upper 16 bits, as W&B's encoder does both.
    """

    _log_type = "audio-file"

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        caption = text_or_none(caption)
        if isinstance(data_or_path, (str, Path)):
            self._stored = StoredAudio(data_or_path, caption=caption)
            return
        if sample_rate is None:
            raise ValueError("sample_rate is missing: wandb.Audio needs it for samples, in samples a second")
        self._stored = StoredAudio(_samples(data_or_path), sample_rate=int(sample_rate), caption=caption)


class Video(BatchableMedia):
    """A video: the path of a file, its bytes in a ``BytesIO``, or frames.

    Frames have the shape (time, channels, height, width), or (batch, time, channels, height, width): a batch
    becomes one video with its parts side by side. They are numbers from 0 to 255.

    Args:
        fps: of frames; 4 by default.
        format: of frames and bytes: ``gif``, ``mp4``, ``webm`` or, for bytes, ``ogg``.
    """

    _log_type = "video-file"
    EXTS = ("gif", "mp4", "webm", "ogg")

    def __init__(
        self,
        data_or_path: Any,
        caption: str | None = None,
        fps: float | None = None,
        format: str | None = None,
    ) -> None:
        caption = text_or_none(caption)
        if isinstance(data_or_path, (str, Path)):
            self._stored = StoredVideo(data_or_path, caption=caption)
        elif hasattr(data_or_path, "read"):
            self._stored = StoredVideo(data_or_path.read(), caption=caption)
        else:
            if format not in self.EXTS:
                raise ValueError(
                    f"video format {format!r} is not accepted with frames: give one of {', '.join(self.EXTS)}"
                )
            frames = _tile(data_or_path)
            self._stored = StoredVideo(frames, fps=fps or _DEFAULT_FPS, format=format, caption=caption)
        facts = self._stored.describe()
        self._width = facts.get("width")
        self._height = facts.get("height")
        self._format = self._stored.suffix.removeprefix(".")


def _is_html_file(path: str | Path) -> bool:
    try:
        return Path(path).suffix == ".html" and Path(path).is_file()
    except (OSError, ValueError):  # HTML that is too long for a path, or has a null character
        return False


def _samples(data: Any) -> "np.ndarray[Any, Any]":
    import numpy as np

    array = _array(data)
    if array.dtype.kind == "f":
        array = np.nan_to_num(array.astype(np.float64)).clip(-1, 1)
    if array.dtype == np.int32:
        array = (array >> 16).astype(np.int16)
    return array


def _tile(data: Any) -> "np.ndarray[Any, Any]":
    """Frames as (time, height, width, channels) of uint8, a batch's parts in rows and columns.

    The grid has W&B's form: the batch is filled up to a power of two with black.
    """
    import numpy as np

    video = _array(data)
    if video.ndim not in (4, 5):
        raise ValueError(
            f"video of shape {video.shape} is not accepted: give (time, channels, height, width), or (batch, "
            "time, channels, height, width)"
        )
    if video.ndim == 4:
        video = video[None]
    if video.dtype != np.uint8:
        video = video.astype(np.uint8)
    batch, time, channels, height, width = video.shape
    whole = 1 << max(0, batch - 1).bit_length()
    video = np.concatenate([video, np.zeros((whole - batch, time, channels, height, width), np.uint8)])
    rows = 2 ** ((batch.bit_length() - 1) // 2)
    columns = whole // rows
    grid = video.reshape(rows, columns, time, channels, height, width).transpose(2, 0, 4, 1, 5, 3)
    return grid.reshape(time, rows * height, columns * width, channels)


def _array(data: Any) -> "np.ndarray[Any, Any]":
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        return array_of_tensor(data)
    if hasattr(data, "numpy"):  # TensorFlow's tensors
        data = data.numpy()
    return np.asarray(data)
