"""What is recorded of a run's code, environment and machine, beside its patch."""

import hashlib
import os
import sys
from importlib.metadata import distributions
from importlib.metadata import version as version_of
from pathlib import Path
from types import ModuleType

import pyarrow
import pytest

from halving import Store
from halving.records.provenance import IMAGE_VARIABLES, capture, environment, git_state, image
from tests.sdk.records.checkouts import git, write

pytestmark = pytest.mark.usefixtures("no_git_settings")


@pytest.mark.parametrize(
    ("address", "recorded"),
    [
        ("https://ada:s3cret@git.example.org/team/code.git", "https://git.example.org/team/code.git"),
        ("https://s3cret@git.example.org/team/code.git", "https://git.example.org/team/code.git"),
        ("https://ada:s3cret@x@git.example.org/team/code@2.git", "https://git.example.org/team/code@2.git"),
        ("https://git.example.org/team/code.git", "https://git.example.org/team/code.git"),
        ("git@git.example.org:team/code.git", "git@git.example.org:team/code.git"),
        ("/srv/git/code@2.git", "/srv/git/code@2.git"),
    ],
)
def test_a_password_in_the_remote_is_not_recorded(
    store: Store, checkout: Path, address: str, recorded: str
) -> None:
    git(checkout, "remote", "add", "origin", address)
    state = git_state(store, checkout)
    assert state is not None
    assert state["remote"] == recorded


def test_outside_of_git_there_is_no_git_state(store: Store, tmp_path: Path) -> None:
    assert git_state(store, tmp_path) is None


def test_a_machine_without_git_still_starts_runs(
    store: Store, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_state(store, checkout) is None


@pytest.mark.parametrize(
    ("variables", "named", "expected"),
    [
        ({}, None, None),
        ({}, "registry:5000/train:3", "registry:5000/train:3"),
        ({"HALVING_IMAGE_DIGEST": "sha256:12"}, None, "sha256:12"),
        ({"HALVING_IMAGE_DIGEST": "sha256:12"}, "registry:5000/train:3", "registry:5000/train@sha256:12"),
        (
            {"HALVING_IMAGE_DIGEST": "sha256:12"},
            "registry:5000/train@sha256:34",
            "registry:5000/train@sha256:12",
        ),
        (
            {"HALVING_IMAGE_DIGEST": "sha256:12", "DAGSTER_CURRENT_IMAGE": "halving:1"},
            "other",
            "halving@sha256:12",
        ),
        ({"DAGSTER_CURRENT_IMAGE": "halving:1"}, "other", "halving:1"),
    ],
)
def test_an_images_digest_is_recorded_with_the_name_that_it_is_pulled_by(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str | None, expected: str | None
) -> None:
    for variable in IMAGE_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert image(named) == expected


def test_capture_describes_code_environment_and_machine(
    store: Store, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_IMAGE_DIGEST", "sha256:1234")
    write(checkout, "uv.lock", b"pinned\n")
    captured = capture(store, checkout / "package")
    assert captured["git"]["commit"] == git(checkout, "rev-parse", "HEAD")
    assert captured["lockfile"] == {"name": "uv.lock", "sha256": hashlib.sha256(b"pinned\n").hexdigest()}
    assert captured["image"] == "sha256:1234"
    assert captured["hardware"]["cpus"] == len(os.sched_getaffinity(0))
    assert captured["packages"]["pyarrow"] == pyarrow.__version__


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("cuda: Optional[str] = '13.0'\n", "13.0"),
        ('cuda = "12.8"\n', "12.8"),
        ("cuda: Optional[str] = None\n", None),
        ("hip = '6.2'\n", None),
    ],
)
def test_the_cuda_that_pytorch_was_built_for_is_recorded_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, version: str | None
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('imported')\n")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.13.0'\n{text}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert environment()["cuda"] == version


@pytest.mark.parametrize("stand_in", [None, ModuleType("torch")])
def test_a_stand_in_for_pytorch_is_no_error(
    monkeypatch: pytest.MonkeyPatch, stand_in: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    assert environment()["cuda"] is None


def test_an_absolute_path_in_the_checkout_is_recorded_as_relative_unless_ignored(
    store: Store, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(checkout, ".gitignore", b"data/\n")
    (checkout / "data").mkdir()
    arguments = [
        "-u",
        f"{checkout}/train.py",
        f"--config={checkout}/a.yaml",
        f"--out={checkout}/data/new",
        "/etc",
        "lr=1",
    ]
    monkeypatch.setattr(sys, "orig_argv", ["python", *arguments])
    expected = [
        "-u",
        "checkout:train.py",
        "--config=checkout:a.yaml",
        f"--out={checkout}/data/new",
        "/etc",
        "lr=1",
    ]
    assert capture(store, checkout)["arguments"] == expected


def test_all_that_is_installed_is_recorded_as_pythons_own_library_has_it(
    store: Store, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, version, body in (("first", "2.0", "Version: 7\n"), ("second", "1.0", "")):
        about = tmp_path / folder / f"twice_there-{version}.dist-info" / "METADATA"
        about.parent.mkdir(parents=True)
        about.write_text(
            f"Metadata-Version: 2.1\nName: Twice.there\nVersion: {version}\n\nName: other\n{body}"
        )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    packages = capture(store, checkout)["packages"]
    assert packages["Twice.there"] == version_of("Twice.there") == "2.0"
    assert packages == {
        dist.metadata["Name"]: version_of(dist.metadata["Name"])
        for dist in distributions()
        if dist.metadata["Name"]
    }


def test_a_lockfile_outside_of_the_checkout_is_not_its_own(store: Store, checkout: Path) -> None:
    write(checkout.parent, "uv.lock", b"of somebody else\n")
    assert capture(store, checkout)["lockfile"] is None
