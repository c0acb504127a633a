"""A checkout of a script that is trained again."""

from pathlib import Path

import pytest

from tests.sdk.records.checkouts import git
from tests.sdk.rerun.scripts import SCRIPT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository in whose ``code`` folder the script lies; a file that it imports is changed, and another
    untracked.
    """
    folder = tmp_path / "checkout"
    (folder / "code").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "code" / "train.py").write_text(SCRIPT)
    (folder / "code" / "model.py").write_text("RATE = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    (folder / "code" / "model.py").write_text("from rate import RATE\n")
    (folder / "code" / "rate.py").write_text("RATE = 2\n")
    return folder
