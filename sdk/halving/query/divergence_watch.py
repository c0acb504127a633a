"""Metrics that left their bounds, or became NaN or infinite: in what is reported, and in what a running trial
streams.
"""

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
from halving.trial.bounds import Range, problem


class DivergenceWatch:
    """Looks at what one attempt has streamed, each time only at what is new: cheap enough for every few
    seconds.

    It reads the segments in the store, and on the machine that trains the journal, which has newer points.

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
        self._seen = 0  # segments; they count up from 0
        self._journal = Follower()
        self._found: str | None = None

    def check(self) -> str | None:
        """The first value found that is NaN, infinite or out of bounds: its metric, value, bound and step.

        None while there is none.

        Raises:
            StoreError: the store cannot be read; nothing is missed by the next check.
        """
        if self._found is None and self._bounds:
            try:
                for metric, steps, values in self._new_points():
                    self._found = self._found or self._wrong(metric, steps, values)
            except FileNotFoundError:
                # drained or compacted at this moment: the next check finds it in its new place
                pass
            except OSError as error:
                raise StoreError(
                    f"cannot read the metrics of run {self._run!r} in {self._store.root}: {error}"
                ) from error
        return self._found

    def _wrong(self, metric: str, steps: Any, values: Any) -> str | None:
        low, high = self._bounds[metric]
        wrong = ~np.isfinite(values)
        if low is not None:
            wrong |= values < low
        if high is not None:
            wrong |= values > high
        if not wrong.any():
            return None
        place = int(np.argmax(wrong))
        return problem(
            f"metric {metric!r}", float(values[place]), self._bounds[metric], f"step {int(steps[place])}"
        )

    def _new_points(self) -> Iterator[tuple[str, Any, Any]]:
        """Metric, steps and values of what was not seen yet."""
        # The journal first: what is drained meanwhile is in the segments that are listed after it.
        yield from self._in_journal()
        yield from self._in_store()

    def _in_journal(self) -> Iterator[tuple[str, Any, Any]]:
        folders = directory.attempt_folders(self._store, self._project, self._run, self._attempt)
        for keys, steps, values in self._journal.new_records(folders):
            for column, key in enumerate(keys):
                if key in self._bounds:
                    yield key, steps, values[:, column]

    def _in_store(self) -> Iterator[tuple[str, Any, Any]]:
        """All of what was compacted, if any of it was not seen as a segment, and the segments that were not
        seen.
        """
        from halving.metrics.parquet_reader import Files

        files = run_files(self._store, self._project, self._run)
        reader = Files(self._store)
        absorbed = files.manifest.absorbed.get(self._attempt, Absorbed(0))
        if absorbed.segments > self._seen:
            if files.manifest.full:
                path = self._store.path(f"{project_folder(self._project)}/{files.manifest.full}")
                for key in self._bounds:
                    points = reader.points(path, key, EVERYWHERE)
                    own = points.take(points.attempt == self._attempt)
                    yield key, own.step, own.value
            self._seen = absorbed.segments
        for sequence, name in sorted(segments_of(files, self._attempt).items()):
            if sequence >= self._seen:
                for key, points in reader.segment(
                    self._store.path(name), self._attempt, list(self._bounds)
                ).items():
                    yield key, points.step, points.value
                self._seen = sequence + 1
