"""How the ranks of a gang ended: what each has left of it, and which one was the reason."""

import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from halving.distributed.hang import Hang, describe
from halving.records.memory_kills import MemoryKills
from halving.trial.messages import Granted, Interrupted, Message, Raised, Ready, from_bytes, to_bytes


class RankEnd(NamedTuple):
    """How a rank has ended, by its own account.

    Attributes:
        when: by ``time.monotonic``.
        message: None after a SIGTERM.
        told: whether rank 0 has raised this first.
    """

    rank: int
    when: float
    message: Message | None
    told: bool = False

    @property
    def is_wrong(self) -> bool:
        return isinstance(self.message, Raised | Interrupted) and not self.told

    @property
    def is_final(self) -> bool:
        return isinstance(self.message, Raised) and self.message.final

    def write(self, folder: Path) -> None:
        text = to_bytes(self.message).decode() if self.message is not None else None
        written = folder / f"{self.rank}.part"  # renamed, because this process may be killed meanwhile
        written.write_text(json.dumps([self.rank, self.when, text, self.told]))
        written.rename(folder / f"{self.rank}.json")

    @classmethod
    def read(cls, path: Path) -> Self:
        rank, when, text, told = json.loads(path.read_text())
        message = from_bytes(text.encode()) if text is not None else None
        return cls(rank, when, None if isinstance(message, Granted | Ready) else message, told)


def how_ended(
    folder: Path, codes: Mapping[int, int | None], hang: Hang | None, memory: MemoryKills, *, asked: bool
) -> Message | None:
    """How the ranks of a node ended: as the first of them says, or as the one that was the reason; None after
    a SIGTERM.

    A rank that ended without a word comes before those that raised: they did because it was gone. And one
    that did not come to a collective before those that gave it up. After a SIGTERM only an error that would
    happen again counts: the ranks that it ends first break the others' collectives.

    Args:
        folder: with what each rank has left (:class:`RankEnd`).
        codes: rank to exit status, of those that had ended by themselves when the gang was found broken;
            empty where it was not.
        hang: the collective that hung.
        memory: of this node.
        asked: whether a SIGTERM came.
    """
    if hang is not None:
        return Raised(describe(hang), final=False, checkpoint=None)
    ends = {end.rank: end for end in map(RankEnd.read, folder.glob("[0-9]*.json"))}
    asked = asked or -signal.SIGTERM in codes.values() or any(end.message is None for end in ends.values())
    ended = {rank: code for rank, code in codes.items() if code is not None}
    if not asked and (silent := {rank: code for rank, code in ended.items() if rank not in ends}):
        return _without_a_word(silent, len(codes), memory)
    if wrong := [end for end in ends.values() if end.is_wrong and (end.is_final or not asked)]:
        first = min(wrong, key=lambda end: end.when)
        if isinstance(first.message, Raised) and first.rank:
            return replace(first.message, error=f"rank {first.rank}: {first.message.error}")
        return first.message
    leading = ends.get(min(codes or ends, default=0))
    if leading is not None:
        return None if isinstance(leading.message, Raised | Interrupted) else leading.message
    return None if asked else _without_a_word(ended, len(codes), memory)


def _without_a_word(ended: Mapping[int, int], count: int, memory: MemoryKills) -> Raised:
    rank, code = next(iter(ended.items()))
    how = f"ended with exit code {code} and without a message"
    if code < 0:
        how = (
            f"was killed by {signal.Signals(-code).name}{memory.reason() if code == -signal.SIGKILL else ''}"
        )
    return Raised(f"rank {rank} of {count} {how}", final=False, checkpoint=None)
