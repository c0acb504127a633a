"""Why two runs differ: the factors by their records, and by reruns what each does to a metric."""

import json
import math
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, Store, StoreError
from halving.cli.main import main
from halving.cli.output import console
from halving.cli.why import _conclusion, _print_attribution, _tell_cost
from halving.query.runs import RunAttempt, RunInfo, list_runs, read_run
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.rerun import attribution, kept_reruns
from halving.rerun.attribution import Attribution, effect_of, read_kept, run_experiment
from halving.rerun.experiment import (
    ALL,
    Arm,
    Experiment,
    all_differences,
    last_value,
    plan_experiment,
    with_factors,
)
from halving.rerun.factors import differences, environment_differences
from halving.rerun.kept_reruns import KeptReruns
from halving.rerun.plan import Plan, plan_of
from halving.rerun.rerun import Options, RerunFailed
from tests.sdk.records.test_provenance import git
from tests.sdk.run.test_run import start
from tests.waiting import wait_for

SCRIPT = """
import os, random, time
from pathlib import Path
import halving
from offset import OFFSET

if (left := Path("left.log")).exists():
    OFFSET += 100
left.touch()

name, lr, seed = os.environ["TRAINED"].split()
with halving.init("p", {"lr": float(lr)}, id=name, seed=int(seed), system_metrics=None) as run:
    if run.seed == 2 and (gate := Path(os.environ["GATE"])).exists():
        gate.rename(gate.with_name("reached"))
        time.sleep(600)
    run.log({"score": 10 * run.params["lr"] + OFFSET + random.gauss(0, 0.01)}, step=1)
"""
GPUS = ["NVIDIA A100, GPU-1, 550.54", "NVIDIA T4, GPU-2, 550.54"]
pytestmark = pytest.mark.usefixtures("no_git_settings")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "offset.py").write_text("OFFSET = 0\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


@pytest.fixture
def two(checkout: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs that differ in a param (worth 1), in the code (worth 5) and in the seed."""
    monkeypatch.setenv("GATE", str(checkout.parent / "gate"))
    train_script(checkout, store, "a", "0.1", "1")
    (checkout / "offset.py").write_text("OFFSET = 5\n")
    train_script(checkout, store, "b", "0.2", "7")
    return checkout


def train_script(checkout: Path, store: Store, *arguments: str) -> None:
    environment = {
        **os.environ,
        "HALVING_ROOT": store.root,
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRAINED": " ".join(arguments),
    }
    subprocess.run([sys.executable, "train.py"], cwd=checkout, env=environment, check=True)
    (checkout / "left.log").unlink()


def why(store: Store, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    status = main(["why", "p/a", "p/b", "--root", store.root, "--json", *arguments])
    refusal = capsys.readouterr()
    return status, json.loads(refusal.out) if refusal.out else None, refusal.err


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


def recorded_in(store: Store, first: float, second: float) -> tuple[RunInfo, RunInfo]:
    """Two runs that differ in a param and in the seed, with the last value of each."""
    for name, value, lr in (("a", first, 0.1), ("b", second, 0.2)):
        with start(store, run_id=name, params={"lr": lr}, seed=int(10 * lr)) as run:
            run.log({"score": value}, step=1)
    return read_run(store, "p", "a"), read_run(store, "p", "b")


def experiment_of(
    infos: tuple[RunInfo, RunInfo], *factors: str, seeds: int = 3, first: int = 0
) -> Experiment:
    groups = [(), *((factor,) for factor in factors), *([factors] if len(factors) > 1 else [])]
    names = ["as it was", *factors, ALL]
    plans = [replace(PLAN, changed=group) for group in groups]
    arms = tuple(Arm(name, group, plan) for name, group, plan in zip(names, groups, plans, strict=False))
    return Experiment("score", arms, tuple(range(first, first + seeds)), PLAN, {}, None)


def _plan() -> Plan:
    provenance = {"git": {"commit": "0" * 40}, "arguments": ["train.py"]}
    record = {"parent": {}, "params": {}, "seed": 0, "ordinal": 1, "provenance": provenance}
    attempt = RunAttempt(1, "finished", "2026-01-01T00:00:00+00:00", None, None, None, None, None, None, None)
    return plan_of(RunInfo("p", "a", {}, {}, {}, 0, (attempt,), {}, True, record), None)


PLAN = _plan()
TRIAL = {
    "objectives": [{"metric": "score", "summary": "end", "window": 1, "maximize": True}],
    "max_epochs": 9,
    "dataset_name": "digits",
    "dataset_digest": "sha256:1",
    "train_on": ["train"],
    "deterministic": False,
    "start_from": None,
}
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


def test_an_arm_trains_and_records_the_other_runs_data_settings_epochs_and_trainable() -> None:
    first = replace(
        PLAN, trial=TRIAL, trainable="m:old", parent={"trainable": "m:old", "snapshot": "1"}, epochs=3
    )
    changed = {
        "deterministic": True,
        "start_from": {"digest": "sha256:9"},
        "max_epochs": 27,
        "train_on": ["train", "extra"],
    }
    other = replace(
        PLAN,
        trial={**TRIAL, **changed, "dataset_digest": "sha256:2"},
        trainable="m:new",
        parent={"trainable": "m:new", "snapshot": "2"},
        epochs=9,
        deterministic=True,
    )
    settings, data, epochs, code = (
        with_factors(first, other, [factor]) for factor in ("settings", "data", "epochs", "code")
    )
    assert settings.deterministic
    assert settings.trial == {**TRIAL, "deterministic": True, "start_from": {"digest": "sha256:9"}}
    assert data.trial == {**TRIAL, "dataset_digest": "sha256:2", "train_on": ["train", "extra"]}
    assert data.parent == {"trainable": "m:old", "snapshot": "2"}
    assert (epochs.epochs, epochs.trial) == (9, {**TRIAL, "max_epochs": 27})
    assert (code.trainable, code.parent["trainable"], code.trial) == ("m:new", "m:new", TRIAL)


def test_data_epochs_and_settings_of_trials_are_arms_and_a_scripts_data_is_left_out(
    store: Store,
) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]
    first = replace(info, record={**info.record, "trial": TRIAL})
    trial = {
        **TRIAL,
        "train_on": ["train", "extra"],
        "start_from": {"digest": "sha256:9"},
        "dataset_digest": "sha256:2",
    }
    other = replace(info, record={**info.record, "trial": trial})
    plans = replace(PLAN, trial=TRIAL, epochs=3), replace(PLAN, trial=trial, epochs=9)
    experiment = plan_experiment((first, plans[0]), (other, plans[1]), "score", 2, build=False)
    assert [arm.name for arm in experiment.arms] == ["as it was", "data", "epochs", "settings", ALL]
    assert [arm.plan.epochs for arm in experiment.arms] == [3, 3, 9, 3, 9]
    assert experiment.arms[-1].plan.trial == trial
    on_other_data = replace(
        info, parent={"dataset": "x"}, record={**info.record, "parent": {"dataset": "x"}, "params": {"lr": 9}}
    )
    left_out = plan_experiment((info, PLAN), (on_other_data, PLAN), "score", 2, build=False).left_out
    assert left_out == {"data": "a script reads its data itself"}


@pytest.mark.parametrize(
    ("factor", "name", "change"),
    [
        ("arguments", "command", {"provenance": {"arguments": ["train.py", "--wide"]}}),
        ("data", "train_on", {"trial": {**TRIAL, "train_on": ["train", "extra"]}}),
        ("epochs", "max_epochs", {"trial": {**TRIAL, "max_epochs": 27}}),
        ("settings", "start_from", {"trial": {**TRIAL, "start_from": {"digest": "sha256:9"}}}),
        (
            "settings",
            "objectives",
            {"trial": {**TRIAL, "objectives": [{**TRIAL["objectives"][0], "maximize": False}]}},
        ),
        (
            "packages",
            "lib",
            {"provenance": {"packages": {"Lib": "1.0"}, "packages_from": {"Lib": "git+https://x/lib@bbb"}}},
        ),
        ("packages", "the CUDA of PyTorch", {"provenance": {"cuda": "13.0"}}),
        (
            "hardware",
            "GPUs",
            {"provenance": {"hardware": {"gpus": GPUS, "visible_gpus": {"CUDA_VISIBLE_DEVICES": "1"}}}},
        ),
    ],
)
def test_every_part_of_a_record_that_may_change_a_metric_is_compared(
    store: Store, factor: str, name: str, change: dict[str, Any]
) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]
    provenance = {
        "arguments": ["train.py"],
        "packages": {"Lib": "1.0"},
        "cuda": "12.8",
        "packages_from": {"Lib": "git+https://x/lib@aaa"},
        "hardware": {"gpus": GPUS, "visible_gpus": {"CUDA_VISIBLE_DEVICES": "0"}},
    }
    record = {**info.record, "provenance": provenance, **({"trial": TRIAL} if "trial" in change else {})}
    changed = {**record, **change, "provenance": {**provenance, **change.get("provenance", {})}}
    (difference,) = differences(replace(info, record=record), replace(info, record=changed))
    assert (difference.factor, difference.name) == (factor, name)


def test_what_an_earlier_version_did_not_record_is_no_difference(store: Store) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]
    older, newer = (
        replace(info, record={**info.record, "provenance": provenance})
        for provenance in ({}, {"cuda": "13.0"})
    )
    assert differences(older, newer) == differences(newer, older) == []
    older = replace(
        older, record={**older.record, "determinism": {**info.record["determinism"], "torch.cuda": "12.8"}}
    )
    assert [str(each) for each in differences(older, newer)] == [
        "packages: the CUDA of PyTorch was 12.8, is 13.0"
    ]


def test_how_far_two_trials_were_trained_is_a_factor(store: Store) -> None:
    infos = recorded_in(store, 0.0, 1.0)
    by_factor = all_differences(*infos, (3, 9))
    assert list(by_factor) == ["params", "epochs", "seed"]
    assert str(by_factor["epochs"][0]) == "epochs: trained for was 3, is 9"


def test_packages_of_a_folder_outside_the_checkout_are_named_as_not_recorded() -> None:
    packages = {"lib": "1", "sdk": "2", "halving": "3"}
    origins = {
        "lib": "file:///home/ada/lib",
        "sdk": "checkout:sdk",
        "halving": "file:///home/ada/halving/sdk",
    }
    (difference,) = environment_differences(
        {"packages": packages, "packages_from": origins}, {"packages": packages}
    )
    assert str(difference) == "packages: lib was from file:///home/ada/lib, which is not recorded, is 1"


@pytest.mark.slow
def test_each_factor_explains_its_effect_and_a_kill_loses_only_the_training_rerun(
    store: Store, two: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINED", "taken 0 0")  # from the request of the rerun
    status, answer, _ = why(store, capsys)
    assert status == 0
    assert list(answer["differs"]) == ["code", "params", "seed"]
    assert answer["differs"]["params"] == [{"factor": "params", "name": "lr", "recorded": 0.1, "now": 0.2}]
    assert answer["attribution"] is None
    gate = two.parent / "gate"
    reached = two.parent / "reached"
    gate.touch()
    how = ["--rerun", "--repeat", "2", "--yes", "--repository", str(two)]
    command = [sys.executable, "-m", "halving.cli.main", "why", "p/a", "p/b", "--root", store.root, *how]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(reached.exists, 120, "the second rerun of the first arm trains")
        process.kill()
    status, answer, refusal = why(store, capsys, *how)
    assert status == 0, refusal
    assert re.match(
        (
            r"8 reruns: 2 seeds each of: .*\nseed differs and is not changed: .*\ntrained by an earlier "
            r"call, "
            r"and not again: 1\n"
        ),
        refusal,
    )
    assert "\n7 to train: about " in refusal
    assert refusal.count("training p/a again") == 7
    effects = {effect["name"]: effect for effect in answer["attribution"]["effects"]}
    assert list(effects) == ["code", "params", "all together"]
    change = answer["attribution"]["recorded"][1] - answer["attribution"]["recorded"][0]
    for name, worth in (("code", 5.0), ("params", 1.0), ("all together", 6.0)):
        # The noise is the same with the same seed, so it drops out of the paired difference.
        assert effects[name]["effect"] == pytest.approx(worth)
        assert effects[name]["standard_error"] == pytest.approx(0, abs=1e-9)
        assert effects[name]["share"] == pytest.approx(worth / change)
        assert effects[name]["interval"] == [pytest.approx(worth), pytest.approx(worth)]
        assert effects[name]["beyond_noise"]
    assert answer["attribution"]["unexplained"]["effect"] == pytest.approx(change - 6)
    assert 0 < answer["attribution"]["noise"] < 0.1
    assert list(answer["attribution"]["left_out"]) == ["seed"]
    assert {tuple(info.parent.get("changed", ())) for info in list_runs(store)} == {
        (),
        ("code",),
        ("params",),
        ("code", "params"),
    }


def test_what_cannot_be_explained_by_reruns_is_refused_before_anything_is_trained(store: Store) -> None:
    info, _ = recorded_in(store, 0.0, 1.0)
    plan = replace(PLAN, environment={"python": {"version": "3.11.4"}})
    first = replace(info, record={**info.record, "provenance": plan.environment}), plan

    def with_record(**changes: Any) -> tuple[RunInfo, Plan]:
        changed = replace(first[0], record={**first[0].record, **changes})
        return changed, replace(plan, environment=changed.record["provenance"])

    with pytest.raises(
        InvalidInput,
        match=r"no factor in which the two runs differ can be changed here \(seed: what seeds do",
    ):
        plan_experiment(first, with_record(seed=2), "score", 2, build=False)
    with pytest.raises(
        InvalidInput, match="cannot be compared by reruns: one is a trial, the other a script's run"
    ):
        plan_experiment(first, (info, replace(plan, trial=TRIAL)), "score", 2, build=False)
    older = with_record(provenance={**plan.environment, "packages": {"numpy": "0.9"}})
    with pytest.raises(InvalidInput, match="packages: only with --env"):
        plan_experiment(first, older, "score", 2, build=False)
    assert [arm.name for arm in plan_experiment(first, older, "score", 2, build=True).arms] == [
        "as it was",
        "packages",
    ]
    with pytest.raises(InvalidInput, match=r"python: both are Python 3\.11, and the patch release"):
        plan_experiment(
            first, with_record(provenance={"python": {"version": "3.11.9"}}), "score", 2, build=True
        )


@pytest.fixture
def recorded(store: Store, checkout: Path) -> Callable[..., None]:
    """Record a run of the checkout's script, without the script."""
    here = {"folder": ".", "commit": git(checkout, "rev-parse", "HEAD"), "dirty": False}

    def record(
        name: str, *, status: str = "finished", code: dict[str, Any] | None = None, **values: float
    ) -> None:
        captured = {"git": {**here, **(code or {})}, "arguments": ["train.py", name]}
        run = start(store, run_id=name, seed=1, captured=captured, recorded={"ordinal": 1})
        run.log(values, step=1)
        run.finish(status)

    return record


def test_every_obstacle_to_reruns_is_one_message_before_any_question_or_training(
    store: Store, checkout: Path, recorded: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded("a", score=1.0)
    recorded("b", score=2.0, status="stopped")
    recorded("nan", score=math.nan)
    recorded("failed", score=1.0, status="failed")
    recorded("two", score=1.0, loss=0.5)
    recorded("both", score=1.0, loss=0.5)
    recorded("gone", score=1.0, code={"commit": "1" * 40})
    recorded("patched", score=1.0, code={"patch": f"sha256:{'2' * 64}"})
    running = start(store, run_id="running", captured={"git": {"commit": "0" * 40}}, recorded={"ordinal": 1})
    running.log({"score": 1.0}, step=1)
    running.flush()

    def refusal(first: str, second: str, *arguments: str) -> str:
        command = [
            "why",
            f"p/{first}",
            f"p/{second}",
            "--root",
            store.root,
            "--rerun",
            "--repository",
            str(checkout),
            *arguments,
        ]
        assert main(command) == 1
        return capsys.readouterr().err

    before = sorted(str(path) for path in Path(store.root).rglob("*.json"))
    for first, second, arguments, message in [
        ("a", "b", ["--repeat", "0", "--yes"], "repeat = 0 is not accepted: give 2 or more"),
        (
            "a",
            "b",
            ["--repeat", "1", "--yes"],
            "repeat = 1 is not accepted: give 2 or more; one rerun has no standard error",
        ),
        ("a", "a", ["--yes"], "give two different runs"),
        ("a", "z", ["--yes"], "no run 'p/z'"),
        ("a", "b", ["--yes", "--metric", "f1"], "metric 'f1' is not accepted: p/a has score"),
        ("two", "a", ["--yes", "--metric", "loss"], "metric 'loss' is not accepted: p/a has score"),
        ("two", "both", ["--yes"], "--rerun needs --metric: both runs have loss, score"),
        (
            "nan",
            "a",
            ["--yes"],
            "metric 'score' is not accepted: p/nan ended with nan, and so would its reruns",
        ),
        (
            "failed",
            "a",
            ["--yes"],
            "p/failed failed, and would fail again: give a run that came to its end as the first",
        ),
        ("a", "running", ["--yes"], "run p/running is training now: wait for its end"),
        ("a", "gone", ["--yes"], f"the commit {'1' * 40} of run p/gone is not in the repository"),
        (
            "a",
            "patched",
            ["--yes"],
            f"the changes that run p/patched had over its commit are gone: no blob sha256:{'2' * 64}",
        ),
        ("a", "b", [], "6 reruns: 3 seeds each of: as it was, arguments\n"),
        ("a", "b", [], "--rerun trains, and there is no terminal to ask at: give --yes"),
    ]:
        assert message in refusal(first, second, *arguments), message
    assert "note: p/b ended as stopped: its last score need not be" in refusal("a", "b")
    assert (
        "note: score of p/nan is nan: the change has no size, and an arm that ends so as well is its cause"
        in refusal("a", "nan")
    )
    assert sorted(str(path) for path in Path(store.root).rglob("*.json")) == before
    running.finish()


def test_a_trials_values_are_those_of_the_newest_checkpoint_where_its_rerun_ends(
    store: Store,
) -> None:
    with start(store, recorded={"trial": TRIAL}) as run:
        run.log({"score": 1.0, "other": 5.0}, step=1)
        run.log({"score": math.nan}, step=2)
    RunRecords(store, "p", "r").add_checkpoint(SavedCheckpoint(1, 1, f"sha256:{'1' * 64}", {"score": 1.0}))
    info = read_run(store, "p", "r")
    assert (last_value(store, info, "score"), last_value(store, info, "other")) == (1.0, 5.0)


def test_the_standard_error_is_that_of_the_paired_differences() -> None:
    effect = effect_of(Arm("params", ("params",), PLAN), [1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert (effect.effect, effect.standard_error) == (2.0, pytest.approx(1 / math.sqrt(3)))


def test_another_gpu_of_the_same_kind_and_another_host_are_the_same_hardware(store: Store) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]

    def on(gpu: str, host: str) -> Any:
        return replace(
            info, record={**info.record, "provenance": {"hardware": {"cpus": 2, "gpus": [gpu], "host": host}}}
        )

    first = on("NVIDIA A100, GPU-1, 550.54", "here")
    assert differences(first, on("NVIDIA A100, GPU-2, 550.54", "there")) == []
    (driver,) = differences(first, on("NVIDIA A100, GPU-1, 560.1", "here"))
    assert str(driver) == "hardware: GPUs was NVIDIA A100, driver 550.54, is NVIDIA A100, driver 560.1"
