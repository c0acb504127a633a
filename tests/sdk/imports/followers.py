"""A follower whose looks a test makes, and a log of W&B's that a test lets grow."""

from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.imports import wandb_following
from halving.imports.wandb_following import WandbFollower
from tests.sdk.imports.wandb_files import documents, points_of


class GrowingLog:
    """A log that its training is still writing."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self.content = content
        self.written = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def grow(self, until: int | None = None) -> None:
        """Write what comes up to a byte, or all of it."""
        end = len(self.content) if until is None else until
        with self.path.open("ab") as file:
            file.write(self.content[self.written : end])
        self.written = end


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a follower wait neither between two segments nor for the files of a run that has ended."""
    monkeypatch.setattr(wandb_following, "_PACE", 0.0)
    monkeypatch.setattr(wandb_following, "SETTLE_SECONDS", 0.0)


def look(follower: WandbFollower) -> None:
    """Look until all that is there is copied."""
    _look_and_wait(follower)
    _look_and_wait(follower)  # A run's end is copied by the look after its last points.


def _look_and_wait(follower: WandbFollower) -> None:
    follower.look()
    while follower.is_busy:
        follower.wake.wait(0.02)
        follower.wake.clear()
        follower.look()


def state_of(store: Store, project: str, run: str) -> dict[str, Any]:
    """What the store has of a run but for how it came there."""
    points = points_of(store, project, run)
    media = documents(store, project, run, "media/*.json")
    ends = documents(store, project, run, "end-*.json")
    return {
        "points": points,
        "media": sorted((medium["key"], medium["step"], medium["digest"]) for medium in media),
        "ends": [(end["status"], end.get("summary")) for end in ends],
        "artifacts": sorted(row["name"] for row in documents(store, project, run, "artifacts/*.json")),
    }
