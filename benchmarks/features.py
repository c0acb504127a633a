"""Features: labels joined to what was known then, beside polars' ``join_asof``, and lookups online."""

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child, run_json, settle
from benchmarks.peers.installs import environment, install
from benchmarks.results import Part, Table, Target, number, spread

VIEWS, DAYS = 5, 100
POLARS = (("polars==2.1.0",),)
_START = date(2026, 1, 1)
_FEATURES = ("a", "b", "c")
_PROGRAM = "import runpy, sys; sys.path.append(sys.argv[2]); runpy.run_module(sys.argv[3], run_name='__main__')"
_TEXT = f"""
Labels of random users and times are joined to {VIEWS} feature views of {DAYS} days each, three features a view, with a time to live of
a week. *By event time*: a view with `delay`, of which no row is overtaken. *By known time*: a view with `created`, an exponential hour
after the event, of which late rows are overtaken. Each join is a process of its own, its CPU seconds from its start to its end, imports
included, and its largest resident set; the files are in the page cache. polars (by pip, in an environment of its own) reads the same
Parquet files and joins by `join_asof`, after the rows that were overtaken are taken out; all values are compared bit by bit with
Halving's. Online: one process pushes a view of 10 features (8 doubles, a bool, a text) for as many users as said, and another one asks
for random ones.
"""


def measure(setting: Setting) -> Part:
    """The joins, then the online stores."""
    part = Part("features", "Features: joins as of then, lookups online", _TEXT)
    part.tables = [_joins(setting, part), _lookups(setting, part)]
    return part


def _joins(setting: Setting, part: Part) -> Table:
    labels, rows, views = setting.choose(1_000, 1_000_000), setting.choose(20_000, 10_000_000), setting.choose(2, VIEWS)
    root = setting.work / "store"
    in_child("benchmarks.features:fill", root=str(root), labels=labels, rows=rows, views=views, days=setting.choose(10, DAYS))
    settle()
    title = f"{labels:,} labels x {views} views x {rows:,} rows"
    table = Table(["join", "by", "CPU s", "wall s", "memory, MiB", "different"], [], title)
    found = install(setting.home / "polars", POLARS, "polars", allowed=not setting.quick)
    if found.python is None:
        part.missing.append(f"polars: {found.reason}")
    for name in ("event", "known"):
        ours = [in_child("benchmarks.features:join", root=str(root), name=name, views=views) for _ in range(setting.choose(1, 3))]
        table.rows.append(["Halving", name, *_cells(ours), "0"])
        for what, key, bound in (("CPU", "cpu", 60.0), ("memory", "mebibytes", 2_500.0)):
            unit = "s" if key == "cpu" else "MiB"
            part.targets.append(Target(f"{what} of {title} by {name} time", unit, [one[key] for one in ours], bound))
        if found.python is not None:
            given = json.dumps({"root": str(root), "name": name, "views": views})
            command = [str(found.python), "-c", _PROGRAM, given, str(CHECKOUT), "benchmarks.peers.use_polars"]
            theirs = run_json(command, cwd=setting.work, environment=environment(setting.work / "polars"))
            different = in_child("benchmarks.features:different", root=str(root), name=name)
            table.rows.append([f"polars {theirs['version']}", name, *_cells([theirs]), number(different)])
    table.note = "*Different*: values that are not the same bits as Halving's."
    return table


def _cells(found: list[dict[str, Any]]) -> list[str]:
    return [spread([one[key] for one in found]) for key in ("cpu", "wall", "mebibytes")]


def _lookups(setting: Setting, part: Part) -> Table:
    users, asked = setting.choose(1_000, 500_000), setting.choose(100, 10_000)
    header = ["store", "pushed, rows/s", "one: p50, µs", "p99, µs", "100: p50, ms", "p99, ms", "missing"]
    table = Table(header, [], f"{users:,} users online")
    root = setting.work / "online"
    with _redis(setting.work, part) as redis:
        for name, address in (("SQLite", str(setting.work / "online.db")), ("Redis", redis)):
            if address is None:
                continue
            pushed = in_child("benchmarks.features:fill_online", root=str(root / name), address=address, users=users)
            rounds = [
                in_child("benchmarks.features:look_up", address=address, users=users, asked=asked) for _ in range(setting.choose(1, 3))
            ]
            cells = [spread([one[key] for one in rounds]) for key in ("one_p50", "one_p99", "many_p50", "many_p99")]
            table.rows.append([name, number(pushed), *cells, number(sum(one["missing"] for one in rounds))])
            part.targets += [
                Target(f"rows pushed to {name}", "rows/s", [pushed], 100_000.0, at_most=False),
                Target(f"p99 of one entity, {name}", "ms", [one["one_p99"] / 1e3 for one in rounds], 1.0),
                Target(f"p99 of 100 entities, {name}", "ms", [one["many_p99"] for one in rounds], 5.0),
            ]
    return table


@contextlib.contextmanager
def _redis(work: Path, part: Part) -> Iterator[str | None]:
    from tests import redis_server

    if not redis_server.INSTALLED:
        part.missing.append("Redis: redis-server is not installed")
        yield None
        return
    with tempfile.TemporaryDirectory(dir=work) as folder:
        server = redis_server.Redis(Path(folder))
        try:
            yield server.address()
        finally:
            server.stop()


def fill(root: str, labels: int, rows: int, views: int, days: int) -> int:
    """Views of random rows, published as materialised days, and labels. In a process of its own."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from halving import Store
    from resources.features.materialize import file_schema
    from resources.features.partitions import publish
    from resources.features.view import micros_of

    day, entities, per_day = micros_of("1d"), max(100, rows // 100), rows // days
    start = (_START - date(1970, 1, 1)).days * day
    store, folder = Store(root), Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("event", "known"):
        for view_number in range(views):
            source = np.random.default_rng([view_number, name == "known"])
            definition = view_of(name, view_number).definition({"user": "int64"})
            schema = file_schema(definition)
            for number_of_day in range(days):
                users = source.integers(0, entities, per_day)
                event = start + number_of_day * day + _times(source, day, per_day)
                late = (
                    np.full(per_day, micros_of("1h")) if name == "event" else source.exponential(micros_of("1h"), per_day).astype(np.int64)
                )
                order = np.lexsort((event, users))
                users, event, known = users[order], event[order], (event + late)[order]
                made = [source.normal(size=per_day), source.normal(size=per_day), source.random(per_day) < 0.5]
                columns = [
                    pa.array(users),
                    *(pa.array(one).cast(pa.timestamp("us", "UTC")) for one in (event, known)),
                    *map(pa.array, made),
                ]
                file = folder / "day.parquet"
                pq.write_table(pa.Table.from_arrays(columns, schema=schema), file, compression="zstd", row_group_size=1 << 17)
                times = (int(event.min()), int(event.max()), int(known.max()))
                publish(store, definition, _START + timedelta(number_of_day), file, per_day, times, {})
    source = np.random.default_rng(99)
    when = pa.array(start + source.integers(0, days * day, labels)).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"user": source.integers(0, entities, labels), "when": when}), folder / "labels.parquet")
    return labels


def _times(source: Any, day: int, count: int) -> Any:
    """Times within a day of which no two are equal."""
    import numpy as np

    step = day // count
    return np.arange(count) * step + source.integers(0, step, count)


def view_of(name: str, view_number: int) -> Any:
    """A view of the joins."""
    from resources.features.view import parse_view

    return parse_view(
        {
            "name": f"{name}{view_number}",
            "version": 1,
            "entity": ["user"],
            "event_time": "ts",
            **({"delay": "1h"} if name == "event" else {"created": "loaded"}),
            "ttl": "7d",
            "source": {"function": "benchmarks.features:online_rows"},
            "schema": {"a": "double", "b": "double", "c": "bool"},
        }
    )


def join(root: str, name: str, views: int) -> dict[str, float]:
    """Halving's join of all labels; its result is kept beside the store. In a process of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from halving import Store
    from resources.features.join import join_features

    began = time.perf_counter()
    shapes = {one.key: one for one in (view_of(name, view_number) for view_number in range(views))}
    features = [f"{key}:{feature} as {feature}{place}" for place, key in enumerate(shapes) for feature in _FEATURES]
    labels = pq.ParquetFile(f"{root}/labels.parquet")
    reader = pa.RecordBatchReader.from_batches(labels.schema_arrow, labels.iter_batches())
    with (
        join_features(Store(root), reader, features, shapes, time="when") as joined,
        pa.ipc.new_file(f"{root}/{name}-ours.arrow", joined.reader.schema) as writer,
    ):
        for batch in joined.reader:
            writer.write_batch(batch)
    return used(began)


def used(began: float) -> dict[str, float]:
    """CPU seconds of this process, wall seconds, and MiB at most."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": usage.ru_utime + usage.ru_stime, "wall": time.perf_counter() - began, "mebibytes": usage.ru_maxrss / 1024}


def different(root: str, name: str) -> int:
    """How many values of two joins are not the same bits. In a process of its own."""
    import numpy as np
    import pyarrow as pa

    ours, theirs = (pa.ipc.open_file(pa.memory_map(f"{root}/{name}-{who}.arrow")).read_all() for who in ("ours", "theirs"))
    if ours.num_rows != theirs.num_rows:
        raise ChildFailed(f"{ours.num_rows} and {theirs.num_rows} rows")
    count = 0
    for column in ours.column_names[2:]:
        one, other = ours[column].combine_chunks(), theirs[column].combine_chunks()
        zero = False if pa.types.is_boolean(one.type) else 0
        values = [array.fill_null(zero).to_numpy(zero_copy_only=False) for array in (one, other)]
        bits = [array if array.dtype == bool else array.view(np.uint64) for array in values]
        count += int(((bits[0] != bits[1]) | (one.is_valid().to_numpy(False) != other.is_valid().to_numpy(False))).sum())
    return count


_ONLINE = {**{f"f{place}": "double" for place in range(8)}, "night": "bool", "city": "string"}
_ROWS: dict[str, int] = {}


def online_rows() -> Any:
    """The source of the view that is looked up: one row for each user."""
    import numpy as np
    import pyarrow as pa

    users, source = _ROWS["users"], np.random.default_rng(1)
    times = pa.array(source.integers(0, 10**9, users)).cast(pa.timestamp("us", "UTC"))
    features = {name: source.normal(size=users) for name, kind in _ONLINE.items() if kind == "double"}
    city = pa.array([f"city {user % 1000}" for user in range(users)])
    return pa.table({"user": np.arange(users), "ts": times, "loaded": times, **features, "night": source.random(users) < 0.5, "city": city})


def fill_online(root: str, address: str, users: int) -> float:
    """Materialise and push; the rows pushed each second. In a process of its own."""
    from halving import Store
    from resources.features.materialize import materialize_all
    from resources.features.online import push
    from resources.features.view import parse_view

    given = view_of("known", 0).plain() | {"name": "users", "schema": _ONLINE}
    del given["ttl"]
    _ROWS["users"] = users
    store, view = Store(root), parse_view(given)
    materialize_all(store, view)
    began = time.perf_counter()
    pushed = push(store, view, address)
    seconds = time.perf_counter() - began
    if pushed.taken != users:
        raise ChildFailed(f"{pushed.taken} of {users} rows were taken")
    return users / seconds


def look_up(address: str, users: int, asked: int) -> dict[str, float]:
    """Ask for random users, one by one and a hundred at a time. In a process of its own."""
    import numpy as np

    from halving.features import OnlineFeatures

    source, one, many, missing = np.random.default_rng(2), [], [], 0
    with OnlineFeatures(address, [f"users@1:{name}" for name in _ONLINE]) as reader:
        reader.get({"user": 0})
        for user in source.integers(0, users, asked).tolist():
            began = time.perf_counter()
            found = reader.get({"user": user})
            one.append(time.perf_counter() - began)
            missing += found["city"] != f"city {user % 1000}"
        for _ in range(max(20, asked // 10)):
            some = source.integers(0, users, 100).tolist()
            entities = [{"user": user} for user in some]
            began = time.perf_counter()
            table = reader.read(entities)
            many.append(time.perf_counter() - began)
            missing += table["city"].to_pylist() != [f"city {user % 1000}" for user in some]
    return {
        "one_p50": statistics.median(one) * 1e6,
        "one_p99": float(np.percentile(one, 99)) * 1e6,
        "many_p50": statistics.median(many) * 1e3,
        "many_p99": float(np.percentile(many, 99)) * 1e3,
        "missing": missing,
    }
