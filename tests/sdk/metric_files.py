"""Metric files for the tests of compaction: segments as a run leaves them, and a small reader of what counts
as a run's points.
"""

import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyarrow import fs

from halving import Store
from halving.metrics.manifest import project_folder, run_files
from halving.metrics.segments import encode, live_folder, points_table, segment_name

# key, step, wall time in ms, value
Logged = tuple[str, int, int, float]
# attempt, key, step, wall time in ms, the value's 8 bytes
Row = tuple[int, str, int, int, bytes]

_KILLER = """
import json, os, shutil, signal, sys
import numpy, pyarrow.parquet, pyarrow.compute, pyarrow.fs
from halving import Store
from halving.maintenance.compaction import compact
from halving.maintenance.retention import PointDays, drop_points

def patched(function, ticks):
    def call(*arguments, **named):
        ticks()
        result = function(*arguments, **named)
        ticks()
        return result
    return call

def child(folder, action, at):
    calls = 0
    def ticks():
        nonlocal calls
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
    os.link = patched(os.link, ticks)
    Store.delete = patched(Store.delete, ticks)
    store = Store(folder)
    eval(action)

base, action = sys.argv[1:]
at = 0
while True:
    folder = f"{base}-killed-{at}"
    shutil.copytree(base, folder)
    pid = os.fork()
    if not pid:
        child(folder, action, at)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status == 0:
        break
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        sys.exit(f"step {at} ended with {status}")
    at += 1
print(at)
"""


def write_segment(
    store: Store, run: str, attempt: int, sequence: int, logged: Sequence[Logged], project: str = "p"
) -> None:
    """One segment with these points in the order of logging, as the drain writes it."""
    keys = sorted({key for key, *_ in logged})
    ordered = sorted(logged, key=lambda point: point[0])
    table = points_table(
        run,
        attempt,
        keys,
        np.array([keys.index(key) for key, *_ in ordered], np.int32),
        np.array([step for _, step, _, _ in ordered], np.int64),
        np.array([time for _, _, time, _ in ordered], np.int64),
        np.array([value for *_, value in ordered], np.float64),
    )
    name = f"{live_folder(project, run)}/{segment_name(attempt, sequence)}"
    store.create(name, encode(table, {b"halving.drained": b'{"main": [0, %d]}' % (100 * (sequence + 1))}))


def rows(attempt: int, logged: Sequence[Logged]) -> list[Row]:
    return [(attempt, key, step, time, struct.pack("<d", value)) for key, step, time, value in logged]


def in_order(points: list[Row]) -> list[Row]:
    """By (key, step, attempt), and by the order of logging where they are equal: what a full file has to
    hold.
    """
    return sorted(points, key=lambda row: (row[1], row[2], row[0]))


def read_file(store: Store, name: str, run: str) -> list[Row]:
    """A run's points in a file, in the file's order."""
    with (
        store.missing_when_gone(store.path(name)),
        store.filesystem.open_input_file(store.path(name)) as handle,
    ):
        table = pq.read_table(handle)
    assert table.column_names == ["run", "attempt", "key", "step", "wall_time", "value"]
    columns = zip(
        *(
            table.column(name)
            .cast("int64" if name == "wall_time" else table.schema.field(name).type)
            .to_pylist()
            for name in table.column_names
        ),
        strict=True,
    )
    return [
        (attempt, key, step, time, struct.pack("<d", value))
        for named, attempt, key, step, time, value in columns
        if named == run
    ]


def read_points(store: Store, run: str, project: str = "p") -> list[Row]:
    """All points of a run as readers find them: what the newest manifest names, and the segments behind
    it.
    """
    while True:
        files = run_files(store, project, run)
        names = [f"{project_folder(project)}/{files.manifest.full}"] if files.manifest.full else []
        names += sorted(files.segments, key=lambda name: files.segments[name])
        try:
            return [row for name in names for row in read_file(store, name, run)]
        except FileNotFoundError:  # compacted meanwhile
            continue


def read_rollup(store: Store, run: str, project: str = "p") -> list[dict[str, Any]]:
    """A run's buckets, in the file's order."""
    files = run_files(store, project, run)
    assert files.manifest.rollup is not None
    with store.filesystem.open_input_file(
        store.path(f"{project_folder(project)}/{files.manifest.rollup}")
    ) as handle:
        return [bucket for bucket in pq.read_table(handle).to_pylist() if bucket["run"] == run]


def all_files(store: Store) -> list[str]:
    """Every file of the metrics, hidden ones too, relative to the store."""
    listed = store.filesystem.get_file_info(fs.FileSelector(store.path("metrics"), recursive=True))
    return sorted(info.path.removeprefix(store.path("")) for info in listed if info.type == fs.FileType.File)


def killed_everywhere(store: Store, action: str) -> list[Store]:
    """Copies of the store in which ``action`` was killed at every single step of it: before and after each
    link and deletion.
    """
    assert store.folder is not None
    done = subprocess.run(
        [sys.executable, "-c", _KILLER, store.root, action],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Store(f"{store.folder}-killed-{at}") for at in range(int(done.stdout) + 1)]
