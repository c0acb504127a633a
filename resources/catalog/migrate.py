"""Write the migration from the newest revision to the tables of :mod:`resources.catalog.tables`.

``python -m resources.catalog.migrate "what changed"``, from the checkout; ``make migration`` calls it.
"""

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.script import ScriptDirectory

from resources.catalog.catalog import Catalog


def main(message: str) -> None:
    """Build the newest revision in a scratch database and let Alembic write what differs from the tables."""
    if not message:
        sys.exit('say what changed: make migration m="add a column for …"')
    with tempfile.TemporaryDirectory() as scratch:
        catalog = Catalog(f"sqlite:///{Path(scratch)}/catalog.db")
        head = ScriptDirectory.from_config(catalog.alembic()).get_current_head()
        command.revision(
            catalog.alembic(), message=message, autogenerate=True, rev_id=f"{int(head or 0) + 1:04d}"
        )


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]).strip())
