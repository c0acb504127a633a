"""Sources of snapshots whose rows a test provides."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from resources.sweep_spec.dataset import DatasetSource

Provide = Callable[[Any], DatasetSource]


@pytest.fixture
def provide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DatasetSource]:
    """Makes a spec whose source is this content, or what this function returns."""
    module = ModuleType("provided_source")
    monkeypatch.setitem(sys.modules, "provided_source", module)

    def use(content: Any, **changes: Any) -> DatasetSource:
        module.load = content if callable(content) else lambda: content  # type: ignore[attr-defined]
        return DatasetSource.model_validate(
            {"name": "points", "source": "provided_source:load", "target": "label", **changes}
        )

    return use
