"""Points of a search space: which parameters exist at a point, whether it is valid, and grids.

These are pure functions over a spec. Suggestions of every origin (a sampler, a grid, a user's starting
points, an earlier sweep) are checked by the same rules.
"""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Any

from halving.errors import InvalidInput
from halving.text import comma_list, did_you_mean
from resources.sweep_spec.constraints import constraint
from resources.sweep_spec.space import FloatRange, IntRange, Parameter, is_same, spell
from resources.sweep_spec.sweep import SweepSpec

Params = dict[str, Any]
Space = Mapping[str, Parameter]

GRID_LIMIT = 90_000
"""Most points of a grid: as many as a sweep may have trials."""

_VISITS = 300_000
_DRAWS = 1_000


def order(space: Space) -> tuple[str, ...]:
    """The parameters' names, parents before children, otherwise in the order of the spec.

    Raises:
        InvalidInput: the ``when`` of several parameters form a circle.
    """
    placed: dict[str, None] = {}
    while len(placed) < len(space):
        ready = [
            name
            for name in space
            if name not in placed and all(parent in placed for parent in space[name].when)
        ]
        if not ready:
            circle = [name for name in space if name not in placed]
            raise InvalidInput(
                f"the when of {circle} form a circle, or name something that is no parameter; let one of "
                "them exist always"
            )
        placed.update(dict.fromkeys(ready))
    return tuple(placed)


def active(space: Space, name: str, params: Mapping[str, Any]) -> bool:
    """Whether a parameter exists at a point, because its parents have the right values in ``params``.

    Parents that are inactive have no value there.
    """
    return all(parent in params and params[parent] in choices for parent, choices in space[name].when.items())


def satisfies(spec: SweepSpec, params: Mapping[str, Any]) -> bool:
    """Whether params meet every constraint; a constraint that names a parameter without a value is met."""
    return all(constraint(expression).holds(params) for expression in spec.constraints)


def problems_of(spec: SweepSpec, params: Mapping[str, Any], *, partial: bool = False) -> list[str]:
    """Why params are not a point of the spec's space; empty if they are one.

    Args:
        spec: the sweep.
        params: hyperparameter name to value.
        partial: whether parameters may be missing, to be sampled later; the parents of a given parameter must
            then be given too.
    """
    if partial:
        fixed = {
            name: parameter.value
            for name, parameter in spec.space.items()
            if parameter.is_fixed and not parameter.when
        }
        params = {**fixed, **params}
    problems = [
        (
            f"{name} = {value!r}: there is no such parameter{did_you_mean(name, spec.space)}; there are "
            f"{', '.join(spec.space)}"
        )
        for name, value in params.items()
        if name not in spec.space
    ]
    existing: Params = {}
    for name in order(spec.space):
        parameter = spec.space[name]
        exists = active(spec.space, name, existing)
        if exists and name in params:
            existing[name] = params[name]
        if name not in params:
            if exists and not partial:
                problems.append(f"{name} is missing; give {_describe_accepted(parameter)}")
        elif not exists:
            parents = {parent: params[parent] for parent in parameter.when if parent in params}
            problems.append(
                f"{name} = {params[name]!r}: it exists only when {dict(parameter.when)}, and given is "
                f"{parents}; leave it out or change those"
            )
        elif not _contains(parameter, params[name]):
            problems.append(f"{name} = {params[name]!r}: give {_describe_accepted(parameter)}")
    if not problems:
        for expression in spec.constraints:
            if not constraint(expression).holds(params):
                named = {name: params[name] for name in sorted(constraint(expression).names)}
                problems.append(f"{named} break the constraint {expression!r}; change one of them")
    return problems


def sample(space: Space, random: Random, fixed: Mapping[str, Any] | None = None) -> Params:
    """A random point with the ``fixed`` values.

    Other values are uniform, or uniform in the logarithm if a range says so. Constraints are not checked.
    """
    fixed = fixed or {}
    params: Params = {}
    for name in order(space):
        if active(space, name, params):
            if name in fixed:
                params[name] = fixed[name]
            else:
                params[name] = _draw(space[name], random)
    return {name: params[name] for name in space if name in params}


def feasible(spec: SweepSpec, fixed: Mapping[str, Any] | None = None) -> bool:
    """Whether any of 1,000 random points meets the constraints; every call draws the same points."""
    random = Random(0)
    return not spec.constraints or any(
        satisfies(spec, sample(spec.space, random, fixed)) for _ in range(_DRAWS)
    )


def axis(parameter: Parameter, points: int | None) -> list[Any]:
    """A parameter's values on a grid: all of its choices or steps, or ``points`` values of a range.

    Raises:
        InvalidInput: it is a float range without a step and ``points`` is None, or it has too many steps.
    """
    domain = parameter.chosen
    if isinstance(domain, list):
        return list(domain)
    if domain.step is None:
        if points is None:
            raise InvalidInput(
                "a float range has no grid of its own; give it a step, or strategy.grid.points"
            )
        return _spread_values(domain, points)
    count = _count(domain)
    # A step gives the values of the grid, except on a logarithmic scale, where values are only rounded to it.
    takes_points = isinstance(domain, IntRange) and (domain.log or domain.step == 1)
    if isinstance(domain, IntRange) and takes_points and points is not None and count > points:
        return list(
            dict.fromkeys(nearest_step(domain, round(value)) for value in _spread_values(domain, points))
        )
    if count > GRID_LIMIT:
        remedy = "give a larger step"
        if takes_points:
            remedy = "give it a step, or strategy.grid.points"
        raise InvalidInput(
            f"{count:,} values from {domain.low} to {domain.high} are too many for a grid; {remedy}"
        )
    return [_value(domain, index) for index in range(count)]


def nearest_step(domain: IntRange, value: int) -> int:
    """The value of a range of whole numbers that is nearest to this one."""
    steps = (value - domain.low + domain.step // 2) // domain.step
    return min(max(domain.low + steps * domain.step, domain.low), domain.high)


def _spread_values(domain: FloatRange | IntRange, points: int) -> list[Any]:
    """This many values of a range, evenly or evenly in the logarithm, both ends included."""
    if isinstance(domain, IntRange) and not domain.log:
        # Whole numbers are divided exactly; doubles are not exact beyond 2**53.
        width = domain.high - domain.low
        gaps = points - 1
        return [domain.low + (width * index + gaps // 2) // gaps for index in range(points)]
    shares = [index / (points - 1) for index in range(points)]
    if domain.log:
        values = [domain.low * (domain.high / domain.low) ** share for share in shares]
    else:
        values = [domain.low + (domain.high - domain.low) * share for share in shares]
    values = [min(max(value, domain.low), domain.high) for value in values]
    return [domain.low, *values[1:-1], domain.high]


def grid_size(spec: SweepSpec) -> int:
    """How many points the grid has.

    Raises:
        InvalidInput: more than :data:`GRID_LIMIT`, or a float range has neither a step nor points.
    """
    return len(_points_of_grid(spec))


def grid_point(spec: SweepSpec, number: int) -> Params:
    """The point with this number; the last parameter changes fastest.

    Points that a constraint excludes are left out. Where a conditional parameter does not exist, there is one
    point, and not one for each of its values.

    Raises:
        IndexError: the grid has fewer points.
        InvalidInput: as :func:`grid_size`.
    """
    return dict(zip(*_points_of_grid(spec)[number], strict=True))


def _points_of_grid(spec: SweepSpec) -> tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...]:
    points = getattr(spec.strategy.chosen, "points", None)
    space = tuple(
        (name, parameter.model_dump_json(by_alias=True, exclude_none=True))
        for name, parameter in spec.space.items()
    )
    return _grid_of(space, tuple(spec.constraints), points)


@lru_cache(maxsize=8)
def _grid_of(
    space: tuple[tuple[str, str], ...], constraints: tuple[str, ...], points: int | None
) -> tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...]:
    """Names and values of every point; cached, because trials ask for their points one by one."""
    parameters = {name: Parameter.model_validate_json(text) for name, text in space}
    grid = []
    for visited, params in enumerate(_combinations(parameters, points)):
        if visited == _VISITS:
            raise InvalidInput(
                f"a grid of more than {_VISITS:,} combinations before its constraints; give fewer points "
                "or parameters"
            )
        if all(constraint(expression).holds(params) for expression in constraints):
            names = tuple(name for name in parameters if name in params)
            grid.append((names, tuple(params[name] for name in names)))
        if len(grid) > GRID_LIMIT:
            raise InvalidInput(
                f"a grid of more than {GRID_LIMIT:,} combinations; give fewer points or parameters"
            )
    return tuple(grid)


def _combinations(space: Space, points: int | None) -> Iterator[Params]:
    names = order(space)
    axes = {name: axis(space[name], points) for name in names}

    def beyond(depth: int, params: Params) -> Iterator[Params]:
        if depth == len(names):
            yield params
        elif not active(space, names[depth], params):
            yield from beyond(depth + 1, params)
        else:
            for value in axes[names[depth]]:
                yield from beyond(depth + 1, {**params, names[depth]: value})

    return beyond(0, {})


def _draw(parameter: Parameter, random: Random) -> Any:
    domain = parameter.chosen
    if isinstance(domain, list):
        return random.choice(domain)
    if isinstance(domain, IntRange) and domain.log:
        # The bounds are widened so that the first and the last number have their full share, too.
        drawn = random.uniform(math.log(domain.low - 0.5), math.log(domain.high + 0.5))
        return nearest_step(domain, round(math.exp(drawn)))
    if domain.step is not None:
        return _value(domain, random.randrange(_count(domain)))
    if domain.log:
        value = math.exp(random.uniform(math.log(domain.low), math.log(domain.high)))
    else:
        value = random.uniform(domain.low, domain.high)
    return min(max(value, domain.low), domain.high)


def _count(domain: FloatRange | IntRange) -> int:
    """How many values a range with a step has, in exact fractions.

    In binary, 0.3 is not three steps of 0.1.
    """
    return int((Fraction(str(domain.high)) - Fraction(str(domain.low))) / Fraction(str(domain.step))) + 1


def _value(domain: FloatRange | IntRange, index: int) -> float:
    return type(domain.low)(Fraction(str(domain.low)) + index * Fraction(str(domain.step)))


def _contains(parameter: Parameter, value: Any) -> bool:
    domain = parameter.chosen
    if isinstance(domain, list):
        return any(is_same(value, choice) for choice in domain)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if not domain.low <= value <= domain.high:
        return False
    if isinstance(domain, IntRange):
        return isinstance(value, int) and (value - domain.low) % domain.step == 0
    if domain.step is None:
        return True
    steps = (value - domain.low) / domain.step
    return abs(steps - round(steps)) < 1e-8  # Optuna's tolerance


def _describe_accepted(parameter: Parameter) -> str:
    domain = parameter.chosen
    if isinstance(domain, list):
        if len(domain) == 1:
            return spell(domain[0])
        return f"one of {comma_list(map(spell, domain))}"
    kind = "a whole number"
    if isinstance(domain, FloatRange):
        kind = "a number"
    text = f"{kind} from {domain.low} to {domain.high}"
    if domain.step not in (None, 1):
        text += f" in steps of {domain.step}"
    return text
