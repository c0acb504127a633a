"""Checks and what they find; going through a table of them, and mending what may be mended without asking."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

OK = "ok"
WARNING = "warning"
ERROR = "error"
SKIPPED = "skipped"
"""What a finding is: as it should be; not urgent; something does not work or is lost; not looked at, because
what it needs is not there.
"""


@dataclass(frozen=True)
class Finding:
    """What a check says.

    Attributes:
        level: :data:`OK`, :data:`WARNING`, :data:`ERROR` or :data:`SKIPPED`.
        what: what is so.
        means: what that does to whom, where it is not as it should be.
        mend: the command that mends it, or what to do.
        repair: mends it where that is safe, and says what it did; anything that it raises is told.
        repaired: what was done.
    """

    level: str
    what: str
    means: str = ""
    mend: str = ""
    repair: Callable[[], str] | None = None
    repaired: str = ""

    def as_dict(self) -> dict[str, Any]:
        names = ("level", "what", "means", "mend", "repaired")
        return {**{name: getattr(self, name) for name in names}, "repairable": self.repair is not None}


@dataclass(frozen=True)
class Check:
    """A row of the table.

    Attributes:
        name: one word or two, joined by a dash.
        look: changes nothing that anybody would miss, and finds at least one thing.
        needs: the check without whose success this one has nothing to look at.
    """

    name: str
    look: Callable[[], Iterable[Finding]]
    needs: str | None = None


def examine(checks: Iterable[Check], *, repair: bool = False) -> Iterator[tuple[Check, Finding]]:
    """Each finding as it is made.

    With ``repair`` what can be mended safely is, and the check is made once more.
    """
    failed: set[str] = set()
    for check in checks:
        if check.needs in failed:
            failed.add(check.name)
            yield check, Finding(SKIPPED, f"not looked at, because of what is wrong with {check.needs!r}")
            continue
        found = _looked(check)
        if repair and any(finding.repair for finding in found):
            told = [_repaired(finding) for finding in found if finding.repair]
            found = [*(finding for finding in told if finding.repaired), *_looked(check)]
        if any(finding.level == ERROR and not finding.repaired for finding in found):
            failed.add(check.name)
        yield from ((check, finding) for finding in found)


def is_wrong(findings: Iterable[Finding]) -> bool:
    """Whether something is left that does not work."""
    return any(finding.level == ERROR and not finding.repaired for finding in findings)


def _looked(check: Check) -> list[Finding]:
    try:
        return list(check.look())
    except Exception as error:  # noqa: BLE001  # whatever it is, the other checks are made
        return [
            Finding(
                ERROR,
                f"could not be looked at: {type(error).__name__}: {error}",
                "whether it works is not known",
            )
        ]


def _repaired(finding: Finding) -> Finding:
    assert finding.repair is not None
    try:
        return replace(finding, repaired=finding.repair())
    except Exception:  # noqa: BLE001  # what is wrong still is, and the check that follows says so
        return finding
