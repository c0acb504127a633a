"""How much of a metric's change each factor explains, and which reruns are kept for that."""

import math
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halving import Store, StoreError
from halving.cli.output import console
from halving.cli.why import _conclusion, _print_attribution, _tell_cost
from halving.query.runs import RunInfo, list_runs, read_run
from halving.rerun import attribution, kept_reruns
from halving.rerun.attribution import Attribution, effect_of, read_kept, run_experiment
from halving.rerun.experiment import (
    ALL,
    Arm,
    Experiment,
    last_value,
)
from halving.rerun.kept_reruns import KeptReruns
from halving.rerun.plan import Plan
from halving.rerun.rerun import Options, RerunFailed
from tests.sdk.rerun.experiments import PLAN, recorded_in
from tests.sdk.run.runs import start

pytestmark = pytest.mark.usefixtures("no_git_settings")
Values = Callable[[tuple[str, ...], int], float]


@pytest.fixture
def as_trained(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[Values], None]:
    """Let reruns be runs of the store that log a value by their factors and seed, without a process and a
    checkout each.
    """

    def give(values: Values) -> None:
        @contextmanager
        def prepared(
            _: Store, plan: Plan, __: Options, ___: Any, tell: Callable[[str], None]
        ) -> Iterator[Any]:
            tell(f"differences from {plan.name}")
            yield Path(), "", []

        def train(_: Store, plan: Plan, *__: Any) -> RunInfo:
            name = secrets.token_hex(6)
            with start(store, run_id=name, seed=plan.seed) as run:
                run.log({"score": values(plan.changed, plan.seed or 0)}, step=1)
            return read_run(store, "p", name)

        monkeypatch.setattr(attribution, "prepare_interpreter", prepared)
        monkeypatch.setattr(attribution, "train", train)

    return give


def experiment_of(
    infos: tuple[RunInfo, RunInfo], *factors: str, seeds: int = 3, first: int = 0
) -> Experiment:
    groups = [(), *((factor,) for factor in factors), *([factors] if len(factors) > 1 else [])]
    names = ["as it was", *factors, ALL]
    plans = [replace(PLAN, changed=group) for group in groups]
    arms = tuple(Arm(name, group, plan) for name, group, plan in zip(names, groups, plans, strict=False))
    return Experiment("score", arms, tuple(range(first, first + seeds)), PLAN, {}, None)


OPTIONS = Options(repository=Path())


def explain(
    store: Store, wanted: Experiment, infos: tuple[RunInfo, RunInfo], tell: Callable[[str], None] = print
) -> Attribution:
    """What the command does once it knows what to train."""
    kept = KeptReruns(store, build=False)
    values = last_value(store, infos[0], wanted.metric), last_value(store, infos[1], wanted.metric)
    return run_experiment(store, wanted, values, OPTIONS, kept, read_kept(wanted, kept), tell)


def test_shares_are_of_the_recorded_change_and_the_rest_has_a_row_of_its_own(
    store: Store, as_trained: Callable[[Values], None], capsys: pytest.CaptureFixture[str]
) -> None:
    infos = recorded_in(store, 0.0, 50.0)
    as_trained(lambda changed, seed: 0.01 * seed + len(changed) * (1.0 + 0.1 * seed))
    lines: list[str] = []
    attribution = explain(store, experiment_of(infos, "params"), infos, lines.append)
    assert lines.count("differences from p/a") == 2  # of each arm, once
    (effect,) = attribution.effects
    assert (effect.effect, attribution.change, attribution.unexplained) == (
        pytest.approx(1.1),
        50.0,
        pytest.approx(48.9),
    )
    assert attribution.share(effect.effect) == pytest.approx(0.022)
    _print_attribution(console(), attribution)
    refusal = " ".join(capsys.readouterr().out.split())
    assert re.search(r"not explained 48\.9 .{1,3} 98%", refusal), refusal
    _print_attribution(console(), replace(attribution, recorded=(0.0, -1e-12)))  # next to no change
    refusal = " ".join(capsys.readouterr().out.split())
    assert re.search(r"params 1\.1 .* under -1000% .*not explained -1\.1 .{1,3} over 1000%", refusal), refusal
    _print_attribution(console(), replace(attribution, recorded=(1.0, 1.0)))
    assert "%" not in re.sub("(95|100) ?%", "", capsys.readouterr().out)


def test_intervals_are_students_for_as_many_seeds_and_for_all_effects_together(
    store: Store, as_trained: Callable[[Values], None]
) -> None:
    infos = recorded_in(store, 0.0, 1.0)
    as_trained(lambda changed, seed: len(changed) * (seed - 1.0))
    attribution = explain(store, experiment_of(infos, "code", "params"), infos)
    first = attribution.effects[0]
    assert (first.effect, first.standard_error) == (0.0, pytest.approx(1 / math.sqrt(3)))
    # t with 2 degrees of freedom at 1 - 0.05 / (2 * 3), by scipy.stats.t.ppf; two standard errors would be
    # 1.15
    assert attribution.interval(first) == (
        pytest.approx(-7.648804 / math.sqrt(3)),
        pytest.approx(7.648804 / math.sqrt(3)),
    )


def test_a_metric_that_is_not_finite_ends_the_first_arm_and_is_another_arms_error(
    store: Store, as_trained: Callable[[Values], None]
) -> None:
    infos = recorded_in(store, 0.0, 1.0)
    as_trained(lambda *_: math.nan)
    for _ in range(2):  # also where an earlier call has trained it
        with pytest.raises(
            RerunFailed,
            match=r"score of the rerun p/.* \(seed 0\) is nan, and what is not finite has no difference",
        ):
            explain(store, experiment_of(infos, "params"), infos)
        assert len(list_runs(store)) == 3
    as_trained(lambda changed, _: math.inf if changed == ("code",) else 1.0)
    attribution = explain(store, experiment_of(infos, "code", "params", first=5), infos)
    assert [effect.effect for effect in attribution.effects] == [None, 0.0, 0.0]
    assert "is inf" in str(attribution.effects[0].error)
    assert _conclusion(attribution) == "no effect can be told from the noise of the seeds; not measured: code"
    assert _conclusion(replace(attribution, effects=attribution.effects[:1])) == "nothing was measured: code"


def test_after_ctrl_c_complete_arms_count_and_no_rerun_is_trained_again(
    store: Store, as_trained: Callable[[Values], None]
) -> None:
    infos = recorded_in(store, 0.0, 1.0)
    train_script: list[tuple[tuple[str, ...], int]] = []

    def until(last: int) -> Values:
        def values(changed: tuple[str, ...], seed: int) -> float:
            if len(train_script) == last:
                raise KeyboardInterrupt
            train_script.append((changed, seed))
            return seed + len(changed)

        return values

    as_trained(until(7))  # A's three, three of the code's, and one of the params'
    attribution = explain(store, experiment_of(infos, "code", "params"), infos)
    assert attribution.given_up
    assert [(effect.effect, effect.error) for effect in attribution.effects] == [
        (1.0, None),
        (None, "given up while it was trained"),
        (None, "given up before it was trained"),
    ]
    as_trained(until(99))
    attribution = explain(
        store, experiment_of(infos, "code", "params", seeds=4), infos
    )  # more seeds than before
    assert [effect.effect for effect in attribution.effects] == [1.0, 1.0, 2.0]
    assert [(arm.name, arm.values) for arm in attribution.arms][:2] == [
        ("as it was", (0, 1, 2, 3)),
        ("code", (1, 2, 3, 4)),
    ]
    assert len(train_script) == len(set(train_script)) == 4 * 4
    assert {run for arm in attribution.arms for run in arm.runs} < {effect.run for effect in list_runs(store)}
    explain(
        store, experiment_of(infos, "params", seeds=2), infos
    )  # fewer, and the arms of another comparison
    assert len(train_script) == 4 * 4


def test_a_rerun_is_trained_again_where_anything_that_it_is_trained_by_is_another(
    store: Store, as_trained: Callable[[Values], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = recorded_in(store, 0.0, 1.0)
    as_trained(lambda changed, seed: float(seed))
    explain(store, wanted := experiment_of(infos, "params"), infos)

    def count_kept(plan_experiment: Experiment, *, build: bool = False) -> int:
        return len(read_kept(plan_experiment, KeptReruns(store, build=build)))

    assert count_kept(wanted) == 6
    assert count_kept(replace(wanted, metric="other")) == 6
    assert count_kept(wanted, build=True) == 0
    for change in ({"commit": "1" * 40}, {"params": {"lr": 3}}, {"deterministic": True}):
        own, arm = wanted.arms
        assert count_kept(replace(wanted, arms=(own, replace(arm, plan=replace(arm.plan, **change))))) == 3, (
            change
        )
    here = kept_reruns.environment()
    for about in (
        {"packages": {**here["packages"], "numpy": "0.9"}},
        {"hardware": {**here["hardware"], "cpus": 999}},
    ):
        monkeypatch.setattr(kept_reruns, "environment", lambda about=about: {**here, **about})
        assert count_kept(wanted) == 0, about


def test_with_env_a_kept_rerun_depends_on_python_and_not_on_installed_packages(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]
    here = kept_reruns.environment()
    KeptReruns(store, build=True).keep(PLAN, info, 1.0)
    for about, is_kept in (
        ({"packages": {"numpy": "0.9"}}, True),
        ({"python": {**here["python"], "version": "3.11.999"}}, False),
    ):
        monkeypatch.setattr(kept_reruns, "environment", lambda about=about: {**here, **about})
        assert (KeptReruns(store, build=True).read(PLAN) is not None) == is_kept, about


def test_the_first_of_two_equal_reruns_counts_and_a_damaged_file_is_named(
    store: Store,
) -> None:
    infos = recorded_in(store, 0.0, 1.0)
    calls = [KeptReruns(store, build=False) for _ in range(2)]
    gave = [call.keep(PLAN, info, 1.0) for call, info in zip(calls, infos, strict=True)]
    assert gave[0] == gave[1] == calls[1].read(PLAN)
    assert (gave[0].run, gave[0].values) == ("a", {"score": 0.0})
    (file,) = Path(store.root).rglob("why-*.json")
    file.write_text("{")
    with pytest.raises(StoreError, match=rf"{file.name} is damaged"):
        calls[0].read(PLAN)


def test_a_call_names_packages_of_unrecorded_files_before_it_reuses_reruns(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    origins = {
        "mine": "file:///home/ada/mine",
        "lib": "file:///home/ada/lib",
        "forked": "git+https://x/forked@a",
    }
    monkeypatch.setattr(kept_reruns, "environment", lambda: {"packages_from": origins})
    built_of = {"packages_from": {"mine": "checkout:sdk", "old": "file:///home/ada/old"}}
    plan = replace(PLAN, environment=built_of)
    other = replace(PLAN, environment={"packages_from": {"new": "file:///home/ada/new"}})
    assert KeptReruns(store, build=True).unwatched_sources([plan, other]) == [
        "old from file:///home/ada/old",
        "new from file:///home/ada/new",
    ]
    kept = KeptReruns(store, build=False)
    assert kept.unwatched_sources([plan]) == ["lib from file:///home/ada/lib"]  # and mine from the worktree
    wanted = experiment_of(recorded_in(store, 0.0, 1.0), "params", seeds=2)
    _tell_cost(wanted, {}, kept.unwatched_sources([plan]), build=False)
    assert "note:" not in capsys.readouterr().err  # all are trained now
    _tell_cost(
        wanted,
        {("params", 0): kept_reruns.KeptRerun("r", {}, 1.0)},
        kept.unwatched_sources([plan]),
        build=False,
    )
    assert (
        "note: nothing says whether lib from file:///home/ada/lib is what it was then"
        in capsys.readouterr().err
    )


def test_the_standard_error_is_that_of_the_paired_differences() -> None:
    effect = effect_of(Arm("params", ("params",), PLAN), [1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert (effect.effect, effect.standard_error) == (2.0, pytest.approx(1 / math.sqrt(3)))
