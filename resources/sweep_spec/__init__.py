"""The sweep spec: what a user writes in ``sweeps/*.yaml`` or in Dagster's launchpad, checked before anything runs.

It knows fields and their limits; it must not know the catalog, nor how a sweep is run.
"""

from resources.sweep_spec.base import FunctionPath, Name, OneOf, Value
from resources.sweep_spec.functions import check_functions, import_sampler
from resources.sweep_spec.parsing import load_spec, parse_spec, problems_of_model, stored_spec
from resources.sweep_spec.requirements import Resources, quantity_bytes
from resources.sweep_spec.space import FloatRange, IntRange, Parameter
from resources.sweep_spec.strategy import (
    SAMPLERS,
    Asha,
    Bohb,
    EarlyStopping,
    FullBudget,
    GpSearch,
    GridSearch,
    Hyperband,
    MedianStopping,
    Nsga2Search,
    OptunaSearch,
    RandomSearch,
    Strategy,
    SuccessiveHalving,
    TpeSearch,
)
from resources.sweep_spec.sweep import Bounds, DatasetSource, Gates, Objective, SweepSpec, Training

__all__ = [
    "SAMPLERS",
    "Asha",
    "Bohb",
    "Bounds",
    "DatasetSource",
    "EarlyStopping",
    "FloatRange",
    "FullBudget",
    "FunctionPath",
    "Gates",
    "GpSearch",
    "GridSearch",
    "Hyperband",
    "IntRange",
    "MedianStopping",
    "Name",
    "Nsga2Search",
    "Objective",
    "OneOf",
    "OptunaSearch",
    "Parameter",
    "RandomSearch",
    "Resources",
    "Strategy",
    "SuccessiveHalving",
    "SweepSpec",
    "TpeSearch",
    "Training",
    "Value",
    "check_functions",
    "import_sampler",
    "load_spec",
    "parse_spec",
    "problems_of_model",
    "quantity_bytes",
    "stored_spec",
]
