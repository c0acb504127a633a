"""Media over HTTP: what a run's records name and nothing else, and nothing in it that acts."""

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import halving
from halving import Store, init
from halving.query.runs import read_json
from server.media import record_cache, tables
from server.media.record_cache import RecordCache
from server.settings import Settings
from tests.server.clients import client_of

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def with_media(store: Store, folder: Path, run: str = "r") -> dict[str, str]:
    """A run with media, artifacts and a checkpoint; the artifacts' digests by name."""
    artifacts = {}
    with init(project="p", id=run, root=store.root, system_metrics=None) as training:
        for step in range(3):
            training.log(
                {"samples/a": halving.Image(np.full((4, 4), step, np.uint8)), "loss": 1.0}, step=step
            )
        training.log({"note": halving.Text("<b>hi</b>", markdown=True)}, step=7)
        for name, content in (
            ("x.svg", SVG),
            ("x.html", b"<script>alert(1)</script>"),
            ("x.csv", b"a,b\n1,2\n"),
            ("x", bytes(3_000_000)),
        ):
            (folder / name).write_bytes(content)
            artifacts[name] = training.log_artifact(folder / name)
    return artifacts


def test_media_are_listed_with_addresses_that_give_their_bytes(any_store: Store, tmp_path: Path) -> None:
    with_media(any_store, tmp_path)
    with client_of(Settings(root=any_store.root, catalog_url=f"sqlite:///{tmp_path}/catalog.db")) as client:
        media = client.get("/api/v1/media", params={"run": "p/r"}).json()["media"]
        assert [(row["key"], row["step"], row["kind"], row["run"]) for row in media] == [
            ("note", 7, "text", "p/r"),
            *(("samples/a", step, "image", "p/r") for step in range(3)),
        ]
        only = client.get("/api/v1/media", params={"run": "p/r", "key": "samples/a", "limit": 2}).json()
        assert (only["media"], only["more"]) == (media[1:3], True)
        image = client.get(media[1]["url"])
        assert image.headers["content-type"] == "image/png"
        assert image.content == any_store.get_blob(media[1]["digest"])
        assert client.get(media[0]["url"]).headers["content-type"] == "text/plain; charset=utf-8"


def test_media_that_are_known_are_not_sent_again_until_there_are_others(
    local: Any, backend: Any, tmp_path: Path
) -> None:
    with_media(backend.store, tmp_path)
    first = local.get("/api/v1/media", params={"run": "p/r"})
    again = local.get(
        "/api/v1/media", params={"run": "p/r"}, headers={"If-None-Match": first.headers["etag"]}
    )
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    with init(project="p", id="r", root=backend.store.root, system_metrics=None) as training:
        training.log({"note": halving.Text("new")}, step=9)
    other = local.get(
        "/api/v1/media", params={"run": "p/r"}, headers={"If-None-Match": first.headers["etag"]}
    )
    assert other.status_code == 200
    assert len(other.json()["media"]) == len(first.json()["media"]) + 1


def test_what_could_act_is_a_file_to_save_and_nothing_is_sniffed(
    local: Any, backend: Any, tmp_path: Path
) -> None:
    artifacts = with_media(backend.store, tmp_path)
    for name, kind, how in (
        ("x.svg", "application/octet-stream", "attachment"),
        ("x.html", "application/octet-stream", "attachment"),
        ("x.csv", "text/csv; charset=utf-8", "inline"),
        ("x", "application/octet-stream", "attachment"),
    ):
        answer = local.get(f"/api/v1/blobs/{artifacts[name]}", params={"run": "p/r"})
        assert answer.status_code == 200
        assert answer.content == (tmp_path / name).read_bytes()
        headers = answer.headers
        assert (headers["content-type"], headers["content-disposition"].partition(";")[0]) == (kind, how)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert "immutable" in headers["cache-control"]
        for tag in (headers["etag"], "*"):
            again = local.get(
                f"/api/v1/blobs/{artifacts[name]}", params={"run": "p/r"}, headers={"If-None-Match": tag}
            )
            assert (again.status_code, again.content) == (304, b"")


def test_files_with_one_content_are_saved_each_under_its_own_name(
    local: Any, backend: Any, tmp_path: Path
) -> None:
    names = ["a.csv", "A.csv", "deep/b é 50%.txt", "#1.html", "c", "a+b=c&d.json", '"q".csv']
    (tmp_path / "file").write_text("same")
    with init(project="p", id="r", root=backend.store.root, system_metrics=None) as training:
        (digest,) = {training.log_artifact(tmp_path / "file", name) for name in names}
    for name in names:
        headers = local.get(f"/api/v1/blobs/{digest}", params={"run": "p/r", "artifact": name}).headers
        assert headers["content-disposition"].endswith(
            f"filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}"
        )
        assert headers["content-disposition"].startswith(
            "attachment" if name in ("#1.html", "c") else "inline"
        )
    other = local.get(f"/api/v1/blobs/{digest}", params={"run": "p/r", "artifact": "another's"})
    assert (other.status_code, other.text) == (200, "same")
    assert local.get(f"/api/v1/blobs/{digest}", params={"run": "p/other", "artifact": "c"}).status_code == 404


def test_only_what_the_runs_own_records_name_is_given(local: Any, backend: Any, tmp_path: Path) -> None:
    artifacts = with_media(backend.store, tmp_path)
    init(project="p", id="other", root=backend.store.root, system_metrics=None).finish()
    unnamed = backend.store.put_blob(b"secret")
    for digest, run, status in (
        (artifacts["x.csv"], "p/r", 200),
        (artifacts["x.csv"], "p/other", 404),
        (unnamed, "p/r", 404),
        (f"sha256:{'0' * 64}", "p/r", 404),
        (artifacts["x.csv"], "p/nope", 404),
        ("sha256:..", "p/r", 422),
        ("sha256:" + "%2e%2e%2f" * 5, "p/r", 404),
        (artifacts["x.csv"], "../r", 422),
        (artifacts["x.csv"], "p/../r", 422),
    ):
        assert local.get(f"/api/v1/blobs/{digest}", params={"run": run}).status_code == status, (digest, run)
    assert local.get("/api/v1/media", params={"run": "p/nope"}).status_code == 404
    assert local.get("/api/v1/media", params={"run": "p/other"}).json() == {"media": [], "more": False}


def test_another_projects_files_are_not_given(
    guarded: Any, bearer: Any, backend: Any, tmp_path: Path
) -> None:
    digest = with_media(backend.store, tmp_path)["x.csv"]
    for name, projects, status in (("ada", ["p"], 200), ("bob", ["q"], 404)):
        token = bearer(name, projects=projects)
        assert (
            guarded.get(f"/api/v1/blobs/{digest}", params={"run": "p/r"}, headers=token).status_code == status
        )
        assert guarded.get("/api/v1/media", params={"run": "p/r"}, headers=token).status_code == status


RANGES = [
    ("bytes=0-9", 206, slice(0, 10)),
    ("bytes=2000000-", 206, slice(2_000_000, None)),
    ("bytes=-5", 206, slice(-5, None)),
    ("bytes=2999999-9999999", 206, slice(2_999_999, None)),
    ("bytes=3000000-", 416, None),
    ("bytes=5-2", 416, None),
    ("bytes=0-1,3-4", 200, slice(None)),
    ("words=1", 200, slice(None)),
    ("bytes=-", 200, slice(None)),
]
"""A request's header, and the status and the part of the blob that answer it."""


def test_a_range_is_just_that_part(local: Any, backend: Any, tmp_path: Path) -> None:
    content = np.random.default_rng(1).bytes(3_000_000)
    (tmp_path / "big.bin").write_bytes(content)
    with init(project="p", id="r", root=backend.store.root, system_metrics=None) as run:
        digest = run.log_artifact(tmp_path / "big.bin")
    for header, status, part in RANGES:
        answer = local.get(f"/api/v1/blobs/{digest}", params={"run": "p/r"}, headers={"Range": header})
        assert answer.status_code == status, header
        if part is not None:
            assert answer.content == content[part], header
            assert re.fullmatch(
                r"bytes \d+-\d+/3000000", answer.headers.get("content-range", "bytes 0-0/3000000")
            ), header


def test_records_after_the_limit_are_not_read_and_a_file_is_found_without_the_others(
    local: Any, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number:06d}.json" for number in range(600)]
    for run in ("a", "b"):
        init(project="p", id=run, root=backend.store.root, system_metrics=None).finish()
    for number, name in enumerate(names):
        row = {
            "key": "m",
            "step": number,
            "attempt": 1,
            "kind": "image",
            "media_type": "image/png",
            "digest": f"sha256:{number:064x}",
        }
        backend.store.create(f"runs/project=p/a/media/{name}", json.dumps(row).encode())
    digest = backend.store.put_blob(b"bytes")
    backend.store.create(
        "runs/project=p/b/artifacts/x.json", json.dumps({"name": "x.txt", "digest": digest}).encode()
    )
    read: list[str] = []
    monkeypatch.setattr(
        record_cache, "read_json", lambda store, name: read.append(name) or read_json(store, name)
    )

    content = local.get("/api/v1/media", params={"run": ["p/a", "p/b"], "limit": 10}).json()
    assert ([row["step"] for row in content["media"]], content["more"]) == (list(range(10)), True)
    assert 10 < len(read) < 600
    assert local.get(f"/api/v1/blobs/{digest}", params={"run": "p/b"}).content == b"bytes"
    before = len(read)
    for _ in range(2):
        assert local.get(f"/api/v1/blobs/{digest}", params={"run": "p/b"}).content == b"bytes"
        assert len(local.get("/api/v1/media", params={"run": "p/a", "limit": 10}).json()["media"]) == 10
    assert len(read) == before


def test_the_memory_of_records_is_bounded(backend: Any) -> None:
    kept = RecordCache(backend.store, max_rows=5)
    for folder in "abc":
        for name in range(3):
            backend.store.create(f"{folder}/{name}.json", b'{"digest": "d"}')
        assert len(list(kept.rows(folder))) == 3
    assert kept.find_read("a", "d") is None
    assert kept.find_read("c", "d") == {"digest": "d"}


def test_rows_of_a_table_are_given_in_parts_with_what_json_has_no_form_for_as_text(
    local: Any, backend: Any, tmp_path: Path
) -> None:
    columns = ["n", "x", "text", "list", "raw", "when"]
    rows = [
        [i, math.nan if i == 1 else i / 2, "é" * 900, [i, i], b"abc", datetime(2026, 1, 2, tzinfo=UTC)]
        for i in range(5)
    ]
    table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows]).append_column(
        "huge", pa.array([2**60] * 5)
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    with init(project="p", id="r", root=backend.store.root, system_metrics=None) as training:
        digest = training.log_artifact(tmp_path / "t.parquet")
        none = training.log_artifact(_write(tmp_path / "none.parquet", b"PAR1 and nothing else"))
        other = training.log_artifact(_write(tmp_path / "t.csv", b"a,b"))
    path = f"/api/v1/blobs/{digest}/rows"
    part = local.get(path, params={"run": "p/r", "offset": 1, "limit": 3}).json()
    assert [column["name"] for column in part["columns"]] == [*columns, "huge"]
    assert (part["columns"][0]["type"], part["total"], part["total_columns"]) == ("int64", 5, 7)
    assert [row[:2] for row in part["rows"]] == [[1, "NaN"], [2, 1.0], [3, 1.5]]
    assert part["rows"][0][2:] == [
        "é" * 500 + "…",
        "[1, 1]",
        "3 bytes",
        "2026-01-02 00:00:00+00:00",
        str(2**60),
    ]
    assert local.get(path, params={"run": "p/r", "offset": 5}).json()["rows"] == []
    assert len(local.get(path, params={"run": "p/r"}).json()["rows"]) == 5
    for refused, said in ((none, "cannot be read as a table"), (other, "give a table")):
        answer = local.get(f"/api/v1/blobs/{refused}/rows", params={"run": "p/r"})
        assert (answer.status_code, said in answer.json()["detail"]) == (422, True)
    assert local.get(path, params={"run": "p/r", "limit": 1001}).status_code == 422


def test_a_table_whose_rows_do_not_fit_into_memory_is_not_read(
    local: Any, backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_MAX_BYTES", 10_000)
    pq.write_table(pa.table({"n": range(10_000)}), tmp_path / "t.parquet", row_group_size=1_000)
    with init(project="p", id="r", root=backend.store.root, system_metrics=None) as training:
        digest = training.log_artifact(tmp_path / "t.parquet")
    path = f"/api/v1/blobs/{digest}/rows"
    assert local.get(path, params={"run": "p/r", "offset": 9_990}).json()["rows"] == [
        [n] for n in range(9_990, 10_000)
    ]
    refused = local.get(path, params={"run": "p/r", "limit": 1_000, "offset": 500})
    assert (refused.status_code, "download it" in refused.json()["detail"]) == (422, True)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
