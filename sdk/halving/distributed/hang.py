"""Finding the rank that did not come to a collective, and describing it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from halving.errors import InvalidInput

_INDENT = "  "
_MAX_CHARACTERS = 16_000  # characters of all stacks; the catalog keeps the last 20,000 of an error
_MIN_CHARACTERS = 200  # The characters of one stack, at least.
_MAX_SPANS = 8  # The spans of ranks in a line.


@dataclass(frozen=True)
class Hang:
    """A collective in which some ranks wait for others.

    Attributes:
        collective: its name, as the trainable's author knows it.
        timeout: seconds.
        since: Unix time from which on the first of the ranks waited.
        waiting: ranks that have entered it.
        absent: ranks that have not.
        stacks: rank to where its main thread was, the outermost call first; None for a rank that did not say.
    """

    collective: str
    timeout: float
    since: float
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    stacks: dict[int, str | None]

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Hang":
        """Parse a hang, also when an untrusted image wrote it.

        Raises:
            InvalidInput: it is not what :meth:`to_text` gives.
        """
        try:
            record = json.loads(text)
            stacks = {
                int(rank): None if stack is None else str(stack) for rank, stack in record["stacks"].items()
            }
            waiting, absent = (tuple(int(rank) for rank in record[name]) for name in ("waiting", "absent"))
            since = float(record["since"])
            datetime.fromtimestamp(since, UTC)
            return cls(str(record["collective"]), float(record["timeout"]), since, waiting, absent, stacks)
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            OSError,
            RecursionError,
        ) as error:
            raise InvalidInput(
                f"a collective that hung is not accepted: {error!r}; give the JSON of a Hang"
            ) from None


def find_hang(
    collective: str,
    group: str,
    position: int,
    timeout: float,
    members: Sequence[int],
    testimonies: Mapping[int, Mapping[str, Any]],
) -> Hang:
    """Tell the ranks that wait in a collective from those that did not come to it.

    Args:
        collective: its name for people.
        group, position: which it is: the process group, and how many collectives of that group a rank has
            entered once it is in this one.
        timeout: seconds.
        members: ranks of the process group.
        testimonies: what each rank says of itself; of one that did not answer there is none. ``entered``:
            process group to the number of its collectives that the rank has entered; ``since``: process group
            to the Unix time of the last; ``stack``: a text.
    """
    waiting = tuple(
        rank
        for rank in members
        if rank in testimonies and testimonies[rank]["entered"].get(group, 0) >= position
    )
    absent = tuple(rank for rank in members if rank not in waiting)
    since = min(
        (testimonies[rank]["since"].get(group, float("inf")) for rank in waiting), default=float("inf")
    )
    stacks = {rank: testimonies.get(rank, {}).get("stack") for rank in members}
    return Hang(collective, timeout, since, waiting, absent, stacks)


def describe(hang: Hang) -> str:
    """Everything that helps to find the cause; the last line is the summary, as in a traceback.

    Ranks that were at the same place share one stack: among sixty-four equal stacks nobody would find the one
    of the rank that did not come. Long stacks lose their outermost lines, so that a page has room for all.
    """
    places: dict[tuple[bool, str | None], list[int]] = {}
    for rank, stack in sorted(hang.stacks.items()):
        places.setdefault((rank in hang.waiting, stack), []).append(rank)
    room = max(_MAX_CHARACTERS // max(len(places), 1), _MIN_CHARACTERS)
    lines = ["Where each rank was when the collective was given up:"]
    for (waited, stack), ranks in sorted(places.items(), key=lambda place: (place[0][0], place[1])):
        outcome = "waited" if waited else "did not come"
        lines.append(f"{_INDENT}{_ranks(ranks)} ({outcome}):")
        silent = "they did not answer: they are"
        if len(ranks) == 1:
            silent = "it did not answer: it is"
        said = stack or f"{silent} stopped, or in native code that holds Python's interpreter lock"
        lines += [f"{_INDENT * 2}{line}" for line in _innermost(said.rstrip(), room)]
    return "\n".join([*lines, summary(hang)])


def _innermost(stack: str, room: int) -> list[str]:
    """The lines of a stack, without the outermost ones where it is longer than ``room`` characters."""
    if len(stack) <= room:
        return stack.splitlines()
    return ["…", *stack[-room:].partition("\n")[2].splitlines()]


def summary(hang: Hang) -> str:
    """One line that says which ranks are absent, from which collective, and how long the others waited."""
    since = datetime.fromtimestamp(hang.since, UTC).strftime("%H:%M:%S UTC")
    allowed = f"{hang.timeout:g} s (resources.collective_timeout_seconds)"
    if not hang.absent:
        return (
            f"{hang.collective} hung for {allowed}, since {since}, although every rank had entered it: "
            "look at the network between the "
            "nodes, and whether all ranks gave tensors of the same size"
        )
    return (
        f"{_ranks(hang.absent)} did not come to {hang.collective} within {allowed}; {_ranks(hang.waiting)} "
        f"had waited there since {since}"
    )


def _ranks(ranks: Sequence[int]) -> str:
    """``rank 1``, ``ranks 0 and 2``, ``ranks 0 to 6 and 8 to 63``.

    Of many scattered ranks only the first ones are named.
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    spans = _spans(ranks)
    if len(spans) > _MAX_SPANS:
        spans = [*spans[: _MAX_SPANS - 1], f"others, {len(ranks)} in all"]
    if len(spans) == 1:
        return f"ranks {spans[0]}"
    return f"ranks {', '.join(spans[:-1])} and {spans[-1]}"


def _spans(ranks: Sequence[int]) -> list[str]:
    """Numbers as texts of spans without a gap, such as ``0 to 6``; two neighbours become two numbers."""
    spans: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], rank
        else:
            spans.append((rank, rank))
    parts: list[str] = []
    for first, last in spans:
        if last > first + 1:
            parts.append(f"{first} to {last}")
        else:
            parts += map(str, range(first, last + 1))
    return parts
