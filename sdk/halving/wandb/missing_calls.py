"""Methods that a run has in W&B and not here; each refuses with what to do instead."""

from collections.abc import Sequence
from typing import Any

from halving.wandb.errors import NotSupported

_REGISTRY = "models are promoted through gates by `halving models`, not linked"


class MissingCalls:
    """The methods of a run that raise :class:`halving.wandb.errors.NotSupported`."""

    def pin_config_keys(self, keys: Sequence[str] = ()) -> None:
        """Refuse: which params a table shows is its reader's choice.

        Raises:
            NotSupported: always.
        """
        raise NotSupported("run.pin_config_keys() is not there in Halving: choose columns in the runs' table")

    def use_model(self, name: str) -> Any:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise NotSupported("run.use_model() is not there in Halving: use run.use_artifact(…).download()")

    def link_model(self, *arguments: Any, **options: Any) -> None:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(f"run.link_model() is not there in Halving: {_REGISTRY}")

    def link_artifact(self, *arguments: Any, **options: Any) -> None:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(f"run.link_artifact() is not there in Halving: {_REGISTRY}")

    def upsert_artifact(self, *arguments: Any, **options: Any) -> None:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise NotSupported("run.upsert_artifact() is not there in Halving: log whole artifacts")

    def finish_artifact(self, *arguments: Any, **options: Any) -> None:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise NotSupported("run.finish_artifact() is not there in Halving: log whole artifacts")

    def status(self) -> Any:
        """Refuse: it is W&B's own account of its uploads.

        Raises:
            NotSupported: always.
        """
        raise NotSupported("run.status() is not there in Halving: nothing waits to be synced")
