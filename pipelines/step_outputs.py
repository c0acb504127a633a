"""Outputs of steps in the store, because on a cluster each step is a pod with a disk of its own."""

import json
from typing import Any

import dagster as dg

from halving import Store


class StepOutputs(dg.IOManager):
    """Small plain data (texts, numbers, dicts, lists) as JSON files ``steps/RUN/STEP/OUTPUT.json``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        self._store.replace(_name(context), json.dumps(obj).encode())

    def load_input(self, context: dg.InputContext) -> Any:
        if context.upstream_output is None:
            raise dg.DagsterInvariantViolationError(f"input {context.name} comes from no step")
        return json.loads(self._store.read(_name(context.upstream_output)))


@dg.io_manager(required_resource_keys={"backend"}, description="Outputs of steps, in the backend's store.")
def step_outputs(context: dg.InitResourceContext) -> StepOutputs:
    """Step outputs in the store of the run's backend."""
    return StepOutputs(context.resources.backend.store)


def _name(context: dg.OutputContext) -> str:
    return "/".join(["steps", *context.get_identifier()]) + ".json"
