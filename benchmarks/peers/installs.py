"""Each tracker in a virtual environment of its own, kept from one benchmark to the next."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import last_words

# Nobody reports home, and nothing is looked up in an account.
QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "FEAST_USAGE": "False",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
}
_OURS = ("PIP_CONSTRAINT", "PYTHONPATH", "VIRTUAL_ENV")
_THEIRS = ("AIM_", "FEAST_", "MLFLOW_", "TRACKIO_", "WANDB_")


@dataclass(frozen=True)
class Installed:
    """An environment: its interpreter, or why there is none, and a note on what was installed instead."""

    python: Path | None
    reason: str = ""
    note: str = ""


def environment(folder: Path) -> dict[str, str]:
    """Variables for a tracker's process: none of the user's settings, an own home, telemetry off.

    The home is below ``folder``.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _OURS and not name.startswith(_THEIRS)
    }
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    return kept | QUIET | {"HOME": str(home), "TRACKIO_DIR": str(folder / "data")}


def install(home: Path, choices: Sequence[Sequence[str]], imports: str, *, allowed: bool = True) -> Installed:
    """The environment in ``home`` with the first of several lists of requirements that pip can install.

    Args:
        imports: the module that must be importable afterwards.
        allowed: False takes an environment that is there, and installs nothing.
    """
    python = home / "bin" / "python"
    marker = home / ".installed"
    wanted = [" ".join(choice) for choice in choices]
    there = marker.read_text() if marker.exists() else ""
    if there in wanted and (there == wanted[0] or not allowed):
        return Installed(python)
    if not allowed:
        return Installed(None, "not installed, and a quick run installs nothing")
    variables = {name: value for name, value in os.environ.items() if name not in _OURS}
    note = ""
    try:
        _run([sys.executable, "-m", "venv", str(home)], variables)
    except _Failed as error:
        return Installed(None, f"no environment: {error}")
    for choice, text in zip(choices, wanted, strict=True):
        try:
            _run(
                [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *choice],
                variables,
            )
            _run([str(python), "-c", f"import {imports}"], variables | QUIET)
        except _Failed as error:
            note += f"{text} cannot be installed here: {error}. "
            continue
        marker.write_text(text)
        return Installed(python, note=f"{note}Measured: {text}." if note else "")
    return Installed(None, note.strip())


class _Failed(RuntimeError):
    pass


def _run(command: list[str], variables: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=1800, check=False
        )
    except subprocess.TimeoutExpired:
        raise _Failed("not done after 30 minutes") from None
    if done.returncode:
        raise _Failed(last_words(done.stderr or done.stdout) or f"exit status {done.returncode}")
