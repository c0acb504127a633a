"""The module ``halving.wandb`` on the test's own store, without any W&B variables of the machine."""

import os
from collections.abc import Iterator
from types import ModuleType

import pytest

from halving import Store


@pytest.fixture
def wandb(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HALVING_ROOT", str(store.root))
    monkeypatch.setenv("WANDB_SILENT", "true")
    # The machine's own metrics are not what these tests look at.
    monkeypatch.setenv("WANDB__DISABLE_STATS", "true")
    monkeypatch.delenv("HALVING_URL", raising=False)
    import halving.wandb

    yield halving.wandb
    halving.wandb.teardown()
