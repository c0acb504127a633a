"""What a command printed, and what its JSON and CSV hold."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Output(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


Halving = Callable[..., Output]


def rows_of(output: Output) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(output.out)))
