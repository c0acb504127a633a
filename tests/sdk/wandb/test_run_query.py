"""W&B's filters and orders: each operator as MongoDB has it, and what has no equal is named."""

from dataclasses import replace
from typing import Any

import pytest

from halving.wandb.errors import UsageError
from halving.wandb.recorded_runs import RecordedRun
from halving.wandb.run_query import predicate_of, sorted_runs

RUNS = {
    "a": {"lr": 0.1, "opt": {"name": "adam"}, "layers": [64, 32], "amp": True},
    "b": {"lr": 0.01, "opt": {"name": "sgd"}, "note": None},
    "c": {"lr": "auto"},
}
SUMMARY = {"a": {"loss": 0.5, "val/acc": 0.8}, "b": {"loss": 0.25}, "c": {}}
TAGS = {"a": {"baseline": "true", "group": "one", "name": "eager-fox"}, "b": {"wip": "true"}, "c": {}}
STATUS = {"a": "finished", "b": "unfinished", "c": "stopped"}


def runs() -> list[RecordedRun]:
    return [
        RecordedRun(
            project="nets",
            id=name,
            status=STATUS[name],
            started=f"2026-11-0{day}T12:00:00+00:00",
            ended=None,
            seconds=float(day),
            params=params,
            tags=TAGS[name],
            parent={},
            summary=SUMMARY[name],
        )
        for day, (name, params) in enumerate(RUNS.items(), start=1)
    ]


@pytest.mark.parametrize(
    ("filters", "chosen"),
    [
        (None, "abc"),
        ({}, "abc"),
        ({"config.lr": 0.1}, "a"),
        ({"config.lr.value": 0.1}, "a"),
        ({"config.lr": "auto"}, "c"),
        ({"config.opt.name": "sgd"}, "b"),
        ({"config.opt.name": {"$ne": "sgd"}}, "ac"),
        ({"config.lr": {"$gt": 0.01}}, "a"),
        ({"config.lr": {"$gte": 0.01, "$lt": 0.1}}, "b"),
        ({"config.lr": {"$lte": 0.1}}, "ab"),
        ({"config.lr": {"$in": [0.1, "auto"]}}, "ac"),
        ({"config.lr": {"$nin": [0.1, "auto"]}}, "b"),
        ({"config.layers": 32}, "a"),
        ({"config.layers": [64, 32]}, "a"),
        ({"config.layers": {"$gt": 60}}, "a"),
        ({"config.amp": True}, "a"),
        ({"config.amp": 1}, ""),
        ({"config.amp": {"$exists": False}}, "bc"),
        ({"config.note": None}, "abc"),
        ({"config.opt.name": {"$regex": "^ad"}}, "a"),
        ({"config.opt.name": {"$regex": "^AD", "$options": "i"}}, "a"),
        ({"config.opt.name": {"$regex": "^ A D", "$options": "ix"}}, "a"),
        ({"config.opt.name": {"$not": {"$regex": "^ad"}}}, "bc"),
        ({"summary_metrics.loss": {"$lt": 0.3}}, "b"),
        ({"summary_metrics.val/acc": {"$gt": 0.5}}, "a"),
        ({"summary_metrics.val.acc": {"$gt": 0.5}}, "a"),
        ({"summary_metrics._runtime": {"$gte": 2}}, "bc"),
        ({"state": "finished"}, "a"),
        ({"state": {"$in": ["crashed", "killed"]}}, "bc"),
        ({"tags": "baseline"}, "a"),
        ({"tags": {"$in": ["baseline", "wip"]}}, "ab"),
        ({"tags": {"$nin": ["baseline"]}}, "bc"),
        ({"display_name": "eager-fox"}, "a"),
        ({"displayName": {"$regex": "[bc]"}}, "bc"),
        ({"name": "b"}, "b"),
        ({"group": "one"}, "a"),
        ({"created_at": {"$gte": "2026-11-02T00:00:00Z"}}, "bc"),
        ({"createdAt": {"$lt": "2026-11-02"}}, "a"),
        ({"duration": {"$gt": 2}}, "c"),
        ({"$and": [{"state": "finished"}, {"config.lr": 0.1}]}, "a"),
        ({"$or": [{"name": "b"}, {"config.amp": True}]}, "ab"),
        ({"$nor": [{"name": "b"}, {"config.amp": True}]}, "c"),
        ({"state": "finished", "config.lr": 0.01}, ""),
    ],
)
def test_a_filter_chooses_what_mongodb_would(filters: Any, chosen: str) -> None:
    assert "".join(run.id for run in runs() if predicate_of(filters)(run)) == chosen


@pytest.mark.parametrize(
    ("order", "ids"),
    [
        (None, "abc"),
        ("-created_at", "cba"),
        ("created_at", "abc"),
        ("+summary_metrics.loss", "bac"),
        ("-summary_metrics.loss", "abc"),
        ("-config.lr.value", "cab"),
        ("+config.lr", "bac"),
        ("-display_name", "acb"),
    ],
)
def test_an_order_puts_runs_without_the_value_last(order: str | None, ids: str) -> None:
    assert "".join(run.id for run in sorted_runs(runs(), order)) == ids


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"user": "ann"}, "field 'user' has no equal here"),
        ({"config": {"lr": 1}}, "field 'config' has no equal here"),
        ({"config.lr": {"$where": "1"}}, r"config\.lr\.\$where has no equal here: there are \$eq"),
        ({"$expr": []}, r"\$expr has no equal here"),
        ({"$or": {}}, r"\$or = \{\} is not accepted"),
        ({"config.lr": {"$in": 3}}, r"config\.lr\.\$in = 3 is not accepted"),
        ({"name": {"$regex": "("}}, r"name\.\$regex = '\(' is not accepted"),
        ({"name": {"$regex": "a", "$options": "iu"}}, r"name\.\$options = 'iu' is not accepted"),
        ({"created_at": {"$gt": "soon"}}, "created_at = 'soon' is not accepted"),
        ([], r"filters = \[\] is not accepted"),
    ],
)
def test_what_has_no_equal_is_named_before_a_run_is_read(filters: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        predicate_of(filters)


def test_a_run_that_sigterm_ended_has_crashed_in_w_and_bs_words() -> None:
    terminated = replace(runs()[0], status="terminated")
    assert predicate_of({"state": "crashed"})(terminated)


def test_an_order_that_has_no_equal_is_named() -> None:
    with pytest.raises(UsageError, match="field 'loss' has no equal here"):
        sorted_runs([], "-loss")
