"""The spec's final training: its defaults, and what it may not be trained on."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from halving import InvalidInput
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.final import Final

Spec = Callable[..., SweepSpec]

THREE = {"train": 0.6, "validation": 0.2, "test": 0.2}


def on(*splits: str, **dataset: Any) -> dict[str, Any]:
    return {
        "final": {"on": list(splits)},
        "dataset": {"name": "d", "source": "m:f", "target": "y", "splits": THREE, **dataset},
    }


def test_only_a_spec_with_final_has_three_more_trainings_at_full_budget(
    small_spec: Spec,
) -> None:
    without = small_spec()
    spec = small_spec(final={})
    assert without.final is None
    assert "final" not in without.canonical_json()
    assert spec.final == Final(seeds=3, on=["train", "validation"], epochs=None)
    assert spec.final_epochs == spec.budgets[-1] == 9
    assert small_spec(final={"epochs": 40}).final_epochs == 40
    assert (spec.train_on(0), spec.train_on(None)) == (("train", "validation"), ("train",))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (on("train", "test"), ["final.on = ['train', 'test']", "cannot be judged on", "leave test out"]),
        (on("validation"), ["final.on = ['validation']", "give train"]),
        (
            on("train", "validaton"),
            ["no split 'validaton', did you mean 'validation'?", "it has train, validation, test"],
        ),
        (on("train", "train"), ["give each split once"]),
        (on(), ["final.on", "at least 1"]),
        ({"final": {"seeds": 0}}, ["final.seeds = 0", "greater than or equal to 1"]),
        ({"final": {"epochs": 0}}, ["final.epochs = 0"]),
        ({"final": {"seed": 3}}, ["final.seed", "seeds"]),
        (
            {"final": {}, "predictor": None},
            ["final.seeds = 3", "give a predictor or an evaluator, or leave final out"],
        ),
        (
            {
                "final": {"epochs": 4},
                "restored_from": {"project": "p", "run": "r", "epoch": 5, "checkpoint": "sha256:" + "0" * 64},
                "strategy": {"random": {"budget": 9}},
            },
            ["final.epochs = 4", "goes on from epoch 5", "give more"],
        ),
    ],
)
def test_a_final_training_that_cannot_be_is_refused_with_the_remedy(
    small_spec: Spec, changes: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(InvalidInput) as raised:
        small_spec(**changes)
    for part in parts:
        assert part in str(raised.value)


def test_it_is_written_in_yaml_as_it_is_in_the_documentation(small_spec: Spec) -> None:
    fields = yaml.safe_load("{seeds: 2, on: [train], epochs: 4}")  # YAML 1.1 reads the key as true.
    assert small_spec(final=fields).final == Final(seeds=2, on=["train"], epochs=4)
    assert small_spec(final=json.loads(json.dumps(fields))).final == Final(seeds=2, on=["train"], epochs=4)


def test_splits_that_a_column_names_are_checked_against_the_snapshot(small_spec: Spec) -> None:
    final = small_spec(
        final={"on": ["train", "extra"]},
        dataset={"name": "d", "source": "m:f", "target": "y", "split_column": "part"},
    ).final
    assert final is not None
    final.check_splits(["train", "validation", "test", "extra"])
    with pytest.raises(
        InvalidInput,
        match=r"final\.on = \['train', 'extra'\] is not accepted: the dataset has no split 'extra'",
    ):
        final.check_splits(["train", "validation", "test"])


def test_folds_are_what_train_and_validation_consist_of(small_spec: Spec) -> None:
    final = small_spec(final={}).final
    assert final is not None
    final.check_splits(["fold-0", "fold-1", "test"])
