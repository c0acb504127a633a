"""Scripts that end in every way: what they logged is in the store, and how they ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from halving import Store
from tests.sdk.conftest import Script
from tests.sdk.ingest.stored_points import count_points, end_record


@pytest.mark.slow
def test_a_short_script_without_finish_leaves_all_its_points_and_its_end(
    script: Script, store: Store
) -> None:
    done = script(
        "import halving\nrun = halving.init('p', id='r', system_metrics=None)\nfor i in range(50): "
        "run.log({'a': i}, step=i)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert count_points(store) == {("a", step): 1 for step in range(50)}
    assert (
        end_record(store).items()
        >= {"status": "finished", "dropped_points": 0, "summary": {"a": 49.0}}.items()
    )


@pytest.mark.slow
def test_a_script_that_raises_leaves_all_its_points_and_the_status_failed(
    script: Script, store: Store
) -> None:
    done = script(
        "import halving\nrun = halving.init('p', id='r', system_metrics=None)\n"
        "run.log({'a': 1}, step=1)\nraise RuntimeError('out of luck')\n"
    )
    assert done.returncode == 1
    assert "out of luck" in done.stderr
    assert "halving" not in done.stderr.replace("import halving", "")
    assert count_points(store) == {("a", 1): 1}
    assert end_record(store)["status"] == "failed"


@pytest.mark.slow
def test_a_script_that_turns_sigterm_into_an_exit_leaves_all_its_points_and_its_end(
    script: Script, store: Store
) -> None:
    done = script(
        "import halving, os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "for i in range(50): run.log({'a': i}, step=i)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "run.log({'a': 0}, step=99)\n"
    )
    assert (done.returncode, done.stderr) == (143, "")
    assert count_points(store) == {("a", step): 1 for step in range(50)}
    assert store.exists("runs/project=p/r/end-0001.json")


@pytest.mark.slow
def test_what_was_flushed_survives_sigkill_and_the_attempt_has_no_end(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, signal\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "for i in range(50): run.log({'a': i}, step=i)\n"
        "assert run.flush(30)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert count_points(store) == {("a", step): 1 for step in range(50)}
    assert not store.exists("runs/project=p/r/end-0001.json")


@pytest.mark.slow
def test_sigterm_finishes_the_run_and_then_ends_the_process_as_usual(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, signal, time\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "for i in range(50): run.log({'a': i}, step=i)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(30)\n"
    )
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert count_points(store) == {("a", step): 1 for step in range(50)}
    assert end_record(store)["status"] == "terminated"


@pytest.mark.slow
def test_a_handler_of_the_users_own_is_left_alone(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, signal\n"
        "seen = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "assert seen\n"
        "run.log({'a': 1}, step=1)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert end_record(store)["status"] == "finished"


@pytest.mark.slow
def test_what_a_forked_child_logs_arrives_and_it_does_not_end_the_run_of_its_parent(
    script: Script, store: Store
) -> None:
    done = script(
        "import halving, os, sys, threading\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "run._writer._delay = 0.001\n"
        "run.log({'first': 0}, step=0); assert run.flush(30)\n"  # from here on the drain thread is busy
        "stop = threading.Event()\n"
        "def background():\n"
        "    step = 0\n"
        "    while not stop.wait(0.0005):\n"
        "        run.log({'background': 1}, step=step); step += 1\n"
        "    print(step)\n"
        "thread = threading.Thread(target=background); thread.start()\n"
        "for i in range(12):\n"
        "    run.log({'parent': i}, step=i)\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        run.log({'child': i}, step=i)\n"
        "        run.flush(); run.finish()\n"
        "        sys.exit(0)\n"  # runs atexit functions, where the parent's run is registered
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "stop.set(); thread.join()\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    background = int(done.stdout)
    expected = (
        {("first", 0): 1}
        | {(who, step): 1 for who in ("parent", "child") for step in range(12)}
        | {("background", step): 1 for step in range(background)}
    )
    assert count_points(store) == expected
    assert end_record(store).items() >= {"status": "finished", "dropped_points": 0}.items()


@pytest.mark.slow
def test_what_workers_of_a_data_loader_log_arrives_too(script: Script, store: Store) -> None:
    done = script(
        "import halving, torch\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "class Rows(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, i):\n"
        "        run.log({'worker': i}, step=i)\n"
        "        return torch.tensor(float(i))\n"
        "for epoch in run.epochs(2):\n"
        "    total = sum(batch.sum() for batch in torch.utils.data.DataLoader(Rows(), batch_size=2, "
        "num_workers=2))\n"
        "    run.report(total=total)\n"
        "    run.save(epoch=epoch)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert count_points(store) == {
        ("total", 1): 1,
        ("total", 2): 1,
        **{("worker", step): 2 for step in range(8)},
    }
    assert end_record(store)["status"] == "finished"


@pytest.mark.slow
def test_a_run_says_how_many_values_it_refused(script: Script, store: Store) -> None:
    done = script(
        "import halving\nrun = halving.init('p', id='r', system_metrics=None)\nrun.log({'a': 10**400, 'b': "
        "1}, step=1)\nrun.finish()\n"
    )
    assert done.returncode == 0
    assert "metric 'a' = an integer of 1329 bits is not accepted" in done.stderr
    assert "halving: 1 values of r were not accepted and were left out" in done.stderr
    assert (
        end_record(store).items()
        >= {"dropped_points": 0, "rejected_values": 1, "summary": {"b": 1.0}}.items()
    )


@pytest.mark.slow
def test_a_script_whose_warnings_are_errors_ends_all_the_same(script: Script, store: Store) -> None:
    done = script(
        "import halving, warnings\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "run.log({'a': 10**400}, step=1)\nwarnings.simplefilter('error')\nrun.finish()\nprint('goes on')\n"
    )
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
    assert end_record(store)["rejected_values"] == 1


@pytest.mark.slow
def test_training_goes_on_to_its_end_while_the_store_is_unreachable(tmp_path: Path, store: Store) -> None:
    """A file replaces the store's root while the script trains; it is repaired before the script ends."""
    source = (
        "import halving, sys, time\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "run._writer._delay = 0.01\n"
        "for i in range(10): run.log({'a': i}, step=i)\n"
        "assert run.flush(30)\n"
        "print('unreachable', flush=True); sys.stdin.readline()\n"
        "for i in range(10, 30): run.log({'a': i}, step=i)\n"
        "print(run.flush(0.2), flush=True)\n"
        "while not run._writer._pauses: time.sleep(0.01)\n"
        "print('failed', flush=True); sys.stdin.readline()\n"
        "for i in range(30, 40): run.log({'a': i}, step=i)\n"
    )
    command = [sys.executable, "-c", source]
    environment = {**os.environ, "HALVING_ROOT": store.root}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "unreachable\n"
        Path(store.root).rename(tmp_path / "unmounted")
        Path(store.root).write_text("not a folder")
        process.stdin.write("\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == ["False\n", "failed\n"]
        Path(store.root).unlink()
        (tmp_path / "unmounted").rename(store.root)
        process.stdin.write("\n")
        process.stdin.flush()
        errors = process.stderr.read()
    assert process.returncode == 0
    assert "cannot write metrics" in errors
    assert count_points(store) == {("a", step): 1 for step in range(40)}
    assert end_record(store)["dropped_points"] == 0
