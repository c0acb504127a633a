"""``wandb.Histogram``, ``wandb.Plotly``, ``wandb.Object3D`` and ``wandb.Classes``."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput
from halving.ingest.html import Html as StoredHtml
from halving.ingest.media import Histogram as StoredHistogram
from halving.ingest.media import Image as StoredImage
from halving.ingest.media_files import read_medium
from halving.query.json_values import jsonable
from halving.wandb.images import figure_of, figure_png
from halving.wandb.wb_value import BatchableMedia, FileMedia, Media, Stored, WBValue, text_or_none


class Histogram(WBValue):
    """The distribution of a sequence, or a finished one as ``np.histogram`` returns it.

    NaN and infinities of a sequence are counted apart, where W&B raises an error.

    Attributes:
        histogram, bins: the counts, and their edges.
    """

    MAX_LENGTH = 512
    _log_type = "histogram"

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        if np_histogram:
            if len(np_histogram) != 2:
                raise ValueError("np_histogram is not accepted: give a tuple of values and bin edges")
            counts, edges = np_histogram
            self._check_length(len(counts))
            self._stored = StoredHistogram(counts=counts, edges=edges)
        else:
            self._check_length(num_bins)
            self._stored = _histogram_of(sequence, num_bins)
        content = json.loads(self._stored.encode())
        self.histogram: list[float] = content["counts"]
        self.bins: list[float] = content["edges"]

    def to_media(self) -> Stored:
        return self._stored

    def _check_length(self, length: int) -> None:
        if length > self.MAX_LENGTH:
            raise ValueError(f"a histogram of {length} bins is not accepted: give at most {self.MAX_LENGTH}")


class Plotly(Media):
    """A Plotly figure, stored as HTML that has Plotly in it; a matplotlib figure, stored as PNG."""

    _log_type = "plotly-file"

    def __init__(self, val: Any) -> None:
        figure = figure_of(val)
        if figure is not None:
            self._stored = StoredImage(figure_png(figure))
        elif is_plotly(val):
            self._stored = StoredHtml(val.to_html(include_plotlyjs=True, full_html=True))
        else:
            raise ValueError(
                f"plot of type {type(val).__qualname__} is not accepted: give a Plotly or matplotlib figure"
            )


class Object3D(BatchableMedia):
    """A point cloud or a 3D file, stored as it is; the page offers it as a download.

    Args:
        data_or_path: points as an array of shape (n, 3), (n, 4) with a class, or (n, 6) with colours; a scene
            as W&B's dict with a ``type``; or the path of a file (or an open one, with ``file_type``).
    """

    _log_type = "object3D-file"
    SUPPORTED_TYPES = frozenset({"obj", "gltf", "glb", "babylon", "stl", "pts.json"})

    def __init__(self, data_or_path: Any, caption: str | None = None, **options: Any) -> None:
        caption = text_or_none(caption)
        if isinstance(data_or_path, (str, Path)):
            content, _ = read_medium("object3d", data_or_path, "a 3D file")
            name = Path(data_or_path).name.lower()
            self._stored = self._as_file(content, _suffix_of(name), caption)
        elif hasattr(data_or_path, "read"):
            content = data_or_path.read()
            if isinstance(content, str):
                content = content.encode()
            self._stored = self._as_file(content, str(options.get("file_type")), caption)
        elif isinstance(data_or_path, dict) and "type" in data_or_path:
            scene = json.dumps(jsonable(_as_python(data_or_path)), default=str)
            self._stored = self._as_file(scene.encode(), "pts.json", caption)
        else:
            self._stored = self._as_file(_points(data_or_path), "pts.json", caption)

    @classmethod
    def from_file(cls, data_or_path: Any, file_type: str | None = None) -> "Object3D":
        """An object of a file."""
        return cls(data_or_path, file_type=file_type)

    @classmethod
    def from_numpy(cls, data: Any) -> "Object3D":
        """An object of points."""
        return cls(data)

    @classmethod
    def from_point_cloud(
        cls,
        points: Sequence[Any],
        boxes: Sequence[Any] = (),
        vectors: Sequence[Any] | None = None,
        point_cloud_type: str = "lidar/beta",
    ) -> "Object3D":
        """A scene of points, boxes and vectors."""
        return cls(
            {"type": point_cloud_type, "points": points, "boxes": boxes, "vectors": list(vectors or [])}
        )

    def _as_file(self, content: bytes, kind: str, caption: str | None) -> FileMedia:
        if kind not in self.SUPPORTED_TYPES:
            accepted = ", ".join(sorted(self.SUPPORTED_TYPES))
            raise ValueError(f"object3D file type {kind!r} is not accepted: give one of {accepted}")
        media_type = "application/json" if kind == "pts.json" else None
        return FileMedia(content, "object3d", f".{kind}", caption, media_type)


class Classes(WBValue):
    """Names of classes, for an image's boxes and masks: a list of dicts with ``id`` and ``name``."""

    _log_type = "classes"

    def __init__(self, class_set: Sequence[dict[str, Any]]) -> None:
        for item in class_set:
            if not {"id", "name"} <= set(item):
                raise ValueError(f"class {item!r:.80} is not accepted: give a dict with id and name")
        self._class_set = list(class_set)

    @property
    def _val(self) -> list[dict[str, Any]]:
        return self._class_set


def is_plotly(value: Any) -> bool:
    """Whether a value is a figure of Plotly's."""
    return type(value).__module__.partition(".")[0] == "plotly" and hasattr(value, "to_html")


def _histogram_of(sequence: Any, bins: int) -> StoredHistogram:
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(sequence, torch.Tensor):
        sequence = sequence.detach().cpu().double().numpy()
    values = np.asarray(sequence)
    if values.dtype.kind in "biuf" and values.size and np.isfinite(values).all():
        counts, edges = np.histogram(values, bins)
        if (np.diff(edges) > 0).all():
            return StoredHistogram(counts=counts, edges=edges)
    return StoredHistogram(values, bins=bins)


def _suffix_of(name: str) -> str:
    if name.endswith(".pts.json"):
        return "pts.json"
    return name.rpartition(".")[2]


def _points(data: Any) -> bytes:
    import numpy as np

    array = np.asarray(data)
    if array.dtype.kind not in "buif" or array.ndim != 2 or array.shape[1] not in (3, 4, 6):
        raise InvalidInput(
            f"object3D points of shape {array.shape} are not accepted: give (n, 3), (n, 4) or (n, 6) numbers"
        )
    return json.dumps(jsonable(array.tolist())).encode()


def _as_python(value: Any) -> Any:
    """Arrays as lists, at any depth."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _as_python(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_python(inner) for inner in value]
    return value
