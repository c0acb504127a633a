"""Images as PNG or JPEG files.

Arrays, tensors and Pillow images are written as PNG; PNG and JPEG files are kept as they are.
"""

import io
import struct
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.ingest.device_tensors import array_of_tensor

if TYPE_CHECKING:
    import numpy as np

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"
_PNG_COLOURS = {1: 0, 3: 2, 4: 6}  # channels to PNG's colour type: grey, RGB, RGBA
_JPEG = b"\xff\xd8\xff"
_JPEG_END = b"\xff\xd9"
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the markers that carry height and width
_ROUNDING = 1e-3  # A float image may exceed 0..1 by this: less than half of a level.


def encode(data: Any) -> bytes:
    """The file for whatever :class:`halving.Image` accepts.

    Raises:
        InvalidInput: something else; the message says what is accepted.
    """
    pillow = sys.modules.get("PIL.Image")
    torch = sys.modules.get("torch")
    if isinstance(data, (str, Path, bytes, bytearray)):
        return _read_file(data)
    if pillow is not None and isinstance(data, pillow.Image):
        return _encode_with_pillow(data)
    if torch is not None and isinstance(data, torch.Tensor):
        data = _channels_last(data)
    return _png(_pixels(data))


def is_jpeg(encoded: bytes) -> bool:
    return encoded.startswith(_JPEG)


def size(encoded: bytes) -> tuple[int, int]:
    """Width and height, in pixels, of a file that :func:`encode` returned."""
    if is_jpeg(encoded):
        return _jpeg_size(encoded)
    width, height = struct.unpack(">II", encoded[16:24])
    return int(width), int(height)


def _read_file(data: str | Path | bytes | bytearray) -> bytes:
    if isinstance(data, (bytes, bytearray)):
        named = f"image {len(data)} bytes"
        encoded = bytes(data)
    else:
        named = f"image path {str(data)!r:.200}"
        try:
            encoded = Path(data).read_bytes()
        except (OSError, ValueError) as error:  # ValueError: a null character in the path
            raise InvalidInput(
                f"{named} is not accepted: give an existing PNG or JPEG file ({error})"
            ) from None
    whole_png = encoded.startswith(_PNG) and encoded[12:16] == b"IHDR" and _PNG_END in encoded
    whole_jpeg = encoded.startswith(_JPEG) and _JPEG_END in encoded and _jpeg_size(encoded) != (0, 0)
    if not whole_png and not whole_jpeg:
        raise InvalidInput(f"{named} is not accepted: give a complete PNG or JPEG file")
    return encoded


def _jpeg_size(encoded: bytes) -> tuple[int, int]:
    """Width and height from the first frame header (ITU T.81, B.2.2); (0, 0) when there is none."""
    place = 2
    while place + 9 <= len(encoded) and encoded[place] == 0xFF:
        if encoded[place + 1] in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", encoded[place + 5 : place + 9])
            return int(width), int(height)
        if encoded[place + 1] == 0xFF:
            place += 1
        else:
            place += 2 + int.from_bytes(encoded[place + 2 : place + 4], "big")
    return 0, 0


def _encode_with_pillow(image: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        image.save(buffer, "PNG")
    except (OSError, ValueError, SystemError) as error:
        raise InvalidInput(
            f"image of Pillow's mode {image.mode!r} is not accepted: convert it to RGB first ({error})"
        ) from None
    return buffer.getvalue()


def _channels_last(tensor: Any) -> Any:
    if tensor.ndim == 3:
        if tensor.shape[0] not in _PNG_COLOURS:
            raise InvalidInput(
                f"image tensor of shape {tuple(tensor.shape)} is not accepted: give HxW, or CxHxW with 1, "
                "3 or 4 channels"
            )
        tensor = tensor.permute(1, 2, 0)
    return array_of_tensor(tensor)


def _pixels(data: Any) -> "np.ndarray[Any, Any]":
    """The image as HxWxC of uint8."""
    import numpy as np

    if not hasattr(data, "__array__"):
        raise InvalidInput(
            f"image {data!r:.80} of type {type(data).__qualname__} is not accepted: "
            "give an array, a torch tensor, a Pillow image, or the path or bytes of a PNG or JPEG file"
        )
    array = np.asarray(data)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in _PNG_COLOURS or 0 in array.shape:
        raise InvalidInput(
            f"image array of shape {np.shape(data)} is not accepted: give HxW, or HxWxC with 1, 3 or 4 "
            "channels"
        )
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint8:
        return array
    if not np.issubdtype(array.dtype, np.floating):
        raise InvalidInput(
            f"image array of type {array.dtype} is not accepted: give uint8, or floats within 0..1"
        )
    low = float(array.min())
    high = float(array.max())
    if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # NaN too
        raise InvalidInput(
            f"image array with values from {low:g} to {high:g} is not accepted: give floats within 0..1, "
            "or uint8"
        )
    return np.rint(array.clip(0, 1).astype(np.float32) * 255).astype(np.uint8)


def _png(pixels: "np.ndarray[Any, Any]") -> bytes:
    """A PNG of HxWxC uint8 pixels (W3C PNG, third edition: chunks in 5, the filter "up" in 9.2)."""
    import numpy as np

    height, width, channels = pixels.shape
    rows = pixels.reshape(height, width * channels)
    # Each row begins with the number of its filter.
    filtered = np.full((height, width * channels + 1), 2, np.uint8)
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])  # modulo 256
    header = struct.pack(">IIBBBBB", width, height, 8, _PNG_COLOURS[channels], 0, 0, 0)
    return (
        _PNG
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(filtered.tobytes(), 4))
        + _chunk(b"IEND", b"")
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
