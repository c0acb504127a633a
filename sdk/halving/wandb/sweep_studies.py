"""Where a sweep's trials come from: a Halving server, or the application on this machine."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from secrets import token_hex
from typing import Any, Protocol
from urllib.parse import quote

from halving.errors import ExtraMissing, InvalidInput, NotFound
from halving.store.opening import open_store
from halving.store.retry import retry_while_unavailable
from halving.store.server_store import ServerStore
from halving.store.store import Store
from halving.wandb.errors import UsageError

LEASE_SECONDS = 120.0
"""Without a word of the agent for so long, a trial is handed out to another; agents renew it twice before."""
OVER = "over"


class Studies(Protocol):
    """Studies whose trials agents train."""

    def open(self, spec: dict[str, Any]) -> str:
        """Open a study and return its id."""

    def project(self, study: str) -> str:
        """The project of its runs."""

    def ask(self, study: str) -> dict[str, Any] | str | None:
        """The next trial; ``over`` when the search has ended, and None when there is nothing to do now."""

    def tell(
        self, study: str, trial: int, attempt: int, epoch: int, values: dict[str, float], *, waits: bool
    ) -> str:
        """Say what a trial has reached; returns the decision: ``continue``, or why it is left.

        Args:
            waits: whether an unavailable server is waited for, up to ten minutes.

        Raises:
            StoreUnavailable: it does not answer.
        """

    def heartbeat(self, study: str, trial: int, attempt: int) -> str:
        """Renew the lease; returns ``continue``, or why the trial is left."""

    def fail(self, study: str, trial: int, attempt: int, error: str) -> None:
        """Say that a trial has failed, and would fail again."""

    def release(self, study: str, trial: int, attempt: int) -> None:
        """Give a trial back, which is no failure."""

    def close(self) -> None:
        """Let go of the store or the connection."""


def open_studies() -> Studies:
    """The studies of the server that ``HALVING_URL`` names, else of the store of ``HALVING_ROOT``.

    Raises:
        ExtraMissing: there is no server, and the application is not installed here.
    """
    store = open_store()
    if isinstance(store, ServerStore):
        return _OfServer(store)
    for entry in entry_points(group="halving.commands"):
        open_local: Callable[[Store], Studies] | None = getattr(
            import_module(entry.module), "open_local_studies", None
        )
        if open_local is not None:
            return open_local(store)
    store.close()
    raise ExtraMissing(
        "sweeps are decided by the catalog, which belongs to the application: install it here, or set "
        "HALVING_URL to a server's address"
    )


class _OfServer:
    """Studies behind a server's API."""

    def __init__(self, store: ServerStore) -> None:
        self._store = store

    def open(self, spec: dict[str, Any]) -> str:
        return str(self._post("?driver=api", spec)["study"])

    def project(self, study: str) -> str:
        path = f"/hpo/studies/{quote(study, safe='')}"
        try:
            answer = self._store.get(path)
        except NotFound:
            raise UsageError(f"no sweep {study!r} at {self._store.root}") from None
        return str(answer["project"])

    def ask(self, study: str) -> dict[str, Any] | str | None:
        try:
            return self._post(f"/{study}/ask", {"lease_seconds": LEASE_SECONDS}) or None
        except InvalidInput as error:
            if "is over" in str(error):
                return OVER
            raise

    def tell(
        self, study: str, trial: int, attempt: int, epoch: int, values: dict[str, float], *, waits: bool
    ) -> str:
        body = {"attempt": attempt, "epoch": epoch, "values": values, "lease_seconds": LEASE_SECONDS}
        path = f"/{study}/trials/{trial}/tell"
        if waits:
            return str(self._post(path, body)["decision"])
        return str(self._store.post(f"/hpo/studies{path}", body)["decision"])

    def heartbeat(self, study: str, trial: int, attempt: int) -> str:
        body = {"attempt": attempt, "lease_seconds": LEASE_SECONDS}
        return str(self._post(f"/{study}/trials/{trial}/heartbeat", body)["decision"])

    def fail(self, study: str, trial: int, attempt: int, error: str) -> None:
        body = {"attempt": attempt, "error": error[-20_000:] or "no message", "final": True}
        self._post(f"/{study}/trials/{trial}/fail", body)

    def release(self, study: str, trial: int, attempt: int) -> None:
        self._post(f"/{study}/trials/{trial}/release", {"attempt": attempt})

    def close(self) -> None:
        self._store.close()

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        # An answer may be lost: with the same key the same request is answered as before.
        once = token_hex(16)
        return retry_while_unavailable(
            self._store, "the sweep", lambda: self._store.post(f"/hpo/studies{path}", body, once=once)
        )
