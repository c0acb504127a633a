"""Scripts that end, are killed, fork or spawn: what the store has of their runs."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from halving import Store
from halving.ingest.recovery import recover_run
from halving.query.runs import list_runs
from tests.sdk.conftest import Script
from tests.sdk.wandb.recorded import curves_of, only_run

pytestmark = pytest.mark.slow

_BEGIN = "import os, sys\nimport halving.wandb as wandb\nrun = wandb.init(project='p', id='r')\n"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", "finished"),
        ("sys.exit(0)", "finished"),
        ("sys.exit()", "finished"),
        ("sys.exit(3)", "failed"),
        ("sys.exit('wrong')", "failed"),
        ("1 / 0", "failed"),
        ("os.kill(os.getpid(), 15)", "terminated"),
    ],
)
def test_a_run_ends_as_its_script_does(script: Script, store: Store, end: str, status: str) -> None:
    script(
        f"{_BEGIN}run.define_metric('a', summary='max')\nwandb.log({{'a': 2}})\nwandb.log({{'a': 1}})\n"
        f"run.config.lr = 1\n{end}\n"
    )
    info = only_run(store)
    assert info.status == status
    assert info.summary == {"a": 1.0, "a/max": 2.0}
    assert info.params == {"lr": 1}


def test_a_killed_run_keeps_its_points_and_what_was_written_of_the_rest(tmp_path: Path, store: Store) -> None:
    program = textwrap.dedent("""
        import sys
        import halving.wandb as wandb
        run = wandb.init(project="p", id="r", settings={"x_disable_stats": True})
        run.define_metric("acc", summary="max,min")
        run.config.lr = 1
        run.summary["best"] = 4
        for value in (2.0, 5.0, 3.0):
            wandb.log({"acc": value})
        assert run._changes.flush()
        wandb.log({"acc": 4.0}, commit=False)
        run.config.later = 2
        print("logged", flush=True)
        sys.stdin.read()
    """)
    environment = {**os.environ, "HALVING_ROOT": str(store.root)}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "logged\n"
        process.send_signal(signal.SIGKILL)
    recover_run(store, "p", "r")
    info = only_run(store)
    assert info.status == "crashed"
    assert curves_of(store, info) == {"acc": [(0, 2.0), (1, 5.0), (2, 3.0), (3, 4.0)]}
    assert info.params["lr"] == 1
    assert info.summary == {"acc": 4.0, "acc/max": 5.0, "acc/min": 2.0, "best": 4.0}


def test_a_forked_child_logs_to_its_parents_run(script: Script, store: Store) -> None:
    done = script(
        _BEGIN
        + textwrap.dedent("""
        wandb.log({"a": 1.0})
        child = os.fork()
        if not child:
            wandb.log({"b": 1.0})
            run.config.child = 1
            wandb.finish()
            os._exit(0)
        os.waitpid(child, 0)
        wandb.log({"a": 2.0})
        wandb.finish()
        """)
    )
    assert done.returncode == 0, done.stderr
    info = only_run(store)
    assert info.status == "finished"
    assert curves_of(store, info) == {"a": [(0, 1.0), (1, 2.0)], "b": [(1, 1.0)]}
    assert info.params == {}


def test_spawned_processes_have_runs_of_their_own(script: Script, store: Store) -> None:
    done = script(
        textwrap.dedent("""
        import multiprocessing
        import halving.wandb as wandb

        def train(lr):
            with wandb.init(project="p", config={"lr": lr}, group="all") as run:
                run.log({"loss": lr})

        if __name__ == "__main__":
            wandb.setup()
            context = multiprocessing.get_context("spawn")
            processes = [context.Process(target=train, args=(lr,)) for lr in (1, 2)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
        """)
    )
    assert done.returncode == 0, done.stderr
    infos = list_runs(store)
    assert sorted(info.params["lr"] for info in infos) == [1, 2]
    assert {info.status for info in infos} == {"finished"}
    assert {info.tags["group"] for info in infos} == {"all"}


def test_a_run_that_is_pickled_into_another_process_says_that_it_is_not_there(
    script: Script, store: Store
) -> None:
    done = script(
        textwrap.dedent("""
        import multiprocessing
        import halving.wandb as wandb

        def use(run):
            try:
                run.log({"loss": 1})
            except wandb.errors.NotSupported as error:
                print(error, flush=True)

        if __name__ == "__main__":
            run = wandb.init(project="p", id="r")
            process = multiprocessing.get_context("spawn").Process(target=use, args=(run,))
            process.start()
            process.join()
        """)
    )
    assert "run.log() of run r in another process is not there in Halving" in done.stdout, done.stderr
    assert only_run(store).status == "finished"


def test_importing_it_imports_no_heavy_package(script: Script) -> None:
    done = script(
        "import halving.wandb, sys\n"
        "print([name for name in ('torch', 'numpy', 'pyarrow', 'pandas', 'yaml') if name in sys.modules])\n"
    )
    assert done.stdout == "[]\n", done.stderr
