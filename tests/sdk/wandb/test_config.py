"""``wandb.config``: what may change, and that changes are recorded. Messages are those of W&B 0.31."""

import argparse
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from halving import Store
from halving.errors import StoreUnavailable
from halving.store.store import Store as StoreOfRun
from tests.sdk.wandb.recorded import recorded_run


def test_values_are_read_by_item_and_by_attribute(wandb: ModuleType) -> None:
    config = wandb.init(project="p", config={"lr": 0.1, "model": {"depth": 3}}).config
    assert config.lr == config["lr"] == config.get("lr") == 0.1
    assert config.model["depth"] == 3
    assert "lr" in config
    assert dict(config) == config.as_dict() == {"lr": 0.1, "model": {"depth": 3}}
    assert config.get("nope", 1) == 1
    with pytest.raises(KeyError, match="nope"):
        config["nope"]
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        _ = config.nope


@pytest.mark.parametrize("by", ["attribute", "item", "update"])
def test_a_value_that_changes_is_refused(wandb: ModuleType, by: str) -> None:
    config = wandb.init(project="p", config={"lr": 1}).config
    changes = {
        "attribute": lambda: setattr(config, "lr", 2),
        "item": lambda: config.__setitem__("lr", 2),
        "update": lambda: config.update({"new": 1, "lr": 2}),
    }
    with pytest.raises(wandb.Error) as caught:
        changes[by]()
    assert str(caught.value) == (
        'Attempted to change value of key "lr" from 1 to 2\n'
        "If you really want to do this, pass allow_val_change=True to config.update()"
    )
    assert dict(config) == {"lr": 1}
    config.lr = 1


def test_later_values_are_in_the_runs_params(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p", config={"lr": 1})
    wandb.config.update(argparse.Namespace(depth=2))
    wandb.config.update({"lr": 3}, allow_val_change=True)
    wandb.config.setdefaults({"lr": 4, "width": 5})
    wandb.config["o"] = {"a": (1, 2), "n": np.float32(2)}
    run.finish()
    params = {"depth": 2, "lr": 3, "o": {"a": [1, 2], "n": 2.0}, "width": 5}
    assert recorded_run(store, run).params == params
    assert dict(run.config) == params


def test_allow_val_change_of_init_lets_values_change(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p", config={"lr": 1}, allow_val_change=True)
    run.config.lr = 2
    run.finish()
    assert recorded_run(store, run).params == {"lr": 2}


def test_names_that_a_sweep_has_locked_stay(wandb: ModuleType) -> None:
    config = wandb.init(project="p").config
    config.update_locked({"lr": 1}, "sweep")
    config.lr = 2
    config.update({"lr": 3, "depth": 4}, allow_val_change=True)
    assert dict(config) == {"lr": 1, "depth": 4}


def test_a_thousand_changes_are_few_files(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    for number in range(1000):
        run.config[f"name{number}"] = number
    run.finish()
    assert len(recorded_run(store, run).params) == 1000
    names = store.names(f"runs/project=p/{run.id}")
    assert len([name for name in names if name.startswith("amend-")]) <= 2


def test_a_change_is_recorded_while_the_run_goes_on(
    wandb: ModuleType, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_written = threading.Event()
    create = StoreOfRun.create

    def note(self: StoreOfRun, name: str, content: bytes | Path, *, sole: bool = False) -> None:
        create(self, name, content, sole=sole)
        if "amend-" in name:
            is_written.set()

    monkeypatch.setattr(StoreOfRun, "create", note)
    run = wandb.init(project="p")
    run.config.lr = 1
    assert is_written.wait(60)
    assert recorded_run(store, run).params == {"lr": 1}


def test_a_store_that_refuses_changes_does_not_end_training(
    wandb: ModuleType, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = StoreOfRun.create

    def refuse(self: StoreOfRun, name: str, content: bytes | Path, *, sole: bool = False) -> None:
        if "amend-" in name:
            raise PermissionError(name)
        create(self, name, content, sole=sole)

    monkeypatch.setattr(StoreOfRun, "create", refuse)
    run = wandb.init(project="p")
    run.config.lr = 1
    run.log({"loss": 1})
    with pytest.warns(UserWarning, match="changes of the config of"):
        run.finish()
    assert recorded_run(store, run).summary == {"loss": 1.0}


@pytest.mark.parametrize("value", [[1], 3])
def test_an_update_without_names_is_refused(wandb: ModuleType, value: Any) -> None:
    config = wandb.init(project="p").config
    with pytest.raises(TypeError, match="config must be a dict or have a __dict__ attribute"):
        config.update(value)


def test_a_config_is_recorded_at_the_end_of_a_short_outage(
    wandb: ModuleType, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = wandb.init(project="p")
    create = run._run.store.create
    outages = [StoreUnavailable("away"), StoreUnavailable("away")]

    def create_after_outages(*arguments: Any, **options: Any) -> None:
        if outages:
            raise outages.pop()
        create(*arguments, **options)

    monkeypatch.setattr(run._run.store, "create", create_after_outages)
    run.config["lr"] = 2
    with pytest.warns(UserWarning, match="away"):
        run.finish()
    assert recorded_run(store, run).params == {"lr": 2}
