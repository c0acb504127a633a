"""The process that trains again, in the recorded code and with the recorded variables."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from halving.errors import InvalidInput
from halving.records.provenance import CHECKOUT
from halving.rerun.plan import Plan
from halving.run.rerun_request import VARIABLE, RerunRequest
from halving.store.opening import URL_VARIABLE
from halving.store.store import Store

STDERR = 2
"""The descriptor of the standard error, because the standard output is for the verdict alone."""


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """The task of a trial's rerun for the process that trains it.

    Attributes:
        recorded: the record's part of the :class:`halving.trial.context.TrialContext`, which the SDK of a
            recorded image has written itself.
        context: the rest of the context, without its provenance; in JSON it is ``given``.
        epochs: the epochs to train, without a stop at the rungs before.
        threads: CPU threads; None for torch's own choice.
        image: the image of the process, as its record named it; None in a worktree.
    """

    recorded: dict[str, Any]
    context: dict[str, Any]
    trainable: str
    epochs: int
    threads: int | None
    image: str | None = None

    def to_bytes(self) -> bytes:
        """The request as JSON, for :meth:`from_bytes`."""
        fields = asdict(self)
        fields["given"] = fields.pop("context")
        return json.dumps(fields).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """Parse what :meth:`to_bytes` has written.

        Raises:
            TypeError, ValueError: it is no request, or one of another version.
        """
        fields = dict(json.loads(text))
        if "given" in fields:
            fields["context"] = fields.pop("given")
        return cls(**fields)


def train_again(plan: Plan, store: Store, run: str, *, code: Path, python: str, scratch: Path) -> int:
    """Train, and return the exit status; the output goes to the standard error.

    Args:
        run: the id of the new run.
        code: the checkout.
        scratch: a folder for the request, and for the script's other runs.

    Raises:
        InvalidInput: the code lacks the folder in which the run was started.
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
            "keeps no folder that is empty or ignored"
        )
    # When this process is killed, the training must end too: nobody would read its result.
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
    """The request to train a trial in one go as far as the recorded one."""
    assert plan.trial is not None
    project = plan.name.partition("/")[0]
    context = {
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
        context=context,
        trainable=str(plan.trainable),
        epochs=plan.epochs,
        threads=plan.threads,
    )


def variables(plan: Plan, code: Path, mine: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with the recorded variables and the recorded code's search path."""
    replaced = {*plan.variables, URL_VARIABLE, VARIABLE}
    environment = {name: value for name, value in mine.items() if name not in replaced}
    environment |= {name: value for name, value in plan.variables.items() if value is not None}
    # Compiled files in the worktree would seem to be changes of the code.
    return environment | {"PYTHONPATH": search_path(plan, code), "PYTHONDONTWRITEBYTECODE": "1"}


def search_path(plan: Plan, code: Path) -> str:
    """``PYTHONPATH`` with the recorded import folders in the worktree, and then this process's own.

    Without them a package that is installed from the user's checkout in editable mode would be imported from
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
    """A recorded argument (``checkout:a.py``, ``--config=checkout:a.yaml``) with its path in the checkout."""
    option = ""
    value = argument
    if argument.startswith("-"):
        name, equals, value = argument.rpartition("=")
        option = f"{name}{equals}"
    if not value.startswith(CHECKOUT):
        return argument
    return f"{option}{code / value.removeprefix(CHECKOUT)}"


def _root(store: Store) -> str:
    if store.folder is None:
        return store.root
    return str(store.folder.resolve())


def _end_with_parent() -> None:
    """Have the process that trains ended when the one that started it is killed (Linux only)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
