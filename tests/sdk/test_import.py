"""What training code pays for ``import halving``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.conftest import Script

CHECKOUT = Path(__file__).parents[2]
PLATFORM = {
    "dagster",
    "alembic",
    "sqlalchemy",
    "optuna",
    "pydantic",
    "resources",
    "assets",
    "commands",
    "pipelines",
}
HEAVY = [
    "torch",
    "numpy",
    "pyarrow",
    "duckdb",
    "pandas",
    "dagster",
    "sqlalchemy",
    "optuna",
    "pydantic",
    "sklearn",
]


@pytest.mark.slow
def test_importing_halving_imports_no_heavy_package(script: Script) -> None:
    done = script("import halving, json, sys; halving.init; print(json.dumps(sorted(sys.modules)))")
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert "halving.run.run" in loaded
    assert [name for name in HEAVY if name in loaded] == []


@pytest.mark.slow
def test_a_run_never_imports_torch_or_numpy_for_a_script_that_does_not(script: Script) -> None:
    done = script(
        "import halving, sys\n"
        "run = halving.init('p', {'lr': 0.1}, id='r', seed=3)\n"
        "for epoch in run.epochs(2):\n"
        "    run.report(loss=1 / epoch)\n"
        "    run.save(epoch=epoch)\n"
        "print('torch' in sys.modules)\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_the_sdks_own_tests_load_nothing_of_the_platform() -> None:
    plugins = ("-p", "xdist.plugin", "-p", "pytest_timeout", "-p", "no:cacheprovider")
    collect = [*plugins, "--collect-only", "--quiet", "--numprocesses=0", str(Path(__file__).parent)]
    program = (
        f"import json, pytest, sys; print(int(pytest.main({collect})), json.dumps(sorted(sys.modules)), "
        "sep='\\n')"
    )
    # plugins that no test of the SDK uses take seconds to import
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    *_, status, loaded = done.stdout.splitlines()
    assert status == "0", done.stdout
    assert "tests.sdk.conftest" in loaded
    assert PLATFORM & set(json.loads(loaded)) == set()


def test_every_public_name_exists() -> None:
    import halving

    assert [name for name in halving.__all__ if not hasattr(halving, name)] == []


def test_every_error_is_a_halving_error_and_a_builtin_one() -> None:
    from halving import errors

    children = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not errors.HalvingError
    ]
    assert len(children) == 14
    for kind in children:
        assert issubclass(kind, errors.HalvingError)
        assert any(base.__module__ == "builtins" for base in kind.__bases__), kind
