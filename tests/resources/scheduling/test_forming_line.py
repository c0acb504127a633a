"""Whose turn it is to form a gang: by tables, and in simulations with too few GPUs for all."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from resources.scheduling import forming_line
from resources.scheduling.forming_line import LEASE_SECONDS, Place, renew_place

WAITS = None
FORMS = 100.0
DEATHS_A_SECOND = 0.02  # of each worker of the simulation


def place(gang: str, since: float, forms_since: float | None = WAITS, until: float = 160.0) -> Place:
    return Place(gang, since, forms_since, until)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([], place("a", 150.0, 150.0)),  # nobody else wants to
        ([place("a", 90.0)], place("a", 90.0, 150.0)),
        ([place("a", 90.0), place("b", 80.0)], place("a", 90.0)),  # b came first
        ([place("a", 90.0), place("b", 95.0, FORMS)], place("a", 90.0)),  # b forms
        # b's worker is lost
        ([place("a", 90.0), place("b", 80.0, FORMS, until=149.0)], place("a", 90.0, 150.0)),
        ([place("a", 90.0, FORMS), place("b", 80.0)], place("a", 90.0, FORMS)),  # still in its time
        ([place("a", 50.0, 60.0)], place("a", 50.0, 60.0)),  # beyond it, but nobody waits
        ([place("a", 50.0, 60.0), place("b", 80.0)], place("a", 150.0)),  # beyond it: to the end of the line
        # its own place has expired
        ([place("a", 50.0, 140.0, until=149.0), place("b", 80.0)], place("a", 150.0)),
        # b's is from before the clock was set back
        ([place("a", 90.0), place("b", 80.0, FORMS, until=3750.0)], place("a", 90.0, 150.0)),
        # and so is its own
        ([place("a", 3700.0, 3700.0, until=3750.0), place("b", 80.0, FORMS)], place("a", 150.0)),
    ],
)
def test_a_gang_has_the_turn_if_it_is_first_and_until_others_have_waited_for_long(
    line: list[Place], expected: Place
) -> None:
    renewed_place = renew_place(line, "a", now=150.0, patience=80.0)
    assert (renewed_place.gang, renewed_place.since, renewed_place.forms_since) == (
        expected.gang,
        expected.since,
        expected.forms_since,
    )
    assert renewed_place.until == 150.0 + LEASE_SECONDS


@dataclass
class SimulatedGang:
    """A gang of pods with some GPUs each, which trains for some seconds once every pod has a node."""

    trial: str
    attempt: int
    nodes: int
    gpus: int
    seconds: int
    on: list[int] = field(default_factory=list)  # the nodes that its pods have
    ends: int | None = None
    forms: bool = False
    gone: int | None = None  # when its pods are, once its worker is dead

    @property
    def name(self) -> str:
        """As no other attempt's, so that what a dead one has left is nobody's."""
        return f"{self.trial}/a{self.attempt}"

    @property
    def sweep(self) -> str:
        return self.trial.split(".")[0]


class SimulatedCluster:
    """Places one pending pod a second; gangs ask for the turn in any order, and workers may die.

    A dead worker says nothing any more: its place in the line is there until it expires. Its pods are there,
    and are placed where they wait for that, until the cluster has ended them; another attempt at the trial
    begins after that, at the end of its sweep's line.

    ``with_turns=False`` is a cluster on which each gang creates its pods whenever it likes. Workers die in
    the first ``deaths_until`` seconds only: a death gives free what a gang holds, and so would end two gangs'
    waiting for each other, too.

    Attributes:
        deaths: of workers of gangs, by what these did: wait, form or train.
    """

    def __init__(self, seed: int, *, with_turns: bool = True, deaths_until: int = 0) -> None:
        self._random = random.Random(seed)
        self._with_turns = with_turns
        self._deaths_until = deaths_until
        self.free = [self._random.randint(2, 8) for _ in range(self._random.randint(1, 4))]
        self.line: dict[str, Place] = {}
        self.now = 0
        waiting = [
            SimulatedGang(f"{sweep}.{number}", 1, nodes, gpus, self._random.randint(1, 30))
            for sweep in ("one", "two")
            for number in range(self._random.randint(2, 6))
            for nodes, gpus in [self._shape()]
        ]
        self.waiting = {sweep: [gang for gang in waiting if gang.sweep == sweep] for sweep in ("one", "two")}
        self.running: list[SimulatedGang] = []
        self.dead: list[SimulatedGang] = []
        self.deaths: Counter[str] = Counter()
        self.finished = 0
        self.wanted = len(waiting)

    def run(self, seconds: int) -> bool:
        """Whether all gangs have trained to their end within so many seconds."""
        while self.finished < self.wanted and self.now < seconds:
            self._step()
        return self.finished == self.wanted

    def _step(self) -> None:
        self.now += 1
        for gang in [gang for gang in self.dead if gang.gone == self.now]:
            self._begin_again(gang)
        for sweep, gangs in self.waiting.items():  # each sweep has two workers
            while gangs and sum(gang.sweep == sweep for gang in self.running) < 2:
                self.running.append(gangs.pop(0))
        for gang in self._random.sample(self.running, len(self.running)):
            if self.now <= self._deaths_until and self._random.random() < DEATHS_A_SECOND:
                self._die(gang)
            else:
                self._act(gang)
        if pending := [
            gang for gang in [*self.running, *self.dead] if gang.forms and len(gang.on) < gang.nodes
        ]:
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
        self.line[gang.name] = renew_place(self.line.values(), gang.name, self.now, patience=20)
        if gang.forms and not self.line[gang.name].forms:
            self._give_back(gang)
        gang.forms = self.line[gang.name].forms

    def _die(self, gang: SimulatedGang) -> None:
        """The gang's worker dies: its sweep has room for another one, and nothing else is known of it yet."""
        doing = "form" if gang.forms else "wait"
        self.deaths["train" if gang.ends is not None else doing] += 1
        gang.gone = self.now + self._random.randint(1, 60)
        self.running.remove(gang)
        self.dead.append(gang)

    def _begin_again(self, gang: SimulatedGang) -> None:
        """Its pods are gone: another attempt at the trial may begin."""
        self._give_back(gang)
        self.dead.remove(gang)
        self.waiting[gang.sweep].append(
            SimulatedGang(gang.trial, gang.attempt + 1, gang.nodes, gang.gpus, gang.seconds)
        )

    def _give_back(self, gang: SimulatedGang) -> None:
        for node in gang.on:
            self.free[node] += gang.gpus
        gang.on.clear()

    def _shape(self) -> tuple[int, int]:
        """Nodes and GPUs of a gang that fits the empty cluster; pods of one gang may share a node."""
        while True:
            nodes = self._random.randint(1, 4)
            gpus = self._random.randint(1, 8)
            if sum(free // gpus for free in self.free) >= nodes:
                return nodes, gpus


def test_two_oversubscribed_sweeps_of_gangs_come_to_their_end_from_300_random_starts() -> None:
    assert [seed for seed in range(300) if not SimulatedCluster(seed).run(5_000)] == []


def test_two_such_sweeps_come_to_their_end_from_300_random_starts_though_workers_die() -> None:
    clusters = [SimulatedCluster(seed, deaths_until=200) for seed in range(300)]
    assert [seed for seed, cluster in enumerate(clusters) if not cluster.run(5_000)] == []
    deaths = sum((cluster.deaths for cluster in clusters), Counter[str]())
    assert min(deaths[doing] for doing in ("wait", "form", "train")) > 50, (
        "workers die whatever their gang does"
    )


def test_without_an_end_of_a_dead_workers_place_nobody_forms_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forming_line, "LEASE_SECONDS", 1_000_000.0)
    stuck = sum(not SimulatedCluster(seed, deaths_until=200).run(1_000) for seed in range(20))
    assert stuck > 2, "the simulation can tell"


def test_without_turns_such_sweeps_wait_for_each_other_forever() -> None:
    stuck = sum(not SimulatedCluster(seed, with_turns=False).run(1_000) for seed in range(20))
    assert stuck > 2, "the simulation can tell"
