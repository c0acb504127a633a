"""References to features: ``clicks@1:ctr``, or ``clicks@1:ctr as clicks_ctr`` to rename the column."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from halving.errors import InvalidInput

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
IDENTIFIER_RULE = "give 1-128 letters, digits or _, beginning with a letter"
REFERENCE_RULE = "give VIEW@VERSION:FEATURE, for example clicks@1:ctr, or clicks@1:ctr as another_name"
_REFERENCE = re.compile(
    r"(?P<view>[A-Za-z]\w*)@(?P<version>[1-9]\d{0,8}):(?P<feature>[A-Za-z]\w*)(?:\s+as\s+(?P<column>[A-Za-z]\w*))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Reference:
    """One feature of one version of a view, and the name of its column."""

    view: str
    version: int
    feature: str
    column: str

    @property
    def key(self) -> str:
        """The view and its version: ``clicks@1``."""
        return f"{self.view}@{self.version}"

    def __str__(self) -> str:
        if self.column == self.feature:
            return f"{self.key}:{self.feature}"
        return f"{self.key}:{self.feature} as {self.column}"


def parse_reference(text: str) -> Reference:
    """Parse a reference.

    Raises:
        InvalidInput: the text is not a reference.
    """
    match = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput(f"feature {text!r} is not accepted: {REFERENCE_RULE}")
    return Reference(
        match["view"], int(match["version"]), match["feature"], match["column"] or match["feature"]
    )


def parse_references(texts: Iterable[str], taken: Iterable[str] = ()) -> list[Reference]:
    """Parse references, each of which becomes a column of its own.

    Args:
        taken: names of columns that exist already.

    Raises:
        InvalidInput: one is not a reference, there are none, or two become one column.
    """
    references = [parse_reference(text) for text in texts]
    if not references:
        raise InvalidInput("features = [] is not accepted: give at least one, for example clicks@1:ctr")
    owners = dict.fromkeys(taken, "a column of the labels")
    for reference in references:
        if (other := owners.get(reference.column)) is not None:
            raise InvalidInput(
                f"feature {str(reference)!r} is not accepted: {other} is named {reference.column!r}, too; "
                f"give {reference.key}:{reference.feature} as {reference.view}_{reference.feature}"
            )
        owners[reference.column] = f"the feature {str(reference)!r}"
    return references
