"""Checkpoints: what is saved comes back exactly, training goes on bit by bit, and loading never runs code."""

import enum
import json
import math
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from halving import CheckpointMismatch, InvalidInput, Store, TrainedRun
from halving.data.dataset import Dataset
from tests.checkpoints import pack_state, unpack_state
from tests.properties import examples
from tests.sdk.conftest import Script

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(sizes=(16, 32, 64)),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
PLAIN_DATA = st.recursive(
    st.one_of(SCALARS, ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal in type and value; NaN equals NaN, and 0.0 differs from -0.0."""
    if isinstance(left, np.ndarray):
        native = left.astype(left.dtype.newbyteorder("="))
        return (
            type(right) is np.ndarray
            and right.dtype == native.dtype
            and np.array_equal(native, right, equal_nan=native.dtype.kind == "f")
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(map(repr, left)) == list(map(repr, right)) and all(
            same(left[key], right[key]) for key in left
        )
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(
            same(own, other) for own, other in zip(left, right, strict=True)
        )
    return repr(left) == repr(right)


@given(PLAIN_DATA)
@settings(max_examples=examples(60))
def test_plain_data_survives_a_torch_archive(value: Any) -> None:
    data = pack_state({"value": value})
    assert data[:2] == b"PK"
    assert same(value, unpack_state(data, {"value": None})["value"])


@given(PLAIN_DATA)
@settings(max_examples=examples(60))
def test_plain_data_survives_json(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "torch")  # what a process that never imported it has
        data = pack_state({"value": value})
        json.loads(data)
        restored = unpack_state(data, {"value": None})["value"]
    if isinstance(value, np.ndarray):  # JSON keeps the byte order as well
        restored = restored.astype(restored.dtype.newbyteorder("="))
    assert same(_native(value), _native(restored))


def _native(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, dict):
        return {key: _native(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_native(item) for item in value)
    return value


class Colour(enum.IntEnum):
    RED = 1


class Mode(str, enum.Enum):  # noqa: UP042  # what older code has
    TRAIN = "train"


@pytest.mark.parametrize("with_torch", [True, False])
def test_subclasses_of_plain_values_come_back_as_the_plain_value(with_torch: bool) -> None:
    values = {
        "number": Colour.RED,
        "text": Mode.TRAIN,
        "numpy": [np.float64(0.5), np.float32(0.25), np.int8(3), np.bool_(True), np.str_("x"), np.array(7)],
        "keys": {np.int64(3): 1, Mode.TRAIN: 2},
    }
    with pytest.MonkeyPatch.context() as patch:
        if not with_torch:
            patch.delitem(sys.modules, "torch")
        restored = unpack_state(pack_state(values), dict.fromkeys(values))
    assert same(
        restored,
        {"number": 1, "text": "train", "numpy": [0.5, 0.25, 3, True, "x", 7], "keys": {3: 1, "train": 2}},
    )


def test_tensors_come_back_as_they_were() -> None:
    tensors = [
        torch.rand(3, 4),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor(3),
        torch.zeros(0),
        torch.tensor([True, False]),
    ]
    restored = unpack_state(
        pack_state({"tensors": tensors, "named": {"weight": tensors[0]}}), {"tensors": None, "named": None}
    )
    for own, other in zip(tensors, restored["tensors"], strict=True):
        assert own.dtype == other.dtype
        assert torch.equal(own, other)
    assert torch.equal(restored["named"]["weight"], tensors[0])


@pytest.mark.slow
def test_a_checkpoint_of_a_process_without_torch_restores_in_one_with_it(
    script: Script, tmp_path: Path
) -> None:
    done = script(
        "import sys, random\n"
        "from pathlib import Path\n"
        "from halving.checkpoints.serialization import pack, unpack\n"
        "random.seed(5)\n"
        "with Path('blob').open('wb+') as file:\n"
        "    pack({'w': [0.5, float('nan')], 'n': {1: b'x'}}, file)\n"
        "    file.seek(0)\n"
        "    assert unpack(file, {'n': None})['n'] == {1: b'x'}\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "print(random.random())\n"
    )
    assert done.returncode == 0, done.stderr
    restored = unpack_state((tmp_path / "blob").read_bytes(), {"w": None, "n": None})
    assert same(restored, {"w": [0.5, math.nan], "n": {1: b"x"}})
    assert random.random() == float(done.stdout)


def test_the_same_state_is_the_same_blob() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    assert pack_state({"model": model, "epoch": 1}) == pack_state({"model": model, "epoch": 1})


class Training:
    """A small training with everything that has state.

    It has Adam, BatchNorm, dropout, a schedule, and three random generators.
    """

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.7)
        self.drawn: list[float] = []

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "drawn": self.drawn,
        }

    def train(self, epochs: int) -> None:
        features = torch.linspace(-1, 1, 240).reshape(40, 6)
        labels = (features.sum(1) > 0).long()
        for _ in range(epochs):
            order = np.random.permutation(40)  # the global generator is what must survive
            for batch in order.reshape(5, 8):
                noise = random.gauss(0, 0.01)
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(features[batch] + noise), labels[batch]).backward()
                self.optimizer.step()
            self.scheduler.step()
            self.drawn = [*self.drawn, random.random(), float(np.random.rand()), torch.rand(()).item()]


def assert_same_tensors(own: Any, other: Any) -> None:
    assert type(own) is type(other)
    if isinstance(own, dict):
        assert list(own) == list(other)
        for key in own:
            assert_same_tensors(own[key], other[key])
    elif isinstance(own, list):
        assert len(own) == len(other)
        for left, right in zip(own, other, strict=True):
            assert_same_tensors(left, right)
    elif isinstance(own, torch.Tensor):
        assert own.dtype == other.dtype
        assert torch.equal(own, other)
    else:
        assert own == other


def test_training_that_was_interrupted_is_bit_for_bit_the_training_that_was_not() -> None:
    def seed() -> None:
        random.seed(1)
        np.random.seed(1)

    seed()
    straight = Training(seed=1)
    straight.train(4)

    seed()
    first = Training(seed=1)
    first.train(2)
    blob = pack_state(first.state())
    random.seed(99)
    np.random.seed(99)
    second = Training(seed=99)
    second.drawn = unpack_state(blob, second.state())["drawn"]
    second.train(2)

    assert second.drawn == straight.drawn
    for name in ("model", "optimizer", "scheduler"):
        assert_same_tensors(getattr(second, name).state_dict(), getattr(straight, name).state_dict())


SCHEDULES: list[Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]] = [
    lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5]),
    lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10),
    lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
    lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3),
    lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.ConstantLR(optimizer, 0.1),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        ],
        milestones=[3],
    ),
]


def _advance(schedule: torch.optim.lr_scheduler.LRScheduler, steps: int) -> list[float]:
    rates = []
    for _ in range(steps):
        schedule.optimizer.step()
        if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            schedule.step(1.0)
        else:
            schedule.step()
        rates.append(float(schedule.optimizer.param_groups[0]["lr"]))
    return rates


@pytest.mark.parametrize("make", SCHEDULES)
def test_a_learning_rate_schedule_goes_on_where_it_was(make: Callable[..., Any]) -> None:
    def fresh() -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
        return optimizer, make(optimizer)

    optimizer, schedule = fresh()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # SequentialLR's own deprecated call
        _advance(schedule, 4)
        blob = pack_state({"optimizer": optimizer, "schedule": schedule})
        other_optimizer, other = fresh()
        unpack_state(blob, {"optimizer": other_optimizer, "schedule": other})
        assert _advance(other, 5) == _advance(schedule, 5)


class Counting(nn.Module):
    """A module with state of its own beside its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = np.zeros(2, dtype=np.int64)

    def get_extra_state(self) -> dict[str, Any]:
        return {"counts": self.counts, "tag": b"v1"}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        assert state["tag"] == b"v1"
        self.counts = state["counts"]


def test_the_extra_state_of_a_module_is_restored() -> None:
    saved = Counting()
    fresh = Counting()
    saved.counts[1] = 7
    data = pack_state({"module": nn.Sequential(saved, nn.BatchNorm1d(2))})
    unpack_state(data, {"module": nn.Sequential(fresh, nn.BatchNorm1d(2))})
    assert fresh.counts.tolist() == [0, 7]


def test_a_missing_name_is_named_with_what_there_is() -> None:
    blob = pack_state({"model": nn.Linear(1, 1), "epoch": 3})
    with pytest.raises(CheckpointMismatch, match=r"has no \['optimizer'\]; it holds \['epoch', 'model'\]"):
        unpack_state(blob, {"model": nn.Linear(1, 1), "optimizer": None})


def test_names_that_are_not_asked_for_are_left_alone() -> None:
    assert unpack_state(pack_state({"a": 1, "b": 2}), {"b": None}) == {"b": 2}


@pytest.mark.parametrize("with_torch", [True, False])
def test_what_cannot_be_saved_is_named(with_torch: bool) -> None:
    refused: list[tuple[Any, str]] = [
        (object(), "'entry' of type object"),
        ({"deep": [1, {2}]}, r"'entry\.deep\[1\]' of type set"),
        (lambda: 0, "'entry' of type function"),
        (1j, "'entry' of type complex"),
        (np.array(["a", object()], dtype=object), "'entry' of type ndarray"),
        (np.ones(2, dtype=np.longdouble), "'entry' of type ndarray"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        if not with_torch:
            patch.delitem(sys.modules, "torch")
        for value, named in refused:
            with pytest.raises(InvalidInput, match=f"checkpoint entry {named} is not accepted: give"):
                pack_state({"entry": value})


def test_names_that_the_format_needs_itself_are_refused() -> None:
    for state, named in (
        ({"__rng__": 1}, "__rng__"),
        ({"a": {"__numpy__": 1}}, "__numpy__"),
        ({"a": [{"__bytes__": 1}]}, "__bytes__"),
    ):
        with pytest.raises(InvalidInput, match=f"{named}.* is not accepted: the"):
            pack_state(state)
    with pytest.raises(InvalidInput, match="has the key b'x', which is not accepted"):
        pack_state({"a": {b"x": 1}})


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (Path("exploded"), "boom")


def test_loading_a_checkpoint_never_runs_code(tmp_path: Path) -> None:
    torch.save({"model": Bomb(), "__rng__": {}}, tmp_path / "archive")
    torch.save({"model": Bomb(), "__rng__": {}}, tmp_path / "legacy", _use_new_zipfile_serialization=False)
    (tmp_path / "pickle").write_bytes(pickle.dumps({"model": Bomb(), "__rng__": {}}, protocol=2))
    for name in ("archive", "legacy", "pickle"):
        with pytest.raises(pickle.UnpicklingError):
            unpack_state((tmp_path / name).read_bytes(), {"model": None})
        assert not (tmp_path / "exploded").exists()
    pickle.loads((tmp_path / "pickle").read_bytes())  # the bomb is a real one
    assert (tmp_path / "exploded").exists()


def test_a_predictor_gets_the_weights_and_keeps_its_random_generators(store: Store) -> None:
    model = nn.Linear(3, 2)
    fresh = nn.Linear(3, 2)
    digest = store.put_blob(pack_state({"model": model, "threshold": 0.5}))
    random.seed(7)
    expected = random.random()
    random.seed(7)
    trained = TrainedRun(
        store, params={}, dataset=Dataset(store, "d", "sha256:" + "0" * 64), checkpoint_digest=digest
    )
    assert trained.restore(model=fresh, threshold=None)["threshold"] == 0.5
    assert torch.equal(fresh.weight, model.weight)
    assert random.random() == expected
