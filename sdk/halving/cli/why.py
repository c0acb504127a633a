"""``halving why``: in what two runs differ, and by reruns how much of a metric's change each of it
explains.
"""

import argparse
import math
import re
import statistics
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from halving.cli.output import console, duration, print_json, print_table, shown
from halving.cli.rerun import ended_as_by_ctrl_c, options_of, tell
from halving.errors import InvalidInput
from halving.query.runs import RunInfo, find_run, read_run
from halving.records.run_record import RunRecords
from halving.rerun.attribution import Attribution, Done, Effect, check_arms, kept_of, run_experiment
from halving.rerun.comparison import read_points
from halving.rerun.experiment import (
    Experiment,
    all_differences,
    cautions,
    check_repeat,
    experiment,
    last_value,
)
from halving.rerun.factors import FACTORS, Difference
from halving.rerun.kept_reruns import KeptReruns
from halving.rerun.plan import Plan
from halving.rerun.pods import Pods
from halving.rerun.rerun import Options, planned, trains_here
from halving.store.store import Store

if TYPE_CHECKING:
    from rich.console import Console

_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{40,64}")
_MOST_SHARE = 10.0
GIVEN_UP = 130  # as a shell's own status after Ctrl-C


def run_why(arguments: argparse.Namespace, pods: Pods | None = None) -> int:
    """Say in which factors two runs differ.

    JSON: ``{"runs": [A, B], "differs": {factor: [{"factor", "name", "recorded", "now"}]}, "same": [factor],
    "attribution": null or {"metric", "recorded": [A's, B's], "seeds", "mean", "noise", "effects": [{"name",
    "factors", "effect", "standard_error", "interval": [low, high], "share", "beyond_noise", "error"}],
    "arms": [{"name", "runs", "values"}], "unexplained": {"effect", "share"}, "left_out": {factor: why}}}``.
    ``recorded`` is A's and ``now`` B's. The status is 130 where reruns were given up by Ctrl-C; what was
    measured before is shown. ``pods`` as in :func:`halving.rerun.rerun.rerun`.
    """
    if arguments.rerun:
        check_repeat(arguments.repeat)
    store = Store(arguments.root)
    names = [find_run(store, name) for name in (arguments.run_name, arguments.other_name)]
    if names[0] == names[1]:
        raise InvalidInput(
            f"RUN {arguments.run_name!r} and {arguments.other_name!r} are not accepted: give two different "
            "runs"
        )
    one, other = (read_run(store, *name) for name in names)
    differs = all_differences(one, other, (_trained_for(store, one), _trained_for(store, other)))
    if not arguments.json:  # before anything is asked, or trained for hours
        _print(console(), one, other, differs)
    found = _attributed(arguments, store, one, other, pods) if arguments.rerun else None
    if arguments.json:
        print_json(
            {
                "runs": [f"{info.project}/{info.run}" for info in (one, other)],
                "differs": {factor: [each.as_dict() for each in those] for factor, those in differs.items()},
                "same": [factor for factor in FACTORS if factor not in differs],
                "attribution": found.as_dict() if found else None,
            }
        )
    elif found is not None:
        _print_attribution(console(), found)
    return GIVEN_UP if found is not None and found.given_up else 0


def _trained_for(store: Store, info: RunInfo) -> int | None:
    """Epochs, of a trial."""
    newest = (
        RunRecords(store, info.project, info.run).latest_checkpoint() if info.record.get("trial") else None
    )
    return newest.epoch if newest else None


def _attributed(
    arguments: argparse.Namespace, store: Store, one: RunInfo, other: RunInfo, pods: Pods | None
) -> Attribution:
    metric = arguments.metric or _metric_of(store, one, other)
    recorded = _recorded(store, one, metric), _recorded(store, other, metric)
    if not math.isfinite(recorded[0]):
        raise InvalidInput(
            f"metric {metric!r} is not accepted: {one.project}/{one.run} ended with {recorded[0]}, and so "
            "would its reruns; give the run "
            f"that is well as the first of the two, or another --metric ({_metrics(store, one)})"
        )
    options = options_of(arguments)
    plans = [_planned(store, info, options, pods) for info in (one, other)]
    asked = experiment(plans[0], plans[1], metric, arguments.repeat, build=arguments.env)
    kept = KeptReruns(store, build=arguments.env, in_pods=asked.other.image is not None)
    done = kept_of(asked, kept)
    check_arms(store, asked, done, options, pods)
    for caution in cautions(store, plans, metric):
        tell(f"note: {caution}")
    _tell_cost(asked, done, kept.not_seen([arm.plan for arm in asked.arms]), build=arguments.env)
    if len(done) < len(asked.reruns) and not arguments.yes and not _agreed():
        raise InvalidInput("nothing was trained")
    try:
        with ended_as_by_ctrl_c():
            return run_experiment(store, asked, recorded, options, kept, done, tell, pods)
    except KeyboardInterrupt:
        tell(
            "given up before the first arm had ended; the reruns that have ended are kept, and the same "
            "command goes on from there"
        )
        raise


def _planned(store: Store, info: RunInfo, options: Options, pods: Pods | None) -> tuple[RunInfo, Plan]:
    """A run and how it is trained again: without an image where that is done here."""
    info, plan = planned(store, info.project, info.run)
    here = plan.image is not None and trains_here(plan, plan.image, options, pods)
    return info, replace(plan, image=None) if here else plan


def _recorded(store: Store, info: RunInfo, metric: str) -> float:
    value = last_value(store, info, metric)
    if value is None:
        raise InvalidInput(
            f"metric {metric!r} is not accepted: {info.project}/{info.run} has {_metrics(store, info)}"
        )
    return value


def _tell_cost(asked: Experiment, done: Done, not_seen: list[str], *, build: bool) -> None:
    total = len(asked.reruns)
    left = len(asked.reruns) - len(done)
    arms = ", ".join(arm.name for arm in asked.arms)
    tell(f"{total} reruns: {len(asked.seeds)} seeds each of: {arms}")
    for factor, why in asked.left_out.items():
        tell(f"{factor} differs and is not changed: {why}")
    if done:
        tell(f"trained by an earlier call, and not again: {len(done)}")
        for package in not_seen:
            whose = asked.arms[0].plan.name
            tell(
                f"note: nothing says whether {package} is what it was then; if it is not, delete "
                f"why-*.json beside the record of {whose}"
            )
    if not left:
        return
    measured = statistics.mean(rerun.seconds for rerun in done.values()) if done else None
    each = measured or asked.seconds
    about = (
        "of unknown length"
        if each is None
        else f"about {duration(each)} each, {duration(each * left)} in all, one after another"
    )
    more = (
        ""
        if measured or each is None
        else "; it is what the runs trained for, and starting each takes some seconds more"
    )
    tell(f"{left} to train: {about}{more}")
    if build:
        tell(
            "before that, virtual environments of the recorded packages are built; each takes the disk "
            "that its packages need"
        )


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise InvalidInput("--rerun trains, and there is no terminal to ask at: give --yes")
    sys.stderr.write("train them? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _metric_of(store: Store, one: RunInfo, other: RunInfo) -> str:
    """The objective of a trial, or the only metric that both runs have."""
    objectives: list[dict[str, Any]] = (one.record.get("trial") or {}).get("objectives") or []
    if objectives:
        return str(objectives[0]["metric"])
    both = sorted(
        read_points(store, one.project, one.run).keys() & read_points(store, other.project, other.run).keys()
    )
    if len(both) != 1:
        raise InvalidInput(f"--rerun needs --metric: both runs have {', '.join(both) or 'none in common'}")
    return both[0]


def _metrics(store: Store, info: RunInfo) -> str:
    return ", ".join(sorted(read_points(store, info.project, info.run))) or "none"


def _print(out: "Console", one: RunInfo, other: RunInfo, differs: dict[str, list[Difference]]) -> None:
    heads = [f"{info.project}/{info.run}" for info in (one, other)]
    rows = [
        [factor if first == 0 else "", each.name, _short(each.recorded), _short(each.now)]
        for factor, those in differs.items()
        for first, each in enumerate(those)
    ]
    if rows:
        print_table(out, ("factor", "of what", *heads), rows, first=True)
    same = ", ".join(factor for factor in FACTORS if factor not in differs)
    out.print(f"the same in both: {same or 'nothing'}", style="dim")


def _short(value: Any) -> Any:
    """A commit or a digest by its beginning: two whole ones are wider than a terminal, and JSON has them."""
    return (
        value[: 19 if ":" in value else 12] if isinstance(value, str) and _DIGEST.fullmatch(value) else value
    )


def _print_attribution(out: "Console", found: Attribution) -> None:
    before, after = found.recorded
    change = "" if found.change is None else f", a change of {_digits(found.change)}"
    out.print()
    out.print(f"{found.metric} was {shown(before)} and is {shown(after)}{change}", style="bold")
    out.print(
        f"the seeds alone: standard deviation {_digits(found.noise)} around {shown(found.mean)} "
        f"({len(found.seeds)} seeds)"
    )
    rows = [
        [
            one.name,
            _digits(one.effect),
            _digits(one.standard_error),
            _interval(found.interval(one)),
            _percent(found.share(one.effect)),
            _answer(found, one),
        ]
        for one in found.effects
    ]
    rows.append(
        ["not explained", _digits(found.unexplained), None, "", _percent(found.share(found.unexplained)), ""]
    )
    print_table(
        out,
        ("factor", "effect", "standard error", "95 % interval", "of the change", "beside the seeds' noise"),
        rows,
        right=("effect", "standard error", "95 % interval", "of the change"),
    )
    for factor, why in found.left_out.items():
        out.print(f"{factor} differs and was not changed: {why}", style="dim")
    out.print()
    out.print(_conclusion(found), style="bold")
    out.print(
        "the intervals hold all effects together, and are wide with few seeds; not explained are the two "
        "runs' own seeds and what was not "
        "changed; shares need not add up to 100 %, as factors interact; where more seeds are trained "
        "because of what was seen, the "
        "intervals hold their effects less often than 95 %",
        style="dim",
    )


def _answer(found: Attribution, effect: Effect) -> str:
    if effect.error is not None:
        return f"not measured: {effect.error}"
    if effect.effect == 0 == effect.standard_error:
        return "none"
    return "more than noise" if found.beyond_noise(effect) else "may be noise"


def _conclusion(found: Attribution) -> str:
    """What to make of it, and what to do where it is too little."""
    clear = [one.name for one in found.effects if found.beyond_noise(one)]
    needed = {
        one.name: seeds
        for one in found.effects
        if not found.beyond_noise(one) and (seeds := found.seeds_needed(one))
    }
    missing = [one.name for one in found.effects if one.error is not None]
    if len(missing) == len(found.effects):
        return f"nothing was measured: {', '.join(missing)}"
    said = (
        f"beyond the noise of the seeds: {', '.join(clear)}"
        if clear
        else "no effect can be told from the noise of the seeds"
    )
    said += f"; not measured: {', '.join(missing)}" if missing else ""
    if not needed:
        return said
    others = ", ".join(f"{name} {seeds}" for name, seeds in needed.items())
    more = f"with more seeds these could be, if they stay what they are ({others})"
    return f"{said}; {more}: --repeat {max(needed.values())} goes on from the reruns there are"


def _digits(value: float | None) -> str | None:
    """Three significant digits: an effect is known no better."""
    return None if value is None else f"{value:.3g}"


def _interval(found: tuple[float, float] | None) -> str:
    return "" if found is None else f"{_digits(found[0])} to {_digits(found[1])}"


def _percent(share: float | None) -> str | None:
    """Of a change that is next to none a share has no meaning, but many digits."""
    if share is not None and abs(share) >= _MOST_SHARE:
        return f"{'over ' if share > 0 else 'under -'}{_MOST_SHARE:.0%}"
    return None if share is None else f"{share:.0%}".replace("-0%", "0%")
