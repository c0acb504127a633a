"""The request of a rerun to the process that trains again: which of its runs is meant, and how it begins."""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from halving.errors import InvalidInput

VARIABLE = "HALVING_RERUN"
"""The environment variable that has the path of the request's file."""


@dataclass(frozen=True, kw_only=True)
class RerunRequest:
    """A request that one run of a process is the rerun of a recorded run.

    Every other run of the process, and of the processes that it starts, goes to a store that is thrown away,
    so that recorded runs which they would continue by their ids stay as they are.

    Attributes:
        rerun_of: ``project/run`` of the recorded run.
        parent: entries for the parent in the new run's record.
        root: the store.
        others: the store of the other runs.
        starter: id of the process that starts the one with the rerun.
        run: the id of the new run.
        ordinal: the number of the rerun among the runs that the process begins, from 1.
        params, seed, deterministic: those of the rerun, in place of the script's.
    """

    rerun_of: str
    parent: dict[str, Any]
    root: str
    others: str
    starter: int
    run: str
    ordinal: int
    params: dict[str, Any]
    seed: int | None
    deterministic: bool

    @property
    def project(self) -> str:
        return self.rerun_of.partition("/")[0]

    def means(self, ordinal: int) -> bool:
        """Whether the ``ordinal``-th run of this process is the rerun, in the process that is meant."""
        return self.ordinal == ordinal and os.getppid() == self.starter

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read the request that this process is a part of; None without a rerun.

        Raises:
            InvalidInput: the file cannot be read.
        """
        path = os.environ.get(VARIABLE)
        if not path:
            return None
        try:
            return cls(**json.loads(Path(path).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInput(
                f"{VARIABLE} = {path!r} is not accepted: {error}; it is set by halving rerun alone"
            ) from None


def how_begun(ordinal: int) -> dict[str, Any]:
    """The facts that a rerun of a script needs to recognize a run, or why it cannot, for the run's record.

    Args:
        ordinal: the number of the run among those that this process begins, from 1.
    """
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return {"ordinal": ordinal, "one_of": "the processes that multiprocessing started"}
    world = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in os.environ or world != "1":
        return {
            "ordinal": ordinal,
            "one_of": f"{world} processes that torchrun or another launcher started (WORLD_SIZE={world})",
        }
    return {"ordinal": ordinal}
