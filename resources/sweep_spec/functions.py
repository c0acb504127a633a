"""Import what a spec names before anything runs, so that a typing error costs seconds, not a sweep."""

import inspect
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.trial.import_string import import_function
from resources.sweep_spec.strategy import SAMPLERS
from resources.sweep_spec.sweep import SweepSpec

if TYPE_CHECKING:
    import optuna


def check_functions(spec: SweepSpec, *, trains: bool = True) -> None:
    """Import the functions that a spec names, and try its sampler's options.

    A trainable in an image of its own is not imported here; its first trial looks for it, in that image.

    Args:
        trains: whether the platform trains its trials. Where external loops do, a trainable is only a name.

    Raises:
        InvalidInput: naming the field, what is missing and what there is instead.
    """
    sampler = _sampler_field(spec)
    for field, path in functions_of(spec, trains=trains):
        if field != sampler and not (field == "trainable" and spec.image is not None):
            import_function(field, path)
    check_sampler(spec)


def functions_of(spec: SweepSpec, *, trains: bool = True) -> Iterator[tuple[str, str]]:
    """The fields of a spec that name functions that will be called, each with ``module:function``.

    Args:
        trains: as for :func:`check_functions`.
    """
    trainable = None
    if trains:
        trainable = spec.trained_by
    for field, path in (
        ("trainable", trainable),
        ("predictor", spec.predictor),
        ("evaluator", spec.evaluator),
        ("exporter", spec.exporter),
    ):
        if path is not None:
            yield field, path
    for place, gate in enumerate(spec.gates):
        if gate.integration_tests is not None:
            yield f"gates.{place}.integration_tests", gate.integration_tests.function
    if spec.snapshot is None:
        field, rows = spec.dataset.origin
        if isinstance(rows, str):
            yield f"dataset.{field}", rows
        if spec.dataset.transform is not None:
            yield "dataset.transform", spec.dataset.transform
    if spec.sampler[0] not in SAMPLERS:
        yield _sampler_field(spec), spec.sampler[0]


def import_sampler(sampler: str, field: str = "strategy.sampler") -> "type[optuna.samplers.BaseSampler]":
    """Import the Optuna sampler class of a name or an import path.

    Raises:
        InvalidInput: there is none, or it is not a sampler.
    """
    import optuna

    path = SAMPLERS.get(sampler, sampler)
    kind = import_function(field, path)
    if not (isinstance(kind, type) and issubclass(kind, optuna.samplers.BaseSampler)):
        raise InvalidInput(
            f"{field} = {sampler!r} is not accepted: it is no optuna.samplers.BaseSampler; "
            "give the class of one"
        )
    return kind


def check_sampler(spec: SweepSpec) -> None:
    """Build the sampler and let it suggest a few trials of a toy problem.

    The problem has as many objectives as the sweep.

    Raises:
        InvalidInput: there is no such sampler, or it does not take its options.
    """
    name, options = spec.sampler
    field = f"strategy.{spec.strategy.name}"
    if name in SAMPLERS and not options:
        return  # There is nothing that could be wrong.
    kind = import_sampler(name, f"{field}.sampler")
    try:
        _try(kind, options, spec)
    except ImportError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise InvalidInput(
            f"{field}.sampler = {name!r} is not accepted: it needs the package {package!r}, "
            "which is not installed; "
            f"install it (pip install {package}) wherever trials are suggested"
        ) from None
    except Exception as error:  # noqa: BLE001
        # The options go to foreign code, which may raise anything.
        accepted = sorted(set(inspect.signature(kind).parameters) - {"seed"})
        aims = "one objective"
        if len(spec.objectives) > 1:
            aims = f"{len(spec.objectives)} objectives"
        raise InvalidInput(
            f"{field}.options = {options} is not accepted by {name!r} with {aims}: {error}; its options "
            f"are {accepted}"
        ) from None


def _sampler_field(spec: SweepSpec) -> str:
    return f"strategy.{spec.strategy.name}.sampler"


def _try(kind: Any, options: dict[str, Any], spec: SweepSpec) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna warns of experimental options.
        if "seed" in inspect.signature(kind).parameters:
            options = {"seed": 0, **options}
        study = optuna.create_study(
            directions=[objective.direction for objective in spec.objectives], sampler=kind(**options)
        )
        distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.FloatDistribution(0, 1) for name in ("x", "y")
        }
        for value in range(3):
            study.tell(study.ask(distributions), [float(value)] * len(spec.objectives))
