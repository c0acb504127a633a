"""``halving run --as-wandb``: start a script that is written for W&B, unchanged."""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import halving
from halving.errors import InvalidInput
from halving.records.command import script_at

AS_WANDB = Path(halving.__file__).with_name("as_wandb")
"""The folder whose ``wandb`` is ours."""
_PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")


def run_run(arguments: argparse.Namespace) -> int:
    """Become the command, with ``halving.wandb`` as its ``wandb``.

    This process is replaced, so that signals, the terminal and the exit status are the command's own. There
    is no JSON: the standard output is the command's.
    """
    if not arguments.as_wandb:
        raise InvalidInput(
            "--as-wandb is missing: this command starts scripts that are written for W&B. A script that "
            "calls halving.init needs no other start than `python train.py`"
        )
    if arguments.json:
        raise InvalidInput("--json is not accepted: the standard output belongs to the script")
    command = command_of(arguments.script, arguments.module)
    _check(command)
    environment = environment_as_wandb(os.environ, arguments.root)
    _become(command, environment)


def command_of(script: Sequence[str], module: Sequence[str] | None) -> list[str]:
    """The command that the arguments name.

    Args:
        script: ``train.py ARGS…``, which this interpreter runs, or a program with its arguments.
        module: a module and its arguments, which ``python -m`` runs.

    Raises:
        InvalidInput: neither is there.
    """
    if module:
        return [sys.executable, "-m", *module]
    words = list(script)
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise InvalidInput(
            "no script: give train.py and its arguments, -m package.module, or -- and a command such as "
            "torchrun --nproc-per-node 2 train.py"
        )
    if words[0].endswith((".py", ".pyc", ".pyz")):
        return [sys.executable, *words]
    return words


def environment_as_wandb(variables: Mapping[str, str], root: str | None = None) -> dict[str, str]:
    """Variables with which every Python below has ``halving.wandb`` as its ``wandb``.

    Args:
        variables: those of this process.
        root: the store; None for the one that the variables name.
    """
    others: list[str] = []
    if before := variables.get("PYTHONPATH"):
        # An empty entry stays: to Python it is the working directory.
        others = [entry for entry in before.split(os.pathsep) if entry != str(AS_WANDB)]
    changed = {**variables, "PYTHONPATH": os.pathsep.join([str(AS_WANDB), *others])}
    if root is not None:
        changed["HALVING_ROOT"] = root
        changed.pop("HALVING_URL", None)
    return changed


def _check(command: Sequence[str]) -> None:
    """Refuse what could not start, or would import the installed ``wandb``."""
    program, *rest = command
    if shutil.which(program) is None:
        raise InvalidInput(
            f"command = {program!r} is not accepted: no such program on PATH; give train.py, "
            "-m package.module, or a program that can be executed"
        )
    if not _PYTHON.fullmatch(Path(program).name):
        return
    place = script_at(rest)
    options = rest
    if place is not None:
        options = rest[:place]
        if not Path(rest[place]).exists():
            raise InvalidInput(f"script = {rest[place]!r} is not accepted: no such file in {Path.cwd()}")
    for option in options:
        if option in ("-c", "-m"):
            break
        if re.fullmatch("-[a-zA-Z]*[IE][a-zA-Z]*", option):
            raise InvalidInput(
                f"option {option} of {program} is not accepted: with it Python ignores PYTHONPATH, so the "
                "script would import the installed wandb"
            )


def _become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], list(command), dict(environment))  # no shell has to interpret it
