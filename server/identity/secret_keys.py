"""The key that signs sessions and addresses.

It is made once and kept in the catalog, so that every replica knows it.
"""

import secrets

from sqlalchemy import insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from resources.catalog import Catalog, SecretRow, utcnow

_NAME = "signing key"


def signing_key(catalog: Catalog) -> str:
    """The signing key; the first server to ask makes it."""
    kept = select(SecretRow.value).where(SecretRow.name == _NAME)
    with catalog.read() as session:
        if key := session.scalar(kept):
            return key
    try:
        with catalog.write() as session:
            session.execute(
                insert(SecretRow).values(name=_NAME, value=secrets.token_urlsafe(32), created_at=utcnow())
            )
    except IntegrityError:
        pass  # another server was first
    except DBAPIError as error:
        error.hide_parameters = True  # the key is among them
        raise
    with catalog.read() as session:
        return session.scalars(kept).one()
