import ast
import threading
import time

import pytest

from halving.python_source import parse_python


def test_threads_parse_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    trees: list[str] = []
    overlaps: list[str] = []
    is_parsing = threading.Lock()
    parse = ast.parse  # noqa: TID251

    def note_overlaps(text: str, **options: str) -> ast.AST:
        if not is_parsing.acquire(blocking=False):
            overlaps.append(text)
            return parse(text, **options)
        for _ in range(100):
            time.sleep(0)  # so that the others have their turn
        tree = parse(text, **options)
        is_parsing.release()
        return tree

    def parse_both_modes() -> None:
        trees.append(ast.unparse(parse_python("x = 1")))
        trees.append(ast.unparse(parse_python("a < b", "eval")))

    threads = [threading.Thread(target=parse_both_modes) for _ in range(4)]
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", note_overlaps)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(trees) == ["a < b"] * 4 + ["x = 1"] * 4
    assert overlaps == []


def test_a_text_that_is_no_python_raises_what_ast_raises() -> None:
    with pytest.raises(SyntaxError):
        parse_python("a <", "eval")
