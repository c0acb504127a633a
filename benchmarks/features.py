"""Features joined to labels and looked up online, beside polars' ``join_asof`` and Feast."""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child, run_json
from benchmarks.peers.installs import Installed, environment, install
from benchmarks.results import Part, Table, Target, number, spread

VIEWS = 5
DAYS = 100
_PROGRAM = (
    "import runpy, sys; sys.path.append(sys.argv[2]); runpy.run_module(sys.argv[3], run_name='__main__')"
)
_TEXT = f"""
Labels of random users and times are joined to {VIEWS} feature views of {DAYS} days each, three features a
view, live for a week. *By event time*: a view with `delay`, of which no row is overtaken; its week begins
when a row is known. *By known time*: a view with `created`, an exponential hour after the event, of which
late rows are overtaken. Each join is a process of its own, its CPU and wall seconds from its start to its
end, imports included, and its largest resident set; the files are in the page cache. The others (by pip, in
environments of their own, without network) read the same Parquet files, one round each; all values are
compared bit by bit with Halving's. polars joins by `join_asof`, after the rows that were overtaken are taken
out. Feast joins by `get_historical_features`, with `filter_by_created_timestamp` by known time; it is given
the labels in pandas, as it wants them. dask, its default offline store, pairs each label with all rows of its
user before it takes the newest; 12 GiB (`ulimit -d`) were not enough for it at the full size, so it is
measured at a tenth, with all others beside it.

Online: each loads a view of 10 features (8 doubles, a bool, a text) for as many users as said from the same
file (`halving features push`; `materialize` of Feast, with its defaults), and another process asks for random
users: all features as a dict of one, and as an Arrow table of a hundred from Halving, both by
`get_online_features(…).to_dict()` from Feast.
"""

_DASK = """
Feast on dask leaves out labels for which a view has rows and no live one ({lost}): their values are
different. By known time it also gives nulls where a user's newest row came too late: it counts on nulls being
sorted first, and dask sorts them into its last partition.
"""


@dataclass(frozen=True)
class Peer:
    """Another tool that joins features.

    Attributes:
        name: in the table.  module: its script in ``benchmarks.peers``.
        folder: of its environment.  choices: lists of requirements, the first that installs counts.
        imports: a module that an installation must have.  options: more for its script.
        labels: the most that it is given; None for any number.
    """

    name: str
    module: str
    folder: str
    choices: tuple[tuple[str, ...], ...]
    imports: str
    options: dict[str, str] = field(default_factory=dict)
    labels: int | None = None


# What Feast's figures stand on is pinned with it.
FEAST = (("feast[duckdb,redis]==0.67.0", "dask==2026.8.0", "duckdb==2.0.1", "redis==7.4.1"),)
PEERS = (
    Peer("polars", "use_polars", "polars", (("polars==2.1.0",),), "polars"),
    Peer("Feast, DuckDB", "use_feast", "feast", FEAST, "feast", {"store": "duckdb"}),
    Peer("Feast, dask", "use_feast", "feast", FEAST, "feast", {"store": "dask"}, labels=100_000),
)


def measure(setting: Setting) -> Part:
    """Measure the joins, then the online stores."""
    part = Part("features", "Features: joins as of then, lookups online", _TEXT)
    environments: dict[str, Installed] = {}
    for peer in PEERS:
        if peer.folder not in environments:
            installed = install(
                setting.home / peer.folder, peer.choices, peer.imports, allowed=not setting.quick
            )
            environments[peer.folder] = installed
            if installed.python is None:
                part.missing.append(f"{peer.name.partition(',')[0]}: {installed.reason}")
    sizes = setting.choose([(1_000, 20_000)], [(1_000_000, 10_000_000), (100_000, 1_000_000)])
    part.tables = [_joins(setting, part, environments, *size, held=size == sizes[0]) for size in sizes]
    part.tables.append(_lookups(setting, part, environments["feast"].python))
    return part


def _joins(
    setting: Setting, part: Part, environments: dict[str, Installed], labels: int, rows: int, *, held: bool
) -> Table:
    """Run all joins of one size; ``held`` ones have targets."""
    views = setting.choose(2, VIEWS)
    root = setting.work / f"store-{labels}"
    in_child(
        "benchmarks.features_joins:fill",
        root=str(root),
        labels=labels,
        rows=rows,
        views=views,
        days=setting.choose(10, DAYS),
    )
    setting.settle()
    title = f"{labels:,} labels x {views} views x {rows:,} rows"
    table = Table(["join", "by", "CPU s", "wall s", "memory, MiB", "different"], [], title)
    table.note = "*Different*: values that are not the same bits as Halving's."
    lost: list[str] = []
    for name in ("event", "known"):
        ours = [
            in_child("benchmarks.features_joins:join", root=str(root), name=name, views=views)
            for _ in range(setting.choose(1, 3))
        ]
        table.rows.append(["Halving", name, *_cells(ours), "0"])
        for what, key, unit, bound in (
            (("CPU", "cpu", "s", 60.0), ("memory", "mebibytes", "MiB", 2_500.0)) if held else ()
        ):
            part.targets.append(
                Target(f"{what} of {title} by {name} time", unit, [figures[key] for figures in ours], bound)
            )
        for peer in PEERS:
            python = environments[peer.folder].python
            if python is None or (peer.labels is not None and labels > peer.labels):
                continue
            place = root / f"{peer.name}, by {name} time"
            arguments = {
                "phase": "join",
                "root": str(root),
                "name": name,
                "views": views,
                "folder": str(place),
                **peer.options,
            }
            try:
                theirs = _run(setting, python, peer.module, arguments)
            except ChildFailed as error:
                table.rows.append([peer.name, name, f"not measured: {error}", "", "", ""])
                continue
            different = in_child("benchmarks.features_joins:different", root=str(root), name=name)
            table.rows.append(
                [_name_with_version(peer.name, theirs), name, *_cells([theirs]), f"{different:,}"]
            )
            if theirs.get("left_out"):
                lost.append(f"{theirs['left_out']:,} by {name} time")
    if lost:
        table.note += _DASK.format(lost=" and ".join(lost)).rstrip()
    return table


def _cells(rounds: list[dict[str, Any]]) -> list[str]:
    return [spread([figures[key] for figures in rounds]) for key in ("cpu", "wall", "mebibytes")]


def _name_with_version(name: str, figures: dict[str, Any]) -> str:
    """``Feast 0.67.0, dask``."""
    product, comma, store = name.partition(",")
    return f"{product} {figures['version']}{comma}{store}"


def _lookups(setting: Setting, part: Part, feast: Path | None) -> Table:
    users = setting.choose(1_000, 500_000)
    lookups = setting.choose(100, 10_000)
    rounds = range(setting.choose(1, 3))
    header = [
        "by",
        "store",
        "loaded, rows/s",
        "one: p50, µs",
        "p99, µs",
        "100: p50, ms",
        "p99, ms",
        "missing",
    ]
    table = Table(header, [], f"{users:,} users online")
    with _redis(setting.work, part) as redis:
        for name, address in (
            ("SQLite", str(setting.work / "online.db")),
            ("Redis", redis.address() if redis else None),
        ):
            if address is None:
                continue
            root = str(setting.work / "online" / name)
            loaded = in_child("benchmarks.features_online:fill", root=root, address=address, users=users)
            measured = [
                in_child("benchmarks.features_online:ask", address=address, users=users, lookups=lookups)
                for _ in rounds
            ]
            table.rows.append(["Halving", name, number(loaded), *_lookup_cells(measured)])
            part.targets += [
                Target(f"rows pushed to {name}", "rows/s", [loaded], 100_000.0, at_most=False),
                Target(
                    f"p99 of one entity, {name}",
                    "ms",
                    [figures["one_p99"] / 1e3 for figures in measured],
                    1.0,
                ),
                Target(
                    f"p99 of 100 entities, {name}", "ms", [figures["many_p99"] for figures in measured], 5.0
                ),
            ]
            if feast is None:
                continue
            arguments = {
                "root": root,
                "name": "users",
                "folder": f"{root}/feast",
                "users": users,
                "lookups": lookups,
            }
            if redis and name == "Redis":
                arguments["redis"] = redis.address().removeprefix("redis://").replace("/", ",db=")
            try:
                theirs = _run(setting, feast, "use_feast", arguments | {"phase": "load"})
                measured = [_run(setting, feast, "use_feast", arguments | {"phase": "ask"}) for _ in rounds]
            except ChildFailed as error:
                table.rows.append(["Feast", name, f"not measured: {error}", *[""] * 5])
                continue
            table.rows.append(
                [
                    _name_with_version("Feast", theirs),
                    name,
                    number(theirs["rows_s"]),
                    *_lookup_cells(measured),
                ]
            )
    return table


def _lookup_cells(rounds: list[dict[str, Any]]) -> list[str]:
    cells = [
        spread([figures[key] for figures in rounds]) for key in ("one_p50", "one_p99", "many_p50", "many_p99")
    ]
    return [*cells, f"{sum(figures['missing'] for figures in rounds):,}"]


def _run(setting: Setting, python: Path, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a peer's script in a process of its own, and return what it measured."""
    Path(arguments["folder"]).mkdir(exist_ok=True)
    command = [
        str(python),
        "-c",
        _PROGRAM,
        json.dumps(arguments),
        str(CHECKOUT),
        f"benchmarks.peers.{module}",
    ]
    result: dict[str, Any] = run_json(
        command, cwd=Path(arguments["folder"]), environment=environment(setting.work / "peers")
    )
    return result


@contextlib.contextmanager
def _redis(work: Path, part: Part) -> Iterator[Any]:
    """A server with empty databases; None where Redis is not installed."""
    from tests import redis_server

    if not redis_server.INSTALLED:
        part.missing.append("Redis: redis-server is not installed")
        yield None
        return
    with tempfile.TemporaryDirectory(dir=work) as folder:
        server = redis_server.Redis(Path(folder))
        try:
            yield server
        finally:
            server.stop()
