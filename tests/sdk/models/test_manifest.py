"""A manifest is read as it was written or refused, because it says which files are written and imported."""

import json
from pathlib import Path
from typing import Any

import pytest

from halving import StoreError
from halving.models.exported import MANIFEST, read_manifest
from halving.models.manifest import Manifest
from halving.models.source_code import warn_of_secrets
from halving.store.store import Store
from tests.sdk.models.manifests import ABOUT


def read_both(tmp_path: Path, about: Any) -> list[Manifest | StoreError]:
    """The manifest from a store and from an exported folder, or the errors."""
    store = Store(tmp_path / "store")
    content = json.dumps(about).encode()
    (tmp_path / MANIFEST).write_text(json.dumps({**about, "files": {}} if isinstance(about, dict) else about))
    digest = store.put_blob(content)
    results = list[Manifest | StoreError]()
    for read in (lambda: Manifest.read(store, digest), lambda: read_manifest(tmp_path)):
        try:
            results.append(read())
        except StoreError as error:
            results.append(error)
    return results


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../../pwned.py",
            "/tmp/pwned.py",
            "a/../../pwned.py",
            "a//b.py",
            "./a.py",
            "a\\..\\b.py",
            "c:/a.py",
            "a.sh",
            ".py",
            "a/.py",
            "",
        ),
        *("a.pth.py", "my-module.py", "a\n.py", "halving/__init__.py"),
    ],
)
def test_code_that_would_be_written_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    for error in read_both(tmp_path, {**ABOUT, "code": {"fine.py": "", path: "print('pwned')"}}):
        assert isinstance(error, StoreError)
        assert f"code {path!r} is not accepted" in str(error)


@pytest.mark.parametrize("path", ["a.py", "a/__init__.py", "größe/modell.py"])
def test_the_path_of_a_module_is_taken(tmp_path: Path, path: str) -> None:
    for manifest in read_both(tmp_path, {**ABOUT, "code": {path: "x = 1\n"}}):
        assert isinstance(manifest, Manifest)
        assert manifest.code == {path: "x = 1\n"}


@pytest.mark.parametrize(
    "about", [[], 3, {}, {**ABOUT, "newer": 1}, {**ABOUT, "code": ["a.py"]}, {**ABOUT, "code": {"a.py": 1}}]
)
def test_a_manifest_of_another_version_is_a_clear_error(tmp_path: Path, about: Any) -> None:
    for error in read_both(tmp_path, about):
        assert isinstance(error, StoreError)
        assert "is not one that this version of Halving reads" in str(error)


def test_code_with_what_looks_like_a_secret_is_named_and_the_secret_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "value-of-the-token")
    code = {
        "settings.py": "import os\nAPI_KEY = 'sk-0123456789'\n",
        "b.py": "x = 'value-of-the-token'\n",
        "c.py": "max_tokens = 1000000\n",
    }
    with pytest.warns(
        UserWarning, match=r"looks like a secret in settings\.py:2, b\.py:1; it is kept in the store"
    ) as warned:
        warn_of_secrets("digits", code, stacklevel=1)
    assert "0123456789" not in str(warned[0].message)
    warn_of_secrets("digits", {"c.py": code["c.py"]}, stacklevel=1)
