"""Module-level functions that need no run: logging in, setting up, finishing, restoring a file."""

from pathlib import Path
from typing import IO, Any

from halving.wandb import current
from halving.wandb.errors import NotSupported
from halving.wandb.settings import Settings

_defaults: dict[str, Any] = {}


def login(
    key: str | None = None,
    relogin: bool | None = None,
    host: str | None = None,
    force: bool | None = None,
    timeout: int | None = None,
    verify: bool = True,
    referrer: str | None = None,
    prompt: bool = True,
    anonymous: Any = None,
) -> bool:
    """Say that the script may go on: a store asks for no login, and a server's token is ``HALVING_TOKEN``."""
    return True


def setup(settings: Any = None) -> Any:
    """Keep settings for the runs that this process opens from now on.

    Raises:
        InvalidSettings: one is not accepted.
    """
    if isinstance(settings, dict):
        settings = Settings(**settings)
    if settings is not None:
        _defaults.update(settings.as_dict())
    return Settings(**_defaults)


def default_settings() -> dict[str, Any]:
    """The settings that :func:`setup` keeps."""
    return dict(_defaults)


def teardown(exit_code: int | None = None) -> None:
    """Finish all open runs."""
    for run in reversed(current.open_runs()):
        run.finish(exit_code)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """Finish the current run, if there is one."""
    run = current.current_run()
    if run is not None:
        run.finish(exit_code)


join = finish


def require(requirement: Any = None, experiment: Any = None) -> None:
    """Do nothing: what W&B lets scripts require is its own service."""


def ensure_configured() -> None:
    """Do nothing: there is nothing to configure."""


def attach(attach_id: str | None = None, run_id: str | None = None, run: Any = None) -> Any:
    """Refuse.

    Raises:
        NotSupported: always.
    """
    raise NotSupported(
        "wandb.attach() is not there in Halving: a forked child may log to its parent's run, and a spawned "
        "child opens a run of its own"
    )


def restore(name: str, run_path: str | None = None, replace: bool = False, root: str | None = None) -> Any:
    """Download a file that a run has saved, and return it opened.

    Raises:
        ValueError: without a run, ``run_path`` is needed; or the run has no such file.
    """
    run = current.current_run()
    if run_path is None:
        if run is None:
            raise ValueError("run_path required when calling wandb.restore before wandb.init")
        run_path = run.path
    if root is None:
        root = run.dir if run is not None else "."
    target = Path(root) / name
    if target.exists() and not replace:
        return target.open()
    if run is not None and run.disabled:
        return None
    from halving.wandb.api import Api

    content: IO[str] = Api().run(run_path).file(name).download(root=root, replace=True)
    return content
