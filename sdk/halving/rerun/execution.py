"""The process that trains again: in the recorded code, with the recorded variables, and with a request of
which run it is.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput
from halving.records.provenance import CHECKOUT
from halving.rerun.plan import Plan
from halving.run.rerun_request import VARIABLE, RerunRequest
from halving.store.opening import URL_VARIABLE
from halving.store.store import Store

STDERR = 2
"""The standard error as a file: the standard output is the verdict's alone."""


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """What the process of a trial's rerun is started with.

    Attributes:
        recorded: what the record has of the :class:`halving.trial.context.TrialContext`; the SDK of a
            recorded image has written it itself.
        given: the rest of that context, without its provenance.
        epochs: how far it trains, without a stop at the rungs before.
        threads: CPU threads; None for torch's own choice.
        image: that the process runs in, as its record named it; None where it is trained again in a worktree.
    """

    recorded: dict[str, Any]
    given: dict[str, Any]
    trainable: str
    epochs: int
    threads: int | None
    image: str | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def train_again(plan: Plan, store: Store, run: str, *, code: Path, python: str, scratch: Path) -> int:
    """Train, and give the exit status. What it prints goes to the standard error.

    Args:
        run: the id of the new run.
        code: the checkout.
        scratch: a folder for the request, and for the script's other runs.

    Raises:
        InvalidInput: the folder in which it was started is not in its code.
    """
    request = scratch / "request.json"
    if plan.trial is not None:
        request.write_bytes(trial_request(plan, store, run).to_bytes())
        command = [python, "-P", "-m", "halving.rerun.trial_process", str(request)]
    else:
        RerunRequest(
            rerun_of=plan.name,
            parent=plan.parent_of_rerun,
            root=_root(store),
            others=str(scratch / "others"),
            starter=os.getpid(),
            run=run,
            ordinal=plan.ordinal,
            params=dict(plan.params),
            seed=plan.seed,
            deterministic=plan.deterministic,
        ).write(request)
        command = [python, *(_in(code, argument) for argument in plan.arguments)]
    environment = variables(plan, code, os.environ) | {"HALVING_ROOT": _root(store)}
    if plan.trial is None:
        environment[VARIABLE] = str(request)
    folder = code / plan.folder
    if not folder.is_dir():
        raise InvalidInput(
            f"the folder {plan.folder!r}, in which run {plan.name} was started, is not in its code: git "
            "keeps no folder that is "
            "empty or ignored"
        )
    # A rerun that is killed must not go on training, on a GPU perhaps, with nobody to compare it.
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=STDERR,
        preexec_fn=_end_with_parent,
        check=False,
    ).returncode


def trial_request(plan: Plan, store: Store, run: str) -> TrialRequest:
    """The trial, trained in one go to where the recorded one was."""
    assert plan.trial is not None
    project = plan.name.partition("/")[0]
    given = {
        "root": _root(store),
        "project": project,
        "run": run,
        "attempt": 1,
        "params": dict(plan.params),
        "seed": plan.seed,
        "parent": {**plan.parent, **plan.parent_of_rerun},
    }
    return TrialRequest(
        recorded=dict(plan.trial),
        given=given,
        trainable=str(plan.trainable),
        epochs=plan.epochs,
        threads=plan.threads,
    )


def variables(plan: Plan, code: Path, mine: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with the recorded variables, and the recorded code before anything that is
    installed.
    """
    found = {
        name: value for name, value in mine.items() if name not in {*plan.variables, URL_VARIABLE, VARIABLE}
    }
    found |= {name: value for name, value in plan.variables.items() if value is not None}
    # No files of this process's own in the worktree: they would seem to be changes of the code.
    return found | {"PYTHONPATH": search_path(plan, code), "PYTHONDONTWRITEBYTECODE": "1"}


def search_path(plan: Plan, code: Path) -> str:
    """``PYTHONPATH``: what of the checkout was imported from, in the worktree, and then this process's own.

    A package that is installed from the user's checkout in editable mode would otherwise be imported from
    there.
    """
    installed = [
        path.removeprefix(CHECKOUT)
        for path in (plan.environment.get("packages_from") or {}).values()
        if path.startswith(CHECKOUT)
    ]
    own = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    recorded = dict.fromkeys([*plan.import_paths, *installed, *(f"{path}/src" for path in installed)])
    return os.pathsep.join([*(str(code / path) for path in recorded if (code / path).is_dir()), *own])


def _in(code: Path, argument: str) -> str:
    """A recorded argument, with the path in the checkout where it names one (``checkout:train.py``,
    ``--config=checkout:a.yaml``).
    """
    option, equals, value = argument.rpartition("=") if argument.startswith("-") else ("", "", argument)
    return (
        f"{option}{equals}{code / value.removeprefix(CHECKOUT)}" if value.startswith(CHECKOUT) else argument
    )


def _root(store: Store) -> str:
    return str(store.folder.resolve()) if store.folder is not None else store.root


def _end_with_parent() -> None:
    """In the process that trains: end when the one that started it is killed (Linux only)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
