"""The page's files: libraries as in the manifest, a complete package, and browser caching."""

import json
import re
from hashlib import sha256

import pytest
from fastapi.testclient import TestClient

from server.pages import PATHS, STATIC, PageFiles
from server.vendor import FILES, HERE, MANIFEST, VENDOR


def test_libraries_are_the_files_of_the_manifest() -> None:
    manifest = json.loads(MANIFEST.read_text())
    assert set(manifest) == set(FILES) == {path.name for path in VENDOR.iterdir()} - {MANIFEST.name}
    for name, entry in manifest.items():
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == entry["sha256"], (
            f"{name} is not {entry['package']} {entry['version']}"
        )


def test_libraries_are_of_the_pinned_versions() -> None:
    pinned = json.loads((HERE / "package.json").read_text())["devDependencies"]
    assert {
        entry["package"]: entry["version"] for entry in json.loads(MANIFEST.read_text()).values()
    }.items() <= pinned.items()


def test_the_page_loads_nothing_from_elsewhere() -> None:
    for path in STATIC.rglob("*"):
        if path.is_relative_to(VENDOR) or path.suffix not in {".js", ".html", ".css"}:
            continue
        text = path.read_text().replace("http://www.w3.org/", "")  # the name of SVG, not an address
        assert "https://" not in text, path
        assert "http://" not in text, path


def _addresses(html: str) -> list[str]:
    modules = re.findall(r'data-modules="([^"]+)"', html)
    return [
        *re.findall(r'(?:href|src)="(/[^"]+)"', html),
        *(address for names in modules for address in names.split()),
    ]


def test_page_files_are_cached_for_good_at_addresses_that_change_with_them(
    local: TestClient,
) -> None:
    addresses = _addresses(local.get("/").text)
    assert len(addresses) > 30
    for address in addresses:
        answer = local.get(address)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.content == (STATIC / address.split("/", 3)[3]).read_bytes()


def test_an_upgraded_file_is_never_kept_under_the_address_of_an_old_one(local: TestClient) -> None:
    old = local.get("/static/0123456789ab/app.js")
    assert old.status_code == 200, "while replicas are upgraded, either version is asked of either"
    assert old.headers["Cache-Control"] == local.get("/").headers["Cache-Control"] == "no-cache"
    for nothing in (
        "/static/0123456789ab/nothing.js",
        "/static/app.js",
        "/static/",
        "/index.html",
        "/static/../pages.py",
    ):
        assert local.get(nothing).status_code == 404, nothing


def test_what_a_browser_has_is_not_sent_again_and_what_it_has_not_is_packed(local: TestClient) -> None:
    for path in ("/", "/sweeps/a", "/app.js"):
        unpacked, packed = (
            local.get(path, headers={"Accept-Encoding": encoding}) for encoding in ("identity", "gzip")
        )
        assert unpacked.content == packed.content
        assert packed.headers["Content-Encoding"] == "gzip"
        assert (
            int(packed.headers["Content-Length"])
            < int(unpacked.headers["Content-Length"])
            == len(unpacked.content)
        )
        again = local.get(path, headers={"If-None-Match": packed.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_asks_for_all_of_its_modules_at_once(path: str) -> None:
    files = PageFiles()
    modules = files.modules_of("app.js", *PATHS[path])
    for module in modules:
        imported = re.findall(r'^import [^;]*?"(\.[^"]+)"', (STATIC / module).read_text(), re.MULTILINE)
        assert {(STATIC / module).parent.joinpath(name).resolve() for name in imported} <= {
            (STATIC / name).resolve() for name in modules
        }
    assert {"vendor/preact.js", "vendor/signals-core.js", "lib/api.js"} < set(modules), (
        "libraries and what they import"
    )


def test_the_server_knows_the_pages_of_the_router() -> None:
    assert re.findall(r'load: \(\) => import\("\./([^"]+)"\)', (STATIC / "app.js").read_text()) == [
        modules[0] for modules in PATHS.values()
    ]


def test_a_missing_page_is_a_page_for_browsers_and_a_problem_for_programs(
    local: TestClient,
) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
    for path in ("/nowhere", "/runs", "/apifoo"):
        answer = local.get(path, headers=browser)
        said = local.get(path)
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8"), path
        assert any(address.endswith("/app.js") for address in _addresses(answer.text))
        assert (said.status_code, said.headers["Content-Type"]) == (404, "application/problem+json"), path
        assert (
            local.get(path, headers={**browser, "If-None-Match": answer.headers["ETag"]}).status_code == 404
        )
        assert local.head(path, headers=browser).content == b""
    for path in ("/api", "/api/", "/api/v1/nowhere"):
        assert local.get(path, headers=browser).headers["Content-Type"] == "application/problem+json", path
    assert local.post("/nowhere", headers=browser).headers["Content-Type"] == "application/problem+json"


def test_a_text_never_has_a_colour_between_two_themes() -> None:
    for path in STATIC.rglob("*.css"):
        for moved in re.findall(r"transition(?:-property)?:([^;}]*)", path.read_text()):
            assert not re.search(r"(?<![\w-])(?:color|all)\b", moved), (path.name, moved)
