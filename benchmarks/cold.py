"""Reading checkpoints from a colder place, and moving them there, over a store with slow answers."""

import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks.assumptions import S3_ANSWER
from benchmarks.machine import Setting, in_child
from benchmarks.object_server import CREDENTIALS, ObjectServer, object_server
from benchmarks.results import Part, Table, number, spread

_MB = 1_000_000
_SIZES = (1, 64)  # MB of a blob
_MOVED = (100, 1)  # blobs, and MB of each
_TEXT = f"""
Blobs in an object store that answers each request after {1000 * S3_ANSWER:.0f} ms (one of the benchmark's
own, in memory, on the same cores): in the store's own place, and in a colder one, a second bucket that
answers as fast. *First*: by a process that has opened the store and has read nothing yet; *next*: the one
after it. Each is read to its end and checked against its digest. What a colder class of storage takes longer
for each answer comes on top. *Moving* copies a blob, reads the copy back, checks it and deletes the first
one, eight at a time.
"""


def measure(setting: Setting) -> Part:
    """Measure seconds and requests of reads from both places, and of moving."""
    part = Part("cold", "The cold tier", _TEXT)
    figures = in_child(
        "benchmarks.cold:read_and_move",
        rounds=setting.choose(1, 5),
        sizes=_SIZES,
        moved=setting.choose(8, _MOVED[0]),
    )
    header = ["blob", "place", "first, s", "requests", "next, s", "requests"]
    rows = []
    for each in figures["reads"]:
        cells = [
            cell
            for turn in ("first", "next")
            for cell in (spread(each[turn]["seconds"]), number(each[turn]["requests"]))
        ]
        rows.append([f"{each['mb']} MB", each["place"], *cells])
    part.tables.append(Table(header, rows, "Reading"))
    moving = figures["moving"]
    cells = [
        number(moved := moving["blobs"]),
        number(moved / moving["seconds"]),
        number(moving["requests"] / moved),
    ]
    part.tables.append(Table([f"blobs of {_MOVED[1]} MB", "blobs/s", "requests of each"], [cells], "Moving"))
    return part


def read_and_move(rounds: int, sizes: list[int], moved: int) -> dict[str, Any]:
    """Seconds and requests, measured in a process of its own that is the store's server, too."""
    os.environ |= CREDENTIALS
    with object_server() as server:
        return {"reads": _reads(server, rounds, sizes), "moving": _moving(server, moved)}


def _reads(server: ObjectServer, rounds: int, sizes: list[int]) -> list[dict[str, Any]]:
    from halving import Store
    from halving.store.cold import add_cold_root

    own = server.root("own")
    cold = server.root("cold")
    add_cold_root(Store(own), cold)
    reads = []
    for mb in sizes:
        for place, bucket in (("its own", "own"), ("colder", "cold")):
            digests = _put(server, bucket, 2, mb)
            turns: dict[str, dict[str, Any]] = {
                turn: {"seconds": [], "requests": 0.0} for turn in ("first", "next")
            }
            for _ in range(rounds):
                store = Store(own)
                # it has a connection, as a process that reads a checkpoint has read its record before
                store.exists("runs")
                for digest, turn in zip(digests, turns.values(), strict=True):
                    seconds, requests = _measure_requests(
                        server, lambda store=store, digest=digest: store.get_blob(digest)
                    )
                    turn["seconds"].append(seconds)
                    turn["requests"] = requests
            reads.append({"mb": mb, "place": place, **turns})
    return reads


def _moving(server: ObjectServer, blobs: int) -> dict[str, float]:
    from halving import Store
    from halving.maintenance.cold_tier import Movable, move_blobs
    from halving.store.cold import add_cold_root

    store = Store(server.root("moved"))
    place = add_cold_root(store, server.root("archive"))
    waiting = [Movable(digest, _MOVED[1] * _MB) for digest in _put(server, "moved", blobs, _MOVED[1])]
    later = time.time() + 3600
    seconds, requests = _measure_requests(server, lambda: list(move_blobs(store, place, waiting, later)))
    left = [
        path
        for path in server.objects
        if path.startswith("moved/experiments/artifacts/") and not path.endswith("/")
    ]
    if left:
        raise RuntimeError(f"{len(left)} of {blobs} blobs did not move, such as {left[0]}")
    return {"blobs": blobs, "seconds": seconds, "requests": requests}


def _put(server: ObjectServer, bucket: str, blobs: int, mb: int) -> list[str]:
    """Put blobs of random bytes into a bucket without a request; return their digests."""
    from halving.store.store import blob_name, digest_of

    digests = []
    for _ in range(blobs):
        content = os.urandom(mb * _MB)
        digests.append(digest_of(content))
        server.put(f"{bucket}/experiments/{blob_name(digests[-1])}", content)
    return digests


def _measure_requests(server: ObjectServer, work: Callable[[], Any]) -> tuple[float, int]:
    """How long some work took, and how many requests it made."""
    server.counts.clear()
    server.wait = S3_ANSWER
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    server.wait = 0.0
    return seconds, sum(server.counts.values())
