"""The same work through Halving and through other trackers, in turn, as ratios to Halving."""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import CHECKOUT, ChildFailed, Setting, run_json
from benchmarks.peers.harness import METRICS
from benchmarks.peers.installs import environment, install
from benchmarks.results import Part, Table, number, spread

_PROGRAM = (
    "import runpy, sys; sys.path.append(sys.argv[2]); runpy.run_module(sys.argv[3], run_name='__main__')"
)
_TEXT = f"""
One call logs {METRICS} new floats; *tight* calls again at once, *paced* computes about 1 ms before each call
(SHA-256, which lets other threads run). Then the run is closed as that tracker closes runs. Slow trackers get
fewer calls. Each round is a process of its own; the trackers take turns, and each round starts with another
one. They are installed by pip into environments of their own, with default settings but for: system metrics,
console capture and telemetry off, no network. The time to *closed* is that of all calls of the tight loop and
of closing, without the making of the values; opening is apart. Bytes a point are what the files of the tight
loop take more than those of a run with one call. All files are read again, and the points counted.
"""


@dataclass(frozen=True)
class Peer:
    """A tracker and its share of the work.

    Attributes:
        name: in the table.  module: its script in this package.
        folder: of its environment.  choices: lists of requirements, the first that installs counts; none for
            Halving itself.
        imports: a module that an installation must have.  options: more for its script.
        tight, paced: calls in each loop.  closed: what its closing promises.
    """

    name: str
    module: str
    closed: str
    folder: str = ""
    choices: tuple[tuple[str, ...], ...] = ()
    imports: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    tight: int = 20_000
    paced: int = 2_000


TENSORBOARD = (("tensorboard==2.21.0", "torch==2.13.0"),)
MLFLOW = (("mlflow==3.18.0",), ("mlflow==3.17.2",))
PEERS = (
    Peer("Halving", "use_halving", "Parquet, synced"),
    Peer(
        "TensorBoard",
        "use_tensorboard",
        "event file, not synced",
        "tensorboard",
        TENSORBOARD,
        "torch.utils.tensorboard",
    ),
    Peer("trackio", "use_trackio", "SQLite", "trackio", (("trackio==0.43.0",),), "trackio"),
    Peer(
        "W&B, offline", "use_wandb", "its log file, to be uploaded", "wandb", (("wandb==0.31.0",),), "wandb"
    ),
    Peer("Halving by W&B's names", "use_halving_wandb", "Parquet, synced"),
    Peer("Aim", "use_aim", "RocksDB", "aim", (("aim==3.29.1",),), "aim", tight=3_000, paced=1_000),
    Peer(
        "MLflow, async",
        "use_mlflow",
        "SQLite",
        "mlflow",
        MLFLOW,
        "mlflow",
        {"asynchronous": True},
        tight=1_500,
        paced=1_000,
    ),
    Peer(
        "MLflow, sync",
        "use_mlflow",
        "SQLite",
        "mlflow",
        MLFLOW,
        "mlflow",
        {"asynchronous": False},
        tight=1_000,
        paced=500,
    ),
)


@dataclass
class Outcome:
    """The rounds of each loop of one tracker, or why there are none."""

    tight: list[dict[str, Any]] = field(default_factory=list)
    paced: list[dict[str, Any]] = field(default_factory=list)
    smallest: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


def measure(setting: Setting, peers: Sequence[Peer] = PEERS) -> Part:
    """Measure all trackers; one that cannot be installed or breaks is in the tables with its reason.

    A quick run takes the first three only, and of them those whose environment is there.
    """
    peers = setting.choose(peers[:3], peers)
    pythons: dict[str, Path] = {}
    outcomes = {peer.name: Outcome() for peer in peers}
    notes = []
    for peer in peers:
        if not peer.choices:
            pythons[peer.name] = Path(sys.executable)
            continue
        installed = install(setting.home / peer.folder, peer.choices, peer.imports, allowed=not setting.quick)
        if installed.python is None:
            outcomes[peer.name].reason = installed.reason
        else:
            pythons[peer.name] = installed.python
        if installed.note:
            notes.append(installed.note)
    for turn in range(setting.choose(1, 3)):
        start = turn * 2 % len(peers)
        for peer in (*peers[start:], *peers[:start]):
            if not (outcome := outcomes[peer.name]).reason:
                try:
                    _run_round(setting, peer, pythons[peer.name], outcome)
                except ChildFailed as error:
                    outcome.reason = str(error)
    part = Part(
        "peers",
        "Halving and other trackers",
        _TEXT,
        missing=[f"{name}: {each.reason}" for name, each in outcomes.items() if each.reason],
    )
    part.tables = [_latencies(peers, outcomes), _closing(peers, outcomes)]
    part.tables[-1].note = " ".join(dict.fromkeys(notes))
    return part


def _run_round(setting: Setting, peer: Peer, python: Path, outcome: Outcome) -> None:
    if not outcome.smallest:  # it also brings the tracker's files into the page cache
        outcome.smallest = _work(setting, peer, python, 1, 0.0)
    outcome.tight.append(_work(setting, peer, python, setting.choose(20, peer.tight), 0.0))
    outcome.paced.append(_work(setting, peer, python, setting.choose(10, peer.paced), 1.0))


def _work(setting: Setting, peer: Peer, python: Path, calls: int, work_ms: float) -> dict[str, Any]:
    setting.settle()
    folder = setting.work / peer.module
    count = 0
    while (place := folder / str(count)).exists():
        count += 1
    (place / "data").mkdir(parents=True)
    arguments = json.dumps(
        {"folder": str(place / "data"), "calls": calls, "work_ms": work_ms, **peer.options}
    )
    command = [str(python), "-c", _PROGRAM, arguments, str(CHECKOUT), f"benchmarks.peers.{peer.module}"]
    result: dict[str, Any] = run_json(command, cwd=place, environment=environment(place))
    return result


def _latencies(peers: Sequence[Peer], outcomes: Mapping[str, Outcome]) -> Table:
    header = [
        "tracker",
        "version",
        "loop",
        "calls",
        "p50, µs",
        "p99, µs",
        "p99.9, µs",
        "max, µs",
        "p50 ratio",
        "p99 ratio",
    ]
    table = Table(header, [], "One call")
    for loop in ("paced", "tight"):
        reference: list[dict[str, Any]] = getattr(outcomes[peers[0].name], loop)
        for peer in peers:
            outcome = outcomes[peer.name]
            rounds: list[dict[str, Any]] = getattr(outcome, loop)
            if outcome.reason or not reference:
                table.rows.append([peer.name, "", loop, f"not measured: {outcome.reason}", *[""] * 6])
                continue
            names = ("p50", "p99", "p99.9", "max")
            values = {name: [result["latency_us"][name] for result in rounds] for name in names}
            row = [
                peer.name,
                rounds[0]["version"],
                loop,
                f"{rounds[0]['calls']:,}",
                *(spread(values[name]) for name in names),
            ]
            row += [
                _ratio(values[name], [result["latency_us"][name] for result in reference])
                for name in ("p50", "p99")
            ]
            table.rows.append(row)
    return table


def _closing(peers: Sequence[Peer], outcomes: Mapping[str, Outcome]) -> Table:
    speed = ["opening, s", "closing, s", "points/s until closed", "time ratio"]
    table = Table(
        ["tracker", "points", *speed, "B/point", "size ratio", "read back", "closed means"],
        [],
        "Until closed",
    )
    reference = outcomes[peers[0].name]
    for peer in peers:
        outcome = outcomes[peer.name]
        if outcome.reason or reference.reason:
            table.rows.append([peer.name, f"not measured: {outcome.reason}", *[""] * 8])
            continue
        rounds = outcome.tight
        row = [
            peer.name,
            f"{rounds[0]['points']:,}",
            *(spread([result[name] for result in rounds]) for name in ("start_s", "close_s")),
        ]
        row += [
            spread([1 / each for each in _seconds(outcome)]),
            _ratio(_seconds(outcome), _seconds(reference)),
        ]
        row += [spread(_bytes(outcome)), _ratio(_bytes(outcome), _bytes(reference))]
        every = [*outcome.tight, *outcome.paced]
        row += [
            (
                f"{sum(result['read_back'] for result in every):,} of "
                f"{sum(result['points'] for result in every):,}"
            ),
            peer.closed,
        ]
        table.rows.append(row)
    return table


def _seconds(outcome: Outcome) -> list[float]:
    return [result["total_s"] / result["points"] for result in outcome.tight]


def _bytes(outcome: Outcome) -> list[float]:
    small = outcome.smallest
    return [
        (result["bytes"] - small["bytes"]) / (result["points"] - small["points"]) for result in outcome.tight
    ]


def _ratio(values: Sequence[float], reference: Sequence[float]) -> str:
    bottom = statistics.median(reference)
    if bottom:
        return f"{number(statistics.median(values) / bottom)}x"
    return "no reference"
