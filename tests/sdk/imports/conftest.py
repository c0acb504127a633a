"""Fixtures of the importers' tests: the store that they import into, and an import of W&B's folders."""

import json
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.cli.main import main
from tests.sdk.imports.wandb_imports import Import


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def importer(store: Store, capfd: pytest.CaptureFixture[str]) -> Import:
    """Import a folder into the test's store, and give what the command says in JSON."""

    def run(source: Path, *arguments: str, status: int = 0) -> dict[str, Any]:
        assert main(["import", "wandb", str(source), "--root", store.root, "--json", *arguments]) == status
        report: dict[str, Any] = json.loads(capfd.readouterr().out)
        return report

    return run
