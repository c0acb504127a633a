"""``wandb.Image``: pictures as W&B takes them, with boxes and masks."""

import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.ingest import images
from halving.ingest.device_tensors import array_of_tensor
from halving.ingest.media import Image as StoredImage
from halving.ingest.media import Media as StoredMedia
from halving.ingest.media import Text
from halving.query.json_values import jsonable
from halving.wandb.wb_value import BatchableMedia, Stored, text_or_none

if TYPE_CHECKING:
    import numpy as np

_FILE_TYPES = ("png", "jpg", "jpeg", "bmp")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's, by the number of channels


class Image(BatchableMedia):
    """A picture, stored as PNG, or as it is when it is a PNG or JPEG file.

    Args:
        data_or_path: an array of shape HxW or HxWxC, a torch tensor of shape HxW or CxHxW, a Pillow image, a
            matplotlib figure, or the path of a file. Floats within 0..1 are scaled to 0..255; other values
            are taken for 0..255 and cut off, as W&B does.
        mode: Pillow's mode that the picture is converted to, such as ``L``; default: by the channels.
        boxes, masks: W&B's dicts by name. They are stored beside the picture: see :meth:`to_media`.
        file_type: ``jpg`` stores an array as JPEG.

    Raises:
        InvalidInput: it is no picture.
        ValueError: a wrong ``file_type``, number of channels, ``boxes`` or ``masks``.
    """

    _log_type = "image-file"
    MAX_ITEMS = 108

    def __init__(
        self,
        data_or_path: Any,
        mode: str | None = None,
        caption: str | None = None,
        grouping: int | None = None,
        classes: Any = None,
        boxes: Mapping[str, Any] | None = None,
        masks: Mapping[str, Any] | None = None,
        file_type: str | None = None,
        normalize: bool = True,
    ) -> None:
        del grouping  # W&B's page arranges pictures by it; this one does not.
        if file_type is not None and file_type not in _FILE_TYPES:
            raise ValueError(f"file_type {file_type!r} is not accepted: give one of {', '.join(_FILE_TYPES)}")
        for name, value in (("boxes", boxes), ("masks", masks)):
            if value is not None and not isinstance(value, Mapping):
                raise ValueError(f"{name} of type {type(value).__qualname__} are not accepted: give a dict")
        self._classes = classes
        self._boxes = boxes
        self._masks = masks
        if isinstance(data_or_path, Image):
            source = data_or_path._stored
            self._stored = StoredImage(source.encode(), caption=text_or_none(caption) or source.caption)
        else:
            encoded = _encode(data_or_path, mode, file_type, normalize)
            self._stored = StoredImage(encoded, caption=text_or_none(caption))
        facts = self._stored.describe()
        self._width = facts["width"]
        self._height = facts["height"]
        self.format = self._stored.suffix.removeprefix(".")

    def to_media(self) -> Stored:
        """The picture; with boxes or masks a dict of it and them.

        ``image`` is the picture, ``boxes/NAME`` the boxes as JSON text, ``masks/NAME`` a mask as a grey
        picture whose levels are the classes' numbers, and ``classes`` the names of classes as JSON text.
        """
        if not self._boxes and not self._masks and self._classes is None:
            return self._stored
        stored: dict[str, StoredMedia] = {"image": self._stored}
        for name, box in (self._boxes or {}).items():
            stored[f"boxes/{name}"] = _json_text(box)
        for name, mask in (self._masks or {}).items():
            stored |= _stored_mask(name, mask)
        if self._classes is not None:
            stored["classes"] = _json_text(self._classes)
        return stored

    @property
    def image(self) -> Any:
        """The picture as a Pillow image."""
        import PIL.Image

        return PIL.Image.open(io.BytesIO(self._stored.encode()))


def _encode(data: Any, mode: str | None, file_type: str | None, normalize: bool) -> bytes:
    if isinstance(data, (str, Path)):
        return _file_content(data)
    figure = figure_of(data)
    if figure is not None:
        return figure_png(figure)
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(data, pillow.Image):
        picture = data
        if mode is not None:
            picture = picture.convert(mode)
        return _saved(picture, file_type)
    pixels = _pixels(data, normalize)
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if file_type in (None, "png", "bmp") and mode in (None, _MODES[channels]):
        return images.encode(pixels)
    import PIL.Image

    picture = PIL.Image.fromarray(pixels)
    if mode is not None:
        picture = picture.convert(mode)
    return _saved(picture, file_type)


def _saved(picture: Any, file_type: str | None) -> bytes:
    """The picture as JPEG where that is asked for, else as PNG."""
    buffer = io.BytesIO()
    if file_type in ("jpg", "jpeg"):
        if picture.mode not in ("L", "RGB"):
            picture = picture.convert("RGB")
        picture.save(buffer, "JPEG")
        return buffer.getvalue()
    if picture.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        picture = picture.convert("RGB")
    return images.encode(picture)


def _file_content(path: str | Path) -> bytes:
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"image path {str(path)!r:.200} is not accepted: give an existing file ({error})"
        ) from None
    try:
        return StoredImage(content).encode()
    except InvalidInput:
        return _converted(path, content)


def _converted(path: str | Path, content: bytes) -> bytes:
    """A GIF, BMP, TIFF or WebP file as PNG, by Pillow."""
    try:
        import PIL.Image

        picture = PIL.Image.open(io.BytesIO(content))
        picture.load()
        return _saved(picture, None)
    except (ImportError, OSError, ValueError) as error:
        raise InvalidInput(
            f"image path {str(path)!r:.200} is not accepted: give a PNG or JPEG file, or another one that "
            f"Pillow reads ({error})"
        ) from None


def _pixels(data: Any, normalize: bool = True) -> "np.ndarray[Any, Any]":
    """The picture as HxW or HxWxC of uint8, with W&B's liberties."""
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        data = array_of_tensor(data)
        if data.ndim == 3:
            data = data.transpose(1, 2, 0)
    elif hasattr(data, "numpy"):  # TensorFlow's tensors
        data = data.numpy()
    array = np.asarray(data)
    if array.ndim > 2:
        array = array.squeeze()
    if array.dtype.kind not in "buif" or array.ndim not in (2, 3) or 0 in array.shape:
        raise InvalidInput(
            f"image of type {type(data).__qualname__} and shape {array.shape} is not accepted: give HxW or "
            "HxWxC numbers, a Pillow image, a figure, or a path"
        )
    if array.ndim == 3 and array.shape[2] not in _MODES:
        raise ValueError(
            f"image of shape {array.shape} is not accepted: give HxW, or HxWxC with 1, 3 or 4 channels"
        )
    if array.dtype == np.bool_:
        array = array * np.uint8(255)
    elif normalize and array.dtype.kind == "f" and float(array.min()) >= 0 and float(array.max()) <= 1:
        array = np.rint(array * 255)
    with np.errstate(invalid="ignore"):
        pixels: np.ndarray[Any, Any] = array.astype(np.uint8)
    return pixels


def figure_of(value: Any) -> Any:
    """The matplotlib figure that a value is or belongs to (of ``plt`` its current one), or None."""
    figures = sys.modules.get("matplotlib.figure")
    if figures is None:
        return None
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None and value is pyplot:
        return pyplot.gcf()
    if isinstance(value, figures.Figure):
        return value
    if type(value).__module__.partition(".")[0] == "matplotlib":
        figure = getattr(value, "figure", None)
        if isinstance(figure, figures.Figure):
            return figure
    return None


def figure_png(figure: Any) -> bytes:
    """A matplotlib figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _stored_mask(name: str, mask: Any) -> dict[str, StoredMedia]:
    """A mask, W&B's ``{"mask_data": array}`` or ``{"path": file}``, and the names of its classes."""
    fields = getattr(mask, "_val", mask)
    if not isinstance(fields, Mapping) or ("mask_data" not in fields and "path" not in fields):
        raise ValueError(f"mask {name!r} is not accepted: give a dict with mask_data or path")
    if "path" in fields:
        picture = StoredImage(_file_content(fields["path"]))
    else:
        picture = StoredImage(_pixels(fields["mask_data"], normalize=False))
    stored: dict[str, StoredMedia] = {f"masks/{name}": picture}
    if fields.get("class_labels"):
        stored[f"masks/{name}/classes"] = _json_text(fields["class_labels"])
    return stored


def _json_text(value: Any) -> Text:
    if isinstance(value, Sequence):
        value = list(value)
    return Text(json.dumps(jsonable(getattr(value, "_val", value)), default=str))
