"""The views and labels of the feature joins, Halving's join, and its differences from another one."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

from benchmarks.machine import ChildFailed
from benchmarks.peers.features_harness import usage_of_process

FEATURES = ("a", "b", "c")
_START = date(2026, 1, 1)


def fill(root: str, labels: int, rows: int, views: int, days: int) -> int:
    """Write labels, and views of random rows as materialised days. In a process of its own."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from halving import Store
    from resources.features.materialize import file_schema
    from resources.features.partitions import publish
    from resources.features.view import micros_of

    day = micros_of("1d")
    entities = max(100, rows // 100)
    per_day = rows // days
    start = (_START - date(1970, 1, 1)).days * day
    store = Store(root)
    folder = Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("event", "known"):
        for view_number in range(views):
            source = np.random.default_rng([view_number, name == "known"])
            definition = view_of(name, view_number).definition({"user": "int64"})
            schema = file_schema(definition)
            for number_of_day in range(days):
                users = source.integers(0, entities, per_day)
                event = start + number_of_day * day + _times(source, day, per_day)
                if name == "event":
                    late = np.full(per_day, micros_of("1h"))
                else:
                    late = source.exponential(micros_of("1h"), per_day).astype(np.int64)
                order = np.lexsort((event, users))
                known_at = (event + late)[order]
                users = users[order]
                event = event[order]
                made = [
                    source.normal(size=per_day),
                    source.normal(size=per_day),
                    source.random(per_day) < 0.5,
                ]
                columns = [
                    pa.array(users),
                    *(pa.array(times_of).cast(pa.timestamp("us", "UTC")) for times_of in (event, known_at)),
                    *map(pa.array, made),
                ]
                file = folder / "day.parquet"
                pq.write_table(
                    pa.Table.from_arrays(columns, schema=schema),
                    file,
                    compression="zstd",
                    row_group_size=1 << 17,
                )
                times = (int(event.min()), int(event.max()), int(known_at.max()))
                publish(store, definition, _START + timedelta(number_of_day), file, per_day, times, {})
    source = np.random.default_rng(99)
    when = pa.array(start + source.integers(0, days * day, labels)).cast(pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table({"user": source.integers(0, entities, labels), "when": when}), folder / "labels.parquet"
    )
    return labels


def _times(source: Any, day: int, count: int) -> Any:
    """Times within a day of which no two are equal."""
    import numpy as np

    step = day // count
    return np.arange(count) * step + source.integers(0, step, count)


def view_of(name: str, view_number: int) -> Any:
    """A view of the joins."""
    from resources.features.view import parse_view

    times = {"created": "loaded", "ttl": "7d"}
    if name == "event":
        times = {"delay": "1h", "ttl": "169h"}
    return parse_view(
        {
            "name": f"{name}{view_number}",
            "version": 1,
            "entity": ["user"],
            "event_time": "ts",
            **times,
            "source": {"function": "benchmarks.features_online:rows"},
            "schema": {"a": "double", "b": "double", "c": "bool"},
        }
    )


def join(root: str, name: str, views: int) -> dict[str, float]:
    """Join all labels with Halving, and keep the result beside the store. In a process of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from halving import Store
    from resources.features.join import join_features

    shapes = {view.key: view for view in (view_of(name, view_number) for view_number in range(views))}
    features = [
        f"{key}:{feature} as {feature}{place}" for place, key in enumerate(shapes) for feature in FEATURES
    ]
    labels = pq.ParquetFile(f"{root}/labels.parquet")
    reader = pa.RecordBatchReader.from_batches(labels.schema_arrow, labels.iter_batches())
    with (
        join_features(Store(root), reader, features, shapes, time="when") as joined,
        pa.ipc.new_file(f"{root}/{name}-ours.arrow", joined.reader.schema) as writer,
    ):
        for batch in joined.reader:
            writer.write_batch(batch)
    return usage_of_process()


def different(root: str, name: str) -> int:
    """How many values differ between two joins, bit by bit. In a process of its own."""
    import numpy as np
    import pyarrow as pa

    ours, theirs = (
        pa.ipc.open_file(pa.memory_map(f"{root}/{name}-{who}.arrow")).read_all() for who in ("ours", "theirs")
    )
    if ours.num_rows != theirs.num_rows:
        raise ChildFailed(f"{ours.num_rows} and {theirs.num_rows} rows")
    count = 0
    for column in ours.column_names[2:]:
        own = ours[column].combine_chunks()
        other = theirs[column].combine_chunks()
        zero = False if pa.types.is_boolean(own.type) else 0
        values = [array.fill_null(zero).to_numpy(zero_copy_only=False) for array in (own, other)]
        bits = [array if array.dtype == bool else array.view(np.uint64) for array in values]
        count += int(
            (
                (bits[0] != bits[1]) | (own.is_valid().to_numpy(False) != other.is_valid().to_numpy(False))
            ).sum()
        )
    return count
