"""What an artifact's data types are made into again, and the runs of its lineage."""

from pathlib import Path
from typing import Any

from halving.wandb.artifact_entries import Entry
from halving.wandb.errors import NotSupported


def value_of(entry: Entry, kind: str) -> Any:
    """The table, picture, sound, video or HTML that a file holds.

    Raises:
        NotSupported: it holds something else.
    """
    from halving.wandb import data_types

    path = entry.download()
    if kind == "table":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        rows = [list(row.values()) for row in table.to_pylist()]
        return data_types.Table(columns=table.column_names, data=rows, allow_mixed_types=True)
    makers = {"image-file": data_types.Image, "audio-file": data_types.Audio, "video-file": data_types.Video}
    if kind == "html-file":
        return data_types.Html(Path(path))
    if kind not in makers:
        raise NotSupported(f"artifact.get() of {entry.path!r} is not there in Halving: download it")
    return makers[kind](path)


def run_of(project: str, run: str) -> Any:
    """A run as ``wandb.Api`` has it."""
    from halving.wandb.api import Api

    return Api().run(f"{project}/{run}")
