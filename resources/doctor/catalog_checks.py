"""Checks of the catalog as a database: its schema, its soundness and its clock."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import create_engine, inspect, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from halving import HalvingError, Store
from halving.doctor.checks import ERROR, OK, WARNING, Finding
from resources.catalog import Catalog
from resources.catalog.catalog import mask_password, newest_revision
from resources.catalog.opening import open_catalog

_CONNECT_SECONDS = 5
_SKEW_SECONDS = 5.0


def check_schema(store: Store, url: str | None = None) -> Iterator[Finding]:
    """Check that the catalog answers and has this version's schema, without upgrading it."""
    url = url or _url_of(store)
    if url is None:
        what = f"no catalog is named for the store {store.root}"
        yield Finding(ERROR, what, "sweeps cannot run", "set HALVING_CATALOG to a Postgres URL")
        return
    address = mask_password(url)
    head = newest_revision()
    try:
        if not _exists(url):
            yield Finding(OK, f"there is no catalog at {address} yet: the first sweep, or server, makes it")
            return
        revision = _revision(url)
    except (SQLAlchemyError, OSError) as error:
        yield Finding(
            ERROR,
            f"the catalog {address} does not answer: {str(error).splitlines()[0]}",
            (
                "sweeps cannot go on, and pages show nothing of them; trainings go on to their next rung and "
                "wait there"
            ),
            "start the database, or look at HALVING_CATALOG and the network",
        )
        return
    if revision == head:
        yield Finding(OK, f"the catalog {address} answers and has the schema of this version ({head})")
    elif revision is not None and revision > head:
        yield Finding(
            ERROR,
            (
                f"the catalog {address} has the schema {revision}, and this version of Halving knows those "
                f"up to {head}"
            ),
            "this version cannot use it, and would damage it",
            "install the version that the others use, or a newer one",
        )
    else:
        schema = "no schema"
        if revision:
            schema = f"the schema {revision}"
        yield Finding(
            WARNING,
            f"the catalog {address} has {schema}, and this version of Halving has {head}",
            (
                "the first command or server of this version brings it up to date; older versions cannot use "
                "it then"
            ),
            "stop what runs with the older version, make a backup, and begin with this one",
            lambda: f"{open_catalog(store, url)!r} was brought up to {head}",
        )


def check_soundness(catalog: Catalog) -> Iterator[Finding]:
    """Check that the database can be written, and for SQLite that its pages are in order."""
    faults: list[str] = []
    read_only = False
    with catalog.read() as session:
        if session.get_bind().dialect.name == "sqlite":
            answers = session.scalars(text("PRAGMA quick_check(3)")).all()
            if answers != ["ok"]:
                faults = [str(answer) for answer in answers]
        else:
            read_only = session.scalar(text("SHOW transaction_read_only")) == "on"
    if faults:
        means = "what it says of sweeps, trials and models cannot be trusted"
        yield Finding(
            ERROR,
            f"{catalog!r} is damaged: {'; '.join(faults)}",
            means,
            "bring it back from a backup: halving restore",
        )
    elif read_only:
        yield Finding(
            ERROR,
            f"{catalog!r} may only be read: it is a replica",
            "no decision can be written",
            "name the primary in HALVING_CATALOG",
        )
    else:
        try:
            with catalog.write() as session:
                session.execute(text("DELETE FROM alembic_version WHERE 1 = 0"))
        except (SQLAlchemyError, HalvingError) as error:
            yield Finding(
                ERROR,
                f"{catalog!r} cannot be written: {str(error).splitlines()[0]}",
                "no decision can be written",
                "look at the rights of its file, its folder and its user",
            )
        else:
            yield Finding(OK, f"{catalog!r} can be read and written")


def check_clock(catalog: Catalog, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Check that the database's clock and this machine's agree; SQLite's is this machine's own.

    Args:
        now: this machine's clock, in seconds since 1970.
    """
    with catalog.read() as session:
        session.execute(text("SELECT 1"))  # Each connection reads the database's clock.
    skew = catalog.now() - now()
    if abs(skew) < _SKEW_SECONDS:
        yield Finding(OK, "this machine's clock and the catalog's agree")
        return
    direction = "behind" if skew > 0 else "ahead of"
    yield Finding(
        WARNING,
        f"this machine's clock is {abs(skew):.0f} s {direction} the catalog's",
        "leases go by the catalog's, and are safe; times in logs and of points do not fit to those of sweeps",
        "synchronise it: timedatectl set-ntp true",
    )


def is_current(store: Store) -> bool:
    """Whether the store has a catalog of this version's schema, which answers."""
    url = _url_of(store)
    try:
        return url is not None and _exists(url) and _revision(url) == newest_revision()
    except (SQLAlchemyError, OSError):
        return False


def _url_of(store: Store) -> str | None:
    url = os.environ.get("HALVING_CATALOG")
    if not url and store.folder is not None:
        url = f"sqlite:///{store.folder}/catalog.db"
    return url or None


def _exists(url: str) -> bool:
    """Whether the catalog's file exists, which a connection to SQLite would create; True for a server."""
    parsed = make_url(url)
    return parsed.get_backend_name() != "sqlite" or Path(parsed.database or "").exists()


def _revision(url: str) -> str | None:
    options = {}
    if make_url(url).get_backend_name() != "sqlite":
        options["connect_timeout"] = _CONNECT_SECONDS
    engine = create_engine(url, poolclass=NullPool, connect_args=options)
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.scalar(text("SELECT version_num FROM alembic_version"))
