"""The digest of a function's code changes with all project code that it uses, and with nothing else."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from halving import InvalidInput
from resources.project_code import code_digest

FILES = {
    "scaled/__init__.py": (
        "from . import offsets\nfrom scaled import widths as breadths\nfrom .shifts import shift as "
        "exported\n"
    ),
    "scaled/offsets.py": "def offset(value):\n    return value - 1\n",
    "scaled/widths.py": "def width(value):\n    return value\n",
    "scaled/rates.py": '''"""Rates."""
import functools
import math
from typing import TYPE_CHECKING

import scaled.units
from scaled import breadths, exported, offsets
from scaled.constants import LIMITS, PARAMS
from scaled.decorators import clipped

if TYPE_CHECKING:
    from pathlib import Path
else:
    Path = str

OFFSET = 3
TABLE = {"low": 1}
TABLE["high"] = 2


def base(value, power=OFFSET):
    """The base."""
    # of all rates
    return value**power


def unrelated(value):
    return value


@clipped(LIMITS)
def rate(rows):
    from scaled import late

    value = [breadths.width(offsets.offset(base(row))) for row in rows if Path(row)]
    fitted = Model(PARAMS).fit(value)
    return fitted, scaled.units.to_metres(value), exported(value), late.last(value), TABLE, math.pi, folder


def other(rows):
    return [base(row) for row in rows]


class Parent:
    def fit(self, value):
        return self.weigh(value)


class Model(Parent):
    def __init__(self, params):
        self.params = params

    def weigh(self, value):
        return value * 2


folder = str(__file__)
tripled = functools.partial(base, power=3)
fit = tripled
''',
    "scaled/constants.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass Params:\n    width: "
    "int = 4\n\n\n"
    "LIMITS = (0, 9)\nPARAMS = Params(width=8)\nUNUSED = 1\n",
    "scaled/decorators.py": "import functools\n\n\ndef clipped(limits):\n    def around(function):\n        "
    "@functools.wraps(function)\n"
    "        def inner(rows):\n            return function(rows[:5])\n\n        return inner\n\n    return "
    "around\n",
    "scaled/units.py": (
        "from .constants import LIMITS\nfrom .deep import *\n\n\ndef to_metres(value):\n    return "
        "scale(value), LIMITS\n"
    ),
    "scaled/deep.py": (
        "import scaled.rates\n\n\ndef scale(value):\n    return scaled.rates.base(value) * 1000\n"
    ),
    "scaled/shifts.py": "def shift(value):\n    return value + 1\n",
    "scaled/late.py": "def last(value):\n    return value[-1]\n",
}
RATES = "scaled/rates.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the package ``scaled``."""
    return write_project(tmp_path / "project", monkeypatch)


def write_project(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.syspath_prepend(str(root))
    forget(monkeypatch)
    return root


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the project's modules, as a new process would find them."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "scaled"]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        pytest.param(
            RATES, "def rate(rows):\n", "def rate(rows):\n    rows = rows[1:]\n", id="the function itself"
        ),
        pytest.param(RATES, "return value**power", "return value**power + 1", id="a helper"),
        pytest.param(RATES, "OFFSET = 3", "OFFSET = 4", id="the default of a helper's parameter"),
        pytest.param(RATES, "return value * 2", "return value * 3", id="a method of a class"),
        pytest.param(
            RATES,
            "return self.weigh(value)",
            "return self.weigh(value) + 1",
            id="a method of the class above",
        ),
        pytest.param(RATES, '"low": 1', '"low": 0', id="a table"),
        pytest.param(RATES, 'TABLE["high"] = 2', 'TABLE["high"] = 3', id="an item of a table"),
        pytest.param(RATES, "@clipped(LIMITS)\n", "", id="a decorator that is gone"),
        pytest.param("scaled/constants.py", "(0, 9)", "(0, 8)", id="a constant of another module"),
        pytest.param("scaled/constants.py", "Params(width=8)", "Params(width=9)", id="an object's state"),
        pytest.param("scaled/constants.py", "width: int = 4", "width: int = 5", id="the class of an object"),
        pytest.param("scaled/decorators.py", "rows[:5]", "rows[:6]", id="a decorator's code"),
        pytest.param(
            "scaled/units.py",
            "scale(value), LIMITS",
            "scale(value)",
            id="a function of a module by its whole name",
        ),
        pytest.param(
            "scaled/deep.py",
            "* 1000",
            "* 999",
            id="a helper's helper, imported with all others of its module",
        ),
        pytest.param("scaled/shifts.py", "value + 1", "value + 2", id="what a package imports for others"),
        pytest.param(
            "scaled/__init__.py",
            "shift as exported",
            "shift as shift, shift as exported\nexported = abs",
            id="what it is there",
        ),
        pytest.param("scaled/offsets.py", "value - 1", "value - 2", id="a module that its package imports"),
        pytest.param(
            "scaled/widths.py",
            "return value",
            "return value + 0",
            id="a module that its package imports by another name",
        ),
        pytest.param(RATES, "Path = str", "Path = bytes", id="what is made where types are not checked"),
        pytest.param("scaled/late.py", "value[-1]", "value[-2]", id="what is imported within the function"),
        pytest.param(
            RATES,
            "import math\n",
            "import cmath as math\n",
            id="from where a name is that is not the project's",
        ),
    ],
)
def test_the_digest_changes_with_what_the_function_reaches(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, before: str, after: str
) -> None:
    digest = code_digest("transform", "scaled.rates:rate")
    change(project / file, before, after)
    forget(monkeypatch)
    assert code_digest("transform", "scaled.rates:rate") != digest


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        pytest.param(RATES, "# of all rates", "# of other rates", id="a comment"),
        pytest.param(RATES, '"""The base."""', '"""Another text."""', id="a docstring"),
        pytest.param(RATES, '"""Rates."""', "", id="a docstring that is gone"),
        pytest.param(
            RATES,
            "(offsets.offset(base(row)))",
            "(\n        offsets.offset(\n            base(row)\n        )\n    )",
            id="layout",
        ),
        pytest.param(
            RATES,
            "def unrelated(value):\n    return value",
            "def unrelated(value):\n    return 0",
            id="another function",
        ),
        pytest.param(RATES, "def unrelated", "def value", id="another function with the name of a variable"),
        pytest.param(RATES, "fit = tripled", "fit = base", id="another constant, with the name of a method"),
        pytest.param(
            RATES, "    from pathlib import Path", "    from pathlib import PurePath", id="imports for types"
        ),
        pytest.param("scaled/constants.py", "UNUSED = 1", "UNUSED = 2", id="a constant that is not used"),
        pytest.param(
            "scaled/constants.py",
            "LIMITS = (0, 9)\nPARAMS = Params(width=8)",
            "PARAMS = Params(width=8)\nLIMITS = (0, 9)",
            id="order",
        ),
    ],
)
def test_the_digest_stays_where_nothing_changes_that_the_function_does(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, before: str, after: str
) -> None:
    digest = code_digest("transform", "scaled.rates:rate")
    change(project / file, before, after)
    forget(monkeypatch)
    assert code_digest("transform", "scaled.rates:rate") == digest


def change(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))


def test_functions_of_one_module_have_digests_of_their_own(project: Path) -> None:
    names = ("rate", "other", "base", "unrelated", "tripled", "fit", "exported", "Model")
    assert len({code_digest("transform", f"scaled.rates:{name}") for name in names}) == len(names)


def test_what_was_made_anew_while_the_process_ran_does_not_count(project: Path) -> None:
    digest = code_digest("transform", "scaled.rates:rate")
    importlib.import_module("scaled.rates").TABLE["cached"] = object()
    assert code_digest("transform", "scaled.rates:rate") == digest


def test_the_digest_is_the_same_in_another_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = code_digest("transform", "scaled.rates:rate")
    write_project(tmp_path / "elsewhere" / "deeper", monkeypatch)
    assert code_digest("transform", "scaled.rates:rate") == digest
    assert str(tmp_path / "elsewhere") in str(sys.modules["scaled.rates"].__file__)


@pytest.mark.slow
def test_the_digest_is_the_same_in_processes_that_hash_otherwise(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from resources.project_code import code_digest; print(code_digest('transform', 'scaled.rates:rate'))"
    )
    digests = {code_digest("transform", "scaled.rates:rate")}
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
        digests.add(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout.strip()
        )
    assert len(digests) == 1


def test_of_what_has_no_text_the_import_path_counts(project: Path) -> None:
    assert code_digest("transform", "operator:neg") != code_digest("transform", "operator:pos")
    assert code_digest("transform", "pyarrow.compute:divide") == code_digest(
        "transform", "pyarrow.compute:divide"
    )


def test_a_function_that_no_statement_of_its_module_makes_stands_on_the_whole_module(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 'FACTOR = 1\nglobals()["double"] = lambda rows: rows * FACTOR\n'
    (project / "scaled" / "made.py").write_text(made)
    digest = code_digest("transform", "scaled.made:double")
    (project / "scaled" / "made.py").write_text(made.replace("1", "2"))
    forget(monkeypatch)
    assert code_digest("transform", "scaled.made:double") != digest


def test_a_function_that_is_not_there_is_refused_by_the_field_that_names_it(project: Path) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"transform = 'scaled\.rates:ratio' is not accepted: scaled\.rates has no function 'ratio'",
    ):
        code_digest("transform", "scaled.rates:ratio")
