"""Sound, videos and HTML of runs over HTTP: players get ranges, and HTML is shown where it can do nothing."""

import base64
from typing import Any

import numpy as np
import pytest

import halving
from halving import init

PAGE = "<h1>said</h1><script>document.title = 'ran'</script>"


@pytest.fixture
def digests(backend: Any, tmp_path: Any) -> dict[str, str]:
    """A run with sound, a video, HTML and files; their digests by key or name."""
    (tmp_path / "report.html").write_text("<b>of a file</b>")
    (tmp_path / "notes.csv").write_text("a,b\n")
    with init(project="p", id="r", root=backend.store.root, system_metrics=None) as run:
        run.log({"tone": halving.Audio(np.zeros(800, np.int16), sample_rate=800)}, step=1)
        run.log({"clip": halving.Video(np.zeros((2, 4, 4, 1), np.uint8))}, step=1)
        run.log({"page": halving.Html(PAGE, caption="a page")}, step=1)
        files = {name: run.log_artifact(tmp_path / name) for name in ("report.html", "notes.csv")}
    rows = halving.sql("select key, digest from media", root=backend.store.root).to_pylist()
    return {row["key"]: row["digest"] for row in rows} | files


def test_each_kind_is_listed_with_what_its_file_says(local: Any, digests: dict[str, str]) -> None:
    media = local.get("/api/v1/media", params={"run": "p/r"}).json()["media"]
    by_key = {row["key"]: row for row in media}
    assert {key: (row["kind"], row["media_type"], row["name"]) for key, row in by_key.items()} == {
        "tone": ("audio", "audio/wav", "tone-1.wav"),
        "clip": ("video", "image/gif", "clip-1.gif"),
        "page": ("html", "text/html", "page-1.html"),
    }
    assert (by_key["tone"]["seconds"], by_key["tone"]["sample_rate"], by_key["page"]["caption"]) == (
        1.0,
        800,
        "a page",
    )


def test_sound_is_sent_as_such_and_in_ranges(local: Any, digests: dict[str, str]) -> None:
    address = f"/api/v1/blobs/{digests['tone']}"
    whole = local.get(address, params={"run": "p/r"})
    assert (whole.headers["content-type"], whole.headers["content-disposition"].partition(";")[0]) == (
        "audio/wav",
        "inline",
    )
    part = local.get(address, params={"run": "p/r"}, headers={"Range": "bytes=4-7"})
    assert (part.status_code, part.content) == (206, whole.content[4:8])


def test_html_is_a_file_to_save_and_its_page_is_shown_in_a_sandbox(
    local: Any, digests: dict[str, str]
) -> None:
    for name, content in (("page", PAGE), ("report.html", "<b>of a file</b>")):
        address = f"/api/v1/blobs/{digests[name]}"
        saved = local.get(address, params={"run": "p/r"})
        assert (saved.headers["content-type"], saved.headers["content-disposition"].partition(";")[0]) == (
            "application/octet-stream",
            "attachment",
        )
        page = local.get(f"{address}/page", params={"run": "p/r"})
        assert (page.status_code, page.text) == (200, content)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = {directive.strip() for directive in page.headers["content-security-policy"].split(";")}
        assert {"sandbox allow-scripts", "default-src 'none'", "frame-ancestors 'self'"} <= policy
        assert not [part for part in policy if "connect-src" in part or "allow-same-origin" in part]
        assert page.headers["x-content-type-options"] == "nosniff"


def test_small_pictures_in_a_tables_cells_come_with_its_rows(local: Any, backend: Any) -> None:
    noise = np.random.default_rng(0)
    small = halving.Image(noise.integers(0, 256, (4, 4), np.uint8)).encode()
    medium = halving.Image(noise.integers(0, 256, (250, 250, 3), np.uint8)).encode()
    large = halving.Image(noise.integers(0, 256, (400, 400, 3), np.uint8)).encode()
    contents = [small, large, b"<svg onload=alert(1)>", *[medium] * 30]
    cells = [[{"bytes": content, "path": "a.png"}] for content in contents]
    with init(project="p", id="r", root=backend.store.root, system_metrics=None) as run:
        run.log({"table": halving.Table(columns=["picture"], rows=cells)}, step=1)
    (row,) = local.get("/api/v1/media", params={"run": "p/r"}).json()["media"]
    rows = local.get(row["url"].replace("?", "/rows?")).json()["rows"]
    address = f"data:image/png;base64,{base64.b64encode(small).decode()}"
    assert rows[0] == [{"picture": address}]
    assert rows[1] == [f"a.png, {len(large):,} bytes"]
    assert rows[2] == ["a.png, 21 bytes"]
    pictures = sum(isinstance(cell, dict) for (cell,) in rows)
    assert pictures == 1 + ((4 << 20) - len(small)) // len(medium)


@pytest.mark.parametrize(
    ("name", "run", "status"), [("tone", "p/r", 422), ("notes.csv", "p/r", 422), ("page", "p/other", 404)]
)
def test_only_html_of_the_run_itself_is_shown(
    local: Any, backend: Any, digests: dict[str, str], name: str, run: str, status: int
) -> None:
    init(project="p", id="other", root=backend.store.root, system_metrics=None).finish()
    answer = local.get(f"/api/v1/blobs/{digests[name]}/page", params={"run": run})
    assert answer.status_code == status
