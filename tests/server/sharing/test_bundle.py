"""One script of many modules: the names that they give each other, and what cannot be bundled."""

from pathlib import Path

import pytest

from server.sharing.bundle import bundle
from server.sharing.page import _ENTRY


def _written(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source)
    return folder


def test_modules_are_called_before_those_that_import_them(tmp_path: Path) -> None:
    static = _written(
        tmp_path,
        first='import { deep as low } from "./second.js";\nimport * as all from "./third.js";\nlow(all);\n',
        second='import whole from "./third.js";\nexport const deep = whole;\n',
        third="export default function whole() {}\nexport class Kept {}\n",
    )
    script = bundle("first.js", static)
    assert [script.index(f"const ${name} =") for name in ("third", "second", "first")] == sorted(
        script.index(f"const ${name} =") for name in ("first", "second", "third")
    )
    assert "const {deep: low} = $second;" in script
    assert "const all = $third;" in script
    assert "const whole = $third.default;" in script
    assert 'return {"default": whole, "Kept": Kept};' in script


def test_modules_in_a_circle_are_refused(tmp_path: Path) -> None:
    static = _written(tmp_path, a='import "./b.js";\n', b='import "./a.js";\n')
    with pytest.raises(ValueError, match=r"a\.js → b\.js → a\.js"):
        bundle("a.js", static)


@pytest.mark.parametrize("source", ["export let changing = 1;\n", "export * from './b.js';\n"])
def test_a_form_that_cannot_be_bundled_is_refused(tmp_path: Path, source: str) -> None:
    static = _written(tmp_path, a=source, b="")
    with pytest.raises(ValueError, match="cannot be bundled"):
        bundle("a.js", static)


def test_a_module_cannot_end_the_script_that_it_is_in(tmp_path: Path) -> None:
    static = _written(tmp_path, a='export const end = "</SCRIPT>";\n')
    with pytest.raises(ValueError, match="</script"):
        bundle("a.js", static)


def test_the_page_is_the_same_text_each_time() -> None:
    assert bundle.__wrapped__(_ENTRY) == bundle.__wrapped__(_ENTRY)
