"""Fixtures of all tests: an environment without a user's settings, servers, a store on each kind of storage.

Nothing is imported here of the platform, but where a fork server has it: the SDK's tests do without Dagster
and SQLAlchemy. The platform's fixtures are in tests/backends.py.
"""

import gc
import itertools
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from halving import Store
from tests import redis_server
from tests.postgres import INSTALLED, Postgres
from tests.properties import examples
from tests.s3 import CREDENTIALS, S3
from tests.started_processes import started_processes

if TYPE_CHECKING:
    from tests.commands.shell import Swept

# Modules and collected tests stay until the end. Looking through them for garbage, again and again, takes
# longer than collecting them.
gc.disable()

# A shell's background job ignores SIGINT, and what a process ignores its children ignore, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)

# A user's settings of a backend of their own; KUBECONFIG, and what is named HALVING_TEST_…, is meant for the
# tests.
for name in [
    name for name in os.environ if name.startswith("HALVING_") and not name.startswith("HALVING_TEST_")
]:
    del os.environ[name]
os.environ.pop("DAGSTER_HOME", None)

# Of the tests' own S3: a fork server has the variables of the moment when it was started, which may be before
# there is one.
os.environ.update(CREDENTIALS)

# How long one example takes says more about the machine than about the code.
settings.register_profile(
    "halving", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("halving")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is remembered of shards is not written into the user's own cache."""
    os.environ["HALVING_CACHE"] = str(tmp_path_factory.mktemp("cache"))


_FOLDERS = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test's own folder, numbered here: pytest would list all tests' folders to find the next number."""
    name = re.sub(r"\W", "_", request.node.name)[:25]
    return tmp_path_factory.mktemp(f"{name}-{next(_FOLDERS)}", numbered=False)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A trial's process leaves Ctrl-C to its worker.

    Where a test is one, the next tests and what they start want it back.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# fixtures, and the values of "any_store" and "any_catalog" that need them
_SERVICES = {"browser", "postgres", "redis", "s3"}


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a server (``service``), and drop those of a folder (``folder``) on S3."""
    for item in list(items):
        variants = {value for value in _params(item).values() if isinstance(value, str)}
        if "s3" in variants and item.get_closest_marker("folder"):
            items.remove(item)
        elif _SERVICES & {*variants, *getattr(item, "fixturenames", ())}:
            item.add_marker("service")


_MAX_ID = 80


def pytest_make_parametrize_id(val: object) -> str | None:
    """Cut long values short in tests' ids, which pytest escapes, sends and compares: some are megabytes."""
    if not isinstance(val, str | bytes) or len(val) <= _MAX_ID:
        return None
    start = val[:_MAX_ID]
    text = start if isinstance(start, str) else start.decode("latin-1")
    return f"{text.encode('unicode_escape').decode('ascii')}...{len(val)}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Let the garbage collector ignore what was imported before the tests."""
    gc.freeze()
    gc.set_threshold(20_000)  # of what a test makes little is garbage in cycles
    gc.enable()
    _hold_ready(_GANGS if any(item.get_closest_marker("slow") for item in session.items) else _TRIALS)


_TRIALS = [
    "resources.execution.drop_credentials",
    "resources.execution.chosen_gpus",
    "halving.trial_process.main",
    "resources.evaluation.predictor_process",
]
_GANGS = [*_TRIALS, "torch", "halving.trial_process.preload_gang", "halving.trial_process.preload"]


def _hold_ready(modules: list[str]) -> None:
    """Have the fork server of this process import modules, whoever is the first to use it.

    That is a trial, a question to a checkpoint or a gang, which names what it needs itself; all others would
    import theirs in each process.
    """
    named = forkserver.set_forkserver_preload
    forkserver.set_forkserver_preload = lambda more: named([*modules, *more])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the processes that a test and its fixtures start."""
    with started_processes() as started:
        item.stash[_STARTED] = started
        return (yield)


_STARTED = pytest.StashKey[list[str]]()


@pytest.fixture(autouse=True)
def _starting_no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts a process without the marker ``slow``: its time depends on the load."""
    yield
    if not any(request.node.get_closest_marker(name) for name in ("slow", "service")):
        started = request.node.stash[_STARTED]
        assert not started, f"starts a process ({started[0]}): mark it with pytest.mark.slow"


def _params(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture(autouse=True)
def _own_module_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import nothing from the folder of an earlier test, which importing a trainable adds to the path."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if not INSTALLED:
        pytest.skip("needs Postgres' initdb: apt-get install postgresql")
    # not below pytest's own folder, which only root may enter
    folder = Path(tempfile.mkdtemp(prefix="halving-postgres-"))
    server = Postgres(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def redis() -> Iterator[redis_server.Redis]:
    if not redis_server.INSTALLED:
        pytest.skip("needs Redis: apt-get install redis-server")
    with tempfile.TemporaryDirectory(prefix="halving-redis-") as folder:
        server = redis_server.Redis(Path(folder))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """A server for objects; this process, and what it starts, may use it."""
    server = S3()
    yield server
    server.stop()


@pytest.fixture(params=["folder", "s3"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, once in a folder and once on S3: what holds for one must hold for the other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # where the journals of an S3 store are
    if request.param == "folder":
        return Store(tmp_path / "store")
    server: S3 = request.getfixturevalue("s3")
    return Store(server.root(secrets.token_hex(6)))


@pytest.fixture(scope="session")
def swept_lab(tmp_path_factory: pytest.TempPathFactory) -> "Swept":
    """The small sweep, run once by ``halving sweep``; a test that changes its store works on a copy."""
    from tests.backends import SMALL
    from tests.commands.shell import Shell, Swept

    shell = Shell(tmp_path_factory.mktemp("swept"))
    spec = Path(shell.spec(SMALL))
    spec.write_text(spec.read_text().replace("low: 0.0", "low: 1e-06"))
    return Swept(shell, spec, *shell.run("sweep", str(spec)))
