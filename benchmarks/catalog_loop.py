"""What a client of a catalog does, and the load that all of them make together."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.assumptions import GOES_ON, RUNG, TRIALS
from benchmarks.catalog_fill import LEASE

if TYPE_CHECKING:
    from resources.catalog import Catalog
    from resources.scheduling.scheduler import Scheduler

CLIENTS = 16
# a second: a decision for each rung, and a next trial where it does not go on in place
CALLS = TRIALS / RUNG * (2 - GOES_ON)


class Loop(NamedTuple):
    """What one client does, by its two kinds of calls.

    ``begin`` is called before each stage, while no client works; it gets the stage, and whether this is the
    first client.
    """

    write: Callable[[], None]
    call: Callable[[], str]  # gives its kind
    begin: Callable[[dict[str, Any], bool], None] = lambda stage, first: None


def scheduler_of(catalog: "Catalog", sweep: str) -> "Scheduler":
    """A sweep's scheduler that takes leases of a day.

    So no lease runs out while clients wait for each other.
    """
    from resources.scheduling.scheduler import Scheduler

    class OfClients(Scheduler):
        longest_lease = LEASE

    return OfClients(catalog, sweep)
