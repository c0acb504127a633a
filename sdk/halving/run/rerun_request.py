"""What a rerun asks of the process that trains again: which of its runs is the one, and where it is
recorded.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from halving.errors import InvalidInput

VARIABLE = "HALVING_RERUN"
"""Names the file with the request."""


@dataclass(frozen=True, kw_only=True)
class RerunRequest:
    """The run that takes the place of a recorded one.

    Every other run of the process, and of the processes that it starts, goes to a store that is thrown away:
    the recorded ones that they would continue by their ids stay as they are.

    Attributes:
        rerun_of: ``project/run`` of the recorded one.
        parent: what the new run's record says of it.
        root: the store.
        others: the store of the runs that are not meant.
        starter: process id of the one that starts the process that is meant.
        run: the id of the new run.
        ordinal: which of the runs that the process begins, from 1.
        params, seed, deterministic: with which it is begun, whatever the script gives.
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
        """Whether the run that this process begins as its ``ordinal``-th is the one, and not one of a process
        that it has started.
        """
        return self.ordinal == ordinal and os.getppid() == self.starter

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def from_environment(cls) -> Self | None:
        """The request that this process is a part of; None: it is no rerun.

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
    """What a run's record says of the process that begins it, so that a rerun finds it: which of its script's
    runs it is; or why not.

    Args:
        ordinal: which of the runs that this process begins, from 1.
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
