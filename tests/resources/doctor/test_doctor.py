"""``halving doctor`` with a catalog: each fault has a finding that says what mends it."""

import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update

import halving
from halving import Store
from halving.data.dataset import Dataset
from halving.data.shards import shards_of
from halving.doctor.checks import ERROR, OK, WARNING, Check, examine
from halving.store.store import blob_name
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.catalog import PublishedModelRow, RunRow, SnapshotRow
from resources.catalog.catalog import newest_revision
from resources.doctor.catalog_checks import check_clock, check_schema, check_soundness, is_current
from resources.doctor.cluster_checks import check_cluster
from resources.doctor.consistency_checks import check_files, check_index, check_published
from resources.execution.kubernetes import api, cluster_config
from tests.ports import free_port
from tests.resources.upkeep.backups import fill
from tests.searches import search
from tests.server.registry import promote_winner, score


def test_all_is_well_with_a_catalog_that_is_used(either_backend: Backend, small_spec: Any) -> None:
    backend = either_backend
    promote_winner(backend, small_spec(max_trials=1))
    both = (backend.store, backend.catalog)
    list(
        examine(
            [
                Check("index", lambda: check_index(*both)),
                Check("published", lambda: check_published(*both)),
            ],
            repair=True,
        )
    )
    url = backend.catalog.url
    findings = [
        *check_schema(backend.store, url),
        *check_soundness(backend.catalog),
        *check_clock(backend.catalog),
    ]
    findings += [*check_files(*both, whole=True), *check_published(*both), *check_index(*both)]
    assert [finding.level for finding in findings] == [OK] * 6, findings


def test_a_catalog_that_does_not_answer_is_an_error_with_its_address_and_no_password(
    tmp_path: Path,
) -> None:
    (finding,) = check_schema(
        Store(tmp_path), f"postgresql+psycopg://me:secret@127.0.0.1:{free_port()}/halving"
    )
    assert (finding.level, "does not answer" in finding.what, "secret" in finding.what) == (
        ERROR,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("revision", "level", "mend"),
    [("9999", ERROR, "install the version"), ("0001", WARNING, "make a backup")],
)
def test_a_schema_of_another_version_is_named_and_not_touched(
    backend: Backend, revision: str, level: str, mend: str
) -> None:
    with backend.catalog.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    (finding,) = check_schema(backend.store)
    assert (
        finding.level,
        revision in finding.what,
        newest_revision() in finding.what,
        mend in finding.mend,
    ) == (
        level,
        True,
        True,
        True,
    )
    assert not is_current(backend.store)
    assert [again.what for again in check_schema(backend.store)] == [finding.what]


def test_a_database_file_that_is_damaged_is_an_error(tmp_path: Path, catalog_file: Path) -> None:
    file = tmp_path / "catalog.db"
    shutil.copy(catalog_file, file)
    content = bytearray(file.read_bytes())
    content[40 * 4096 : 60 * 4096] = secrets.token_bytes(20 * 4096)
    file.write_bytes(content)
    backend = Backend(root=str(tmp_path), catalog_url=f"sqlite:///{file}")
    findings = [
        finding for _, finding in examine([Check("database", lambda: check_soundness(backend.catalog))])
    ]
    assert [finding.level for finding in findings] == [ERROR]


def test_a_clock_that_is_wrong_is_named_with_its_way(backend: Backend) -> None:
    (finding,) = check_clock(backend.catalog, lambda: time.time() - 600)
    assert (finding.level, "600 s behind" in finding.what) == (WARNING, True)


def test_what_the_catalog_names_and_the_store_lacks_is_told_with_whose_it_is(
    backend: Backend, small_spec: Any
) -> None:
    version = promote_winner(backend, small_spec(max_trials=1), checkpoint=b"gone")
    sweep = search(backend, small_spec(max_trials=2, name="other"), score)
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, sweep).status = "searching"
        for trial in backend.catalog.trials(session, sweep):
            trial.status = "paused"
            trial.checkpoint = f"sha256:{'0' * 64}" if trial.number == 0 else None
    digest = str(version.checkpoint)
    (Path(backend.store.root) / "artifacts" / "sha256" / digest[7:9] / digest[7:]).unlink()
    findings = {
        finding.what: finding
        for finding in check_files(backend.store, backend.catalog)
        if finding.level == ERROR
    }
    model = next(
        finding for what, finding in findings.items() if what.startswith("the checkpoint of small@1.0.0")
    )
    assert "halving rerun" in model.mend
    assert any(what.startswith(f"the checkpoint of {sweep}.0000") for what in findings)


def test_models_that_the_store_does_not_know_yet_are_published_by_repair(
    backend: Backend, small_spec: Any
) -> None:
    promote_winner(backend, small_spec(max_trials=1))
    with backend.catalog.write() as session:
        session.merge(PublishedModelRow(model="small", revision=0))
    findings = list(
        examine([Check("published", lambda: check_published(backend.store, backend.catalog))], repair=True)
    )
    assert [(finding.level, bool(finding.repaired)) for _, finding in findings] == [
        (WARNING, True),
        (OK, False),
    ]
    assert halving.resolve("small@champion", backend.store.root).version == "1.0.0"


def test_an_index_that_lacks_runs_is_brought_up_to_date_by_repair(backend: Backend) -> None:
    halving.init("p", root=backend.store.root, id="r", system_metrics=None).finish()
    findings = list(
        examine([Check("index", lambda: check_index(backend.store, backend.catalog))], repair=True)
    )
    assert [(finding.level, finding.what) for _, finding in findings][1:] == [
        (OK, "the index has the 1 runs of the store")
    ]


def test_a_run_that_is_damaged_or_has_another_name_in_the_index_is_named(backend: Backend) -> None:
    for run in ("a", "b"):
        halving.init("p", root=backend.store.root, id=run, system_metrics=None).finish()
    Refresher(backend.store, backend.catalog).refresh()
    (Path(backend.store.root) / "runs/project=p/killed").mkdir()  # when it began: it is no run
    assert [other.level for other in check_index(backend.store, backend.catalog)] == [OK]
    with backend.catalog.write() as session:
        session.execute(update(RunRow).where(RunRow.run == "b").values(run="other"))
    (finding,) = check_index(backend.store, backend.catalog)
    assert (finding.level, finding.what) == (
        WARNING,
        "the index lacks 1 runs of the store (p/b) and has 1 that the store has not (p/other)",
    )
    backend.store.replace("runs/project=p/b/record.json", b"{")
    Refresher(backend.store, backend.catalog).refresh()
    (finding,) = check_index(backend.store, backend.catalog)
    assert (finding.level, finding.repair) == (ERROR, None)
    assert finding.what.startswith(f"{backend.store.address('runs/project=p/b/record.json')} is damaged: ")


def test_a_cluster_whose_api_is_away_or_whose_settings_are_none_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(cluster_config.VARIABLE, raising=False)
    assert [finding.level for finding in check_cluster()] == [OK]
    monkeypatch.setenv(cluster_config.VARIABLE, str(tmp_path / "none.yaml"))
    (finding,) = check_cluster()
    assert (finding.level, "none.yaml" in finding.what) == (ERROR, True)

    (tmp_path / "cluster.yaml").write_text("concurrency: 2")
    (tmp_path / "kube.yaml").write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, "
        "user: u}}], "
        "users: [{name: u, user: {}}], "
        f"clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{free_port()}'}}}}]}}"
    )
    monkeypatch.setenv(cluster_config.VARIABLE, str(tmp_path / "cluster.yaml"))
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kube.yaml")
    )
    for cached in (api.core_api, api.namespace):
        cached.cache_clear()
    (finding,) = check_cluster()
    for cached in (api.core_api, api.namespace):
        cached.cache_clear()  # the next test has another
    assert (finding.level, "does not answer" in finding.what, "kubectl cluster-info" in finding.mend) == (
        ERROR,
        True,
        True,
    ), finding


def test_parts_manifests_and_pages_that_the_store_lacks_are_told_with_whose_they_are(
    backend: Backend,
) -> None:
    whose = {
        "part": "a part of the checkpoint of small@1.0.0",
        "manifest": "the manifest of small@1.0.0",
        "page": "the page of the report of small-1",
    }
    digests = fill(backend)
    for lost, what in whose.items():
        content = backend.store.get_blob(digests[lost])
        backend.store.delete(blob_name(digests[lost]))
        problems = [
            finding.what
            for finding in check_files(backend.store, backend.catalog)
            if finding.what.startswith(what)
        ]
        assert problems == [f"{what} is not in the store: {digests[lost]}"]
        backend.store.put_blob(content)


def test_shards_of_a_snapshot_in_use_that_are_gone_or_cut_short_are_told(
    backend: Backend, small_spec: Any
) -> None:
    promote_winner(backend, small_spec(max_trials=1))
    (row,) = listed_snapshots(backend)
    manifest = Dataset(backend.store, row.name, row.digest).manifest
    shards = [shard for split in manifest["shards"] for shard in shards_of(manifest, split)]
    assert [finding.level for finding in check_files(backend.store, backend.catalog)] == [OK], (
        "its version is the champion"
    )
    gone = shards[0]
    cut = shards[1]
    backend.store.delete(gone.name)
    backend.store.replace(cut.name, b"cut")
    findings = {
        finding.what: finding
        for finding in check_files(backend.store, backend.catalog)
        if finding.level == ERROR
    }
    assert set(findings) == {
        f"a shard of the snapshot of {row.name} is not in the store: {gone.name}",
        f"a shard of the snapshot of {row.name} has 3 bytes, not {cut.bytes}: {cut.name}",
    }
    assert all(f"halving datasets fetch {row.name}@" in finding.mend for finding in findings.values())
    with backend.catalog.write() as session:
        session.execute(text("UPDATE model_versions SET stage = 'archived'"))
    assert [finding.level for finding in check_files(backend.store, backend.catalog)] == [OK], (
        "nobody uses it any more"
    )


def listed_snapshots(backend: Backend) -> list[SnapshotRow]:
    with backend.catalog.read() as session:
        return list(session.scalars(select(SnapshotRow)))
