"""How much of an attempt the store has: its segments, and how far the last of them drained the journal."""

from halving.errors import NotFound
from halving.metrics.manifest import Absorbed, RunFiles
from halving.metrics.segments import drained_of
from halving.store.store import Store


def segments_of(files: RunFiles, attempt: int) -> dict[int, str]:
    """An attempt's live segments by their sequence number."""
    return {sequence: name for name, (owner, sequence) in files.segments.items() if owner == attempt}


def position_in_store(store: Store, attempt: int, files: RunFiles) -> tuple[int, dict[str, list[int]]]:
    """The next sequence number of an attempt, and how far its journal is drained.

    The latter is as :func:`~halving.metrics.segments.drained_of` returns it.

    Raises:
        NotFound: the last segment was compacted after the files were listed.
    """
    import pyarrow.parquet as pq

    own = segments_of(files, attempt)
    if not own:
        absorbed = files.manifest.absorbed.get(attempt, Absorbed(0))
        return absorbed.segments, dict(absorbed.drained)
    sequence = max(own)
    try:
        with store.open_file(own[sequence]) as file:
            metadata = pq.read_metadata(file).metadata
    except NotFound:
        raise NotFound(f"{own[sequence]} was compacted meanwhile") from None
    return sequence + 1, drained_of(metadata)
