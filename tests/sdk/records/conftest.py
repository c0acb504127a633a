"""A checkout with a commit."""

from pathlib import Path

import pytest

from tests.sdk.records.checkouts import git, write


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder, "train.py", b"".join(b"line %d\n" % number for number in range(50)))
    write(folder, "package/model.py", b"width = 3\n")
    write(folder, "old.py", b"gone soon\n")
    write(folder, "run.sh", b"#!/bin/sh\n")
    write(folder, "logo.png", bytes(range(256)))
    write(folder, ".gitignore", b"*.log\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    return folder
