"""The client that ``docs/ingest.md`` shows works as it stands."""

import re
from pathlib import Path

import pytest

from halving.query.runs import read_run
from halving.store.store import Store
from tests.server.ingested import stored_points
from tests.server.processes import server_of

_PAGE = (Path(__file__).parents[2] / "docs/ingest.md").read_text()


@pytest.mark.slow
def test_the_client_of_the_documentation_logs_a_run_over_a_restart_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(import .*?\nclass Run:.*?)```", _PAGE, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 36
    names: dict[str, object] = {}
    exec(code, names)
    root = str(tmp_path / "root")
    with server_of(root) as server:
        run = names["Run"](server.address, "p", {"lr": 0.1})  # type: ignore[operator]
        for step in range(6_000):
            run.log(step, loss=1.0 / (step + 1), acc=float(step))
            if step == 3_000:
                server.kill()
                server.start()
        run.finish()
    name = run.whose["run"]
    assert stored_points(root, name, "acc") == [(step, float(step)) for step in range(6_000)]
    info = read_run(Store(root), "p", name)
    assert (info.status, info.params) == ("finished", {"lr": 0.1})
