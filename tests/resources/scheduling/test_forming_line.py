"""Whose turn it is to form a gang: by tables, and in a simulation of gangs that want more GPUs than there are."""

import random
from dataclasses import dataclass, field

import pytest

from resources.scheduling.forming_line import LEASE_SECONDS, Place, renewed

WAITS, FORMS = None, 100.0


def place(gang: str, since: float, forms_since: float | None = WAITS, until: float = 200.0) -> Place:
    return Place(gang, since, forms_since, until)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([], place("a", 150.0, 150.0)),  # nobody else wants to
        ([place("a", 90.0)], place("a", 90.0, 150.0)),
        ([place("a", 90.0), place("b", 80.0)], place("a", 90.0)),  # b came first
        ([place("a", 90.0), place("b", 95.0, FORMS)], place("a", 90.0)),  # b forms
        ([place("a", 90.0), place("b", 80.0, FORMS, until=149.0)], place("a", 90.0, 150.0)),  # b's worker is lost
        ([place("a", 90.0, FORMS), place("b", 80.0)], place("a", 90.0, FORMS)),  # still in its time
        ([place("a", 50.0, 60.0)], place("a", 50.0, 60.0)),  # beyond it, but nobody waits
        ([place("a", 50.0, 60.0), place("b", 80.0)], place("a", 150.0)),  # beyond it: to the end of the line
        ([place("a", 50.0, 140.0, until=149.0), place("b", 80.0)], place("a", 150.0)),  # its own place has expired
    ],
)
def test_a_gang_has_the_turn_if_it_is_first_and_until_others_have_waited_for_long(line: list[Place], expected: Place) -> None:
    found = renewed(line, "a", now=150.0, patience=80.0)
    assert (found.gang, found.since, found.forms_since) == (expected.gang, expected.since, expected.forms_since)
    assert found.until == 150.0 + LEASE_SECONDS


@dataclass
class SimulatedGang:
    """A gang of pods with a GPU count each, which trains for so many seconds once every pod has a node."""

    name: str
    nodes: int
    gpus: int
    seconds: int
    on: list[int] = field(default_factory=list)  # the nodes that its pods have
    ends: int | None = None
    forms: bool = False


class SimulatedCluster:
    """Places one pending pod a second, of a gang that is drawn; gangs ask for the turn in any order, and their workers may die.

    ``with_turns=False`` is a cluster on which each gang creates its pods whenever it likes.
    """

    def __init__(self, seed: int, *, with_turns: bool = True) -> None:
        self._random, self._with_turns = random.Random(seed), with_turns
        self.free = [self._random.randint(2, 8) for _ in range(self._random.randint(1, 4))]
        self.line: dict[str, Place] = {}
        self.now = 0
        waiting = [
            SimulatedGang(f"{sweep}.{number}", nodes, gpus, self._random.randint(1, 30))
            for sweep in ("one", "two")
            for number in range(self._random.randint(2, 6))
            for nodes, gpus in [self._shape()]
        ]
        self.waiting = {sweep: [gang for gang in waiting if gang.name.startswith(sweep)] for sweep in ("one", "two")}
        self.running: list[SimulatedGang] = []
        self.finished = 0
        self.wanted = len(waiting)

    def run(self, seconds: int) -> bool:
        """Whether all gangs have trained to their end within so many seconds."""
        while self.finished < self.wanted and self.now < seconds:
            self._step()
        return self.finished == self.wanted

    def _step(self) -> None:
        self.now += 1
        for gangs in self.waiting.values():  # each sweep has two workers
            while gangs and sum(gang.name.split(".")[0] == gangs[0].name.split(".")[0] for gang in self.running) < 2:
                self.running.append(gangs.pop(0))
        for gang in self._random.sample(self.running, len(self.running)):
            self._act(gang)
        if pending := [gang for gang in self.running if gang.forms and len(gang.on) < gang.nodes]:
            gang = self._random.choice(pending)
            if fitting := [node for node, free in enumerate(self.free) if free >= gang.gpus]:
                node = self._random.choice(fitting)
                self.free[node] -= gang.gpus
                gang.on.append(node)

    def _act(self, gang: SimulatedGang) -> None:
        if gang.ends is not None:
            if self.now >= gang.ends:
                self._give_back(gang)
                self.running.remove(gang)
                self.finished += 1
            return
        if len(gang.on) == gang.nodes:
            gang.ends = self.now + gang.seconds
            self.line.pop(gang.name, None)
            return
        if not self._with_turns:
            gang.forms = True
            return
        self.line[gang.name] = renewed(self.line.values(), gang.name, self.now, patience=20)
        if gang.forms and not self.line[gang.name].forms:
            self._give_back(gang)
        gang.forms = self.line[gang.name].forms

    def _give_back(self, gang: SimulatedGang) -> None:
        for node in gang.on:
            self.free[node] += gang.gpus
        gang.on.clear()

    def _shape(self) -> tuple[int, int]:
        """Nodes and GPUs of a gang that fits the empty cluster; pods of one gang may share a node."""
        while True:
            nodes, gpus = self._random.randint(1, 4), self._random.randint(1, 8)
            if sum(free // gpus for free in self.free) >= nodes:
                return nodes, gpus


def test_two_oversubscribed_sweeps_of_gangs_come_to_their_end_from_300_random_starts() -> None:
    assert [seed for seed in range(300) if not SimulatedCluster(seed).run(5_000)] == []


def test_without_turns_such_sweeps_wait_for_each_other_forever() -> None:
    stuck = sum(not SimulatedCluster(seed, with_turns=False).run(1_000) for seed in range(20))
    assert stuck > 2, "the simulation can tell"
