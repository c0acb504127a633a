"""Answers questions for curves from what a client has, from memory, or from the store."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from halving.store.store import Store
from server.answers import is_known
from server.curves.answer import ARROW, BINARY, JSON, encode, read_curves
from server.curves.cache import Cache
from server.curves.limits import FEWER, Budget, Limiter, too_slow
from server.curves.question import MAX_JSON_ROWS, MAX_ROWS, Question
from server.curves.reader_cache import ReaderCache
from server.curves.shared_lookups import SharedLookups
from server.curves.stamps import Stamps, etag_of

_LIMITS = {JSON: (MAX_JSON_ROWS, f"{FEWER}, or send Accept: {ARROW} or {BINARY}")}
_OTHERS = (MAX_ROWS, FEWER)


class Answer(NamedTuple):
    """An answer and its tag; ``body`` is None where the client has it already."""

    tag: str
    body: bytes | None


class CurveService:
    """Answers questions about one store. To be called from the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stamps = Stamps(store)
        self._cache = Cache()
        self._readers = ReaderCache(store)
        self._limiter = Limiter()
        self._lookups = SharedLookups(self._stamps.of)

    async def answer(
        self, question: Question, runs: Sequence[tuple[str, str]], kind: str, if_none_match: str | None = None
    ) -> Answer:
        """Answer a question for the curves of some runs.

        Args:
            runs: which, in the answer's order; the question may have a filter in their place.
            kind: the encoding, by its media type.
            if_none_match: tags that the client has answers of, as ``If-None-Match``.

        Raises:
            NotFound: no such run.
            InvalidInput: the window is not accepted, or the answer would have too many rows.
            Overloaded: it took too long.
        """
        question.check_window()
        keys = tuple(sorted(set(question.keys)))
        names = tuple(f"{project}/{run}" for project, run in runs)
        canonical = question.model_copy(update={"runs": names, "filter": None, "keys": keys})
        # The tag is older than what is read after it, so an answer never has less than its tag says.
        stamps = await self._find_stamps(runs)
        tag = etag_of(kind, canonical.model_dump_json(), stamps)
        takes_any_tag = (
            if_none_match or ""
        ).strip() == "*"  # then the answer must be made, to see that there is one
        if not takes_any_tag and is_known(tag, if_none_match):
            return Answer(tag, None)

        def query(budget: Budget) -> bytes:
            budget.spend(0)  # the time may be over before a thread is free
            open_reader = self._readers.opener(dict(zip(runs, stamps, strict=True)))
            body = encode(read_curves(self._store, canonical, open_reader, budget.spend), kind)
            self._cache.put(tag, body)
            return body

        body = self._cache.get(tag) or await self._limiter.answer(tag, query, *_LIMITS.get(kind, _OTHERS))
        if takes_any_tag:
            return Answer(tag, None)
        return Answer(tag, body)

    async def _find_stamps(self, runs: Sequence[tuple[str, str]]) -> list[bytes]:
        try:
            return await asyncio.wait_for(self._lookups.stamps_of(runs), self._limiter.seconds)
        except TimeoutError:
            raise too_slow(self._limiter.seconds) from None
