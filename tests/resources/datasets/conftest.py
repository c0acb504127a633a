"""Sources whose rows a test provides, and the checks of their snapshots."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from halving import Dataset
from resources.backend import Backend
from resources.datasets.data_checks import DataCheck, check_data
from resources.datasets.manifest import manifest_before
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource

ChecksOf = Callable[..., dict[str, DataCheck]]
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


@pytest.fixture
def checks_of(backend: Backend, provide: Callable[..., DatasetSource]) -> ChecksOf:
    """The outcomes of a table's checks, by name."""

    def check(table: pa.Table, **changes: Any) -> dict[str, DataCheck]:
        source = provide(table, **({"split_column": "part"} | changes))
        snapshot = take_snapshot(backend.store, backend.catalog, source)
        dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
        return {
            outcome.name: outcome
            for outcome in check_data(dataset, source, manifest_before(backend.store, dataset.manifest))
        }

    return check


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder
