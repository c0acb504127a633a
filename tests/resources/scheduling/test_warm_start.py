"""What a sweep learns from earlier ones, mapped to its own space, and why it can learn nothing."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from halving.errors import InvalidInput
from halving.trial.messages import ReachedRung
from resources.backend import Backend
from resources.catalog import SweepRow, utcnow
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.scheduling.warm_start import earlier_trials, warm_start_sources
from resources.search.decide import Continue, Finish
from resources.search.state import Result
from resources.search.suggestions.suggester import Earlier
from resources.sweep_spec import SweepSpec
from resources.tenancy.projects import rename_project
from tests.backends import snapshot_row

Spec = Callable[..., SweepSpec]

SPACE: dict[str, Any] = {
    "x": {"float": {"low": 0.0, "high": 1.0}},
    "n": {"int": {"low": 1, "high": 8}},
    "kind": {"categorical": ["a", "b"]},
    "momentum": {"float": {"low": 0.0, "high": 0.9}, "when": {"kind": "a"}},
}
TPE = {"tpe": {"budget": 3}}
POINTS: list[dict[str, Any]] = [
    {"x": 0.1, "n": 1, "kind": "b"},
    {"x": 0.5, "n": 4, "kind": "a", "momentum": 0.5},
    {"x": 0.9, "n": 8, "kind": "b"},
]


pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture
def backend(backend: Backend) -> Backend:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return backend


@pytest.fixture
def either_backend(either_backend: Backend) -> Backend:
    with either_backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return either_backend


def open_new(backend: Backend, spec: SweepSpec) -> str:
    return open_sweep(backend.catalog, spec, "sha256:s", driver="job", commit=None).id


def run_search(
    backend: Backend, spec: SweepSpec, report: Callable[[Assignment], dict[str, float] | None] | None = None
) -> str:
    """A sweep that has come to its end; a trial without a report fails."""
    sweep = open_new(backend, spec)
    scheduler = Scheduler(backend.catalog, sweep)
    while not isinstance(assignment := scheduler.next_work("w"), Finish):
        assert isinstance(assignment, Assignment)
        values = report(assignment) if report else {"score": assignment.params["x"]}
        if values is None:
            scheduler.report_failure(assignment, "NaN", 1.0, None)
        else:
            for epochs in assignment.ladder[assignment.rung :]:
                if not isinstance(
                    scheduler.report_rung(assignment, ReachedRung(epochs, values, "sha256:c"), 1.0), Continue
                ):
                    break
    return sweep


def first(small_spec: Spec, **changes: Any) -> SweepSpec:
    fields: dict[str, Any] = {
        "space": SPACE,
        "strategy": {"random": {"budget": 3}},
        "start_from": POINTS,
        "max_trials": 3,
    }
    return small_spec(**{**fields, **changes})


def read_learned(backend: Backend, sweep: str) -> list[Earlier]:
    """What a process that opens the sweep learns from."""
    with backend.catalog.read() as session:
        row = backend.catalog.sweep(session, sweep)
        return earlier_trials(backend.catalog, session, row, Scheduler(backend.catalog, sweep).spec)


def learned_by(backend: Backend, spec: SweepSpec) -> list[Earlier]:
    return read_learned(backend, open_new(backend, spec))


def test_a_sweep_learns_from_every_trial_of_an_earlier_one_with_its_last_result(
    backend: Backend, small_spec: Spec
) -> None:
    earlier = run_search(backend, first(small_spec))
    assert learned_by(backend, small_spec(space=SPACE, strategy=TPE, warm_start=[earlier])) == [
        Earlier(params, 3, Result((params["x"],))) for params in POINTS
    ]


def test_whoever_knows_a_project_by_one_name_learns_from_its_sweeps_of_each(
    backend: Backend, small_spec: Spec
) -> None:
    earlier = run_search(backend, first(small_spec, project="vision"))
    rename_project(backend.catalog, "vision", "sight")
    spec = small_spec(space=SPACE, strategy=TPE, warm_start="auto")
    assert (
        warm_start_sources(backend.catalog, spec, ["sight"])
        == warm_start_sources(backend.catalog, spec, ["vision"])
        == [earlier]
    )
    assert warm_start_sources(backend.catalog, spec, ["speech"]) == []


def test_a_trial_counts_with_its_highest_rung_and_not_at_all_where_it_failed(
    backend: Backend, small_spec: Spec
) -> None:
    def report(assignment: Assignment) -> dict[str, float] | None:
        return None if assignment.trial == 1 else {"score": assignment.params["x"]}

    spec = first(small_spec, strategy={"asha": {"sampler": "random", "max_budget": 3}})
    earlier = run_search(backend, spec, report)
    learned = learned_by(backend, small_spec(space=SPACE, strategy=TPE, warm_start=[earlier]))
    assert [(trial.params["x"], trial.epochs) for trial in learned] == [(0.1, 1), (0.9, 3)]


# What the new space is, and which of the three trials are points of it, with these params.
MAPPED: list[tuple[dict[str, Any], list[str], list[dict[str, Any]]]] = [
    (SPACE, [], POINTS),
    (
        {name: SPACE[name] for name in ("x", "n")},
        [],
        [{"x": params["x"], "n": params["n"]} for params in POINTS],
    ),
    ({**SPACE, "x": {"float": {"low": 0.4, "high": 1.0}}}, [], POINTS[1:]),
    ({**SPACE, "n": {"int": {"low": 0, "high": 8, "step": 4}}}, [], POINTS[1:]),
    (
        {**SPACE, "kind": {"categorical": ["b", "c"]}, "momentum": {"constant": 0.5}},
        [],
        [{**POINTS[n], "momentum": 0.5} for n in (0, 2)],
    ),
    ({**SPACE, "kind": {"constant": "a"}}, [], POINTS[1:2]),
    ({**SPACE, "width": {"constant": 64}}, [], [{**params, "width": 64} for params in POINTS]),
    ({**SPACE, "width": {"constant": None}}, [], [{**params, "width": None} for params in POINTS]),
    ({**SPACE, "width": {"categorical": [[64]]}}, [], [{**params, "width": [64]} for params in POINTS]),
    (SPACE, ["x * n <= 2"], POINTS[:2]),
]


@pytest.mark.parametrize(("space", "constraints", "expected"), MAPPED)
def test_trials_are_mapped_to_the_new_space_and_dropped_if_they_are_no_points_of_it(
    backend: Backend,
    small_spec: Spec,
    space: dict[str, Any],
    constraints: list[str],
    expected: list[dict[str, Any]],
) -> None:
    earlier = run_search(backend, first(small_spec))
    spec = small_spec(space=space, constraints=constraints, strategy=TPE, warm_start=[earlier])
    assert [trial.params for trial in learned_by(backend, spec)] == expected


def test_lists_mappings_and_null_are_learned_from(either_backend: Backend, small_spec: Spec) -> None:
    x = SPACE["x"]
    layers: list[Any] = [[64, 64], None, {"wide": [128], "deep": None}]
    points = [{"x": 0.1 * place, "layers": value} for place, value in enumerate(layers)]
    space = {"x": x, "layers": {"categorical": layers}}
    earlier = run_search(either_backend, first(small_spec, space=space, start_from=points))
    fewer = {"x": x, "layers": {"categorical": [layers[2], [64.0, 64], "other"]}}
    spec = small_spec(space=fewer, strategy=TPE, warm_start=[earlier])
    sweep = open_new(either_backend, spec)
    assert [trial.params for trial in read_learned(either_backend, sweep)] == [points[0], points[2]]
    given_next = Scheduler(either_backend.catalog, sweep).next_work("w")
    assert isinstance(given_next, Assignment)
    assert given_next.params["layers"] in fewer["layers"]["categorical"]


# Why nothing can be learned from a sweep: how the earlier and the new one differ from what goes together, and
# what is said.
MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {},
        {"space": {**SPACE, "x": {"float": {"low": 2.0, "high": 3.0}}}},
        r"none of its trials fits \(x = 0.1: give a n",
    ),
    (
        {},
        {"space": {**SPACE, "width": {"int": {"low": 1, "high": 9}}}},
        r"none of its trials fits \(width is missing",
    ),
    ({}, {"space": {**SPACE, "n": {"constant": 5}}}, r"none of its trials fits \(n = 1: give 5"),
    (
        {},
        {"objective": {"metric": "loss", "direction": "minimize"}},
        r"its objective is maximize score \(end\), not minimize loss \(end\)",
    ),
    (
        {},
        {"objective": {"metric": "score", "direction": "minimize"}},
        r"its objective is maximize score \(end\), not minimize score",
    ),
    (
        {},
        {"objective": {"metric": "score", "direction": "maximize", "summary": "best"}},
        r"its objective is maximize score \(end\), not maximize score \(best\)",
    ),
    ({}, {"other_objectives": [{"metric": "cost", "direction": "minimize"}]}, r"it has 1 objectives, not 2"),
    (
        {},
        {"trainable": "tests.trainables:train_diverging"},
        r"its trainable is tests.trainables:train, not tests.trainables:train_div",
    ),
    (
        {},
        {"bounds": {"latency": {"max": 1.0}}},
        r"none of its trials fits \(latency was not recorded at its rungs\)",
    ),
]


@pytest.mark.parametrize(("earlier", "changes", "message"), MISFITS)
def test_a_sweep_that_does_not_fit_is_refused_with_the_reason_and_skipped_by_auto(
    backend: Backend, small_spec: Spec, earlier: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    before = run_search(backend, first(small_spec, **earlier))
    fields = {"space": SPACE, "strategy": TPE, **changes}
    spec = small_spec(warm_start=[before], **fields)
    with pytest.raises(InvalidInput, match=rf"warm_start = '{before}' is not accepted: {message}.*give auto"):
        warm_start_sources(backend.catalog, spec)
    with pytest.raises(InvalidInput, match=message):
        open_new(backend, spec)
    assert learned_by(backend, small_spec(warm_start="auto", **fields)) == []


def test_a_sweep_that_does_not_exist_or_has_not_ended_is_refused(backend: Backend, small_spec: Spec) -> None:
    running = open_new(backend, first(small_spec))
    for sweep, message in [
        ("other-1234", "no sweep 'other-1234' in the catalog"),
        (running, "it is searching, and only a sweep whose search"),
    ]:
        with pytest.raises(InvalidInput, match=rf"warm_start = '{sweep}' is not accepted: {message}"):
            warm_start_sources(backend.catalog, small_spec(space=SPACE, strategy=TPE, warm_start=[sweep]))


def test_a_sweep_without_any_result_is_refused(backend: Backend, small_spec: Spec) -> None:
    failed = run_search(backend, first(small_spec), lambda assignment: None)
    backend.catalog.end_sweep(failed, "rejected")
    with pytest.raises(InvalidInput, match="it has no trial with a result"):
        warm_start_sources(backend.catalog, small_spec(space=SPACE, strategy=TPE, warm_start=[failed]))


def test_bounds_of_the_new_sweep_are_held_against_the_metrics_of_the_earlier_one(
    backend: Backend, small_spec: Spec
) -> None:
    spec = first(small_spec, bounds={"latency": {"max": 100.0}})
    earlier = run_search(
        backend,
        spec,
        lambda assignment: {"score": assignment.params["x"], "latency": 10.0 * assignment.params["n"]},
    )
    learned = learned_by(
        backend,
        small_spec(space=SPACE, strategy=TPE, warm_start=[earlier], bounds={"latency": {"max": 40.0}}),
    )
    assert [trial.result.violation for trial in learned] == [0.0, 0.0, 1.0]


def test_of_several_objectives_the_first_ones_may_be_learned_from(backend: Backend, small_spec: Spec) -> None:
    cost = [{"metric": "cost", "direction": "minimize"}]
    earlier = run_search(
        backend,
        first(small_spec, other_objectives=cost),
        lambda assignment: {"score": assignment.params["x"], "cost": 2.0},
    )
    both = learned_by(
        backend, small_spec(space=SPACE, strategy=TPE, other_objectives=cost, warm_start=[earlier])
    )
    assert [trial.result.values for trial in both] == [(0.1, 2.0), (0.5, 2.0), (0.9, 2.0)]
    with_one = learned_by(backend, small_spec(space=SPACE, strategy=TPE, warm_start=[earlier]))
    assert [trial.result.values for trial in with_one] == [(0.1,), (0.5,), (0.9,)]


def test_auto_takes_the_newest_sweeps_that_fit_and_stays_with_them(
    backend: Backend, small_spec: Spec
) -> None:
    sweeps = [run_search(backend, first(small_spec, seed=seed)) for seed in range(7)]
    run_search(backend, first(small_spec, objective={"metric": "score", "direction": "minimize"}))
    with backend.catalog.write() as session:
        for age, sweep in enumerate(reversed(sweeps)):
            backend.catalog.sweep(session, sweep).created_at = utcnow() - timedelta(hours=age)
    new = open_new(backend, small_spec(space=SPACE, strategy=TPE, warm_start="auto"))
    with backend.catalog.read() as session:
        assert backend.catalog.sweep(session, new).warm_start == sweeps[:1:-1]
    before = read_learned(backend, new)
    assert len(before) == 5 * 3
    run_search(backend, first(small_spec, seed=99))
    assert read_learned(backend, new) == before


def test_every_process_learns_from_the_same_trials_and_suggests_the_same(
    either_backend: Backend, small_spec: Spec
) -> None:
    earlier = run_search(either_backend, first(small_spec, max_trials=20))
    warm, cold = (
        open_new(either_backend, small_spec(space=SPACE, strategy=TPE, warm_start=warm_start))
        for warm_start in ([earlier], None)
    )
    assert read_learned(either_backend, warm) == read_learned(either_backend, warm)
    assert len(read_learned(either_backend, warm)) == 20
    suggested = []
    for sweep in (warm, warm, cold):
        suggester = Scheduler(either_backend.catalog, sweep)._turns.suggester
        suggester.learn([], {})
        suggested.append(suggester.suggest(0))
    assert suggested[0] == suggested[1] != suggested[2]


def test_what_a_sweep_learns_from_never_depends_on_what_happens_to_the_spec_later(
    backend: Backend, small_spec: Spec
) -> None:
    earlier = run_search(backend, first(small_spec))
    with backend.catalog.write() as session:
        session.get_one(SweepRow, earlier).spec = {"name": "of an older version"}
    with pytest.raises(InvalidInput, match="its spec is not readable any more"):
        warm_start_sources(backend.catalog, small_spec(space=SPACE, strategy=TPE, warm_start=[earlier]))
