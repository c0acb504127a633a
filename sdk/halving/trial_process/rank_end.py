"""How the ranks of a gang ended, and which of them was the reason."""

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
    """The end of a rank, as the rank has recorded it.

    Attributes:
        when: its time by ``time.monotonic``.
        message: None after a SIGTERM.
        is_repeat: whether rank 0 has raised this first.
    """

    rank: int
    when: float
    message: Message | None
    is_repeat: bool = False

    @property
    def is_wrong(self) -> bool:
        return isinstance(self.message, Raised | Interrupted) and not self.is_repeat

    @property
    def is_final(self) -> bool:
        return isinstance(self.message, Raised) and self.message.final

    def write(self, folder: Path) -> None:
        text = None
        if self.message is not None:
            text = to_bytes(self.message).decode()
        written = folder / f"{self.rank}.part"  # It is renamed, because this process may be killed meanwhile.
        written.write_text(json.dumps([self.rank, self.when, text, self.is_repeat]))
        written.rename(folder / f"{self.rank}.json")

    @classmethod
    def read(cls, path: Path) -> Self:
        rank, when, text, is_repeat = json.loads(path.read_text())
        message = None
        if text is not None:
            message = from_bytes(text.encode())
        if isinstance(message, Granted | Ready):
            message = None
        return cls(rank, when, message, is_repeat)


def find_end(
    folder: Path,
    codes: Mapping[int, int | None],
    hang: Hang | None,
    memory: MemoryKills,
    *,
    has_sigterm: bool,
) -> Message | None:
    """Find the message of the rank that caused the end of a node's ranks; None after a SIGTERM.

    A rank that ended without a record comes before those that raised, because they raised when it was gone. A
    rank that did not come to a collective comes before those that gave it up. After a SIGTERM only an error
    that would happen again counts, because the ranks that end first break the others' collectives.

    Args:
        folder: the folder with the ranks' records (:class:`RankEnd`).
        codes: the exit status of each rank when the gang broke, None while it ran; empty if it did not break.
        hang: the collective that hung.
        memory: of this node.
        has_sigterm: whether a SIGTERM came.
    """
    if hang is not None:
        return Raised(describe(hang), final=False, checkpoint=None)
    ends = {end.rank: end for end in map(RankEnd.read, folder.glob("[0-9]*.json"))}
    has_sigterm = (
        has_sigterm or -signal.SIGTERM in codes.values() or any(end.message is None for end in ends.values())
    )
    ended = {rank: code for rank, code in codes.items() if code is not None}
    silent = {rank: code for rank, code in ended.items() if rank not in ends}
    if silent and not has_sigterm:
        return _without_record(silent, len(codes), memory)
    wrong = [end for end in ends.values() if end.is_wrong and (end.is_final or not has_sigterm)]
    if wrong:
        first = min(wrong, key=lambda end: end.when)
        if isinstance(first.message, Raised) and first.rank:
            return replace(first.message, error=f"rank {first.rank}: {first.message.error}")
        return first.message
    leading = ends.get(min(codes or ends, default=0))
    if leading is not None and isinstance(leading.message, Raised | Interrupted):
        return None
    if leading is not None:
        return leading.message
    if has_sigterm:
        return None
    return _without_record(ended, len(codes), memory)


def _without_record(ended: Mapping[int, int], count: int, memory: MemoryKills) -> Raised:
    rank, code = next(iter(ended.items()))
    how = f"ended with exit code {code} and without a message"
    if code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    if code == -signal.SIGKILL:
        how += memory.reason()
    return Raised(f"rank {rank} of {count} {how}", final=False, checkpoint=None)
