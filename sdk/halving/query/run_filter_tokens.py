"""The tokens of a filter, each with its place."""

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
_MAX_QUOTED = 40


@dataclass(frozen=True)
class Token:
    """A word, a word with a quoted name, a quoted text, a symbol, or the end.

    Words are ``params.lr``, ``and`` and ``1e-4``; ``params."my lr"`` has a quoted name.

    Attributes:
        text: without quotes; the name alone of a word with a quoted name.
        before: the part before a quoted name, ``params.``.
        column: from 1.
    """

    kind: Literal["word", "name", "text", "symbol", "end"]
    text: str
    column: int
    before: str = ""

    @property
    def keyword(self) -> str:
        """A word in lower case; empty for every other token."""
        return self.text.lower() if self.kind == "word" else ""

    @property
    def stands(self) -> str:
        """The beginning of a sentence about the token's place."""
        if self.kind == "end":
            return "the filter ends"
        return f"{self} stands"

    def __str__(self) -> str:
        """The token in a message."""
        if self.kind == "end":
            return "the end"
        return quote_short(self.before + self.text)


def quote_short(text: str) -> str:
    """Quote a text in a message; a long one is cut."""
    if len(text) > _MAX_QUOTED:
        text = text[:_MAX_QUOTED] + "…"
    return repr(text)


def tokens_of(text: str) -> list[Token]:
    """Split a filter into tokens; the last one is the end.

    Raises:
        InvalidFilter: a quote is not closed, a character has no meaning, or the filter is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidFilter(
            f"a filter of {len(text):,} characters is not accepted: at most {MAX_CHARACTERS:,}",
            MAX_CHARACTERS + 1,
        )
    for place, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":  # No database holds these.
            raise InvalidFilter(f"the character {character!r} is not accepted in a filter", place + 1)
    tokens = []
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        token, place = _read_token(text, place)
        tokens.append(token)
    return [*tokens, Token("end", "", len(text) + 1)]


def _read_token(text: str, start: int) -> tuple[Token, int]:
    """The token that begins at a place, and the place behind it."""
    if text[start] in "'\"":
        content, end = _read_quoted(text, start)
        return Token("text", content, start + 1), end
    if is_plain(text[start]):
        end = start
        while end < len(text) and is_plain(text[end]):
            end += 1
        if text[end - 1] == "." and text[end : end + 1] == '"':
            content, behind = _read_quoted(text, end)
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


def _read_quoted(text: str, start: int) -> tuple[str, int]:
    """The text between quotes, with doubled quotes in it made one, and the place behind it."""
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
