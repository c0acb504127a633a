"""The module paths by which frameworks import W&B's names: the same objects as in ``halving.wandb``."""

import os
from importlib import import_module

import pytest

import halving.wandb as wandb
from halving.wandb.errors import NameMissing
from halving.wandb.sdk.lib import RunDisabled
from halving.wandb.sdk.lib.config_util import ConfigError
from halving.wandb.sdk.lib.runid import generate_id


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("wandb_run", "Run"),
        ("sdk.wandb_run", "Run"),
        ("sdk.wandb_config", "Config"),
        ("sdk.wandb_settings", "Settings"),
        ("sdk.wandb_init", "init"),
        ("sdk.wandb_login", "login"),
        ("sdk.wandb_alerts", "AlertLevel"),
        ("sdk", "init"),
        ("sdk", "Settings"),
    ],
)
def test_a_name_is_the_same_object_by_each_path(module: str, name: str) -> None:
    assert getattr(import_module(f"halving.wandb.{module}"), name) is getattr(wandb, name)


def test_modules_are_attributes_as_annotations_name_them() -> None:
    assert wandb.sdk.wandb_run.Run is wandb.Run
    assert wandb.sdk.lib.disabled.RunDisabled is RunDisabled


def test_a_changed_config_value_raises_what_the_trainer_catches() -> None:
    config = wandb.Config()
    config["lr"] = 1
    with pytest.raises(ConfigError):
        config["lr"] = 2


def test_ids_are_eight_letters_and_digits_and_new_each_time() -> None:
    ids = {generate_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(name) == 8 and name.isalnum() and name == name.lower() for name in ids)


def test_a_part_of_w_and_b_that_is_not_there_is_named() -> None:
    with pytest.raises(NameMissing, match=r"wandb\.sdk\.internal is not there"):
        wandb.sdk.internal  # noqa: B018
    assert not hasattr(wandb.sdk, "internal")


def test_a_project_that_a_framework_sets_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "before")
    monkeypatch.setenv("WANDB_ENTITY", "before")
    wandb.env.set_project("bert")
    wandb.env.set_entity("team")
    assert (os.environ["WANDB_PROJECT"], os.environ["WANDB_ENTITY"]) == ("bert", "team")
    other: dict[str, str] = {}
    wandb.env.set_project("", other)
    assert other == {"WANDB_PROJECT": "uncategorized"}
