"""Fixtures: a backend, its catalog and specs, and one small sweep for all tests that only read one."""

from pathlib import Path

import pytest

from tests.backends import *  # noqa: F403
from tests.backends import SMALL
from tests.pipelines.shell import Shell, Swept


@pytest.fixture(scope="session")
def swept_lab(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """The small sweep, run once; a test that changes its store works on a copy."""
    shell = Shell(tmp_path_factory.mktemp("swept"))
    spec = Path(shell.spec(SMALL))
    spec.write_text(spec.read_text().replace("low: 0.0", "low: 1e-06"))
    return Swept(shell, spec, *shell.run("sweep", str(spec)))
