"""A run of a user's script, trained again from its record: identical, or where it differs and why."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, NotFound, Store
from halving.cli.main import main
from halving.cli.rerun import ended_as_by_ctrl_c
from halving.query.runs import read_run
from halving.rerun import rerun as rerun_module
from halving.rerun.plan import plan_of
from halving.rerun.rerun import Options, RerunFailed, RerunRefused, rerun
from halving.rerun.verdict import Verdict
from halving.rerun.worktree import worktree
from tests.sdk.records.checkouts import git
from tests.sdk.rerun.scripts import SCRIPT
from tests.sdk.run.runs import start
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_git_settings")


@pytest.fixture
def recorded(checkout: Path, store: Store) -> Callable[..., None]:
    """Run the script in the checkout."""

    def run(name: str = "r", lr: float = 0.5) -> None:
        run_script(checkout, store, str(lr), name)

    return run


def run_script(checkout: Path, store: Store, *arguments: str, script: str = "train.py") -> None:
    environment = {**os.environ, "HALVING_ROOT": store.root, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, script, *arguments], cwd=checkout / "code", env=environment, check=True)


def again(store: Store, checkout: Path, lines: list[str] | None = None, **options: Any) -> Verdict:
    return rerun(
        store,
        "p",
        "r",
        Options(repository=checkout, **options),
        tell=(lines if lines is not None else []).append,
    )


@pytest.mark.slow
def test_a_run_of_uncommitted_code_is_identical_although_the_code_has_changed_since(
    store: Store, checkout: Path, recorded: Callable[..., None]
) -> None:
    recorded()
    (checkout / "code" / "rate.py").write_text("RATE = 7\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=second")
    lines: list[str] = []
    verdict = again(store, checkout, lines, strict=True)
    assert (verdict.verdict, verdict.points, verdict.first_difference, verdict.factors) == (
        "identical",
        6,
        None,
        [],
    )
    assert verdict.weights[0] == verdict.weights[1] is not None
    assert lines[0] == "the environment is as recorded"
    new = read_run(store, "p", verdict.run)
    assert new.parent["rerun_of"] == "p/r"
    assert (new.params, new.seed, new.status) == ({"lr": 0.5}, 3, "finished")
    kept = json.loads(store.read(f"runs/project=p/{verdict.run}/rerun.json"))
    assert kept["verdict"] == "identical"
    assert git(checkout, "worktree", "list").count("\n") == 0
    assert git(checkout, "status", "--porcelain") == ""


MANY = """
import subprocess, sys
import halving

for name in sys.argv[2:]:
    with halving.init("p", {"lr": len(name)}, id=name, seed=3, system_metrics=None) as run:
        run.log({"loss": 1.0}, step=1)
    if len(sys.argv) > 3:
        subprocess.run([sys.executable, __file__, "alone", "child"], check=True)
"""


@pytest.mark.slow
def test_a_rerun_of_one_of_a_scripts_runs_leaves_every_other_recorded_run_as_it_was(
    store: Store, checkout: Path
) -> None:
    (checkout / "code" / "train.py").write_text(MANY)
    run_script(checkout, store, "many", "r0", "r", "r2")
    before = {name: read_run(store, "p", name).attempts for name in store.names("runs/project=p")}
    verdict = again(store, checkout)
    assert verdict.verdict == "identical"
    assert read_run(store, "p", verdict.run).params == {"lr": 1}
    after = {name: read_run(store, "p", name).attempts for name in store.names("runs/project=p")}
    del after[verdict.run]
    assert after == before


@pytest.mark.slow
@pytest.mark.parametrize("moves", [False, True])
def test_a_script_with_an_absolute_path_or_another_folder_runs_the_recorded_code(
    store: Store, checkout: Path, *, moves: bool
) -> None:
    script = checkout / "code" / "train.py"
    if moves:
        script.write_text(f"import os\nos.chdir('..')\n{SCRIPT}")
    run_script(checkout, store, "0.5", "r", script="train.py" if moves else str(script))
    script.write_text("raise SystemExit('today')")
    assert again(store, checkout, strict=True).verdict == "identical"


ENDING = """
    import signal
    if ("HALVING_RERUN" in os.environ) == {again}:
        {how}
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
RAISE = "raise OSError"


@pytest.mark.slow
@pytest.mark.parametrize(("how", "status"), [(RAISE, "failed"), (KILL, "unfinished")])
def test_a_rerun_that_did_not_end_as_the_recorded_run_is_no_verdict(
    store: Store, checkout: Path, recorded: Callable[..., None], how: str, status: str
) -> None:
    script = checkout / "code" / "train.py"
    script.write_text(script.read_text() + ENDING.format(again=True, how=how))
    recorded()
    with pytest.raises(
        RerunFailed,
        match=f"ended as {status} .* and not as finished, as it had to .the recorded run ended as finished",
    ):
        again(store, checkout)


@pytest.mark.slow
def test_a_recorded_run_that_was_killed_is_compared_as_far_as_it_went(
    store: Store, checkout: Path, recorded: Callable[..., None]
) -> None:
    script = checkout / "code" / "train.py"
    more = '    run.log({"loss": 0.5}, step=9)\n'
    script.write_text(script.read_text() + ENDING.format(again=False, how=KILL) + more)
    with pytest.raises(subprocess.CalledProcessError):
        recorded()
    verdict = again(store, checkout)
    assert (verdict.verdict, verdict.points, verdict.status) == ("identical", 6, ("crashed", "finished"))
    assert verdict.not_compared == [
        "1 metric points that the rerun logged after the end of the recorded run, which ended as crashed"
    ]


@pytest.mark.slow
def test_a_rerun_that_differs_names_the_first_difference_and_the_factor(
    store: Store, checkout: Path, recorded: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded()
    original = rerun_module.plan_rerun
    monkeypatch.setattr(rerun_module, "plan_rerun", lambda *arguments: _another_seed(*original(*arguments)))
    verdict = again(store, checkout)
    assert verdict.verdict == "differs"
    first = verdict.first_difference
    assert first is not None
    assert (first.step, first.metric, first.metrics, first.points) == (1, "loss", 2, 6)
    assert first.recorded is not None
    assert first.rerun is not None
    assert first.difference == first.rerun - first.recorded
    assert verdict.weights[0] != verdict.weights[1]
    assert [str(factor) for factor in verdict.factors] == ["seed: seed was 3, is 4"]


def _another_seed(info: Any, plan: Any) -> Any:
    from dataclasses import replace

    return info, replace(plan, seed=4)


@pytest.mark.slow
def test_another_package_version_is_named_before_it_trains_and_strict_refuses(
    store: Store, checkout: Path, recorded: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded()
    now = rerun_module.environment_of(sys.executable)
    now["packages"]["numpy"] = "0.9"
    monkeypatch.setattr(rerun_module, "environment_of", lambda *_: now)
    before = store.names("runs/project=p")
    lines: list[str] = []
    with pytest.raises(
        RerunRefused, match=r"packages: numpy was [\d.]+, is 0\.9.*\n.*--except FACTOR \(packages\)"
    ):
        again(store, checkout, lines, strict=True)
    assert lines[0] == "1 differences from the record:"
    assert store.names("runs/project=p") == before
    assert again(store, checkout, strict=True, accepted=("packages",)).verdict == "identical"


@pytest.mark.slow
def test_what_is_gone_is_one_error_that_names_it(
    store: Store, checkout: Path, recorded: Callable[..., None], tmp_path: Path
) -> None:
    recorded()
    commit = git(checkout, "rev-parse", "HEAD")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(
        InvalidInput, match=r"repository .*other.* is not accepted: give a folder in a git checkout"
    ):
        again(store, other)
    git(other, "init", "--quiet")
    with pytest.raises(
        NotFound, match=f"the commit {commit} of run p/r is not in the repository .*other.*: fetch it there"
    ):
        again(store, other)
    patch = read_run(store, "p", "r").provenance["git"]["patch"]
    (blob,) = Path(store.root).rglob(patch.removeprefix("sha256:"))
    blob.unlink()
    with pytest.raises(
        NotFound, match=f"the changes that run p/r had over its commit are gone: no blob {patch}"
    ):
        again(store, checkout)
    with pytest.raises(
        InvalidInput, match="factor 'weather' is not accepted: give one of code, arguments, data"
    ):
        Options(repository=checkout, accepted=("weather",))


@pytest.mark.parametrize(
    ("git", "said"),
    [
        (None, "it did not run in a git checkout"),
        ({"commit": "--upload-pack=x"}, "is no commit"),
        (
            {"commit": "0" * 40, "folder": "../elsewhere"},
            "the folder '../elsewhere' in its record is not within the checkout",
        ),
        (
            {"commit": "0" * 40, "import_paths": ["/etc"]},
            "the folder '/etc' in its record is not within the checkout",
        ),
        ({"commit": "0" * 40}, "it ran in a notebook or an interactive session"),
    ],
)
def test_a_record_that_does_not_say_how_to_train_again_is_refused(
    store: Store, checkout: Path, git: Any, said: str
) -> None:
    with start(store, captured={"git": git}, recorded={"ordinal": 1}) as run:
        run.log({"loss": 1.0}, step=1)
    with pytest.raises(InvalidInput, match=f"run p/r cannot be trained again: .*{said}"):
        again(store, checkout)


@pytest.mark.slow
def test_a_run_in_an_image_is_refused_elsewhere_by_the_images_name(
    store: Store, checkout: Path, recorded: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_IMAGE_DIGEST", "registry.example/train@sha256:12")
    recorded()
    monkeypatch.delenv("HALVING_IMAGE_DIGEST")
    with pytest.raises(
        NotFound,
        match=(
            r"run p/r ran in the image registry\.example/train@sha256:12, which this process does not run "
            r"in"
        ),
    ):
        again(store, checkout)
    assert again(store, checkout, accepted=("image",)).verdict == "identical"


@pytest.mark.slow
def test_the_command_prints_one_document_and_what_the_training_prints_goes_elsewhere(
    store: Store, checkout: Path, recorded: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded()
    command = _rerun_command(store, checkout)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["verdict"] == "identical"
    assert "trained" in done.stderr
    assert main(["show", f"p/{verdict['run']}", "--root", store.root]) == 0
    assert "trained again from p/r: identical" in capsys.readouterr().out


@pytest.mark.slow
def test_the_commands_status_tells_a_difference_from_a_failure(
    store: Store,
    checkout: Path,
    recorded: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    recorded()
    command = ["rerun", "p/r", "--root", store.root, "--repository"]
    assert main([*command, str(tmp_path)]) == 2
    original = rerun_module.plan_rerun
    monkeypatch.setattr(rerun_module, "plan_rerun", lambda *arguments: _another_seed(*original(*arguments)))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process goes on
    assert main([*command, str(checkout)]) == 1


def test_a_sigterm_is_as_before_once_a_rerun_has_ended() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_as_by_ctrl_c():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_rerun_that_is_ended_stops_training_and_removes_its_worktree_if_it_can(
    store: Store, checkout: Path, recorded: Callable[..., None], tmp_path: Path, number: signal.Signals
) -> None:
    started = tmp_path / "started"
    waiting = (
        "import os, pathlib, time\nif 'HALVING_RERUN' in os.environ:\n    "
        f"pathlib.Path({str(started)!r}).write_text(str(os.getpid()))\n"
    )
    (checkout / "code" / "train.py").write_text(f"{waiting}    time.sleep(600)\n{SCRIPT}")
    recorded()
    command = _rerun_command(store, checkout)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: started.exists() and started.read_text() != "", 60, "the rerun trains")
        process.send_signal(number)
        assert process.wait() == (130 if number == signal.SIGTERM else -number)
    wait_for(lambda: not Path(f"/proc/{started.read_text()}").exists(), 30, "the end of what trained")
    assert git(checkout, "worktree", "list").count("\n") == (number == signal.SIGKILL)
    with worktree(checkout, plan_of(read_run(store, "p", "r"), None), store):
        assert git(checkout, "worktree", "list").count("\n") == 1, (
            "what the killed one left goes with the next"
        )
    assert git(checkout, "worktree", "list").count("\n") == 0


def _rerun_command(store: Store, checkout: Path) -> list[str]:
    rerun_main = [sys.executable, "-m", "halving.cli.main", "rerun", "p/r"]
    return [*rerun_main, "--repository", str(checkout), "--root", store.root]
