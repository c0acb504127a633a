"""Feeding a training from shards, beside other loaders: rows a second, resuming, and waiting."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child, run_json
from benchmarks.peers.installs import environment, install
from benchmarks.peers.loading_harness import BLOB_BYTES, FLOATS
from benchmarks.results import Part, Table, Target, number, spread

_BATCH = 256
_STEP = 0.02  # seconds
_ROWS = {"blobs": 40_000, "floats": 1_000_000}
_MIN_ROWS = {"blobs": 150_000, "floats": 1_500_000}  # rows a second, promised
_NAMES = {"blobs": f"blobs of {BLOB_BYTES:,} bytes", "floats": f"rows of {FLOATS} float32"}
_PROGRAM = (
    "import runpy, sys; sys.path.append(sys.argv[2]); runpy.run_module(sys.argv[3], run_name='__main__')"
)
_TEXT = f"""
Shuffled rows in batches of {_BATCH}, from files in the page cache, by one process and its threads on one
core: a batch is a list of `bytes`, or an array or tensor `(rows, {FLOATS})`. Each loader reads files that it
has written itself, with its default settings and no worker processes. *Rows/s*: whole epochs over 5 s,
opening included. *Resume*: from opening a loader with a state in mid-epoch to its first batch, in a process
that has imported everything; the median of five. Each round is a process of its own, and the loaders take
turns. Loaders that take minutes to write get fewer rows.
"""
_WAITS = f"""
A training whose step takes {_STEP * 1000:.0f} ms, in which this process sleeps as it does while a GPU
computes; the share of the time in which it waits for the next batch, from the second one on.
"""


@dataclass(frozen=True)
class Peer:
    """A loader that is measured.

    Attributes:
        name: in the table.  module: its script in ``benchmarks.peers``.
        folder: of its environment.  choices: lists of requirements, the first that installs counts; none for
            what ours has.
        imports: a module that an installation must have.
        rows: where it gets fewer.
    """

    name: str
    module: str
    folder: str = ""
    choices: tuple[tuple[str, ...], ...] = ()
    imports: str = ""
    rows: Mapping[str, int] = field(default_factory=dict)


PEERS = (
    Peer("Halving", "load_halving"),
    Peer("Parquet, pyarrow", "load_parquet"),
    Peer(
        "LitData", "load_litdata", "litdata", (("litdata==0.2.76", "numpy"),), "litdata", {"floats": 200_000}
    ),
    Peer(
        "WebDataset",
        "load_webdataset",
        "webdataset",
        (("webdataset==1.0.2", "numpy"),),
        "webdataset",
        {"floats": 100_000},
    ),
    Peer(
        "MosaicML Streaming",
        "load_mosaic",
        "mosaicml-streaming",
        (("mosaicml-streaming==0.13.0",),),
        "streaming",
        {"floats": 200_000},
    ),
)


def measure(setting: Setting, peers: Sequence[Peer] = PEERS) -> Part:
    """Measure all loaders; one that cannot be installed or breaks is in the table with its reason.

    A quick run takes the first two.
    """
    peers = setting.choose(peers[:2], peers)
    part = Part("loading", "Loading shuffled rows", _TEXT)
    notes = []
    pythons = {}
    reasons = {}
    for peer in peers:
        if not peer.choices:
            pythons[peer.name] = Path(sys.executable)
            continue
        installed = install(setting.home / peer.folder, peer.choices, peer.imports, allowed=not setting.quick)
        if installed.python is None:
            reasons[peer.name] = installed.reason
        else:
            pythons[peer.name] = installed.python
        if installed.note:
            notes.append(installed.note)
    for kind in _ROWS:
        part.tables.append(_table(setting, part, peers, pythons, reasons, kind))
    part.tables[-1].note = " ".join(notes)
    part.tables.append(_waits(setting, part))
    part.missing = [f"{name}: {reason}" for name, reason in reasons.items()]
    return part


def waits(folder: str, kind: str, steps: int) -> float:
    """The share of the time in which a training waits for its batches. In a process of its own."""
    from benchmarks.peers.load_halving import read

    batches = iter(read(Path(folder), kind, _BATCH, None))
    next(batches)
    waited = 0.0
    began = time.perf_counter()
    for _ in range(steps):
        time.sleep(_STEP)
        before = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - before
    return waited / (time.perf_counter() - began)


def _table(
    setting: Setting,
    part: Part,
    peers: Sequence[Peer],
    pythons: Mapping[str, Path],
    reasons: dict[str, str],
    kind: str,
) -> Table:
    results: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    turns = setting.choose(1, 3)
    for turn in range(-1, turns):
        for peer in (*peers[turn % len(peers) :], *peers[: turn % len(peers)]):
            if peer.name in reasons:
                continue
            try:
                if turn < 0:
                    _run(setting, peer, pythons[peer.name], kind, "write")
                else:
                    results[peer.name].append(_run(setting, peer, pythons[peer.name], kind, "read"))
            except ChildFailed as error:
                reasons[peer.name] = str(error)
        setting.settle()
    table = Table(
        ["loader", "version", "rows", "rows/s", "ratio", "resume, ms"],
        [],
        f"Shuffled {_NAMES[kind]}, one core",
    )
    best = results[peers[0].name]
    for peer in peers:
        rounds = results[peer.name]
        if peer.name in reasons or not best:
            table.rows.append(
                [peer.name, f"not measured: {reasons.get(peer.name, 'no reference')}", *[""] * 4]
            )
            continue
        rates, resumes = ([result[key] for result in rounds] for key in ("rows_s", "resume_ms"))
        ratio = number(sorted(rates)[turns // 2] / sorted(result["rows_s"] for result in best)[turns // 2])
        resume = "no exact resume"
        if None not in resumes:
            resume = spread(resumes)
        table.rows.append(
            [
                peer.name,
                rounds[0]["version"],
                f"{_rows(setting, peer, kind):,}",
                spread(rates),
                f"{ratio}x",
                resume,
            ]
        )
    if best:
        part.targets += [
            Target(
                f"shuffled {_NAMES[kind]}",
                "rows/s",
                [result["rows_s"] for result in best],
                _MIN_ROWS[kind],
                at_most=False,
            ),
            Target(
                f"first batch after a resume, {kind}", "ms", [result["resume_ms"] for result in best], 50.0
            ),
        ]
    return table


def _waits(setting: Setting, part: Part) -> Table:
    table = Table(["rows", "waits, %"], [], "A step that waits", _WAITS.strip())
    for kind in _ROWS:
        folder = str(setting.work / "load_halving" / kind)
        shares = [
            100 * in_child("benchmarks.loading:waits", folder=folder, kind=kind, steps=setting.choose(3, 100))
            for _ in range(setting.choose(1, 3))
        ]
        table.rows.append([_NAMES[kind], spread(shares)])
        part.targets.append(
            Target(
                f"share of the time in which a step of {_STEP * 1000:.0f} ms waits, {kind}", "%", shares, 2.0
            )
        )
    return table


def _rows(setting: Setting, peer: Peer, kind: str) -> int:
    return setting.choose(40 * _BATCH + 2 * _BATCH, peer.rows.get(kind, _ROWS[kind]))


def _run(setting: Setting, peer: Peer, python: Path, kind: str, phase: str) -> dict[str, Any]:
    place = setting.work / peer.module
    folder = place / kind
    folder.mkdir(parents=True, exist_ok=True)
    arguments = {
        "folder": str(folder),
        "kind": kind,
        "rows": _rows(setting, peer, kind),
        "batch": _BATCH,
        "phase": phase,
    }
    arguments |= {"seconds": setting.choose(1, 50) / 10}
    command = [
        str(python),
        "-c",
        _PROGRAM,
        json.dumps(arguments),
        str(CHECKOUT),
        f"benchmarks.peers.{peer.module}",
    ]
    variables = environment(place)
    if not peer.choices:
        variables["PYTHONPATH"] = str(CHECKOUT / "sdk")
    temporary = place / "temporary"  # LitData empties folders in the temporary one
    temporary.mkdir(exist_ok=True)
    result: dict[str, Any] = run_json(command, cwd=place, environment=variables | {"TMPDIR": str(temporary)})
    return result
