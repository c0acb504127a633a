"""Fleets to decide about: a small one of given sweeps, and any."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from resources.tenancy.shares import Fleet, Limits, Policy, Project, Sweep


def fleet(
    *sweeps: Sweep,
    trials: int | None = None,
    gpus: int | None = None,
    projects: tuple[Project, ...] = (),
    **policy: Any,
) -> Fleet:
    return Fleet(
        Limits(trials, gpus), {project.name: project for project in projects}, sweeps, Policy(**policy)
    )


sweeps = st.builds(
    Sweep,
    id=st.just(""),
    project=st.sampled_from("abcd"),
    priority=st.integers(-2, 2),
    trials=st.integers(0, 6),
    wants=st.integers(0, 6),
    needs=st.integers(0, 4),
    waited=st.sampled_from([0.0, 31.0, 500.0]),
)
limits = st.builds(Limits, trials=st.none() | st.integers(0, 12), gpus=st.none() | st.integers(0, 16))
projects = st.lists(
    st.builds(Project, name=st.sampled_from("abc"), weight=st.floats(0.1, 10), quota=limits),
    unique_by=lambda project: project.name,
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    drawn = [
        replace(
            sweep,
            id=f"s{number}",
            gpus=sweep.trials * sweep.needs,
            smallest=sweep.needs if sweep.trials else 0,
        )
        for number, sweep in enumerate(draw(st.lists(sweeps, max_size=8)))
    ]
    return Fleet(draw(limits), {project.name: project for project in draw(projects)}, drawn)
