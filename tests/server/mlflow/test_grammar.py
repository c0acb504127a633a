"""When MLflow's grammar of filters is imported: in a process of its own each, since that cannot be undone."""

import contextlib
import itertools
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from halving.query.run_filter_match import is_like
from server.mlflow.grammar import ilike, like, search_utils

# On an empty store. The thread that imports the grammar is joined: what it has imported is seen then.
_PROGRAM = """
import sys, threading
from server.settings import Settings
from tests.server.clients import client_of

def imported():
    for thread in threading.enumerate():
        if thread.name == "halving-mlflow-grammar":
            thread.join()
    return "mlflow.utils.search_utils" in sys.modules

base = "http://127.0.0.1:3001/api/2.0/mlflow/"
with client_of(Settings(root=sys.argv[1])) as client:
    if sys.argv[2] == "absent":
        sys.modules["mlflow"] = None  # an import of it fails, as where it is not installed
    client.get("http://127.0.0.1:3001/api/v1/health")
    before = imported()
    client.get(base + "experiments/get", params={"experiment_id": "0"})
    question = {"experiment_ids": ["0"], "filter": "metrics.loss < 1"}
    if sys.argv[2] == "at once":
        answer = client.post(base + "runs/search", json=question)
        after = imported()
    else:
        after = imported()
        answer = client.post(base + "runs/search", json=question)
    print(before, after, answer.status_code, answer.json().get("message", ""))
"""


def outcome(tmp_path: Path, how: str) -> str:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "store"), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.strip()


def test_it_is_imported_before_a_test_and_not_by_a_thread_beside_it() -> None:
    assert "mlflow.utils.search_utils" in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize("how", ["later", "at once"])
def test_the_grammar_is_imported_after_the_first_request_of_an_mlflow_client(
    tmp_path: Path, how: str
) -> None:
    assert outcome(tmp_path, how) == "False True 200"


@pytest.mark.slow
def test_without_mlflows_package_only_a_filter_fails_and_says_what_to_install(tmp_path: Path) -> None:
    output = outcome(tmp_path, "absent")
    assert output.startswith("False False ")
    assert "200" not in output
    assert "mlflow-skinny" in output


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "ab",
        "aab",
        "abab",
        "a\nb",
        "ab\n",
        "b\na",
        "A_b",
        "a.b",
        "aXb\nab",
        "\n",
        "\n\n",
        "a\r\nb",
        "ä",
        "a\u2028b",
        "A\n\nB\n",
    ],
)
def test_what_is_like_a_pattern_is_what_sqlite_says(text: str) -> None:
    patterns = [
        "".join(letters) for length in range(5) for letters in itertools.product("aB_%\n.", repeat=length)
    ]
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("pragma case_sensitive_like = on")
        for pattern in patterns:
            answers = database.execute(
                "select ?1 like ?2, lower(?1) like lower(?2)", (text, pattern)
            ).fetchone()
            assert (like(text, pattern), ilike(text, pattern)) == tuple(map(bool, answers)), pattern


def test_no_letters_but_a_to_z_are_the_same_in_upper_and_lower_case() -> None:
    letters = "iI\u0130\u0131kK\u212asS\u017fßẞäÄ\u212båÅ\xb5\u03bc\u03c3\u03c2\u03a3"
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("pragma case_sensitive_like = on")
        for text, pattern in itertools.product([*letters, "ss", "SS", "i\u0307"], repeat=2):
            (answer,) = database.execute("select lower(?1) like lower(?2)", (text, pattern)).fetchone()
            assert ilike(text, pattern) == bool(answer) == is_like(text, pattern), (text, pattern)


@pytest.mark.parametrize("comparator", ["LIKE", "ILIKE"])
def test_a_pattern_of_many_parts_takes_no_longer_than_its_text_is_long(comparator: str) -> None:
    compared = search_utils("SearchUtils").get_comparison_func(comparator)
    begin = time.process_time()
    assert not compared("a" * 8_000, "%a%a%a%a%b")
    assert time.process_time() - begin < 1
