"""Datasets of labels and features: what goes together, and what is refused before anything is read."""

from typing import Any

import pytest

from halving import InvalidInput
from resources.sweep_spec import check_functions, parse_spec
from resources.sweep_spec.dataset import DatasetSource
from tests.backends import SMALL

LABELS = {
    "name": "ctr",
    "labels": "examples.clicks:labels",
    "features": ["clicks@1:ctr"],
    "target": "ordered",
}


def spec(**changes: Any) -> dict[str, Any]:
    dataset = {**LABELS, **changes}
    return {**SMALL, "dataset": {name: value for name, value in dataset.items() if value is not None}}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"labels": None}, ["give source, or labels with the features", "got features"]),
        ({"features": None}, ["give source, or labels with the features", "got labels"]),
        ({"labels": None, "features": None}, ["give source, or labels with the features", "got nothing"]),
        ({"source": "m:f"}, ["give source, or labels with the features", "got source, labels, features"]),
        (
            {"source": "m:f", "labels": None},
            ["give source, or labels with the features", "got source, features"],
        ),
        (
            {"source": "m:f", "labels": None, "features": None, "label_time": "t"},
            ["label_time would have no effect without features"],
        ),
        ({"features": []}, ["dataset.features", "at least 1"]),
        (
            {"features": ["clicks:ctr"]},
            ["dataset.features.0 = 'clicks:ctr'", "give VIEW@VERSION:FEATURE", "clicks@1:ctr"],
        ),
        (
            {"features": ["clicks@1:ctr", "other@1:ctr"]},
            ["'other@1:ctr'", "is named 'ctr', too", "other@1:ctr as other_ctr"],
        ),
        (
            {"features": ["clicks@1:ordered"]},
            ["'clicks@1:ordered'", "a column of the labels is named 'ordered', too"],
        ),
        ({"timezone": "Mars"}, ["dataset.timezone = 'Mars'", "Europe/Berlin"]),
        ({"labels": "clicks"}, ["dataset.labels = 'clicks'", "module:function"]),
    ],
)
def test_labels_and_features_that_do_not_fit_are_refused_with_one_message(
    changes: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_spec(spec(**changes))
    for part in parts:
        assert part in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 2


def test_labels_may_be_given_in_every_way_that_a_source_is() -> None:
    dataset = parse_spec(spec(labels={"files": "labels/*.parquet"}, label_time="at", timezone="UTC")).dataset
    assert dataset.described == "files labels/*.parquet with clicks@1:ctr"
    assert DatasetSource.model_validate(dataset.model_dump(mode="json", exclude_none=True)) == dataset


def test_the_labels_function_is_looked_for_before_anything_runs() -> None:
    with pytest.raises(InvalidInput, match=r"dataset.labels = 'examples.clicks:lables'"):
        check_functions(parse_spec(spec(labels="examples.clicks:lables")))


def test_a_spec_without_features_has_the_digest_that_it_always_had() -> None:
    assert set(parse_spec(SMALL).model_dump(mode="json", exclude_none=True)["dataset"]) == {
        *("name", "source", "target", "splits", "seed", "checks", "shard_mib"),
    }
