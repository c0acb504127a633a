"""What a retention did, or would do, counted."""

from typing import NamedTuple


class Gone(NamedTuple):
    """What went, or would go, of one kind in a project; where ``project`` is empty, it is of none.

    ``kind``: ``points``, ``system points``, ``rollups``, ``checkpoints``, ``media``, ``artifacts``, ``unnamed
    blobs``, ``journals``, ``leftover files``, ``deleted runs``, ``blobs moved to the cold tier``, ``Dagster
    runs``, ``Dagster partitions`` or ``Dagster logs``.
    """

    project: str
    kind: str
    count: int  # type: ignore[assignment]  # a tuple's own count, which nobody asks for
    bytes: int
