"""A policy carried out: by days, by project and by name, and what is damaged stays."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, NotFound, Store, StoreError
from halving.records.amendments import amend, with_lifecycle
from halving.records.run_record import RunRecords
from halving.store.cold import add_cold_root
from resources.backend import Backend
from resources.catalog.trial_key import trial_key
from resources.retention import carry_out as carrying
from resources.retention.carry_out import carry_out, explain, find_run_of
from resources.retention.ended_trials import drop_checkpoints
from resources.retention.gone import Gone
from resources.retention.policy import parse_policy
from resources.retention.policy_file import PolicyFile, load_policy
from resources.sweep_spec import SweepSpec
from resources.tenancy.projects import rename_project, set_project
from tests.resources.retention.ended_sweeps import (
    POLICY,
    Spec,
    add_report,
    add_sweep,
    carried_out,
    checkpoints_left,
    content,
)
from tests.sdk.metric_files import write_segment


@pytest.fixture
def spec(small_spec: Spec) -> SweepSpec:
    return small_spec(strategy={"random": {"budget": 9}}, max_trials=5)


def test_some_days_after_its_end_a_sweep_keeps_only_its_best_trials_checkpoints(
    either_backend: Backend, spec: SweepSpec
) -> None:
    backend = either_backend
    sweep = add_sweep(either_backend, spec)
    every = checkpoints_left(backend.store, sweep)
    assert carried_out(backend, 13.9).gone == []
    assert carried_out(backend, 99, {}).gone == []  # what a policy does not name stays for ever
    files = sorted(backend.store.files(""))
    would = carried_out(backend, 15, dry_run=True)
    assert would.gone == [Gone("small", "checkpoints", 14, 14 * len(content(trial_key(sweep, 0), 1)))]
    assert (checkpoints_left(backend.store, sweep), sorted(backend.store.files(""))) == (every, files)
    assert carried_out(backend, 15).gone == would.gone
    assert checkpoints_left(backend.store, sweep) == {0: [], 1: [3], 2: [], 3: [], 4: []}
    assert carried_out(backend, 15).gone == []
    # its history still says what there was
    assert len(RunRecords(backend.store, "small", trial_key(sweep, 0)).checkpoints()) == 3


def test_the_best_trials_have_days_of_their_own_and_a_reports_runs_stay_longer(
    backend: Backend, spec: SweepSpec
) -> None:
    sweep = add_sweep(backend, spec)
    add_report(backend, sweep, 3, 3)
    policy = {"checkpoints": {"top_k": 3, "top_k_days": 30, "days": 14}}
    carried_out(backend, 29, policy)
    assert checkpoints_left(backend.store, sweep) == {0: [], 1: [3], 2: [3], 3: [3], 4: []}
    carried_out(backend, 31, policy)
    assert checkpoints_left(backend.store, sweep) == {0: [], 1: [], 2: [], 3: [3], 4: []}
    assert carried_out(backend, 31, policy).gone == []
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, sweep).finished_at = datetime.now(UTC) - timedelta(days=31)
    explained = explain(
        backend.store, backend.catalog, parse_policy(policy, "retention.yaml"), "small", trial_key(sweep, 1)
    )
    assert explained["reason"] is None


@pytest.mark.parametrize("which", ["the best", "a report's winner"])
def test_of_a_sweep_of_which_nothing_more_goes_no_row_is_held(
    either_backend: Backend, spec: SweepSpec, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    backend = either_backend
    sweep = add_sweep(either_backend, spec)
    policy = parse_policy(
        {"checkpoints": {"top_k": 1, "days": 14} | ({} if which == "the best" else {"top_k_days": 15})},
        "retention.yaml",
    )
    if which != "the best":
        add_report(backend, sweep, 3, 3)
    write = backend.catalog.write
    written: list[dict[str, Any]] = []

    def count_write(**options: Any) -> Any:
        written.append(options)
        return write(**options)

    monkeypatch.setattr(backend.catalog, "write", count_write)

    def drop() -> int:
        now = datetime.now(UTC) + timedelta(days=30)
        return len(
            drop_checkpoints(
                backend.store, backend.catalog, "small", policy.of("small").checkpoints, rerun=(), now=now
            )
        )

    assert (drop(), len(written)) == (5, 1)
    assert (drop(), len(written)) == (0, 1)


def test_a_machine_whose_clock_is_fast_deletes_nothing_too_early(
    backend: Backend, spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store's clock it is today; a catalog on SQLite has this machine's."""

    class Fast(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=40)

    sweep = add_sweep(backend, spec)
    monkeypatch.setattr(carrying, "datetime", Fast)
    monkeypatch.setattr(backend.catalog, "now", lambda: Fast.now(UTC).timestamp())
    file = PolicyFile(parse_policy(POLICY, "retention.yaml"), "retention.yaml")
    assert carry_out(backend.store, backend.catalog, file).gone == []
    assert checkpoints_left(backend.store, sweep) == {number: [1, 2, 3] for number in range(5)}


def test_an_object_store_is_never_cleaned_by_the_default_that_is_for_a_laptop(
    any_store: Store, backend: Backend
) -> None:
    file = load_policy(any_store)
    assert carry_out(any_store, backend.catalog, file, dry_run=True).gone == []
    if any_store.folder is None:
        with pytest.raises(
            InvalidInput,
            match=r"has no retention\.yaml, and the shipped default is for a laptop's disk; write one",
        ):
            carry_out(any_store, backend.catalog, file)
        any_store.create("retention.yaml", b"{}")
    assert carry_out(any_store, backend.catalog, load_policy(any_store)).gone == []


def test_a_project_has_its_own_days_and_another_is_left_alone(
    backend: Backend, spec: SweepSpec, small_spec: Spec
) -> None:
    sweep = add_sweep(backend, spec)
    other = add_sweep(backend, small_spec(name="other", strategy={"random": {"budget": 9}}, max_trials=5))
    policy = {"checkpoints": {"top_k": 0, "days": 99}, "projects": {"other": {"checkpoints": {"days": 10}}}}
    done = carried_out(backend, 15, policy)
    assert [(gone.project, gone.count) for gone in done.gone] == [("other", 15)]
    assert carried_out(backend, 100, policy, project="other").gone == []
    assert checkpoints_left(backend.store, sweep) == {key: [1, 2, 3] for key in range(5)}
    assert checkpoints_left(backend.store, other) == {key: [] for key in range(5)}


@pytest.mark.parametrize("named", ["old", "new"])
def test_each_name_of_a_renamed_project_means_it_in_the_policy_and_the_command(
    backend: Backend, small_spec: Spec, named: str
) -> None:
    how: dict[str, Any] = {"strategy": {"random": {"budget": 9}}, "max_trials": 5}
    before, other = (add_sweep(backend, small_spec(name=name, **how)) for name in ("old", "other"))
    policy = {"checkpoints": {"top_k": 1, "days": 99}, "projects": {named: {"checkpoints": {"days": 10}}}}
    rename_project(backend.catalog, "old", "new")
    since = add_sweep(backend, small_spec(name="new", **how))
    assert [
        carried_out(backend, 15, policy, project=name, dry_run=True).gone for name in ("old", "other")
    ] == [
        carried_out(backend, 15, policy, project="new", dry_run=True).gone,
        [],
    ]
    done = carried_out(backend, 15, policy, project=named)
    assert [(gone.project, gone.count) for gone in done.gone] == [("new", 14), ("old", 14)]
    assert [checkpoints_left(backend.store, sweep) for sweep in (before, since)] == [
        {0: [], 1: [3], 2: [], 3: [], 4: []}
    ] * 2
    assert checkpoints_left(backend.store, other) == {key: [1, 2, 3] for key in range(5)}
    run = trial_key(before, 1)
    assert {
        find_run_of(backend.store, backend.catalog, name) for name in (f"old/{run}", f"new/{run}", run)
    } == {("old", run)}
    for name in (f"other/{run}", f"none/{run}"):
        with pytest.raises(NotFound, match=r"no run|no project"):
            find_run_of(backend.store, backend.catalog, name)


def test_a_name_that_is_unknown_or_given_twice_is_said(backend: Backend, spec: SweepSpec) -> None:
    add_sweep(backend, spec)
    set_project(backend.catalog, "set", weight=2)
    with pytest.raises(NotFound, match=r"no project 'smal' in "):
        carried_out(backend, 15, project="smal")
    own = {"checkpoints": {"days": 3}}
    assert carried_out(backend, 1, {"projects": {"small": own, "smal": own, "set": own}}).unknown == {
        "smal": "small"
    }
    rename_project(backend.catalog, "small", "new")
    assert carried_out(backend, 1, {"projects": {"small": own}}).unknown == {}
    with pytest.raises(
        InvalidInput,
        match=r"projects.small of the retention policy is not accepted beside projects.new: both are the",
    ):
        carried_out(backend, 1, {"projects": {"small": own, "new": own}})


def test_on_s3_a_retention_lists_and_reads_only_what_is_new(
    any_store: Store, tmp_path: Path, catalog_file: Path, spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(catalog_file, tmp_path / "catalog.db")
    backend = Backend(root=any_store.root, catalog_url=f"sqlite:///{tmp_path}/catalog.db")
    sweep = add_sweep(backend, spec)
    assert [(gone.kind, gone.count) for gone in carried_out(backend, 15).gone] == [("checkpoints", 14)]
    assert checkpoints_left(backend.store, sweep) == {0: [], 1: [3], 2: [], 3: [], 4: []}
    reads = list[str]()
    read = Store.read
    monkeypatch.setattr(Store, "read", lambda store, name: (reads.append(name), read(store, name))[1])
    assert carried_out(backend, 15).gone == []
    assert [name for name in reads if name.startswith("runs/")] == []
    backend.catalog.close()


def test_two_retentions_at_a_time_take_each_blob_once(backend: Backend, spec: SweepSpec) -> None:
    sweep = add_sweep(backend, spec)
    with ThreadPoolExecutor(2) as pool:
        done = [future.result() for future in [pool.submit(carried_out, backend, 15) for _ in range(2)]]
    assert sum(gone.count for outcome in done for gone in outcome.gone if gone.kind == "checkpoints") == 14
    assert checkpoints_left(backend.store, sweep) == {0: [], 1: [3], 2: [], 3: [], 4: []}


def test_a_run_is_explained(backend: Backend, spec: SweepSpec) -> None:
    sweep = add_sweep(backend, spec)
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, sweep).finished_at = datetime.now(UTC) - timedelta(days=30)
    policy = parse_policy(POLICY, "retention.yaml")
    explained = explain(backend.store, backend.catalog, policy, "small", trial_key(sweep, 1))
    assert explained["reason"] == "it is number 1 of its sweep"
    assert explain(backend.store, backend.catalog, policy, "small", trial_key(sweep, 0))["reason"] is None
    assert [(row["kind"], row["state"]) for row in explained["records"]] == [
        ("checkpoints", state) for state in ("expired", "expired", "stays")
    ]
    backend.catalog.end_sweep(sweep, "evaluating")
    assert (
        explain(backend.store, backend.catalog, policy, "small", trial_key(sweep, 1))["reason"]
        == "its sweep is evaluating"
    )


def test_a_dataset_is_never_deleted(backend: Backend) -> None:
    shard = "a" * 64
    name = f"shards/sha256/aa/{shard}"
    backend.store.create(name, b"rows")
    backend.store.create(
        "datasets/points/0123/manifest.json", json.dumps({"shards": {"train": [shard]}}).encode()
    )
    everything = {kind: {"days": 0} for kind in ("media", "artifacts", "journals", "checkpoints")}
    carried_out(backend, 9999, {**everything, "points": {"full": {"days": 0}, "rollup": {"days": 0}}})
    assert backend.store.exists(name)
    assert backend.store.exists("datasets/points/0123/manifest.json")


def test_a_damaged_record_is_named_its_run_keeps_its_blobs_and_the_rest_goes_on(
    backend: Backend, spec: SweepSpec
) -> None:
    store = backend.store
    sweep = add_sweep(backend, spec)
    name = f"runs/project=small/{trial_key(sweep, 4)}/checkpoints/00000001-0001-000000.json"
    assert store.exists(name)
    store.replace(name, store.read(name)[:-3])
    unnamed = store.put_blob(b"of a run that was removed")
    would = carried_out(backend, 15, dry_run=True)
    done = carried_out(backend, 15)
    assert checkpoints_left(store, sweep) == {0: [], 1: [3], 2: [], 3: [], 4: [1, 2, 3]}
    assert store.has_blob(unnamed)  # which the damaged one may have named
    assert done.gone == would.gone
    first, second = done.problems
    assert first.startswith(f"{store.address(name)} is damaged: ")
    assert second.startswith("blobs that nothing names stay until these files are mended or deleted")
    store.delete(name)
    assert carried_out(backend, 15).problems == []
    assert checkpoints_left(store, sweep, range(4, 5)) == {4: []}
    assert not store.has_blob(unnamed)


@pytest.mark.parametrize("damage", [b"", b"\0" * 200], ids=["empty", "zeros"])
def test_where_a_damaged_record_may_name_any_blob_none_goes_and_all_else_does(
    backend: Backend, spec: SweepSpec, damage: bytes
) -> None:
    store = backend.store
    sweep = add_sweep(backend, spec)
    name = f"runs/project=small/{trial_key(sweep, 4)}/record.json"
    store.replace(name, damage)
    write_segment(
        store, trial_key(sweep, 0), 1, 0, [("loss", step, step, 0.5) for step in range(10)], "small"
    )
    done = carried_out(backend, 15, {**POLICY, "points": {"full": {"days": 10}}})
    assert [gone.kind for gone in done.gone] == ["points"]
    assert checkpoints_left(store, sweep) == {number: [1, 2, 3] for number in range(5)}
    assert done.problems[0].startswith(f"{store.address(name)} is damaged: ")
    assert done.problems[1].startswith(
        "no checkpoint, artifact, media or other blob is deleted until these files are mended"
    )


def test_a_run_with_a_damaged_amendment_stays_in_the_trash_and_the_rest_goes_on(
    backend: Backend, spec: SweepSpec
) -> None:
    store = backend.store
    sweep = add_sweep(backend, spec)
    name = f"runs/project=small/{trial_key(sweep, 4)}/amend-000000.json"
    store.create(name, b'{"lifecycle": "del')
    script = RunRecords(store, "small", "script")
    script.start(
        {},
        {},
        1,
        {"provenance": {}, "seed": None, "determinism": {}, "started": datetime.now(UTC).isoformat()},
    )
    script.end(1, {"status": "finished", "time": datetime.now(UTC).isoformat(), "summary": {}})
    amend(store, script.folder, lambda newest: with_lifecycle(newest, "deleted", "ada"))
    done = carried_out(backend, 45, {**POLICY, "trash": {"days": 30}})
    assert checkpoints_left(store, sweep) == {0: [], 1: [3], 2: [], 3: [], 4: [1, 2, 3]}
    run = trial_key(sweep, 4)
    assert any(
        f"if run {run} of project small is in the trash, it stays there" in problem
        for problem in done.problems
    )
    assert ("small", "deleted runs", 1) in [(gone.project, gone.kind, gone.count) for gone in done.gone]
    assert store.names(script.folder) == []
    assert any(problem.startswith(f"{store.address(name)} is damaged") for problem in done.problems)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_cold_tier_that_cannot_be_is_refused_before_anything_is_deleted(
    backend: Backend, spec: SweepSpec, dry_run: bool, tmp_path: Path
) -> None:
    sweep = add_sweep(backend, spec)
    root = Path(backend.store.root)
    (tmp_path / "link").symlink_to(root)
    taken = tmp_path / "of-another"
    add_cold_root(Store(tmp_path / "another"), str(taken))
    colds = (
        {"root": str(root / "cold")},
        {"root": f"{tmp_path}/link/cold"},
        {"root": str(taken)},
        {"storage_class": "GLACIER_IR"},
    )
    for cold in colds:
        with pytest.raises(
            (InvalidInput, StoreError), match=r"cold\.root = .* lie in one another|of the store|is not on S3"
        ):
            carried_out(backend, 15, {**POLICY, "cold": {"days": 3, **cold}}, dry_run=dry_run)
    assert checkpoints_left(backend.store, sweep) == {number: [1, 2, 3] for number in range(5)}
