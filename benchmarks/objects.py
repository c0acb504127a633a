"""A run's requests to an object store by their price, and the bytes of its segments by their interval."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, number
from benchmarks.size import GAUGES
from benchmarks.stores import Make, loss, metric_bytes, write_run

SERIES = 100
WAITS = (5, 15, 60, 300)  # seconds from one segment to the next, at one step a second
_FLUSHES = 20
_WRITES = ("PUT", "POST", "LIST")
_READS = ("GET", "HEAD")
_TEXT = f"""
A run logs {SERIES} metrics once a second to an S3 API (moto's server in the same process, which counts what
it is asked). *Writes* are requests that S3 charges as such (PUT, POST, LIST), *reads* the others (GET, HEAD);
it takes no money for DELETE. *A segment* is one flush of a minute of points, the mean of {_FLUSHES}. *A
checkpoint* is one `save` with 1 MB of new content and what makes it count. Readers start without anything in
memory.
"""
_SIZES = f"""
Bytes a point with its share of the file's footer, in segments of so many seconds at one step a second, and
after compaction of an hour. *Losses*: {SERIES} noisy ones. *Mixed*: 30 of them and 70 gauges as in `size`,
all at every step.
"""
MIXES: dict[str, dict[str, Make]] = {
    "losses": {f"train/loss_{place}": loss for place in range(SERIES)},
    "mixed": {
        **{f"train/loss_{place}": loss for place in range(30)},
        **{f"system/gpu.{place}/{name}": make for place in range(14) for name, make in GAUGES.items()},
    },
}


def measure(setting: Setting) -> Part:
    """Measure the requests of each thing that a run does, and the size of its segments."""
    part = Part("objects", "Requests and segments in an object store", _TEXT)
    requests_of = in_child(
        "benchmarks.objects:requests", folder=str(setting.work), flushes=setting.choose(2, _FLUSHES)
    )
    requests = Table(["what", "writes", "reads", "deletes", "as"], [], "Requests")
    for what, (times, counts) in requests_of.items():
        share = {kind: count / times for kind, count in counts.items()}
        cells = [
            number(sum(share.get(kind, 0) for kind in kinds)) for kinds in (_WRITES, _READS, ("DELETE",))
        ]
        requests.rows.append(
            [what, *cells, ", ".join(f"{number(count)} {kind}" for kind, count in sorted(share.items()))]
        )
    hour = setting.choose(300, 3_600)
    sizes = Table(
        ["metrics", *(f"{wait} s, B/point" for wait in WAITS), "KB a segment of 60 s", "compacted, B/point"],
        [],
        "Segments",
    )
    for mix in MIXES:
        bytes_of = {
            wait: in_child(
                "benchmarks.objects:write_mix",
                root=str(setting.work / f"{mix}-{wait}"),
                mix=mix,
                wait=wait,
                seconds=hour,
            )
            for wait in WAITS
        }
        points = SERIES * hour
        cells = [number(bytes_of[wait]["live"] / points) for wait in WAITS]
        sizes.rows.append(
            [
                mix,
                *cells,
                number(bytes_of[60]["live"] / (hour / 60) / 1000),
                number(bytes_of[60]["full"] / points),
            ]
        )
    sizes.note = _SIZES.strip()
    part.tables += [requests, sizes]
    return part


def write_mix(root: str, mix: str, wait: int, seconds: int) -> dict[str, int]:
    """Bytes of a run's segments, and of what they are compacted into.

    To be called in a process of its own.
    """
    from benchmarks.stores import compact

    write_run(Path(root), "run", MIXES[mix], seconds, seconds // wait, every_ms=1_000)
    live = metric_bytes(Path(root), "run")["live"]
    compact(root, ["run"])
    return {"live": live, "full": metric_bytes(Path(root), "run")["full"]}


def requests(folder: str, flushes: int) -> dict[str, tuple[int, dict[str, int]]]:
    """The requests to S3 of each thing that a run does: how often it was done, and the sum.

    In a process of its own.
    """
    os.environ["HALVING_JOURNAL"] = folder
    with _counted_s3() as (root, counts):
        return _life(root, counts, flushes)


def _life(root: str, counts: "Counter[str]", flushes: int) -> dict[str, tuple[int, dict[str, int]]]:
    import halving
    from halving.maintenance.compaction import compact
    from halving.query.api import curves
    from halving.query.divergence_watch import DivergenceWatch

    requests_of: dict[str, tuple[int, dict[str, int]]] = {}

    def count(what: str, work: Callable[[], Any], times: int = 1) -> Any:
        counts.clear()
        result = work()
        requests_of[what] = (times, dict(counts))
        return result

    names = sorted(MIXES["losses"])
    store = halving.Store(root)
    run = count(
        "opening a run", lambda: halving.init("bench", {"lr": 0.1}, root=root, id="run", system_metrics=None)
    )
    watch = DivergenceWatch(store, "bench", "run", 1, {names[0]: (None, None)})

    def log() -> None:
        for turn in range(flushes):
            for step in range(60):
                run.log(dict.fromkeys(names, 0.1 * step), step=60 * turn + step)
            run.flush(60.0)

    count("a segment", log, flushes)
    count("a checkpoint", lambda: run.save(weights=os.urandom(1_000_000)))
    count(f"a first look at {flushes} segments for values that diverged", watch.check)
    count("the next look, nothing new", watch.check)
    count("ending a run", run.finish)
    count(
        f"a curve of one metric from {flushes} segments",
        lambda: curves("run", names[0], project="bench", root=root),
    )
    count(f"compacting {flushes} segments", lambda: compact(store, "bench", "run"))
    count("a curve of one metric, compacted", lambda: curves("run", names[0], project="bench", root=root))
    return requests_of


@contextmanager
def _counted_s3() -> "Iterator[tuple[str, Counter[str]]]":
    """An S3 API in a thread of this process: the address of an empty store, and its requests by kind."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    from tests.s3 import CREDENTIALS

    os.environ.update(CREDENTIALS)
    inside = DomainDispatcherApplication(create_backend_app)
    counts = Counter[str]()

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        counts[_kind(environ)] += 1
        return inside(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"127.0.0.1:{server.server_port}"
    address = f"s3://bench/experiments?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    try:
        from pyarrow import fs

        options = {"endpoint_override": endpoint, "scheme": "http", "region": "us-east-1"}
        fs.S3FileSystem(**options, allow_bucket_creation=True).create_dir("bench")
        yield address, counts
    finally:
        server.shutdown()


def _kind(environ: dict[str, Any]) -> str:
    """The kind of request that S3 would charge."""
    method: str = environ["REQUEST_METHOD"]
    if method == "GET" and "list-type=" in environ.get("QUERY_STRING", ""):
        return "LIST"
    return method
