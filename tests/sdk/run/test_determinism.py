"""``deterministic=True``: the same seed gives the same numbers, here, in workers and in another process; and
the record says so.
"""

import json

import pytest

from halving import Store
from tests.sdk.conftest import Script

TRAINING = """
import json, os, random, sys
import halving
run = halving.init("p", id=sys.argv[1], seed=int(sys.argv[2]), deterministic=True, system_metrics=None)
import numpy, torch
from torch.utils.data import DataLoader, Dataset
class Drawn(Dataset):
    def __len__(self): return 8
    def __getitem__(self, row): return [random.random(), float(numpy.random.rand()), torch.rand(1).item()]
def draw():
    loader = DataLoader(Drawn(), batch_size=None, num_workers=2, shuffle=True, collate_fn=torch.tensor)
    return [batch.tolist() for batch in loader]
if __name__ == "__main__":
    drawn = draw()
    print(json.dumps([random.random(), float(numpy.random.rand()), torch.rand(1).item(), drawn]))
    print(json.dumps([torch.are_deterministic_algorithms_enabled(), os.environ["CUBLAS_WORKSPACE_CONFIG"]]))
    run.finish()
    other = {"id": sys.argv[1] + "-another", "seed": int(sys.argv[2]) + 1}
    with halving.init("p", **other, deterministic=True, system_metrics=None):
        drawn = draw()
        print(json.dumps([random.random(), float(numpy.random.rand()), torch.rand(1).item(), drawn]))
"""


@pytest.mark.slow
def test_one_seed_draws_the_same_in_libraries_and_workers_that_are_imported_later(
    script: Script, store: Store
) -> None:
    first, other = (script(TRAINING, name, "3") for name in ("a", "b"))
    assert first.returncode == 0, first.stderr
    numbers, settings, of_another_seed = first.stdout.splitlines()
    assert other.stdout.splitlines() == [numbers, settings, of_another_seed]
    assert numbers != of_another_seed
    assert json.loads(settings) == [True, ":4096:8"]
    record = json.loads(store.read("runs/project=p/a/record.json"))
    assert record["determinism"]["deterministic"] is True
    assert record["determinism"]["torch.deterministic_algorithms"] is True
    assert "PYTHONHASHSEED" in record["determinism"]


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "warnings"), [("", 1), ("random", 1), ("0", 0), ("7", 0)])
def test_a_random_hash_is_warned_about_once_where_the_program_asks_for_determinism(
    script: Script, store: Store, monkeypatch: pytest.MonkeyPatch, variable: str, warnings: int
) -> None:
    source = """
import halving
for name in ("a", "b"):
    halving.init("p", id=name, deterministic=True, system_metrics=None).finish()
halving.init("p", id="c", system_metrics=None).finish()
"""
    monkeypatch.setenv("PYTHONHASHSEED", variable)
    done = script(source)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("start the program with PYTHONHASHSEED=0") == warnings, done.stderr


@pytest.mark.slow
def test_it_works_without_torch_and_seeds_by_0_where_no_seed_is_given(script: Script, store: Store) -> None:
    source = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import halving, random
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(lambda _, name, *rest: None if name == "torch" else find(name, *rest))
del sys.modules["torch"]
with halving.init("p", id=sys.argv[1], deterministic=True, system_metrics=None) as run:
    print(run.seed, random.random(), "torch" in sys.modules)
"""
    first = script(source, "a")
    other = script(source, "b")
    assert first.returncode == 0, first.stderr
    assert first.stdout == other.stdout
    assert first.stdout.startswith("0 ")
    assert first.stdout.endswith("False\n")
