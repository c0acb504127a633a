"""Notes on runs, and tagging, archiving, deleting and restoring them, from notebooks and scripts.

``halving journal note`` and ``halving runs tag|archive|delete|restore`` do the same. The catalog has notes
and decides what may be deleted, and the SDK knows no catalog: it calls the server that the runs are sent to,
or the application where that is installed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import quote
from uuid import uuid4

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
        tags: by name; None removes a tag, and those that are not named stay.
        root, url, token: where the run is, as :func:`halving.init` has them.

    Returns:
        All tags that the run has afterwards.

    Raises:
        NotFound: there is no such run.
        InvalidInput: several runs are meant, or a name or a value is not accepted.
        StoreError: the store or the server refuses or does not answer.
        ExtraMissing: there is no server, and the application is not installed here.
    """
    with _open(root, url, token) as store:
        if isinstance(store, ServerStore):
            return dict(_post_action(store, run, "tags", {"tags": dict(tags)})["tags"])
        return dict(_find_in_application("tag_run")(store, run, tags))


def note(run: str, text: str, *, root: Root = None, url: str | None = None, token: str | None = None) -> str:
    """Write a note on a run: ``halving.note("digits-7f3a.0007", "*overfits* from epoch 40 on")``.

    It is in the run's journal from then on, with who wrote it and when, and cannot be changed.

    Args:
        text: Markdown, of 1 to 20,000 characters.
        run, root, url, token: as in :func:`tag_run`.

    Returns:
        The note's id in the journal, such as ``note:17``.

    Raises:
        NotFound, InvalidInput, StoreError, ExtraMissing: as in :func:`tag_run`; or the text is not accepted.
    """
    with _open(root, url, token) as store:
        if isinstance(store, ServerStore):
            _split(run)
            body = {"kind": "run", "subject": run, "text": text}
            return str(store.post("/journal", body, once=uuid4().hex)["id"])
        return str(_find_in_application("note_run")(store, run, text)["id"])


def archive_run(run: str, *, root: Root = None, url: str | None = None, token: str | None = None) -> bool:
    """Archive a run: it is no longer listed, and nothing of it is deleted.

    Arguments, result and errors are those of :func:`delete_run`.
    """
    return _change(run, "archive", root, url, token)


def delete_run(run: str, *, root: Root = None, url: str | None = None, token: str | None = None) -> bool:
    """Move a run to the trash, from which it is removed after the days of the retention policy.

    Until then it can be restored.

    Args:
        run, root, url, token: as in :func:`tag_run`.

    Returns:
        Whether anything changed; False if it was there already.

    Raises:
        NotFound: there is no such run.
        InvalidInput: several runs are meant; or it is running, or a champion, a staging version, a report or
            an open sweep needs it.
        StoreError, ExtraMissing: as in :func:`tag_run`.
    """
    return _change(run, "delete", root, url, token)


def restore_run(run: str, *, root: Root = None, url: str | None = None, token: str | None = None) -> bool:
    """Restore a run from the trash or the archive.

    Arguments, result and errors are those of :func:`delete_run`.
    """
    return _change(run, "restore", root, url, token)


def _change(run: str, action: str, root: Root, url: str | None, token: str | None) -> bool:
    with _open(root, url, token) as store:
        if isinstance(store, ServerStore):
            return bool(_post_action(store, run, action, {})["changed"])
        return bool(_find_in_application("change_run")(store, run, action))


@contextmanager
def _open(root: Root, url: str | None, token: str | None) -> Iterator[Store]:
    if isinstance(root, Store):
        if url is not None or token is not None:
            raise InvalidInput(
                f"url = {url!r} with a store is not accepted: give a root or the url of a server, not both"
            )
        yield root
    else:
        with closing(open_store(root, url, token)) as store:
            yield store


def _post_action(store: ServerStore, run: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
    project, name = _split(run)
    return store.post(f"/runs/{quote(project, safe='')}/{quote(name, safe='')}/{action}", body)


def _split(run: str) -> tuple[str, str]:
    project, slash, name = run.partition("/")
    if not slash:
        raise InvalidInput(f"run {run!r} is not accepted with a server: give project/run")
    return project, name


def _find_in_application(name: str) -> Callable[..., Any]:
    """A function of the module in which the application has its commands."""
    for entry in entry_points(group="halving.commands"):
        function: Callable[..., Any] | None = getattr(import_module(entry.module), name, None)
        if function is not None:
            return function
    raise ExtraMissing(
        "runs are changed by the catalog, which belongs to the application: install it here, or give url=… "
        "of a server"
    )
