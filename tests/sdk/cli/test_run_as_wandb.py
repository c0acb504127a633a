"""``halving run --as-wandb``: what a script's ``import wandb`` is, and that all else stays as it was."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import halving.wandb
from halving.cli.run import AS_WANDB, command_of, environment_as_wandb
from halving.errors import InvalidInput
from tests.sdk.cli.command_output import Halving

WHICH = "import wandb; print(wandb.__name__)"
Started = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def start(tmp_path: Path) -> Started:
    """Start ``halving run --as-wandb`` in the test's folder."""

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "halving.cli.main", "run", "--as-wandb", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, **options)

    return run


def test_what_would_be_started_is_the_interpreter_for_scripts_and_the_program_for_others() -> None:
    assert command_of(["train.py", "--lr", "1"], None) == [sys.executable, "train.py", "--lr", "1"]
    assert command_of([], ["json.tool", "--help"]) == [sys.executable, "-m", "json.tool", "--help"]
    assert command_of(["--", "torchrun", "-m", "train"], None) == ["torchrun", "-m", "train"]
    with pytest.raises(InvalidInput, match="no script: give"):
        command_of(["--"], None)


def test_our_folder_is_first_and_once_on_the_search_path() -> None:
    once = environment_as_wandb({"PYTHONPATH": "/a:/b", "HOME": "/h"})
    assert once == {"PYTHONPATH": f"{AS_WANDB}:/a:/b", "HOME": "/h"}
    assert environment_as_wandb(once) == once
    assert environment_as_wandb({})["PYTHONPATH"] == str(AS_WANDB)
    assert environment_as_wandb({"PYTHONPATH": ""})["PYTHONPATH"] == str(AS_WANDB)


def test_an_empty_entry_of_the_search_path_stays_the_working_directory() -> None:
    once = environment_as_wandb({"PYTHONPATH": ":/b"})
    assert once["PYTHONPATH"] == f"{AS_WANDB}::/b"
    assert environment_as_wandb(once) == once


def test_a_root_takes_the_place_of_a_server() -> None:
    changed = environment_as_wandb({"HALVING_URL": "http://host:3001"}, "/store")
    assert (changed.get("HALVING_URL"), changed["HALVING_ROOT"]) == (None, "/store")


def test_the_version_that_frameworks_read_is_that_of_the_module() -> None:
    (folder,) = AS_WANDB.glob("wandb-*.dist-info")
    version = re.search(r"^Version: (.+)$", (folder / "METADATA").read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] == halving.wandb.__version__ == folder.name.removesuffix(".dist-info")[len("wandb-") :]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.py"], "--as-wandb is missing"),
        (["--as-wandb"], "no script"),
        (["--as-wandb", "nothing.py"], "script = 'nothing.py' is not accepted: no such file"),
        (
            ["--as-wandb", "--", "no-such-program"],
            "'no-such-program' is not accepted: no such program on PATH",
        ),
        (["--as-wandb", "--json", "train.py"], "the standard output belongs to the script"),
        (["--as-wandb", "--", sys.executable, "-I", "-c", ""], "option -I"),
        (["--as-wandb", "--", sys.executable, "-uE", "-m", "this"], "option -uE"),
    ],
)
def test_what_cannot_be_started_is_refused_before_it_starts(
    command: Halving, arguments: list[str], message: str
) -> None:
    output = command("run", *arguments)
    assert (output.status, output.out) == (1, "")
    assert message in output.err


SCRIPT = '''
"""Says which module is imported as wandb, here and in children."""
import importlib.metadata, importlib.util, json, multiprocessing, os, subprocess, sys

sys.path.insert(0, "installed")  # whatever is put before it: an installed wandb is not imported


class Model:
    pass


def say(queue, model):
    import wandb

    queue.put([wandb.__name__, type(model).__module__])


if __name__ == "__main__":
    import wandb
    from wandb.errors import Error
    import halving.wandb.errors

    children = {}
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=say, args=(queue, Model()))
        child.start()
        children[method] = queue.get()
        child.join()
    inner = [sys.executable, "-c", "import wandb; print(wandb.__name__)"]
    children["subprocess"] = subprocess.check_output(inner, text=True).strip()
    print(json.dumps({
        "name": wandb.__name__,
        "one error": Error is halving.wandb.errors.Error,
        "children": children,
        "argv": sys.argv,
        "folder": os.getcwd(),
        "read": sys.stdin.read(),
        "version": importlib.metadata.version("wandb"),
        "spec": importlib.util.find_spec("wandb") is not None,
        "distributions": importlib.metadata.packages_distributions()["wandb"],
    }))
    sys.exit(7)
'''


@pytest.mark.slow
def test_a_script_and_all_of_its_children_get_our_module_and_all_else_is_as_ever(
    tmp_path: Path, start: Started
) -> None:
    installed = tmp_path / "installed" / "wandb"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("raise RuntimeError('the installed wandb was imported')")
    (tmp_path / "wandb").mkdir()  # W&B's folder of offline runs is no package
    (tmp_path / "train.py").write_text(SCRIPT)
    done = start("train.py", "--as-wandb", "-m", "--", "x", input="typed")
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout) == {
        "name": "halving.wandb",
        "one error": True,
        "children": {
            "spawn": ["halving.wandb", "__mp_main__"],
            "fork": ["halving.wandb", "__main__"],
            "forkserver": ["halving.wandb", "__mp_main__"],
            "subprocess": "halving.wandb",
        },
        "argv": ["train.py", "--as-wandb", "-m", "--", "x"],
        "folder": str(tmp_path),
        "read": "typed",
        "version": halving.wandb.__version__,
        "spec": True,
        "distributions": ["wandb"],
    }


@pytest.mark.slow
def test_a_module_that_we_lack_is_one_clear_error(start: Started) -> None:
    done = start("--", sys.executable, "-c", "import wandb.proto.wandb_internal_pb2")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: no module 'wandb.proto")
    assert "docs/wandb.md" in last


@pytest.mark.slow
@pytest.mark.parametrize("place", ["before", "behind"])
def test_the_sitecustomize_of_the_user_runs_and_ours_holds(
    tmp_path: Path, start: Started, place: str
) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = __file__\n")
    (tmp_path / "train.py").write_text(WHICH + "; print(customized)")
    if place == "behind":
        done = start("train.py", env={**os.environ, "PYTHONPATH": f"{user}:{os.environ['PYTHONPATH']}"})
    else:
        inner = f"PYTHONPATH={user}:$PYTHONPATH {sys.executable} train.py"
        done = start("--", "sh", "-c", inner)
    assert done.stdout.split() == ["halving.wandb", str(user / "sitecustomize.py")], done.stderr


@pytest.mark.slow
def test_an_interpreter_without_halving_says_so_instead_of_importing_another_wandb(start: Started) -> None:
    done = start("--", "sh", "-c", f"PYTHONPATH={AS_WANDB} {sys.executable} -S -c 'import wandb'")
    assert done.returncode == 1
    assert "no module 'halving' in" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_the_script_and_its_end_is_the_commands(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "train.py").write_text(
        "import signal, sys, time\n"
        "def end(number, frame): print('told', number, flush=True); sys.exit(40 + number)\n"
        "signal.signal(signal.SIGINT, end); signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-m", "halving.cli.main", "run", "--as-wandb", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        rest = process.stdout.read()
    if number is signal.SIGKILL:
        assert (rest, process.returncode) == ("", -9)
    else:
        assert (rest, process.returncode) == (f"told {int(number)}\n", 40 + number)


@pytest.mark.slow
def test_each_rank_of_torchrun_gets_our_module(tmp_path: Path, start: Started) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(WHICH)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = start(*launcher)
    # The ranks may write into each other's line.
    assert (done.returncode, done.stdout.count("halving.wandb")) == (0, 2), done.stderr


@pytest.mark.slow
def test_the_record_of_a_run_does_not_list_our_module_as_an_installed_package(
    tmp_path: Path, start: Started
) -> None:
    program = (
        "from halving.records.provenance import environment; print('wandb' in environment()['packages'])"
    )
    done = start("--", sys.executable, "-c", program)
    assert done.stdout == "False\n", done.stderr
