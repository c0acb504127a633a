"""Running a table of checks, and repairing the findings that are safe to repair."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

OK = "ok"
WARNING = "warning"
ERROR = "error"
SKIPPED = "skipped"
"""The levels of findings.

``ok`` is as it should be, ``warning`` is not urgent, ``error`` means that something does not work or is lost,
and ``skipped`` that the check could not be made.
"""


@dataclass(frozen=True)
class Finding:
    """A result of a check.

    Attributes:
        level: :data:`OK`, :data:`WARNING`, :data:`ERROR` or :data:`SKIPPED`.
        what: the fact.
        means: its consequences, where it is not as it should be.
        mend: the command that mends it, or what to do.
        repair: mends it where that is safe, and returns what it did.
        repaired: what was done.
    """

    level: str
    what: str
    means: str = ""
    mend: str = ""
    repair: Callable[[], str] | None = None
    repaired: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The finding in the JSON of ``halving doctor --json``."""
        names = ("level", "what", "means", "mend", "repaired")
        return {**{name: getattr(self, name) for name in names}, "repairable": self.repair is not None}


@dataclass(frozen=True)
class Check:
    """A row of the table.

    Attributes:
        name: one word or two, joined by a dash.
        look: returns at least one finding, and changes nothing that anybody would miss.
        needs: the name of a check that must succeed before this one.
    """

    name: str
    look: Callable[[], Iterable[Finding]]
    needs: str | None = None


def examine(checks: Iterable[Check], *, repair: bool = False) -> Iterator[tuple[Check, Finding]]:
    """Make all checks, and yield each finding at once.

    With ``repair``, findings that are safe to repair are repaired, and the check is made once more.
    """
    failed: set[str] = set()
    for check in checks:
        if check.needs in failed:
            failed.add(check.name)
            yield check, Finding(SKIPPED, f"not looked at, because of what is wrong with {check.needs!r}")
            continue
        findings = _look(check)
        if repair and any(finding.repair for finding in findings):
            mended = [_repair(finding) for finding in findings if finding.repair]
            findings = [*(finding for finding in mended if finding.repaired), *_look(check)]
        if any(finding.level == ERROR and not finding.repaired for finding in findings):
            failed.add(check.name)
        yield from ((check, finding) for finding in findings)


def is_wrong(findings: Iterable[Finding]) -> bool:
    """Whether something is left that does not work."""
    return any(finding.level == ERROR and not finding.repaired for finding in findings)


def _look(check: Check) -> list[Finding]:
    try:
        return list(check.look())
    except Exception as error:  # noqa: BLE001
        # Whatever it is, the other checks must be made.
        return [
            Finding(
                ERROR,
                f"could not be looked at: {type(error).__name__}: {error}",
                "whether it works is not known",
            )
        ]


def _repair(finding: Finding) -> Finding:
    assert finding.repair is not None
    try:
        return replace(finding, repaired=finding.repair())
    except Exception:  # noqa: BLE001
        # The problem remains, and the check that follows finds it again.
        return finding
