"""``halving doctor``: what is wrong with the store and around it."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from halving.cli.output import console, print_json
from halving.doctor.checks import ERROR, OK, SKIPPED, WARNING, Check, Finding, examine, is_wrong
from halving.doctor.store_checks import store_checks
from halving.store.store import Store

if TYPE_CHECKING:
    from rich.console import Console

_SIGNS = {
    OK: ("ok", "green"),
    WARNING: ("warning", "yellow"),
    ERROR: ("ERROR", "bold red"),
    SKIPPED: ("skipped", "dim"),
}


def run_doctor(arguments: argparse.Namespace, more: Callable[[Store], list[Check]] = lambda store: []) -> int:
    """Check the store and what surrounds it.

    The exit status is 1 if something does not work; with ``--repair``, if it still does not work afterwards.

    JSON: ``{"store", "findings": [{"check", "level", "what", "means", "mend", "repairable", "repaired"}]}``;
    ``level`` is ``ok``, ``warning``, ``error`` or ``skipped``.

    Args:
        more: an application's own checks of the same store.
    """
    store = Store(arguments.root)
    checks = [*store_checks(store, all_blobs=arguments.all), *more(store)]
    findings = list[Finding]()
    listed = []
    out = None
    if not arguments.json:
        out = console()
    for check, finding in examine(checks, repair=arguments.repair):
        findings.append(finding)
        listed.append({"check": check.name, **finding.as_dict()})
        if out:
            _print(out, check, finding)
    if arguments.json:
        print_json({"store": store.root, "findings": listed})
    elif out and not arguments.repair and any(finding.repair for finding in findings):
        out.print("\nhalving doctor --repair mends what says so above", style="dim", highlight=False)
    return int(is_wrong(findings))


def _print(out: "Console", check: Check, finding: Finding) -> None:
    from rich.text import Text

    sign, style = _SIGNS[finding.level]
    if finding.repaired:
        sign = "repaired"
        style = "green"
    out.print(Text.assemble((f"{check.name:<12} ", "bold"), (f"{sign:<9}", style), finding.what))
    if finding.repaired:
        out.print(Text(f"{'':<22}done: {finding.repaired}"))
        return
    if finding.means:
        out.print(Text(f"{'':<22}it means: {finding.means}", style="dim"))
    if finding.mend:
        line = Text.assemble(f"{'':<22}mend it: ", (finding.mend, "bold"))
        if finding.repair:
            line.append(" (--repair does)")
        out.print(line)
