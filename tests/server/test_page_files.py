"""The page's files: its libraries are those of the manifest, and everything of it is in the package."""

import json
from hashlib import sha256

from server.pages import STATIC
from server.vendor import FILES, HERE, MANIFEST, VENDOR


def test_libraries_are_the_files_of_the_manifest() -> None:
    manifest = json.loads(MANIFEST.read_text())
    assert set(manifest) == set(FILES) == {path.name for path in VENDOR.iterdir()} - {MANIFEST.name}
    for name, entry in manifest.items():
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == entry["sha256"], f"{name} is not {entry['package']} {entry['version']}"


def test_libraries_are_of_the_pinned_versions() -> None:
    pinned = json.loads((HERE / "package.json").read_text())["devDependencies"]
    assert {entry["package"]: entry["version"] for entry in json.loads(MANIFEST.read_text()).values()}.items() <= pinned.items()


def test_the_page_loads_nothing_from_elsewhere() -> None:
    for path in STATIC.rglob("*"):
        if path.is_relative_to(VENDOR) or path.suffix not in {".js", ".html", ".css"}:
            continue
        text = path.read_text().replace("http://www.w3.org/", "")  # the name of SVG, not an address
        assert "https://" not in text, path
        assert "http://" not in text, path
