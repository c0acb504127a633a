"""A watched run, read once for all who watch it."""

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from halving.errors import NotFound
from halving.query.json_values import jsonable
from halving.query.liveness import is_running
from halving.query.run_follower import NewPoints, Position, RunFollower
from halving.query.runs import RUNNING, UNFINISHED, RunInfo, read_run, seconds_of
from halving.store.store import Store
from server.live.cursor import Run, text_of
from server.live.subscription import POINTS, RESYNC, Event, Subscription

MAX_POINTS = 50_000
"""Points of a run that are sent at once; a client that is further behind is told to read the curves."""

_POINTS = 2_000  # in an event
_LIVENESS_SECONDS = 3.0


class Watcher:
    """Reads one run for its subscriptions.

    Raises:
        NotFound: no such run.
        StoreError: the store cannot be read.
    """

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self.run = run
        self._lock = threading.Lock()  # held while the store is read
        self._members = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._names: list[str] = []
        self._looked = 0.0
        self._info = self._read_info()
        self._ended = False
        self._sent = self._state()
        self._follower = RunFollower(store, *run)

    @property
    def is_watched(self) -> bool:
        return bool(self._subscriptions)

    def join(self, subscription: Subscription, position: Position | None) -> None:
        """Add a viewer, who gets the run's state and what came after ``position``.

        None: only what comes from now on.
        """
        with self._lock:
            self._look(None)
            events = [self._state_event()]
            reached = self._follower.position
            if position is not None:
                # Read after the common follower: what lies between the two comes twice, and nothing is lost.
                own = RunFollower(self._store, *self.run, position)
                for _ in range(2):  # what follows in the journal on segments is read by the second look
                    news = own.look(subscription.keys, MAX_POINTS)
                    events += [event for _, event in self._events(news.points, subscription.keys)]
                    if not news.complete:
                        events.append(self._resync())
                reached = own.position
            if self._ended:
                events.append(self._end_event())
            with self._members:
                self._subscriptions += (subscription,)
            subscription.put(self.run, events, text_of(reached))
            subscription.wake()

    def leave(self, subscription: Subscription) -> None:
        """Remove a viewer; waits for nothing."""
        with self._members:
            self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)

    def poll(self, folders: Collection[Path]) -> None:
        """Send the viewers what is new.

        Args:
            folders: the run's journals on this machine.
        """
        with self._lock:
            self._look(folders)

    def _look(self, folders: Collection[Path] | None) -> None:
        # The state first: when it says that the run has ended, all points are in the store.
        ended = self._look_at_state(folders)
        subscriptions = self._subscriptions
        wanted = frozenset(key for subscription in subscriptions for key in subscription.keys)
        news = self._follower.look(wanted, MAX_POINTS, folders)
        common = []
        if self._state() != self._sent:  # not what was read before: the look that read it may have failed
            common.append(self._state_event())
            self._sent = self._state()
        if not news.complete:
            common.append(self._resync())
        ends = []
        if ended and not self._ended:
            ends.append(self._end_event())
        self._ended = ended
        if news.points or common or ends:
            keyed = self._events(news.points, wanted)
            position = text_of(self._follower.position)
            for subscription in subscriptions:
                own = [event for key, event in keyed if key in subscription.keys]
                if own or common or ends:
                    subscription.put(self.run, [*common, *own, *ends], position)

    def _look_at_state(self, folders: Collection[Path] | None) -> bool:
        """Read the run's records again if there are new ones; returns whether the run has ended."""
        names = self._store.names(f"runs/project={self.run[0]}/{self.run[1]}")
        status = self._info.status
        if names != self._names:
            self._info = self._read_info()
            self._names = names
        elif status in (RUNNING, UNFINISHED) and time.monotonic() - self._looked > _LIVENESS_SECONDS:
            self._looked = time.monotonic()
            newest = self._info.attempts[-1]
            alive = is_running(self._store, *self.run, newest.number, seconds_of(newest.started))
            if alive != (status == RUNNING):
                self._info = self._read_info()
        return self._info.status not in (RUNNING, UNFINISHED)

    def _read_info(self) -> RunInfo:
        project, run = self.run
        try:
            return read_run(self._store, project, run)
        except NotFound:
            raise NotFound(f"no run {run!r} in project {project!r} of {self._store.root}") from None

    def _state(self) -> dict[str, Any]:
        newest = self._info.attempts[-1]
        return {
            "run": self._name,
            "status": newest.status,
            "attempt": newest.number,
            "started": self._info.started,
            "ended": newest.ended,
            "epoch": newest.epoch,
        }

    @property
    def _name(self) -> str:
        return "/".join(self.run)

    def _state_event(self) -> Event:
        return Event.of("run", self._state())

    def _end_event(self) -> Event:
        return Event.of("end", {"run": self._name, "status": self._info.status})

    def _resync(self) -> Event:
        return Event.of(RESYNC, {"run": self._name})

    def _events(self, points: Iterable[NewPoints], keys: Collection[str]) -> list[tuple[str, Event]]:
        """Points as events, in the order of logging and grouped by key and attempt."""
        import numpy as np

        groups: dict[tuple[int, str], list[NewPoints]] = defaultdict(list)
        for part in points:
            if part.key in keys:
                groups[part.attempt, part.key].append(part)
        events = []
        for (attempt, key), parts in groups.items():
            steps, times, values = (np.concatenate(column) for column in list(zip(*parts, strict=True))[2:])
            for first in range(0, len(steps), _POINTS):
                here = slice(first, first + _POINTS)
                data = {
                    "run": self._name,
                    "key": key,
                    "attempt": attempt,
                    "x": steps[here].tolist(),
                    "t": (times[here] / 1000).tolist(),
                    "value": jsonable(values[here].tolist()),
                }
                events.append((key, Event.of(POINTS, data)))
        return events
