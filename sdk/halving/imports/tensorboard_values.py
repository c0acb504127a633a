"""One value of an event, converted according to the TensorBoard plugin that shows it."""

import math
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.imports.foreign_run import PieceBuilder, Skipped
from halving.ingest.media import Histogram, Image, Text

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

Plugin = str
_TEXT_SUFFIX = "/text_summary"  # PyTorch's writer adds it to a text's name
_NOT_TAKEN = {
    "audio": "audio clips",
    "custom_scalars": "layouts of custom charts",
    "hparams": None,  # read before all others
    "mesh": "meshes",
    "pr_curves": "precision-recall curves",
}


def add_value(
    builder: PieceBuilder,
    place: str,
    event: "Event",
    value: Any,
    plugins: dict[str, Plugin],
    skipped: Skipped,
) -> None:
    """Add a value to the builder, or count it in ``skipped``.

    Args:
        place: the value's place in the source.
        plugins: the plugin of each name, from its first value; this function adds to it.
    """
    if not math.isfinite(event.wall_time):
        skipped.add("points with a time that no calendar has")
        return
    time = round(event.wall_time * 1000)
    if value.WhichOneof("value") == "simple_value":
        builder.add(value.tag, event.step, time, value.simple_value)
        return
    learn_plugin(value, plugins)
    if value.tag.startswith("_hparams_/"):
        return
    try:
        _add(builder, place, event.step, time, value, plugins, skipped)
    except (InvalidInput, ValueError, TypeError, IndexError) as error:
        skipped.add(f"values that cannot be read, such as {value.tag!r} at step {event.step}: {error}")


def learn_plugin(value: Any, plugins: dict[str, Plugin]) -> None:
    """Remember a name's plugin if this value is the first to have it."""
    if value.HasField("metadata") and value.metadata.plugin_data.plugin_name:
        plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)


def _add(
    builder: PieceBuilder,
    place: str,
    step: int,
    time: int,
    value: Any,
    plugins: dict[str, Plugin],
    skipped: Skipped,
) -> None:
    from tensorboard.data_compat import migrate_value
    from tensorboard.util.tensor_util import make_ndarray

    migrated = migrate_value(value)
    plugin = plugins.get(value.tag) or migrated.metadata.plugin_data.plugin_name
    array = make_ndarray(migrated.tensor)
    if plugin == "scalars" or (not plugin and array.size == 1 and array.dtype.kind in "iufb"):
        builder.add(value.tag, step, time, float(array.item()))
    elif plugin == "images":
        for number, encoded in enumerate(array[2:]):  # after the width and the height
            key = value.tag
            if len(array) > 3:
                key = f"{value.tag}/{number}"
            builder.add_media(f"{place}-{number:04d}", key, step, time, Image(bytes(encoded)))
    elif plugin == "histograms":
        builder.add_media(place, value.tag, step, time, _histogram(array))
    elif plugin == "text":
        key = value.tag.removesuffix(_TEXT_SUFFIX)
        text = "\n\n".join(cell.decode(errors="replace") for cell in array.reshape(-1))
        builder.add_media(place, key, step, time, Text(text, markdown=True))
    else:
        skipped.add(_NOT_TAKEN.get(plugin) or f"values of the plugin {plugin or 'unknown'!r}")


def _histogram(buckets: Any) -> Histogram:
    """Make a histogram of rows of left edge, right edge and count.

    A bucket may be as narrow as a point. Its count goes to the next bucket, or to a narrow bucket of its own
    if it is the last.
    """
    kept: list[list[float]] = []
    at_point = 0.0
    point = 0.0
    for left, right, count in buckets.tolist():
        if right > left:
            kept.append([left, right, count + at_point])
            at_point = 0.0
        else:
            at_point += count
            point = left
    width = max(abs(point) * 1e-6, 1e-12)
    if at_point and kept:
        kept.append([kept[-1][1], kept[-1][1] + width, at_point])
    elif not kept and len(buckets):
        kept.append([point - width, point + width, at_point])
    if not kept:
        return Histogram([])
    return Histogram(
        counts=[count for _, _, count in kept], edges=[kept[0][0], *(right for _, right, _ in kept)]
    )
