"""``halving why``: how two runs differ, and how much of a metric's change each factor explains."""

import argparse
import math
import re
import statistics
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from halving.cli.output import cell_text, console, print_json, print_table
from halving.cli.rerun import ended_as_by_ctrl_c, options_of, tell
from halving.errors import InvalidInput
from halving.query.runs import RunInfo, find_run, read_run
from halving.records.run_record import RunRecords
from halving.rerun.attribution import Attribution, Done, Effect, check_arms, read_kept, run_experiment
from halving.rerun.comparison import read_points
from halving.rerun.experiment import (
    Experiment,
    all_differences,
    cautions,
    check_repeat,
    last_value,
    plan_experiment,
)
from halving.rerun.factors import FACTORS, Difference
from halving.rerun.kept_reruns import KeptReruns
from halving.rerun.plan import Plan
from halving.rerun.pods import Pods
from halving.rerun.rerun import Options, plan_rerun, trains_here
from halving.store.store import Store
from halving.text import duration

if TYPE_CHECKING:
    from rich.console import Console

_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{40,64}")
_MAX_SHARE = 10.0
GIVEN_UP = 130  # a shell's own status after Ctrl-C


def run_why(arguments: argparse.Namespace, pods: Pods | None = None) -> int:
    """Print the factors in which two runs differ, and with ``--rerun`` the effect of each.

    JSON: ``{"runs": [A, B], "differs": {factor: [{"factor", "name", "recorded", "now"}]}, "same": [factor],
    "attribution": null or {"metric", "recorded": [A's, B's], "seeds", "mean", "noise", "effects": [{"name",
    "factors", "effect", "standard_error", "interval": [low, high], "share", "beyond_noise", "error"}],
    "arms": [{"name", "runs", "values"}], "unexplained": {"effect", "share"}, "left_out": {factor: why}}}``.
    ``recorded`` is A's and ``now`` B's. The exit status is 130 where Ctrl-C ended the reruns early; what was
    measured before is printed. ``pods`` is as in :func:`halving.rerun.rerun.rerun`.
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
    first, second = (read_run(store, *name) for name in names)
    differs = all_differences(first, second, (_trained_for(store, first), _trained_for(store, second)))
    if not arguments.json:
        # The differences come before the question whether to train, and before hours of training.
        _print(console(), first, second, differs)
    attribution = None
    attribution_json = None
    if arguments.rerun:
        attribution = _measure_effects(arguments, store, first, second, pods)
        attribution_json = attribution.as_dict()
    if arguments.json:
        print_json(
            {
                "runs": [f"{info.project}/{info.run}" for info in (first, second)],
                "differs": {
                    factor: [difference.as_dict() for difference in differences]
                    for factor, differences in differs.items()
                },
                "same": [factor for factor in FACTORS if factor not in differs],
                "attribution": attribution_json,
            }
        )
    elif attribution is not None:
        _print_attribution(console(), attribution)
    if attribution is not None and attribution.given_up:
        return GIVEN_UP
    return 0


def _trained_for(store: Store, info: RunInfo) -> int | None:
    """Epochs that a trial has trained for; None for any other run."""
    if not info.record.get("trial"):
        return None
    newest = RunRecords(store, info.project, info.run).latest_checkpoint()
    if newest is None:
        return None
    return newest.epoch


def _measure_effects(
    arguments: argparse.Namespace, store: Store, first: RunInfo, second: RunInfo, pods: Pods | None
) -> Attribution:
    metric = arguments.metric or _metric_of(store, first, second)
    recorded = _last_recorded(store, first, metric), _last_recorded(store, second, metric)
    if not math.isfinite(recorded[0]):
        raise InvalidInput(
            f"metric {metric!r} is not accepted: {first.project}/{first.run} ended with {recorded[0]}, and "
            "so would its reruns; give the run that is well as the first of the two, or another --metric "
            f"({_metrics(store, first)})"
        )
    options = options_of(arguments)
    plans = [_plan_rerun(store, info, options, pods) for info in (first, second)]
    experiment = plan_experiment(plans[0], plans[1], metric, arguments.repeat, build=arguments.env)
    kept = KeptReruns(store, build=arguments.env, in_pods=experiment.other.image is not None)
    done = read_kept(experiment, kept)
    check_arms(store, experiment, done, options, pods)
    for caution in cautions(store, plans, metric):
        tell(f"note: {caution}")
    _tell_cost(
        experiment, done, kept.unwatched_sources([arm.plan for arm in experiment.arms]), build=arguments.env
    )
    if len(done) < len(experiment.reruns) and not arguments.yes and not _confirm():
        raise InvalidInput("nothing was trained")
    try:
        with ended_as_by_ctrl_c():
            return run_experiment(store, experiment, recorded, options, kept, done, tell, pods)
    except KeyboardInterrupt:
        tell(
            "given up before the first arm had ended; the reruns that have ended are kept, and the same "
            "command goes on from there"
        )
        raise


def _plan_rerun(store: Store, info: RunInfo, options: Options, pods: Pods | None) -> tuple[RunInfo, Plan]:
    """A run and the plan of its rerun, which has no image where it is trained on this machine."""
    info, plan = plan_rerun(store, info.project, info.run)
    if plan.image is not None and trains_here(plan, plan.image, options, pods):
        plan = replace(plan, image=None)
    return info, plan


def _last_recorded(store: Store, info: RunInfo, metric: str) -> float:
    value = last_value(store, info, metric)
    if value is None:
        raise InvalidInput(
            f"metric {metric!r} is not accepted: {info.project}/{info.run} has {_metrics(store, info)}"
        )
    return value


def _tell_cost(experiment: Experiment, done: Done, unwatched_sources: list[str], *, build: bool) -> None:
    total = len(experiment.reruns)
    left = len(experiment.reruns) - len(done)
    arms = ", ".join(arm.name for arm in experiment.arms)
    tell(f"{total} reruns: {len(experiment.seeds)} seeds each of: {arms}")
    for factor, why in experiment.left_out.items():
        tell(f"{factor} differs and is not changed: {why}")
    if done:
        tell(f"trained by an earlier call, and not again: {len(done)}")
        first_run = experiment.arms[0].plan.name
        for package in unwatched_sources:
            tell(
                f"note: nothing says whether {package} is what it was then; if it is not, delete "
                f"why-*.json beside the record of {first_run}"
            )
    if not left:
        return
    measured = None
    if done:
        measured = statistics.mean(rerun.seconds for rerun in done.values())
    seconds = measured or experiment.seconds
    if seconds is None:
        tell(f"{left} to train: of unknown length")
    else:
        about = f"about {duration(seconds)} each, {duration(seconds * left)} in all, one after another"
        if not measured:
            about += "; it is what the runs trained for, and starting each takes some seconds more"
        tell(f"{left} to train: {about}")
    if build:
        tell(
            "before that, virtual environments of the recorded packages are built; each takes the disk "
            "that its packages need"
        )


def _confirm() -> bool:
    if not sys.stdin.isatty():
        raise InvalidInput("--rerun trains, and there is no terminal to ask at: give --yes")
    sys.stderr.write("train them? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _metric_of(store: Store, first: RunInfo, second: RunInfo) -> str:
    """The objective of a trial, or the only metric that both runs have."""
    objectives: list[dict[str, Any]] = (first.record.get("trial") or {}).get("objectives") or []
    if objectives:
        return str(objectives[0]["metric"])
    both = sorted(
        read_points(store, first.project, first.run).keys()
        & read_points(store, second.project, second.run).keys()
    )
    if len(both) != 1:
        raise InvalidInput(f"--rerun needs --metric: both runs have {', '.join(both) or 'none in common'}")
    return both[0]


def _metrics(store: Store, info: RunInfo) -> str:
    return ", ".join(sorted(read_points(store, info.project, info.run))) or "none"


def _print(out: "Console", first: RunInfo, second: RunInfo, differs: dict[str, list[Difference]]) -> None:
    heads = [f"{info.project}/{info.run}" for info in (first, second)]
    rows = []
    for factor, differences in differs.items():
        # The factor stands in the first of its rows alone.
        names = [factor, *[""] * (len(differences) - 1)]
        for name, difference in zip(names, differences, strict=True):
            rows.append([name, difference.name, _short(difference.recorded), _short(difference.now)])
    if rows:
        print_table(out, ("factor", "of what", *heads), rows, first=True)
    same = ", ".join(factor for factor in FACTORS if factor not in differs)
    out.print(f"the same in both: {same or 'nothing'}", style="dim")


def _short(value: Any) -> Any:
    """The beginning of a commit or digest; two whole ones are wider than a terminal, and JSON has them."""
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        kind, colon, digits = value.rpartition(":")
        return f"{kind}{colon}{digits[:12]}"
    return value


def _print_attribution(out: "Console", attribution: Attribution) -> None:
    before, after = attribution.recorded
    change = ""
    if attribution.change is not None:
        change = f", a change of {_digits(attribution.change)}"
    out.print()
    out.print(f"{attribution.metric} was {cell_text(before)} and is {cell_text(after)}{change}", style="bold")
    out.print(
        f"the seeds alone: standard deviation {_digits(attribution.noise)} around "
        f"{cell_text(attribution.mean)} ({len(attribution.seeds)} seeds)"
    )
    rows = [
        [
            effect.name,
            _digits(effect.effect),
            _digits(effect.standard_error),
            _interval(attribution.interval(effect)),
            _percent(attribution.share(effect.effect)),
            _answer(attribution, effect),
        ]
        for effect in attribution.effects
    ]
    rows.append(
        [
            "not explained",
            _digits(attribution.unexplained),
            None,
            "",
            _percent(attribution.share(attribution.unexplained)),
            "",
        ]
    )
    print_table(
        out,
        ("factor", "effect", "standard error", "95 % interval", "of the change", "beside the seeds' noise"),
        rows,
        right=("effect", "standard error", "95 % interval", "of the change"),
    )
    for factor, why in attribution.left_out.items():
        out.print(f"{factor} differs and was not changed: {why}", style="dim")
    out.print()
    out.print(_conclusion(attribution), style="bold")
    out.print(
        "the intervals hold all effects together, and are wide with few seeds; not explained are the two "
        "runs' own seeds and what was not changed; shares need not add up to 100 %, as factors interact; "
        "where more seeds are trained because of what was seen, the intervals hold their effects less often "
        "than 95 %",
        style="dim",
    )


def _answer(attribution: Attribution, effect: Effect) -> str:
    if effect.error is not None:
        return f"not measured: {effect.error}"
    if effect.effect == 0 == effect.standard_error:
        return "none"
    if attribution.beyond_noise(effect):
        return "more than noise"
    return "may be noise"


def _conclusion(attribution: Attribution) -> str:
    """The conclusion in a sentence, and what to do where the evidence is too little."""
    clear = [effect.name for effect in attribution.effects if attribution.beyond_noise(effect)]
    needed = {
        effect.name: seeds
        for effect in attribution.effects
        if not attribution.beyond_noise(effect) and (seeds := attribution.seeds_needed(effect))
    }
    missing = [effect.name for effect in attribution.effects if effect.error is not None]
    if len(missing) == len(attribution.effects):
        return f"nothing was measured: {', '.join(missing)}"
    parts = ["no effect can be told from the noise of the seeds"]
    if clear:
        parts = [f"beyond the noise of the seeds: {', '.join(clear)}"]
    if missing:
        parts.append(f"not measured: {', '.join(missing)}")
    if needed:
        others = ", ".join(f"{name} {seeds}" for name, seeds in needed.items())
        parts.append(
            f"with more seeds these could be, if they stay what they are ({others}): "
            f"--repeat {max(needed.values())} goes on from the reruns there are"
        )
    return "; ".join(parts)


def _digits(value: float | None) -> str | None:
    """A number to three significant digits; no effect is measured more precisely."""
    if value is None:
        return None
    return f"{value:.3g}"


def _interval(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    return f"{_digits(interval[0])} to {_digits(interval[1])}"


def _percent(share: float | None) -> str | None:
    """A share in percent, cut off where the whole change is so small that a share means nothing."""
    if share is None:
        return None
    if share >= _MAX_SHARE:
        return f"over {_MAX_SHARE:.0%}"
    if share <= -_MAX_SHARE:
        return f"under -{_MAX_SHARE:.0%}"
    return f"{share:.0%}".replace("-0%", "0%")
