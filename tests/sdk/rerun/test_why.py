"""``halving why`` as a user calls it: reruns are trained, or it is said why they cannot be."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, Store
from halving.cli.main import main
from halving.query.runs import RunInfo, list_runs
from halving.rerun.experiment import (
    plan_experiment,
)
from halving.rerun.plan import Plan
from tests.sdk.records.checkouts import git
from tests.sdk.rerun.experiments import PLAN, TRIAL, recorded_in
from tests.sdk.run.runs import start
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
