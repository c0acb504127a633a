"""The words of a filter, each with its place."""

from dataclasses import dataclass
from typing import Literal

from halving.query.run_filter import MAX_CHARACTERS, InvalidFilter, is_plain

_SYMBOLS = ("<=", ">=", "!=", "<", ">", "=", "(", ")", ",")
_OTHERS = {
    "==": "=",
    "<>": "!=",
    "=>": ">=",
    "=<": "<=",
    "&&": "and",
    "||": "or",
    "!": "!= or not",
    "&": "and",
    "|": "or",
    "*": "like '%'",
}
_SHOWN = 40


@dataclass(frozen=True)
class Token:
    """A word (``params.lr``, ``and``, ``1e-4``), a word with a quoted name (``params."my lr"``), a quoted
    text, a symbol, or the end.

    Attributes:
        text: without quotes; of a quoted name the name alone.
        before: of a quoted name what stands before it: ``params.``.
        column: from 1.
    """

    kind: Literal["word", "name", "text", "symbol", "end"]
    text: str
    column: int
    before: str = ""

    @property
    def keyword(self) -> str:
        """A word in lower case; empty for all else."""
        return self.text.lower() if self.kind == "word" else ""

    @property
    def stands(self) -> str:
        """The beginning of a sentence about its place."""
        return "the filter ends" if self.kind == "end" else f"{self} stands"

    def __str__(self) -> str:
        """As a message shows it."""
        return "the end" if self.kind == "end" else shown(self.before + self.text)


def shown(text: str) -> str:
    """A text in a message, quoted, and cut where it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def tokens_of(text: str) -> list[Token]:
    """The words in their order; the last one is the end.

    Raises:
        InvalidFilter: a quote is not closed, a character has no meaning, or it is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidFilter(
            f"a filter of {len(text):,} characters is not accepted: at most {MAX_CHARACTERS:,}",
            MAX_CHARACTERS + 1,
        )
    for place, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":  # which no database holds
            raise InvalidFilter(f"the character {character!r} is not accepted in a filter", place + 1)
    found = []
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        token, place = _token(text, place)
        found.append(token)
    return [*found, Token("end", "", len(text) + 1)]


def _token(text: str, start: int) -> tuple[Token, int]:
    """The token that begins at a place, and the place behind it."""
    if text[start] in "'\"":
        content, end = _quoted(text, start)
        return Token("text", content, start + 1), end
    if is_plain(text[start]):
        end = start
        while end < len(text) and is_plain(text[end]):
            end += 1
        if text[end - 1] == "." and text[end : end + 1] == '"':
            content, behind = _quoted(text, end)
            return Token("name", content, start + 1, text[start:end]), behind
        return Token("word", text[start:end], start + 1), end
    for other, meant in _OTHERS.items():
        if text.startswith(other, start) and not text.startswith("!=", start):
            raise InvalidFilter(f"{other!r} is not accepted: give {meant}", start + 1)
    for symbol in _SYMBOLS:
        if text.startswith(symbol, start):
            return Token("symbol", symbol, start + 1), start + len(symbol)
    accepted = (
        "letters, digits and _ - / . @ : + need no quotes; put a text in '…', a name as in params.\"my name\""
    )
    raise InvalidFilter(f"{text[start]!r} is not accepted here: {accepted}", start + 1)


def _quoted(text: str, start: int) -> tuple[str, int]:
    """What stands between quotes, doubled ones in it made one, and the place behind."""
    quote = text[start]
    parts = []
    place = start + 1
    while (end := text.find(quote, place)) >= 0:
        parts.append(text[place:end])
        if text[end + 1 : end + 2] != quote:
            return quote.join(parts), end + 1
        place = end + 2
    raise InvalidFilter(
        f"the quote {quote} is not closed: end it with {quote} (one inside is written twice: {quote * 2})",
        start + 1,
    )
