"""``halving doctor`` on what lies under its digest: blobs, shards of datasets, and the blobs of colder
places.
"""

from hashlib import sha256
from pathlib import Path

import pytest

from halving import Store
from halving.doctor import content_checks
from halving.doctor.checks import ERROR, OK, WARNING
from halving.doctor.content_checks import check_cold, check_digests
from halving.store.cold import add_cold_root
from halving.store.cold_roots import MARK
from halving.store.store import blob_name


def put_shard(store: Store, content: bytes) -> str:
    """The name of a shard with this content, whatever that is."""
    value = sha256(content).hexdigest()
    name = f"shards/sha256/{value[:2]}/{value}"
    store.create(name, content)
    store.create(f"{name}.ef93bba1.rows", b"hashes of its rows, which lie under no digest")
    return name


@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_shard_is_an_error_that_a_fetch_mends(any_store: Store, whole: bool) -> None:
    names = [put_shard(any_store, f"{number}".encode()) for number in range(3)]
    (finding,) = check_digests(any_store, whole=whole)
    assert (finding.level, "3 blobs and shards" in finding.what) == (OK, True)
    any_store.replace(names[1], b"other")
    (finding,) = check_digests(any_store, whole=whole)
    assert (
        finding.level,
        f"the shard sha256:{names[1][-64:]}" in finding.what,
        "halving datasets fetch" in finding.mend,
    ) == (ERROR, True, True)


@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_blob_of_a_colder_place_is_an_error(store: Store, tmp_path: Path, whole: bool) -> None:
    place = add_cold_root(store, str(tmp_path / "cold"))
    digest = place.put_blob(b"old")
    (finding,) = check_digests(store, whole=whole)
    assert (finding.level, "1 blobs and shards" in finding.what) == (OK, True)
    place.replace(blob_name(digest), b"olD")
    (finding,) = check_digests(store, whole=whole)
    assert (finding.level, digest in finding.what, place.root in finding.what) == (ERROR, True, True)


def test_a_colder_place_that_is_not_there_or_is_another_stores_is_told(store: Store, tmp_path: Path) -> None:
    assert [finding.level for finding in check_cold(store)] == [OK]
    place = add_cold_root(store, str(tmp_path / "cold"))
    other = add_cold_root(store, str(tmp_path / "other"))
    assert [finding.level for finding in check_cold(store)] == [OK, OK]
    store.put_blob(b"here")
    (tmp_path / "cold").rename(tmp_path / "not-mounted")
    findings = list(check_cold(store))
    assert [finding.level for finding in findings] == [ERROR, OK]
    assert (
        place.root in findings[0].what,
        "is not there" in findings[0].what,
        "mount its disk" in findings[0].mend,
    ) == (
        True,
        True,
        True,
    )
    assert [finding.level for finding in check_digests(store)] == [OK], "what is here is read all the same"
    (tmp_path / "not-mounted").rename(tmp_path / "cold")
    other.replace(MARK, b'{"store": "/elsewhere"}')
    assert [finding.level for finding in check_cold(store)] == [OK, WARNING]


def test_a_sample_goes_on_until_it_has_enough_and_never_says_ok_of_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        store.put_blob(f"{number:06}".encode())
    (finding,) = check_digests(store)
    assert "a sample of 30 blobs" in finding.what, "from as many folders as there are"
    monkeypatch.setattr(content_checks, "_SAMPLE", 7)
    (finding,) = check_digests(store)
    assert "a sample of 7 blobs" in finding.what
    monkeypatch.setattr(content_checks, "_SAMPLE_BYTES", 13)
    (finding,) = check_digests(store)
    assert "a sample of 2 blobs" in finding.what
    monkeypatch.setattr(content_checks, "_SAMPLE_BYTES", 5)
    (finding,) = check_digests(store)
    assert (finding.level, "each of 30 blobs is larger" in finding.what, finding.mend) == (
        WARNING,
        True,
        "halving doctor --all",
    )
    assert [finding.level for finding in check_digests(store, whole=True)] == [OK]
