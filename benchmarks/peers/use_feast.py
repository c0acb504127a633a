"""The joins and the lookups of :mod:`benchmarks.features` by Feast, with its defaults.

It runs in Feast's environment.
"""

import importlib.metadata
import json
import sys
import time
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.types import Bool, Float64, Int64, String

from benchmarks.peers.features_harness import look_up, usage_of_process

_JOINED = {"a": Float64, "b": Float64, "c": Bool}
_ONLINE = {**{f"f{place}": Float64 for place in range(8)}, "night": Bool, "city": String}
_USER = Entity(name="user", join_keys=["user"], value_type=ValueType.INT64)
_DAY = datetime(1970, 1, 1, tzinfo=UTC)  # that of all rows that are looked up


def main() -> None:
    """Do the phase that ``sys.argv[1]`` names, as JSON, in a Feast repository; print the measurements."""
    options = json.loads(sys.argv[1])
    phases = {"join": _join, "load": _load, "ask": _ask}
    with redirect_stdout(sys.stderr):  # materialize talks
        figures = phases[options["phase"]](options)
    print(json.dumps({**figures, "version": importlib.metadata.version("feast")}), flush=True)


def _store(options: dict[str, Any]) -> FeatureStore:
    """The repository in ``folder``, with the offline ``store`` and the ``redis`` address in the options."""
    folder = options["folder"]
    online_store = {"type": "sqlite", "path": f"{folder}/online.db"}
    if address := options.get("redis"):
        online_store = {"type": "redis", "connection_string": address}
    config = RepoConfig(
        project="bench",
        registry=f"{folder}/registry.db",
        provider="local",
        offline_store={"type": options.get("store", "dask")},
        online_store=online_store,
    )
    return FeatureStore(config=config)


def _view(
    name: str, folder: str, features: dict[str, Any], ttl: timedelta, event: str, created: str = ""
) -> FeatureView:
    source = FileSource(
        name=f"{name}_files",
        path=f"{folder}/1/*/*.parquet",
        timestamp_field=event,
        created_timestamp_column=created,
    )
    fields = [Field(name=field, dtype=kind) for field, kind in {"user": Int64, **features}.items()]
    return FeatureView(name=name, entities=[_USER], ttl=ttl, schema=fields, source=source)


def _join(options: dict[str, Any]) -> dict[str, Any]:
    """Register the views and join all labels.

    The result is written in the order of the labels, with nulls for those that Feast has left out.
    """
    root = options["root"]
    name = options["name"]
    views = options["views"]
    # By event time a row counts from when it is known on. By known time its event is what counts, and what
    # was created later is left out.
    times = ("_event", "_known")
    if name == "event":
        times = ("_known",)
    store = _store(options)
    week = timedelta(days=7)
    store.apply(
        [
            _USER,
            *(
                _view(f"v{place}", f"{root}/features/{name}{place}", _JOINED, week, *times)
                for place in range(views)
            ),
        ]
    )
    labels = pd.read_parquet(f"{root}/labels.parquet").rename(columns={"when": "event_timestamp"})
    labels["row"] = np.arange(len(labels))
    job = store.get_historical_features(
        entity_df=labels,
        features=[f"v{place}:{feature}" for place in range(views) for feature in _JOINED],
        full_feature_names=True,
        filter_by_created_timestamp=name == "known",
    )
    joined = job.to_arrow()
    places = np.full(len(labels), -1)
    places[joined["row"].to_numpy()] = np.arange(joined.num_rows)
    ordered = joined.take(pa.array(places, mask=places < 0))
    result = {"user": pa.array(labels["user"]), "when": pa.array(labels["event_timestamp"])}
    for place in range(views):
        for feature, kind in _JOINED.items():
            result[f"{feature}{place}"] = ordered[f"v{place}__{feature}"].cast(
                pa.bool_() if kind is Bool else pa.float64()
            )
    table = pa.table(result)
    with pa.ipc.new_file(f"{root}/{name}-theirs.arrow", table.schema) as writer:
        writer.write_table(table)
    return {**usage_of_process(), "left_out": int((places < 0).sum())}


def _load(options: dict[str, Any]) -> dict[str, Any]:
    store = _store(options)
    store.apply(
        [_USER, _view("users", f"{options['root']}/features/users", _ONLINE, timedelta(), "_event", "_known")]
    )
    began = time.perf_counter()
    store.materialize(_DAY, _DAY + timedelta(days=1))
    return {"rows_s": options["users"] / (time.perf_counter() - began)}


def _ask(options: dict[str, Any]) -> dict[str, Any]:
    store = _store(options)
    features = [f"users:{name}" for name in _ONLINE]

    def ask(entities: list[dict[str, int]]) -> dict[str, list[Any]]:
        return store.get_online_features(features=features, entity_rows=entities).to_dict()

    return look_up(
        lambda entity: ask([entity]), ask, lambda answer: answer["city"], options["users"], options["lookups"]
    )


if __name__ == "__main__":
    main()
