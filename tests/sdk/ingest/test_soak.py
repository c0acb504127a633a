"""A soak: processes that log are killed, stopped and starved at random, and every point is kept once.

They log from threads and forked children. ``HALVING_SOAK_SECONDS`` and ``HALVING_SOAK_SEED`` make it longer
or repeat it.
"""

import contextlib
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from halving import Store
from halving.ingest.recovery import recover
from halving.metrics.manifest import run_files

SECONDS = float(os.environ.get("HALVING_SOAK_SECONDS", "12"))
LOGGERS = 64  # slots for what loggers say of themselves

# Each logger counts in memory that outlives it how many of its calls have come back.
VICTIM = """
import halving, mmap, os, random, struct, sys, threading, time
root, truth, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(seed)
shared = mmap.mmap(os.open(truth, os.O_RDWR), 0)
run = halving.init('p', id='r', root=root, system_metrics=None)
run._writer._delay = rng.choice([0.001, 0.05, 1.0])
slot, threads, stop = 0, [], threading.Event()

def logger(number, seed, calls):
    rng = random.Random(seed)
    names = [f'{run.attempt}.{number}.{part}' for part in range(rng.choice([1, 2, 10]))]
    wide = rng.random() < 0.3
    for step in range(calls):
        if stop.is_set():
            return
        values = {name: float(step) for name in names}
        if wide and step % 2:  # another set of names, in which the first stands too
            values = {names[0]: float(step), f'{run.attempt}.{number}.odd': 1.0}
        run.log(values, step=step)
        struct.pack_into('<q', shared, number * 8, step + 1)
        if rng.random() < 0.001:
            time.sleep(rng.random() * 0.02)
        if rng.random() < 0.0005:
            run.flush(0.01)

print('ready', flush=True)
while True:
    kind = rng.choice(['thread', 'thread', 'child', 'here'])
    number, calls = slot, rng.choice([1, 100, 20_000])
    slot += 1
    if slot == int(sys.argv[4]):
        break
    if kind == 'thread':
        threads.append(threading.Thread(target=logger, args=(number, rng.random(), calls), daemon=True))
        threads[-1].start()
    elif kind == 'here':
        logger(number, rng.random(), calls)
    elif os.fork() == 0:
        logger(number, rng.random(), calls)
        os._exit(0)
time.sleep(rng.random())
if rng.random() < 0.5:
    stop.set()  # what is logged after finish() is refused
    for thread in threads:
        thread.join()
    run.finish()
else:
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
def test_every_logged_point_is_read_back_once_whatever_is_killed_forked_or_starved(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("HALVING_SOAK_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HALVING_SOAK_SEED={seed}")
    rng = random.Random(seed)
    store = Store(tmp_path / "store")
    script = tmp_path / "victim.py"
    script.write_text(VICTIM)
    logged: dict[int, list[int]] = {}
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or len(logged) < 3:
        attempt = len(logged) + 1
        logged[attempt] = one_life(script, store, tmp_path / f"truth-{attempt}", rng)
    assert [recovered.state for recovered in recover(store) if recovered.state != "recovered"] == []
    check(store, logged)


def one_life(script: Path, store: Store, truth: Path, rng: random.Random) -> list[int]:
    """Start a process, torment it, see it dead, and give how many calls each of its loggers made."""
    truth.write_bytes(bytes(8 * LOGGERS))
    command = [sys.executable, str(script), store.root, str(truth), str(rng.randrange(2**32)), str(LOGGERS)]
    victim = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert victim.stdout is not None
    assert victim.stderr is not None
    ready = victim.stdout.readline()
    assert ready == b"ready\n", victim.stderr.read().decode()
    live = Path(store.path("metrics/project=p/run=r/live"))
    for _ in range(rng.randrange(4)):
        time.sleep(rng.random() * 0.3)
        if rng.random() < 0.5:
            starve(live, rng)
        else:
            os.killpg(victim.pid, signal.SIGSTOP)
            time.sleep(rng.random() * 0.1)
            os.killpg(victim.pid, signal.SIGCONT)
    time.sleep(rng.random() * 0.5)
    if rng.random() < 0.8:
        os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=120)
    with contextlib.suppress(ProcessLookupError):  # children that outlived it
        os.killpg(victim.pid, signal.SIGKILL)
    with truth.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as counted:
        return list(struct.unpack(f"<{LOGGERS}q", counted[:]))


def starve(live: Path, rng: random.Random) -> None:
    """Let the folder that segments go to refuse them for a moment."""
    if subprocess.run(["chattr", "+i", str(live)], capture_output=True, check=False).returncode == 0:
        time.sleep(rng.random() * 0.4)
        subprocess.run(["chattr", "-i", str(live)], check=True)


def check(store: Store, logged: dict[int, list[int]]) -> None:
    tables = [
        pq.ParquetFile(store.path(name)).read(columns=["key", "step", "value"])
        for name in run_files(store, "p", "r").segments
    ]
    points = pa.concat_tables(
        [table.set_column(0, "key", table["key"].cast(pa.string())) for table in tables]
    )
    steps: dict[str, set[int]] = defaultdict(set)
    for group in points.group_by("key").aggregate([("step", "list"), ("value", "list")]).to_pylist():
        recovered = group["step_list"]
        assert len(recovered) == len(set(recovered)), f"{group['key']}: points are doubled"
        if not group["key"].endswith(".odd"):
            assert recovered == [int(value) for value in group["value_list"]]
        steps[group["key"].rpartition(".")[0]].update(recovered)
    assert set(steps) <= {f"{attempt}.{number}" for attempt in logged for number in range(LOGGERS)}
    total = 0
    for attempt, counts in logged.items():
        for number, count in enumerate(counts):
            recovered = steps.get(f"{attempt}.{number}", set())
            # A process killed between the return of log() and its own counting has logged one more.
            assert len(recovered) in (count, count + 1), (
                f"{attempt}.{number}: {count} calls, {len(recovered)} steps read"
            )
            assert recovered == set(range(len(recovered)))
            first = points.filter(pc.equal(points["key"], f"{attempt}.{number}.0"))
            assert len(first) == len(recovered)
            total += count
    assert total > 1_000
