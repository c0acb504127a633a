"""The example's view in ``features/`` is materialised and joined, and a model learns from it."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from examples import clicks
from halving import Store
from halving.features import OnlineFeatures, RequestTransform
from resources.features.join import join_features
from resources.features.materialize import materialize_all
from resources.features.online import push
from resources.features.partitions import partitions
from resources.features.view import load_views

CHECKOUT = Path(__file__).parents[3]


def test_the_examples_features_are_joined_as_of_then_and_looked_up_online(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    views = load_views(CHECKOUT / "features")
    view = views["clicks@1"]
    done = materialize_all(store, view)
    assert not done.failed
    assert len(done.days) == clicks.DAYS + 1  # the last hour ends at midnight
    with join_features(
        store, clicks.labels(), ["clicks@1:ctr", "clicks@1:night"], views, time="visited_at"
    ) as joined:
        table = joined.reader.read_all()
    assert table.select(["user_id", "visited_at", "ordered"]).equals(clicks.labels())
    with_ctr = table.filter(pa.compute.is_valid(table["ctr"]))
    assert with_ctr.num_rows > 0.95 * table.num_rows
    assert np.corrcoef(with_ctr["ctr"].to_numpy(), with_ctr["ordered"].to_numpy())[0, 1] > 0.1
    push(store, view, str(tmp_path / "online.db"), until=table["visited_at"][-1].as_py())
    with OnlineFeatures(str(tmp_path / "online.db"), ["clicks@1:ctr", "clicks@1:night"]) as online:
        last = table.slice(table.num_rows - 1).to_pylist()[0]
        assert online.get(last, now=last["visited_at"]) == {"ctr": last["ctr"], "night": last["night"]}
    request = RequestTransform(partitions(store, "clicks", 1)[0].definition)
    assert request({"shown": 4, "clicked": 1, "ts": last["visited_at"]}) == {
        "ctr": 0.25,
        "night": last["visited_at"].hour <= 6,
    }


def test_the_example_is_the_same_each_time() -> None:
    assert clicks.hourly().equals(clicks.hourly())
    assert clicks.labels().equals(clicks.labels())
