"""Opening the store that is meant: a folder, an object store, or the one behind a Halving server."""

import os

from halving.errors import InvalidInput
from halving.store.server_store import ServerStore
from halving.store.store import Store

URL_VARIABLE = "HALVING_URL"


def open_store(
    root: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    run: str | None = None,
) -> Store:
    """The store at ``root`` or behind the server at ``url``, else by ``HALVING_URL`` or ``HALVING_ROOT``.

    Args:
        token: of the server (default: ``HALVING_TOKEN``).
        run: ``project/run``: whose checkpoints are to be read from a server.

    Raises:
        InvalidInput: both are given, or a token without a server, or one of them is not accepted.
    """
    if root is not None and url is not None:
        raise InvalidInput(
            f"root = {str(root)!r} and url = {url!r} are not accepted together: give the one where the run "
            "is to be"
        )
    if root is None and (address := url or os.environ.get(URL_VARIABLE)):
        return ServerStore(address, token, run)
    if token is not None:
        raise InvalidInput(f"token is not accepted without url: give url=…, or set {URL_VARIABLE}")
    return Store(root)
