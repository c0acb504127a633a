"""What a killed agent leaves is removed by the next gang, and what living ones have is not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from halving.trial_process.gang_folder import gang_folder

KILLED = """
import os, signal
from halving.trial_process.gang_folder import gang_folder
with gang_folder() as folder:
    (folder / "hang-0.json").write_text("{}")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def age(folder: Path) -> None:
    os.utime(folder, (0, 0))


@pytest.mark.slow
def test_a_killed_gangs_folder_goes_when_the_next_begins_and_a_living_ones_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob("halving-gang-*")
    with gang_folder() as living:
        assert left.exists(), "it may be just being made"
        age(living)
        age(left)
        with gang_folder() as other:
            assert set(tmp_path.glob("halving-gang-*")) == {living, other}
    assert not list(tmp_path.iterdir())
