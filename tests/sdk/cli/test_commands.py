"""The SDK's commands as a person or a script meets them: recovery, compaction and what all have in common."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import halving
from halving import Store
from halving.cli.main import main
from tests.sdk.cli.command_output import Halving, rows_of


def test_recover_saves_what_a_killed_process_left(filled: Store, command: Halving) -> None:
    said = command("recover", "killed", "--json")
    assert said.status == 0
    assert said.data["attempts"] == [
        {"project": "text", "run": "killed", "attempt": 1, "points": 1, "state": "recovered"}
    ]
    assert "nothing to recover" in command("recover").out
    assert command("show", "killed", "--json").data["status"] == "crashed"
    assert [row["value"] for row in rows_of(command("export", "killed"))] == ["3", "2"]


def test_recover_tells_what_is_live_and_what_had_to_be_kept(filled: Store, command: Halving) -> None:
    run = halving.init("text", {}, filled.root, id="live", system_metrics=None)
    live = Path(filled.root, "metrics/project=text/run=killed/live")
    for path in live.iterdir():
        path.write_bytes(b"damaged")
    said = command("recover")
    assert said.status == 1
    assert [line.split()[4:5] for line in said.out.splitlines()[2:4]] == [["kept:"], ["live"]]
    assert "run the same command again to retry" in said.out
    run.finish()


def test_compact_says_what_it_did_and_does_nothing_twice(filled: Store, command: Halving) -> None:
    first = command("compact", "base-0", "--json")
    (row,) = first.data["runs"]
    assert (row["run"], row["segments"], row["error"]) == ("base-0", 1, None)
    assert (
        row["points"]
        == row["total"]
        == sum(curve["points"] for curve in command("show", "base-0", "--json").data["metrics"].values())
    )
    (again,) = command("compact", "base-0", "--json").data["runs"]
    assert (again["points"], again["segments"]) == (0, 0)


def test_runs_lists_the_others_beside_one_that_is_damaged_and_names_the_file(
    filled: Store, command: Halving
) -> None:
    total = command("runs", "--json").data["total"]
    filled.replace("runs/project=digits/odd/record.json", b'{"project": ')
    said = command("runs", "--limit", "0")
    assert (said.status, "odd" in said.out.partition("a run is left out")[0]) == (0, False)
    assert (
        f"a run is left out: {filled.address('runs/project=digits/odd/record.json')} is damaged: " in said.out
    )
    data = command("runs", "--json").data
    assert (data["total"], len(data["problems"])) == (total - 1, 1)


def test_compact_goes_on_after_a_run_that_is_damaged_and_its_status_is_1(
    filled: Store, command: Halving
) -> None:
    for path in Path(filled.root, "metrics/project=digits/run=odd/live").iterdir():
        path.write_bytes(b"damaged")
    said = command("compact", "--project", "digits")
    assert said.status == 1
    assert "base-1" in said.out
    assert "digits/odd: " in said.out


def test_compact_needs_to_know_which_runs(filled: Store, command: Halving) -> None:
    for arguments in ([], ["base-0", "--all"], ["--all", "--project", "digits"]):
        said = command("compact", *arguments)
        assert (said.status, said.out) == (1, "")
        assert "give RUN…, or --project NAME, or --all" in said.err


def test_what_a_person_wrote_is_shown_as_it_is(store: Store, command: Halving) -> None:
    halving.init(
        "p", {"note": "[bold]x[/] :smile:", "nan": math.nan}, store.root, id="r", system_metrics=None
    ).finish()
    assert "[bold]x[/] :smile:" in command("show", "r").out
    assert command("show", "r", "--json").data["params"] == {"note": "[bold]x[/] :smile:", "nan": "NaN"}
    assert "no metrics" in command("show", "r").out
    assert "not in a git checkout" in command("show", "r").out


def test_calling_it_wrongly_is_status_2(command: Halving, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in (["show"], ["runs", "--limit", "-1"], ["export", "x", "--format", "xml"], ["nonsense"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert capfd.readouterr().out == ""


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path, store: Store, command: Halving) -> None:
    Path(store.root).write_text("a file where the store should be")
    said = command("runs")
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith(f"halving runs: cannot list {store.root}/runs: ")


def shell(line: str, store: Store) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "HALVING_ROOT": store.root, "PYTHON": sys.executable}
    return subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_pipe_that_is_closed_early_is_quiet(filled: Store) -> None:
    run = halving.init("text", {}, filled.root, id="long", system_metrics=None)
    for step in range(20_000):
        run.log({"loss": 1.0}, step=step)
    run.finish()
    for name in ("export long", "export long --json", "show base-0 --packages", "runs"):
        done = shell(f'set -o pipefail; "$PYTHON" -m halving.cli.main {name} | head -1', filled)
        assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


@pytest.mark.slow
def test_without_rich_json_works_and_tables_say_what_to_install(filled: Store) -> None:
    without = "\"$PYTHON\" -c \"import sys; sys.modules['rich'] = None; sys.modules['rich.console'] = None; "
    done = shell(f"{without}from halving.cli.main import main; sys.exit(main(['runs', '--json']))\"", filled)
    assert (done.returncode, len(json.loads(done.stdout)["runs"])) == (0, 5)
    done = shell(f"{without}from halving.cli.main import main; sys.exit(main(['runs']))\"", filled)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "halving runs: tables need the package rich: pip install 'halving[cli]', or ask for --json\n"
    )


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\ntry:\n    from halving.cli.main import main; main(['--help'])\n"
        "finally:\n    print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    for name in ("runs", "show", "compare", "rerun", "why", "export", "recover", "compact"):
        assert f"    {name} " in done.stdout
    for heavy in ("rich", "pyarrow", "numpy", "duckdb", "dagster", "sqlalchemy", "halving.query.runs"):
        assert f"'{heavy}'" not in done.stderr
