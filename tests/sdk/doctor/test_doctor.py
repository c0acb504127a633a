"""``halving doctor`` on the store alone: each fault is caused, found with what mends it, and mended where
that is safe.
"""

import json
import os
import signal
import time
from pathlib import Path

import pytest

import halving
from halving import Store
from halving.cli.main import main
from halving.doctor.checks import ERROR, OK, SKIPPED, WARNING, Check, Finding, examine, is_wrong
from halving.doctor.content_checks import check_cold, check_digests, check_journals
from halving.doctor.store_checks import check_clock, check_disk, check_permissions, check_store
from halving.store.store import blob_name
from tests.permissions import deny_access
from tests.s3 import S3, Gate

KILLED = """
import os, signal
import halving
run = halving.init("p", id="killed", system_metrics=None)
for step in range(100):
    run.log({"loss": 1.0}, step=step)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_all_is_well_with_a_store_that_is_used_and_nothing_is_left_in_it(any_store: Store) -> None:
    halving.init("p", root=any_store.root, id="r", system_metrics=None).finish()
    any_store.put_blob(b"content")
    before = {name for folder in ("runs", "artifacts", "doctor") for name, *_ in any_store.files(folder)}
    checks = (
        check_store,
        check_clock,
        check_disk,
        check_permissions,
        check_journals,
        check_cold,
        check_digests,
    )
    findings = [finding for check in checks for finding in check(any_store)]
    assert [finding.level for finding in findings] == [OK] * len(checks), findings
    assert {
        name for folder in ("runs", "artifacts", "doctor") for name, *_ in any_store.files(folder)
    } == before
    assert any_store.folder is None or not (any_store.folder / "doctor").exists()


@pytest.mark.folder
def test_a_store_that_cannot_be_written_is_an_error_of_the_store_and_of_rights(
    store: Store, tmp_path: Path
) -> None:
    Path(store.root).mkdir()
    with deny_access(Path(store.root)):
        (finding,) = check_store(store)
        (rights,) = check_permissions(store)
    assert (finding.level, "cannot be written" in finding.what, "df -h" in finding.mend) == (
        ERROR,
        True,
        True,
    )
    assert (rights.level, store.root in rights.what, "chown" in rights.mend) == (ERROR, True, True)


def test_a_store_on_s3_that_is_away_is_an_error_and_what_needs_it_is_not_looked_at(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(("127.0.0.1", s3.port))
    store = Store(s3.root("doctor", endpoint=gate.endpoint))
    gate.shut()
    checks = [
        Check("store", lambda: check_store(store)),
        Check("digests", lambda: check_digests(store), needs="store"),
    ]
    levels = [(check.name, finding.level) for check, finding in examine(checks)]
    gate.open()
    assert levels == [("store", ERROR), ("digests", SKIPPED)]


def test_files_that_are_written_twice_are_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(store.root).mkdir()
    monkeypatch.setattr(Store, "create", lambda self, name, content: self.replace(name, content))
    (finding,) = check_store(store)
    assert (finding.level, "written twice" in finding.what) == (ERROR, True)


@pytest.mark.parametrize(("off", "way"), [(-300, "behind"), (300, "ahead of")])
def test_a_clock_that_is_wrong_is_named_with_its_way_and_how_far(store: Store, off: int, way: str) -> None:
    Path(store.root).mkdir()
    (finding,) = check_clock(store, lambda: time.time() + off)
    assert (finding.level, f"s {way} the store's" in finding.what) == (WARNING, True), finding


def test_a_disk_that_is_nearly_full_is_a_warning_and_a_full_one_an_error(store: Store) -> None:
    free = os.statvfs("/").f_blocks * os.statvfs("/").f_frsize * 1000
    assert next(finding.level for finding in check_disk(store, recommended=free)) == WARNING
    assert next(finding.level for finding in check_disk(store, minimum=free, recommended=free)) == ERROR


@pytest.mark.folder
def test_a_store_that_strangers_may_change_is_closed_to_them(store: Store) -> None:
    Path(store.root).mkdir()
    Path(store.root).chmod(0o777)
    findings = list(examine([Check("permissions", lambda: check_permissions(store))], repair=True))
    assert [(finding.level, bool(finding.repaired)) for _, finding in findings] == [
        (WARNING, True),
        (OK, False),
    ]
    assert Path(store.root).stat().st_mode & 0o777 == 0o775


@pytest.mark.folder
def test_a_damaged_blob_is_found_by_reading_all_and_in_a_small_store_by_a_sample(store: Store) -> None:
    digests = [store.put_blob(f"{number}".encode()) for number in range(20)]
    (whole,) = check_digests(store)
    assert (whole.level, "a sample of 20 blobs" in whole.what) == (OK, True), (
        "a small store is read as a whole"
    )
    Path(store.root, blob_name(digests[3])).write_bytes(b"other")
    (damage,) = check_digests(store, whole=True)
    assert (damage.level, digests[3] in damage.what, "halving restore" in damage.mend) == (ERROR, True, True)
    assert [finding.level for finding in check_digests(store)] == [ERROR]


@pytest.mark.slow  # a process that is killed
def test_points_of_a_killed_process_are_told_of_and_written_into_the_store_by_repair(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.gangs import start

    monkeypatch.setenv("HALVING_ROOT", store.root)
    process = start(exec, KILLED)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert main(["doctor", "--json"]) == 0, "a warning is not what a status of 1 says"
    entries = {entry["check"]: entry for entry in json.loads(capsys.readouterr().out)["findings"]}
    assert (entries["journals"]["level"], entries["journals"]["mend"]) == (WARNING, "halving recover")
    assert "p/killed (attempt 1)" in entries["journals"]["what"]
    assert main(["doctor", "--repair"]) == 0
    assert "100 points of 1 attempts were written into the store" in " ".join(capsys.readouterr().out.split())
    assert [finding.level for finding in check_journals(store)] == [OK]


def test_a_living_run_is_nothing_to_recover(store: Store) -> None:
    with halving.init("p", root=store.root, id="r", system_metrics=None) as run:
        run.log({"loss": 1.0}, step=1)
        assert [finding.level for finding in check_journals(store)] == [OK]


def test_a_check_that_raises_is_an_error_and_the_others_are_made() -> None:
    def raises() -> list[Finding]:
        raise ValueError("odd")

    checks = [
        Check("one", raises),
        Check("two", lambda: [Finding(OK, "fine")]),
        Check("three", lambda: [Finding(OK, "fine")], needs="one"),
    ]
    levels = [(check.name, finding.level) for check, finding in examine(checks)]
    assert levels == [("one", ERROR), ("two", OK), ("three", SKIPPED)]


def test_what_a_repair_could_not_mend_stays_an_error() -> None:
    def refuses() -> str:
        raise OSError("no")

    findings = [
        finding
        for _, finding in examine(
            [Check("one", lambda: [Finding(ERROR, "broken", repair=refuses)])], repair=True
        )
    ]
    assert is_wrong(findings)
