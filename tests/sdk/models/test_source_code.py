"""The code that a predictor needs is found by its imports; what is installed is pinned instead."""

import json
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput
from halving.models import source_code
from halving.models.source_code import code_of


def test_own_modules_are_taken_as_text_and_packages_by_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "served_by_me"
    (package / "parts").mkdir(parents=True)
    files = {
        "__init__.py": "",
        "model.py": (
            "import json\nimport pyarrow as pa\nfrom halving import Run\nfrom . import scaling\nfrom "
            ".parts.tree import leaf\n"
        ),
        "scaling.py": "def scale():\n    import yaml\n    from served_by_me.parts import late\n",
        "unused.py": "",
        "parts/__init__.py": "",
        "parts/tree.py": "from .. import model\nleaf = 1\n",
        "parts/late.py": "import served_by_me.nothing_there\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    code = code_of("served_by_me.model:predict")
    assert code.files == {f"served_by_me/{name}": text for name, text in files.items() if name != "unused.py"}
    assert list(code.packages) == ["PyYAML", "numpy", "pyarrow"]
    pinned = code.requirements({"pyyaml": "6.0.1", "numpy": "2.4.6+local", "torch": "2.13.0"})
    assert pinned[:2] == ["PyYAML==6.0.1", "numpy==2.4.6"]


def install(
    folder: Path,
    distribution: str,
    files: dict[str, str],
    *,
    editable: bool = False,
    origin: dict[str, Any] | None = None,
) -> None:
    """Install files as pip does with ``--target``, with a dist-info that lists them.

    ``origin`` says where they are from, if that is no index.
    """
    info = folder / f"{distribution.replace('-', '_')}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
    (info / "top_level.txt").write_text(
        "\n".join({name.partition("/")[0].removesuffix(".py") for name in files})
    )
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in ([] if editable else files)))
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_an_installed_package_is_a_requirement_and_an_editable_one_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    target = tmp_path / "target"
    text = (
        "import installed_there.deep\nfrom shared_space.second import thing\nimport edited_here\nimport "
        "shared_space.mine\n"
    )
    install(
        target,
        "installed-there",
        {"installed_there/__init__.py": "raise ImportError", "installed_there/deep.py": ""},
    )
    install(target, "first", {"shared_space/first.py": ""})
    install(target, "second", {"shared_space/second.py": "raise ImportError"})
    install(own, "edited-here", {"edited_here.py": ""}, editable=True)
    (own / "shared_space").mkdir()
    (own / "shared_space/mine.py").write_text("")
    (own / "asks_them.py").write_text(text)
    for folder in (own, target):
        monkeypatch.syspath_prepend(str(folder))
    source_code._by_module.cache_clear()
    code = code_of("asks_them:predict")
    source_code._by_module.cache_clear()
    assert code.files == {"asks_them.py": text, "edited_here.py": "", "shared_space/mine.py": ""}
    assert list(code.packages) == ["installed-there", "numpy", "pyarrow", "second"]
    assert "second==1.5" in code.requirements({})


def test_a_package_that_pip_installed_from_a_folder_is_own_code_and_others_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    target = tmp_path / "site-packages"
    text = "import of_folder.deep\nimport of_wheel\nimport of_git\n"
    files = {"of_folder/__init__.py": "", "of_folder/deep.py": "import of_wheel\n"}
    install(target, "of-folder", files, origin={"url": f"file://{own}", "dir_info": {}})
    install(target, "of-wheel", {"of_wheel.py": ""}, origin={"url": "file:///w.whl", "archive_info": {}})
    install(
        target,
        "of-git",
        {"of_git.py": ""},
        origin={"url": "https://git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
    )
    own.mkdir()
    (own / "asks_those.py").write_text(text)
    for folder in (own, target):
        monkeypatch.syspath_prepend(str(folder))
    source_code._by_module.cache_clear()
    code = code_of("asks_those:predict")
    source_code._by_module.cache_clear()
    assert code.files == {"asks_those.py": text, **files}
    assert list(code.packages) == ["numpy", "of-git", "of-wheel", "pyarrow"]


def test_a_module_that_is_no_python_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asks_broken.py").write_text("import broken_one, latin_one\n")
    (tmp_path / "broken_one.py").write_text("def (:\n")
    (tmp_path / "latin_one.py").write_bytes("# coding: latin-1\nname = 'größe'\n".encode("latin-1"))
    monkeypatch.syspath_prepend(str(tmp_path))
    code = code_of("asks_broken:predict")
    assert sorted(code.files) == ["asks_broken.py", "broken_one.py", "latin_one.py"]
    assert "größe" in code.files["latin_one.py"]


def test_a_relative_import_in_a_module_without_a_package_names_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asks_a_parent.py").write_text(
        "try:\n    from .beside_it import part\nexcept ImportError:\n    part = 1\n"
    )
    (tmp_path / "beside_it.py").write_text("part = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list(code_of("asks_a_parent:predict").files) == ["asks_a_parent.py"]


def test_nothing_is_imported_to_find_the_code_not_even_the_packages_that_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "ends_all/__init__.py": "raise SystemExit(3)\n",
        "ends_all/space/deep/model.py": "from ends_all.space.more import x\n",
        "ends_all/space/more.py": "from ..other import y\n",
        "ends_all/other/__init__.py": "raise SystemExit(3)\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert code_of("ends_all.space.deep.model:predict").files == files


@pytest.mark.parametrize("content", [b"x = 1\n\n\nname = '\xff'\n", b"# coding: klingon\n"])
def test_code_that_is_no_text_is_refused_by_its_name(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asks_bytes.py").write_text("def predict(run, table):\n    import no_text\n")
    (tmp_path / "no_text.py").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidInput, match=r"no_text\.py cannot be read"):
        code_of("asks_bytes:predict")
