"""Batches and runs as a client sends them."""

import io
from typing import Any, NamedTuple

import pyarrow as pa
from fastapi.testclient import TestClient

ARROW = "application/vnd.apache.arrow.stream"


class Begun(NamedTuple):
    """An attempt that a client has begun."""

    client: TestClient
    project: str
    run: str
    attempt: int

    def send(self, sequence: int, content: Any, **headers: str) -> Any:
        """Send a batch: a list of points, or bytes with their headers."""
        query: dict[str, str | int] = {
            "project": self.project,
            "run": self.run,
            "attempt": self.attempt,
            "sequence": sequence,
        }
        body: dict[str, Any] = (
            {"json": {"points": content}} if isinstance(content, list) else {"content": content}
        )
        return self.client.post(
            "/api/v1/ingest",
            params=query,
            headers={name.replace("_", "-"): text for name, text in headers.items()},
            **body,
        )

    def end(self, status: str = "finished") -> Any:
        whose = {"project": self.project, "run": self.run, "attempt": self.attempt}
        return self.client.post("/api/v1/ingest/end", json={**whose, "status": status})


def begin(client: TestClient, project: str = "p", **fields: Any) -> Begun:
    """Begin a run."""
    answer = client.post("/api/v1/ingest/begin", json={"project": project, **fields})
    assert answer.status_code == 201, answer.text
    content = answer.json()
    return Begun(client, project, content["run"], content["attempt"])


def points(first: int, end: int, key: str = "loss") -> list[dict[str, Any]]:
    """The points of steps ``first`` to ``end - 1``, each with its step as value."""
    return [
        {"key": key, "step": step, "value": float(step), "wall_time": 1_700_000_000_000 + step}
        for step in range(first, end)
    ]


def arrow(table: pa.Table, **options: Any) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def table_of(points: list[dict[str, Any]]) -> pa.Table:
    """Points as a table with the columns of a batch."""
    return pa.table(
        {name: [point[name] for point in points] for name in ("key", "step", "wall_time", "value")}
    )


def stored_points(root: str, run: str, key: str = "loss", project: str = "p") -> list[tuple[int, float]]:
    """Step and value of each point of a curve in the store, as they were logged: twice what arrived twice."""
    import pyarrow.parquet as pq

    from halving.metrics.manifest import run_files
    from halving.store.store import Store

    store = Store(root)
    rows = []
    for name in run_files(store, project, run).segments:
        table = pq.read_table(store.path(name))
        rows += [
            (row["step"], row["value"])
            for row in table.select(["key", "step", "value"]).to_pylist()
            if row["key"] == key
        ]
    return rows
