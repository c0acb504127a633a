"""``halving rerun``: train a recorded run again, and say whether the same came out."""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from halving.cli.output import cell_text, console, print_json
from halving.query.runs import find_run
from halving.rerun.pods import Pods
from halving.rerun.rerun import Options, rerun
from halving.rerun.verdict import IDENTICAL, Verdict
from halving.store.store import Store

if TYPE_CHECKING:
    from rich.console import Console


def run_rerun(arguments: argparse.Namespace) -> int:
    """Train a run again and compare the two.

    The exit status is 0 where it came out identical, 1 where it differs, and 2 where there is no verdict.

    JSON: ``{"verdict": "identical" or "differs", "rerun_of", "run", "trial", "status": {"recorded", "rerun"},
    "points", "first_difference": null or {"step", "metric", "recorded", "rerun", "difference", "metrics",
    "points"}, "weights": {"recorded", "rerun", "equal": true, false, or null where they could not be
    compared}, "factors": [{"factor", "name", "recorded", "now"}], "not_compared": [text]}``. What the
    training prints goes to the standard error, or to the pod's log where it trains in a pod.
    """
    return answer(arguments, rerun_named(arguments))


def rerun_named(arguments: argparse.Namespace, pods: Pods | None = None) -> Verdict:
    """Rerun the run that a command's arguments name; ``pods`` as in :func:`halving.rerun.rerun.rerun`."""
    store = Store(arguments.root)
    with ended_as_by_ctrl_c():
        return rerun(store, *find_run(store, arguments.run_name), options_of(arguments), tell=tell, pods=pods)


def answer(arguments: argparse.Namespace, verdict: Verdict) -> int:
    """Print the verdict and return the command's exit status."""
    if arguments.json:
        print_json(verdict.as_dict())
    else:
        print_verdict(console(), verdict)
    return int(verdict.verdict != IDENTICAL)


def options_of(arguments: argparse.Namespace) -> Options:
    """The options of a rerun that a command's arguments choose."""
    return Options(
        repository=Path(arguments.repository),
        build=arguments.env,
        strict=arguments.strict,
        accepted=tuple(arguments.accepted),
        ignore=tuple(arguments.ignore),
    )


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Within the block, treat SIGTERM like Ctrl-C: the training process ends and the worktree is removed."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tell(line: str) -> None:
    """Print a line on the standard error at once."""
    print(line, file=sys.stderr, flush=True)


def print_verdict(out: "Console", verdict: Verdict) -> None:
    """The verdict for people: what came out, where it first differs, and what may be why."""
    out.print(f"{verdict.verdict}: {verdict.rerun_of}, and again as {verdict.run}", style="bold")
    first = verdict.first_difference
    recorded, again = verdict.weights
    if first is None:
        out.print(f"{verdict.points} metric points are equal")
    else:
        by = ""
        if first.difference is not None:
            by = f", by {cell_text(first.difference)}"
        out.print(
            f"metrics first differ at step {first.step}: {first.metric} was {_value(first.recorded)}, is "
            f"{_value(first.rerun)}{by} ({first.points} points of {first.metrics} metrics differ)"
        )
    if verdict.weights_equal is not None:
        comparison = "weights are equal" if verdict.weights_equal else "weights differ"
        if recorded == again:
            out.print(f"{comparison} ({_short(recorded)})")
        else:
            out.print(f"{comparison}: {_short(recorded)} was recorded, {_short(again)} came out")
    for reason in verdict.not_compared:
        out.print(f"not compared: {reason}")
    if verdict.status[0] != verdict.status[1]:
        out.print(f"the recorded run ended as {verdict.status[0]}, the rerun as {verdict.status[1]}")
    if verdict.factors:
        out.print("what differs between the two, by their records:")
        for factor in verdict.factors:
            out.print(f"  {factor}")
    elif verdict.unexplained:
        out.print(
            "nothing that is recorded differs, so the training itself is not deterministic: "
            "halving.init(deterministic=True) may help"
        )


def _value(value: float | None) -> str:
    if value is None:
        return "no point"
    return repr(value)


def _short(digest: str | None) -> str:
    return (digest or "none")[:19]
