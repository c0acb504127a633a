"""Watching a running trial's metrics for values that are out of bounds, NaN or infinite."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from halving.errors import StoreError
from halving.journal import directory
from halving.journal.tail import Follower
from halving.metrics.manifest import Absorbed, project_folder, run_files
from halving.metrics.points import EVERYWHERE
from halving.metrics.position import segments_of
from halving.store.store import Store
from halving.trial.bounds import Range, describe_violation


class DivergenceWatch:
    """Checks the points that one attempt streams.

    Each check reads only the new points, so that one every few seconds is cheap. It reads the segments in the
    store, and on the machine that trains also the journal, which has newer points.

    Args:
        bounds: metric to its bounds; a metric without any, ``(None, None)``, must be finite.
    """

    def __init__(
        self, store: Store, project: str, run: str, attempt: int, bounds: Mapping[str, Range]
    ) -> None:
        self._store = store
        self._project = project
        self._run = run
        self._attempt = attempt
        self._bounds = dict(bounds)
        self._next_segment = 0
        self._journal = Follower()
        self._problem: str | None = None

    def check(self) -> str | None:
        """Describe the first value that is NaN, infinite or out of bounds; None while there is none.

        The description has its metric, value, bound and step.

        Raises:
            StoreError: the store cannot be read; the next check misses nothing.
        """
        if self._problem is None and self._bounds:
            try:
                for metric, steps, values in self._new_points():
                    self._problem = self._problem or self._find_problem(metric, steps, values)
            except FileNotFoundError:
                # The file has just been drained or compacted; the next check reads its points elsewhere.
                pass
            except OSError as error:
                raise StoreError(
                    f"cannot read the metrics of run {self._run!r} in {self._store.root}: {error}"
                ) from error
        return self._problem

    def _find_problem(self, metric: str, steps: Any, values: Any) -> str | None:
        low, high = self._bounds[metric]
        wrong = ~np.isfinite(values)
        if low is not None:
            wrong |= values < low
        if high is not None:
            wrong |= values > high
        if not wrong.any():
            return None
        place = int(np.argmax(wrong))
        return describe_violation(
            f"metric {metric!r}", float(values[place]), self._bounds[metric], f"step {int(steps[place])}"
        )

    def _new_points(self) -> Iterator[tuple[str, Any, Any]]:
        """Metric, steps and values of the points that were not checked yet."""
        # The journal comes first, so that what is drained meanwhile is in the segments that are listed later.
        yield from self._in_journal()
        yield from self._in_store()

    def _in_journal(self) -> Iterator[tuple[str, Any, Any]]:
        folders = directory.attempt_folders(self._store, self._project, self._run, self._attempt)
        for keys, steps, values in self._journal.new_records(folders):
            for column, key in enumerate(keys):
                if key in self._bounds:
                    yield key, steps, values[:, column]

    def _in_store(self) -> Iterator[tuple[str, Any, Any]]:
        """Points of new segments, and all compacted points if one was compacted before it was checked."""
        from halving.metrics.parquet_reader import Files

        files = run_files(self._store, self._project, self._run)
        reader = Files(self._store)
        absorbed = files.manifest.absorbed.get(self._attempt, Absorbed(0))
        if absorbed.segments > self._next_segment:
            if files.manifest.full:
                path = self._store.path(f"{project_folder(self._project)}/{files.manifest.full}")
                for key in self._bounds:
                    points = reader.points(path, key, EVERYWHERE)
                    own = points.take(points.attempt == self._attempt)
                    yield key, own.step, own.value
            self._next_segment = absorbed.segments
        for sequence, name in sorted(segments_of(files, self._attempt).items()):
            if sequence >= self._next_segment:
                for key, points in reader.segment(
                    self._store.path(name), self._attempt, list(self._bounds)
                ).items():
                    yield key, points.step, points.value
                self._next_segment = sequence + 1
