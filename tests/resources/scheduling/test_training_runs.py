"""A training run that goes on from a trial's checkpoint, outside of its sweep."""

from collections.abc import Callable

from halving.records.run_record import RunRecords, SavedCheckpoint
from resources.backend import Backend
from resources.scheduling.training_runs import spec_of_restored
from resources.sweep_spec import SweepSpec
from tests.searches import search


def test_a_restored_run_has_the_resources_of_the_rung_that_it_trains_to(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    by_rung = {
        "resources": {"gpus": {1: 1, 9: 8}, "nodes": {1: 1, 9: 2}},
        "elastic": {"min_nodes": 1},
        "image": "train",
    }
    sweep = search(backend, small_spec(**by_rung, max_trials=1), lambda trial, params, epochs: {"score": 0.5})
    saved = SavedCheckpoint(1, 1, backend.store.put_blob(b"weights"), {})
    RunRecords(backend.store, "small", f"{sweep}.0000").add_checkpoint(saved)
    for epochs, gpus, nodes, elastic in ((5, 1, 1, False), (12, 8, 2, True)):
        spec = spec_of_restored(backend.catalog, backend.store, "small", f"{sweep}.0000", 1, epochs)
        assert (
            spec.resources.at(epochs).gpus,
            spec.resources.at(epochs).nodes,
            spec.elastic is not None,
        ) == (gpus, nodes, elastic)
