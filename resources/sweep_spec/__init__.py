"""The sweep spec: what a user writes in ``sweeps/*.yaml`` or in Dagster's launchpad.

It is checked before anything runs. This package knows fields and their limits; it must not know the catalog,
nor how a sweep is run.
"""

from resources.sweep_spec.functions import check_functions
from resources.sweep_spec.parsing import load_spec, parse_spec, stored_spec
from resources.sweep_spec.sweep import SweepSpec

__all__ = ["SweepSpec", "check_functions", "load_spec", "parse_spec", "stored_spec"]
