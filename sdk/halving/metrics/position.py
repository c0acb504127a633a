"""How much of an attempt's points the store has: its segments, and how far its journal was drained with the last of them."""

from halving.errors import NotFound
from halving.metrics.manifest import RunFiles
from halving.metrics.segments import drained_of, parse_segment_name
from halving.store.store import Store


def segments_of(files: RunFiles, attempt: int) -> dict[int, str]:
    """An attempt's live segments by their sequence number."""
    parsed = [(parse_segment_name(name.rpartition("/")[2]), name) for name in files.segments]
    return {place[1]: name for place, name in parsed if place and place[0] == attempt}


def position_in_store(store: Store, attempt: int, files: RunFiles) -> tuple[int, dict[str, list[int]]]:
    """The next sequence number of an attempt, and how far its journal is drained, as :func:`~halving.metrics.segments.drained_of` gives it.

    Raises:
        NotFound: the last segment was compacted after the files were listed.
    """
    import pyarrow.parquet as pq

    absorbed = files.manifest.absorbed.get(attempt) if files.manifest else None
    own = segments_of(files, attempt)
    if not own:
        return (absorbed.segments, dict(absorbed.drained)) if absorbed else (0, {})
    sequence = max(own)
    try:
        metadata = pq.read_metadata(store.path(own[sequence]), filesystem=store.filesystem).metadata
    except FileNotFoundError:
        raise NotFound(f"{own[sequence]} was compacted meanwhile") from None
    return sequence + 1, drained_of(metadata)
