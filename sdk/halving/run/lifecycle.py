"""What becomes of runs, for notebooks and scripts: tags, the archive and the trash, as ``halving runs
tag|archive|delete|restore``.

What may be deleted is decided with the catalog, of which the SDK knows nothing: it asks the server that the
runs are sent to, or the application where that is installed beside it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import quote

from halving.errors import ExtraMissing, InvalidInput
from halving.query.api import Root
from halving.store.opening import open_store
from halving.store.server_store import ServerStore
from halving.store.store import Store


def tag_run(
    run: str,
    tags: Mapping[str, str | None],
    *,
    root: Root = None,
    url: str | None = None,
    token: str | None = None,
) -> dict[str, str]:
    """Tag a run: ``halving.tag_run("digits-7f3a.0007", {"paper": "figure 3", "wip": None})``.

    Args:
        run: an id, the beginning of one, or ``project/run``, which a server needs.
        tags: by name; None takes one away, and those that are not named stay.
        root, url, token: where the run is, as :func:`halving.init` has them.

    Returns:
        All tags that the run has then.

    Raises:
        NotFound: there is no such run.
        InvalidInput: several runs are meant, or a name or a value is not accepted.
        StoreError: the store or the server refuses or does not answer.
        ExtraMissing: there is no server, and the application is not installed here.
    """
    with _opened(root, url, token) as store:
        if isinstance(store, ServerStore):
            return dict(_asked(store, run, "tags", {"tags": dict(tags)})["tags"])
        return dict(_of_application("tag_run")(store, run, tags))


def archive_run(run: str, *, root: Root = None, url: str | None = None, token: str | None = None) -> bool:
    """Take a run out of the lists; nothing of it goes away.

    Arguments, answer and errors as of :func:`delete_run`.
    """
    return _changed(run, "archive", root, url, token)


def delete_run(run: str, *, root: Root = None, url: str | None = None, token: str | None = None) -> bool:
    """Put a run into the trash: it can be restored until the days of the retention policy are over, and is
    removed then.

    Args:
        run, root, url, token: as of :func:`tag_run`.

    Returns:
        Whether anything changed; False: it was there already.

    Raises:
        NotFound: there is no such run.
        InvalidInput: several runs are meant; or it is running, or a champion, a staging version, a report or
            an open sweep needs it.
        StoreError, ExtraMissing: as of :func:`tag_run`.
    """
    return _changed(run, "delete", root, url, token)


def restore_run(run: str, *, root: Root = None, url: str | None = None, token: str | None = None) -> bool:
    """Take a run back out of the trash or the archive.

    Arguments, answer and errors as of :func:`delete_run`.
    """
    return _changed(run, "restore", root, url, token)


def _changed(run: str, action: str, root: Root, url: str | None, token: str | None) -> bool:
    with _opened(root, url, token) as store:
        if isinstance(store, ServerStore):
            return bool(_asked(store, run, action, {})["changed"])
        return bool(_of_application("change_run")(store, run, action))


@contextmanager
def _opened(root: Root, url: str | None, token: str | None) -> Iterator[Store]:
    if isinstance(root, Store):
        if url is not None or token is not None:
            raise InvalidInput(
                f"url = {url!r} with a store is not accepted: give a root or the url of a server, not both"
            )
        yield root
    else:
        with closing(open_store(root, url, token)) as store:
            yield store


def _asked(store: ServerStore, run: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
    project, slash, name = run.partition("/")
    if not slash:
        raise InvalidInput(f"run {run!r} is not accepted with a server: give project/run")
    return store.post(f"/runs/{quote(project, safe='')}/{quote(name, safe='')}/{action}", body)


def _of_application(name: str) -> Callable[..., Any]:
    """What the application gives beside its commands: a function of the module that it has named for
    these.
    """
    for entry in entry_points(group="halving.commands"):
        if found := getattr(import_module(entry.module), name, None):
            function: Callable[..., Any] = found
            return function
    raise ExtraMissing(
        "runs are changed by the catalog, which belongs to the application: install it here, or give url=… "
        "of a server"
    )
