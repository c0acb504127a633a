"""Imports of ``wandb`` that give ``halving.wandb``, in a process below ``halving run --as-wandb``.

This folder stands first on the ``PYTHONPATH`` of such processes, also of other interpreters than Halving's
own. So its modules import nothing at the start of a process but what Python has loaded by then.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

OURS = "halving.wandb"
THEIRS = "wandb"


class AsWandb:
    """A finder and loader that answers for ``wandb`` and every module below it.

    It stands before all finders of ``sys.meta_path``, so an installed ``wandb`` is not imported, wherever on
    ``sys.path`` it is.
    """

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of a module of ``wandb``; None for all other modules.

        Raises:
            ModuleNotFoundError: ``halving.wandb`` has no such module.
        """
        if name == THEIRS:
            return _spec(name, OURS, is_package=True)
        if not name.startswith(THEIRS + "."):
            return None
        from importlib.util import find_spec

        ours = _find_ours(name)
        try:
            spec = find_spec(ours)
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            raise ModuleNotFoundError(
                f"no module {name!r}: wandb is halving.wandb here (halving run --as-wandb), which does not "
                "have this part of it; docs/wandb.md lists what it has. Start the script without "
                "halving run --as-wandb to use the installed wandb",
                name=name,
            )
        return _spec(name, ours, is_package=spec.submodule_search_locations is not None)

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave it to Python to make a module, which :meth:`exec_module` replaces."""
        return

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Put our module under the name of theirs: one module with two names, so that its classes are one."""
        from importlib import import_module

        assert module.__spec__ is not None
        name = module.__spec__.name
        try:
            sys.modules[name] = import_module(_find_ours(name))
        except ModuleNotFoundError as error:
            if error.name != "halving":
                raise
            raise ModuleNotFoundError(
                f"no module 'halving' in {sys.executable}: wandb is halving.wandb here (halving run "
                "--as-wandb); install halving for this interpreter, or start it without "
                f"{__file__.rpartition('/')[0]} on PYTHONPATH",
                name="halving",
            ) from None


def install() -> None:
    """Put the finder before all others, once."""
    if AsWandb not in sys.meta_path:
        sys.meta_path.insert(0, AsWandb)


def _spec(name: str, origin: str, *, is_package: bool) -> ModuleSpec:
    # The class has what a loader has; deriving it from importlib's would import more at every start.
    return ModuleSpec(name, AsWandb, origin=origin, is_package=is_package)  # type: ignore[arg-type]


def _find_ours(name: str) -> str:
    return OURS + name[len(THEIRS) :]
