"""W&B's data types, and what they are stored as."""

from typing import Any

from halving.wandb.clips import Audio as Audio
from halving.wandb.clips import Html as Html
from halving.wandb.clips import Video as Video
from halving.wandb.images import Image as Image
from halving.wandb.images import figure_of
from halving.wandb.plots import Classes as Classes
from halving.wandb.plots import Histogram as Histogram
from halving.wandb.plots import Object3D as Object3D
from halving.wandb.plots import Plotly as Plotly
from halving.wandb.plots import is_plotly
from halving.wandb.tables import Table as Table
from halving.wandb.wb_value import BatchableMedia as BatchableMedia
from halving.wandb.wb_value import Media as Media
from halving.wandb.wb_value import WBValue as WBValue

_MISSING = {
    "Bokeh": "log its HTML with wandb.Html (bokeh.embed.file_html)",
    "EvalTable": "log a wandb.Table",
    "Graph": "log the model's text with wandb.Html, or save it as a file",
    "JoinedTable": "log the joined rows as one wandb.Table",
    "Molecule": "save the file with wandb.save",
    "PartitionedTable": "log the rows as one wandb.Table",
    "WBTraceTree": "log a wandb.Table",
}


def to_media(value: Any) -> Any:
    """What a value is stored as: halving's media, or a dict of them by the names that follow its own.

    Lists of media become dicts by their numbers: ``{"0": …, "1": …}``. Figures of Plotly and matplotlib, and
    DataFrames, are media as well. None: it is nothing of the kind.
    """
    if isinstance(value, WBValue):
        return value.to_media()
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, WBValue) for item in value):
        return {str(number): item.to_media() for number, item in enumerate(value)}
    if is_plotly(value) or figure_of(value) is not None:
        return Plotly(value).to_media()
    if type(value).__name__ == "DataFrame" and type(value).__module__.partition(".")[0] == "pandas":
        return Table(dataframe=value).to_media()
    return None


def __getattr__(name: str) -> Any:
    """Refuse names that W&B has and Halving has not.

    Raises:
        NameMissing: with what to do instead.
    """
    if name in _MISSING:
        from halving.wandb.errors import NameMissing

        raise NameMissing(f"wandb.{name} is not there in Halving: {_MISSING[name]}")
    raise AttributeError(f"module 'wandb.data_types' has no attribute {name!r}")
