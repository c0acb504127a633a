"""Where the time of a training went, why it does not compute, and which rank the others wait for."""

from pathlib import Path

import pytest

from halving import Run, Store
from halving.metrics.manifest import RunFiles, run_files
from resources.analysis.system_points import read_system_points
from resources.analysis.time_spent import SAMPLED, Straggler, TimeSpent, find_straggler, spent_by, time_spent


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({0: [50.0] * 4, 1: [100.0] * 4}, Straggler(1, 2.0)),
        ({0: [99.0] * 4, 1: [50.0] * 4, 2: [55.0] * 4, 3: [60.0] * 4}, Straggler(0, 1.8)),
        ({0: [98.0] * 4, 1: [95.0] * 4}, None),  # both compute all the time
        ({0: [70.0] * 4, 1: [100.0] * 4}, None),  # below 1.5 times
        ({0: [50.0] * 2, 1: [100.0] * 2}, None),  # too few samples
        ({0: [60.0] * 8, 1: [60.0] * 6 + [100.0] * 2}, None),  # slow now and then
        ({0: [50.0] * 10, 1: [100.0] * 7 + [60.0] * 3}, None),  # often, but not in three of four samples
        # slow by now: the last 20 samples count
        ({0: [50.0] * 40, 1: [60.0] * 20 + [100.0] * 20}, Straggler(1, 2.0)),
        ({0: [0.0] * 4, 1: [100.0] * 4}, Straggler(1, 100.0)),
        # all are in collectives most of the time: the network is slow
        ({0: [6.0] * 4, 1: [20.0] * 4, 2: [7.0] * 4}, None),
        ({0: [50.0] * 4}, None),
        ({}, None),
    ],
)
def test_a_rank_is_a_straggler_that_mostly_takes_half_as_long_again_as_the_others(
    own: dict[int, list[float]], expected: Straggler | None
) -> None:
    assert find_straggler(own) == expected


def test_computing_is_what_is_left_of_all_ranks_time() -> None:
    spent = spent_by(
        {
            ("data_wait", 0): [20.0, 10.0],
            ("data_wait", 1): [15.0],
            ("collectives", 0): [5.0],
            ("collectives", 1): [5.0],
            ("saves", 0): [2.0],
        }
    )
    assert spent is not None
    assert (spent.computing, spent.data_wait, spent.collectives, spent.saves) == (78.0, 15.0, 5.0, 2.0)
    assert spent_by({("gpu.0/utilization", 0): [50.0]}) is None


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ({"data_wait": 2.0, "saves": 1.0}, None),
        ({"data_wait": 30.0, "saves": 1.0}, "it is busy 69 % of the time, below 90 %: it waits for data"),
        (
            {"collectives": 30.0, "data_wait": 5.0},
            "busy 65 % of the time, below 90 %: its ranks wait for each other",
        ),
        ({"saves": 30.0}, "it writes checkpoints"),
        ({"saves": 1.0}, None),  # on CPUs nothing is known of GPUs, and nothing is said of them
        (
            {"data_wait": 30.0, "gpu.0/utilization": 65.0},
            "its GPUs are busy 65 % of the time, below 90 %: it waits for data",
        ),
        (
            {"data_wait": 1.0, "gpu.0/utilization": 65.0},
            "busy 65 % of the time, below 90 %: none of the waits that are measured explains it",
        ),
        ({"data_wait": 30.0, "gpu.0/utilization": 95.0}, None),
    ],
)
def test_below_90_percent_the_likely_cause_is_named(samples: dict[str, float], says: str | None) -> None:
    spent = spent_by({(name, 0): [value] for name, value in samples.items()})
    assert spent is not None
    assert (spent.warning is None) if says is None else (says in str(spent.warning))


def test_a_runs_samples_of_all_ranks_say_where_its_time_went_and_who_is_slow(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with Run(store, project="p", run_id="r", params={}, seed=None, system_metrics=None) as run:
        for step in range(4):
            run.log(
                {
                    "system/collectives": 60.0,
                    "system/collectives/rank.1": 2.0,
                    "system/saves": 1.0,
                    "loss": 0.1,
                },
                step=step,
            )
    spent = _spent(store, "r")
    assert spent is not None
    assert spent.straggler == Straggler(1, pytest.approx(98 / 39))
    assert "rank 1 is a straggler: it takes 2.5 times as long" in str(spent.warning)
    assert _spent(store, "none") is None


def test_a_step_that_a_later_attempt_sampled_again_counts_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for share in (80.0, 20.0):
        with Run(store, project="p", run_id="r", params={}, seed=None, system_metrics=None) as run:
            run.log({"system/data_wait": share}, step=1)
    spent = _spent(store, "r")
    assert spent is not None
    assert spent.data_wait == 20.0


@pytest.mark.parametrize("ranks", [1, 64])
def test_a_run_is_listed_once_for_the_samples_of_any_number_of_ranks(
    tmp_path: Path, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    with Run(store, project="p", run_id="r", params={}, seed=None, system_metrics=None) as run:
        run.log({f"system/collectives/rank.{rank}": 1.0 for rank in range(1, ranks + 1)}, step=1)
    listings: list[str] = []

    def count_and_list(store: Store, project: str, run: str) -> RunFiles:
        listings.append(run)
        return run_files(store, project, run)

    monkeypatch.setattr("halving.query.run_points.run_files", count_and_list)
    points = read_system_points(store, "p", "r", [SAMPLED])
    assert points is not None
    assert len(points) == ranks
    assert len(listings) == 1


def _spent(store: Store, run: str) -> TimeSpent | None:
    points = read_system_points(store, "p", run, [SAMPLED])
    assert points is not None
    return time_spent(points)
