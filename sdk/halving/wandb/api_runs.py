"""Lists of runs as ``wandb.Api`` gives them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

from halving.errors import NotFound
from halving.wandb.api_run import Run
from halving.wandb.errors import UsageError
from halving.wandb.recorded_runs import RecordedRuns
from halving.wandb.run_query import predicate_of, sorted_runs


class Runs(Sequence[Run]):
    """Runs of a project that a filter chooses; they are read when the first is looked at."""

    def __init__(
        self,
        runs: RecordedRuns,
        entity: str,
        project: str,
        filters: Mapping[str, Any] | None,
        order: str | None,
        per_page: int,
    ) -> None:
        self.entity = entity
        self.project = project
        self.filters = dict(filters or {})
        self.order = order
        self.per_page = per_page
        self._runs = runs
        self._is_chosen = predicate_of(filters)
        sorted_runs([], order)  # a wrong order is refused at once

    def __repr__(self) -> str:
        return f"<Runs {self.entity}/{self.project}>"

    def __len__(self) -> int:
        return len(self._objects)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        return self._objects[index]

    def __iter__(self) -> Iterator[Run]:
        return iter(self._objects)

    def histories(
        self,
        samples: int = 500,
        keys: Sequence[str] | None = None,
        x_axis: str = "_step",
        format: str = "default",
        stream: str = "default",
    ) -> Any:
        """The histories of all runs in one list of dicts, or DataFrame (``format="pandas"``), by ``run_id``.

        Raises:
            UsageError: an argument is not accepted.
        """
        if format not in ("default", "pandas"):
            raise UsageError(f"format = {format!r:.80} is not accepted: give default or pandas")
        rows = [
            {**row, "run_id": run.id}
            for run in self
            for row in run.history(samples, keys, x_axis, pandas=False, stream=stream)
        ]
        if format == "default":
            return rows
        from pandas import DataFrame

        table = DataFrame.from_records(rows)
        return table[sorted(table.columns)]

    @cached_property
    def _objects(self) -> list[Run]:
        try:
            chosen = [run for run in self._runs.runs(self.project) if self._is_chosen(run)]
        except NotFound as error:
            raise ValueError(f"Could not find project {self.project}: {error}") from None
        return [Run(self._runs, run, self.entity) for run in sorted_runs(chosen, self.order)]
