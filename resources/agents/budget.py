"""How long an answer may be, in tokens, and what it says about what it left out."""

from collections.abc import Callable, Sequence

MAX_TOKENS = 1_500
"""Of one answer."""
MAX_DESCRIPTION_TOKENS = 2_500
"""Of all tools' names, descriptions and schemas together."""

_NOTE_TOKENS = 170  # kept for what the answer says about what it left out
_MARK_TOKENS = 20


def count_tokens(text: str) -> int:
    """Estimate a text's tokens from above: three ASCII letters are one, other letters one for each byte.

    No tokenizer makes more tokens than bytes. English and JSON have some four letters to a token; three also
    cover identifiers and numbers.
    """
    others = len(text.encode("utf-8", "replace")) - len(text)
    if not others:
        return -(-len(text) // 3)
    ascii_letters = sum(letter.isascii() for letter in text)
    return -(-ascii_letters // 3) + len(text.encode("utf-8", "replace")) - ascii_letters


def cut(text: str, tokens: int) -> str:
    """The text's beginning within some tokens; what was cut is told by ``...``."""
    if count_tokens(text) <= tokens:
        return text
    text = text[: 3 * tokens]
    while count_tokens(text) > tokens - 1:
        text = text[: max(len(text) - 8, len(text) // 2)]
    return f"{text}..."


class Reply:
    """An answer that grows line by line to its budget, and then says what it left out.

    Attributes:
        left_out: whether something was.
    """

    def __init__(self, tokens: int = MAX_TOKENS) -> None:
        self._left = tokens - _NOTE_TOKENS - _MARK_TOKENS
        self._notes_left = _NOTE_TOKENS
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.left_out = False

    def add(self, line: str) -> bool:
        """Add a line if there is room for it; it must be clean already."""
        tokens = count_tokens(line + "\n")
        if tokens > self._left:
            self.left_out = True
            return False
        self._left -= tokens
        self.lines.append(line)
        return True

    def add_rows(
        self, rows: Sequence[str], noun: str, how: Callable[[int], str], *, share: float = 1.0, total: int = 0
    ) -> int:
        """Add as many rows as fit, in order, and say how to ask for the others.

        Args:
            noun: what a row is, in the plural.
            how: says how to ask for more, given how many rows were added.
            share: of the room that is left.
            total: how many there are in all, where that is more than the rows.

        Returns:
            How many were added.
        """
        reserve = self._left - int(share * self._left)
        self._left -= reserve
        added = 0
        for row in rows:
            if not self.add(row):
                break
            added += 1
        self._left += reserve
        left = max(total, len(rows)) - added
        if left > 0:
            self.left_out = True
            self.note(f"{left} more {noun}: {how(added)}")
        return added

    def note(self, text: str) -> None:
        """Add a sentence of our own behind the data; it must hold nothing that was recorded."""
        text = cut(text, _NOTE_TOKENS)
        tokens = count_tokens(text + "\n")
        if tokens <= self._notes_left:
            self._notes_left -= tokens
            self.notes.append(text)
