"""The curves of a page: read from the store in about as many rows as a screen shows, and packed."""

import zlib
from collections.abc import Sequence

from halving.query.api import curve_rows
from halving.store.store import Store
from server.sharing.packing import PackedCurves

MAX_ROWS = 1_000
"""Of a curve: more than a chart has pixels."""
MIN_ROWS = 50
_ROWS = (1_000, 800, 640, 512, 400, 320, 256, 200, 160, 128, 100, 80, 64, MIN_ROWS)
_SAMPLED_RUNS = 4
_DOUBT = 1.25  # the sample may be wrong by so much: all are packed to see whether they fit


def rows_within(store: Store, runs: Sequence[str], metrics: Sequence[str], max_bytes: int) -> int:
    """How many rows a curve may have so that all of them take at most about so many bytes as text.

    0: they do not fit even with :data:`MIN_ROWS` each.

    It packs a few of the runs. A row takes from one byte to five: 14 bits of its mean, and of a bucket nearly
    as many of its minimum and of its maximum; and a third more as text.
    """
    step = max(1, len(runs) // _SAMPLED_RUNS)
    sample = runs[::step][:_SAMPLED_RUNS]
    size = 0.0
    for rows in _ROWS:
        packed = pack_curves(store, sample, metrics, rows)
        bytes_of_sample = sum(len(zlib.compress(array, 9)) for array in packed.encode()) * 4 / 3
        size = bytes_of_sample * len(runs) / max(1, len(sample))
        if size <= max_bytes:
            return rows
    if size <= _DOUBT * max_bytes:
        return MIN_ROWS
    return 0


def pack_curves(store: Store, runs: Sequence[str], metrics: Sequence[str], rows: int) -> PackedCurves:
    """Read and pack the curves of runs; a run without a metric has none.

    Args:
        runs: their ids, ``project/run``; a curve names its run by the place in here.
        metrics: their names; a curve names its metric by the place in here.
        rows: of each curve at most; a longer one comes in buckets with mean, minimum and maximum.
    """
    run_numbers = {run: number for number, run in enumerate(runs)}
    key_numbers = {key: number for number, key in enumerate(metrics)}
    packed = PackedCurves()
    if not runs or not metrics:
        return packed
    curves = curve_rows(list(runs), list(metrics), root=store, max_points=rows, known_keys=False)
    for curve in sorted(curves, key=lambda curve: (run_numbers[curve.run], key_numbers[curve.key])):
        packed.add(run_numbers[curve.run], key_numbers[curve.key], curve)
    return packed
