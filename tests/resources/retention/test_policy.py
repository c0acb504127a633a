"""The policy file: its fields, those of a project over the common ones, what it leaves out, and refusals."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from halving import InvalidInput, Store
from resources.retention.policy import parse_policy
from resources.retention.policy_file import load_policy


def test_what_a_policy_does_not_name_is_kept_for_ever() -> None:
    policy = parse_policy(None, "retention.yaml").of("digits")
    kinds = [policy.points.full, policy.points.system, policy.points.rollup, policy.checkpoints]
    kinds += [policy.media, policy.artifacts, policy.journals, policy.trash, policy.cold, policy.dagster]
    assert {kind.days for kind in kinds} == {None}
    assert not parse_policy(None, "retention.yaml").automatic


def test_a_project_has_its_own_fields_and_the_common_ones_otherwise() -> None:
    data = {
        "points": {"full": {"days": 90}, "system": {"days": 7}},
        "checkpoints": {"top_k": 5, "days": 14},
        "cold": {"days": 30, "root": "s3://cold/halving"},
        "projects": {
            "digits": {"checkpoints": {"days": 1}, "points": {"rollup": {"days": 400}}, "cold": {"days": 3}}
        },
    }
    policy = parse_policy(data, "retention.yaml")
    own = policy.of("digits")
    other = policy.of("faces")
    assert (own.checkpoints.top_k, own.checkpoints.days) == (5, 1)
    assert (own.points.full.days, own.points.system.days, own.points.rollup.days, own.cold.days) == (
        90,
        7,
        400,
        3,
    )
    assert (other.checkpoints.top_k, other.checkpoints.days, other.points.rollup.days, other.cold.days) == (
        5,
        14,
        None,
        30,
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"checkpoint": {"days": 3}},
            (
                "checkpoint = {'days': 3} is not accepted: there is no such field, did you mean "
                "'checkpoints'?; accepted are"
            ),
        ),
        (
            {"checkpoints": {"daysss": 3}},
            "no such field, did you mean 'days'?; accepted are days, top_k, top_k_days",
        ),
        (
            {"projects": {"digits": {"trsh": {}}}},
            "projects.digits.trsh = {} is not accepted: there is no such field, did you mean 'trash'?",
        ),
        (
            {"projects": {"digits": {"cold": {"root": "/cold"}}}},
            "cold.root = '/cold' is not accepted: there is no such field; accepted are days",
        ),
        (
            {"media": {"days": -1}},
            (
                "media.days = -1 is not accepted: give a number of days from 0 to 36,500, or leave it out to "
                "keep it for"
            ),
        ),
        (
            {"trash": {"days": 1e7}},
            (
                "trash.days = 10000000.0 is not accepted: give a number of days from 0 to 36,500, or leave "
                "it "
                "out"
            ),
        ),
        ({"checkpoints": {"days": 36_501}}, "checkpoints.days = 36501 is not accepted"),
        ({"grace_days": 1e9}, "grace_days = 1000000000.0 is not accepted"),
        (
            {"cold": {"days": 3, "root": "our/archive"}},
            "cold.root = 'our/archive' is not accepted: give a folder's absolute path, or an",
        ),
        ({"media": {"days": "x"}}, "media.days = 'x' is not accepted"),
        ({"media": 3}, "media = 3 is not accepted: give fields and values; the fields are days"),
        (
            {"points": {"full": {"days": 7}, "system": {"days": 8}}},
            "system.days = 8 is not accepted: give at most points.full.days, which is 7",
        ),
        (
            {"points": {"full": {"days": 7}, "rollup": {"days": 6}}},
            "points.rollup.days = 6 is not accepted: rollups stay as long as points.full.days",
        ),
        ({"points": {"rollup": {"days": 6}}}, "points.full.days at least, which is for ever"),
        ({"projects": {"a": {"points": {"rollup": {"days": 6}}}}}, "projects.a.points.rollup.days = 6"),
        (
            {"checkpoints": {"top_k_days": 6}},
            "checkpoints.top_k_days = 6 is not accepted: they stay as long as checkpoints.days at least",
        ),
        ({"checkpoints": {"top_k_days": 6, "days": 7}}, "checkpoints.days at least, which is 7"),
        (
            {"artifacts": {"days": 6, "trials": {"days": 7}}},
            "artifacts.trials.days = 7 is not accepted: give at most artifacts.days",
        ),
        (
            {"cold": {"days": 3}},
            "cold.days = 3 is not accepted without a place: give cold.root or cold.storage_class",
        ),
        ({"cold": {"root": "/cold", "storage_class": "GLACIER_IR"}}, "give one of them"),
        ({"grace_days": 1}, "grace_days = 1 is not accepted"),
        (["media"], "(top) = ['media'] is not accepted"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_accepted(data: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_policy(data, "retention.yaml")
    assert str(refused.value).startswith("the retention policy retention.yaml is not accepted:\n  - ")
    assert said in str(refused.value)


def test_the_policy_is_the_named_file_else_the_stores_else_the_shipped_one(
    any_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = load_policy(any_store)
    assert shipped.shipped
    assert shipped.policy.automatic
    assert shipped.policy.of("digits").checkpoints.days is not None
    any_store.create("retention.yaml", yaml.safe_dump({"media": {"days": 3}}).encode())
    own = load_policy(any_store)
    assert (own.policy.media.days, own.shipped, own.source) == (3, False, any_store.address("retention.yaml"))
    monkeypatch.setenv("HALVING_RETENTION", str(tmp_path / "mine.yaml"))
    with pytest.raises(
        InvalidInput,
        match=r"HALVING_RETENTION = '.*mine.yaml' is not accepted: No such file or directory; give the path",
    ):
        load_policy(any_store)
    (tmp_path / "mine.yaml").write_text("media: {days: 4")
    with pytest.raises(InvalidInput, match=r"mine.yaml is not YAML"):
        load_policy(any_store)
    (tmp_path / "mine.yaml").write_text("media: {days: 3}\ntrash: {days: 30}\nmedia: {days: 5}\n")
    with pytest.raises(
        InvalidInput, match=r"(?s)mine.yaml is not YAML: media is given twice; give it once.*line 3"
    ):
        load_policy(any_store)
    (tmp_path / "mine.yaml").write_text("media: {days: 4}")
    assert load_policy(any_store).policy.media.days == 4
