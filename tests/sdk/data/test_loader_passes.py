"""A loader has one pass at a time; one that is left, copied or forked goes on as it should."""

import gc
import os
import pickle
import threading
from collections.abc import Callable
from itertools import islice

import pytest

from halving import Dataset, InvalidInput
from halving.data.loader import Loader
from tests.sdk.data.sharded import (
    ROWS,
    flat,
    numbers,
)


def test_leaving_a_loop_ends_the_epoch_if_a_batch_was_handed_out(
    datasets: dict[str, Dataset],
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    for number, _ in enumerate(loader):
        if number == 2:
            break
    assert (loader.epoch, loader.position, loader.broken_off) == (2, 0, (1, 48))
    state = loader.state_dict()
    iter(loader)
    gc.collect()
    assert loader.state_dict() == state
    second = flat(numbers(datasets["four shards"].loader("train", batch_size=16, epoch=2)))
    assert flat(numbers(loader)) == second


def test_a_pass_that_cannot_begin_leaves_its_loader_as_it_was(
    datasets: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)

    def refuse(*_: int) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("halving.data.loader_plan.LoaderPlan.blocks_ahead", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            iter(loader)
    gc.collect()
    assert (loader.epoch, loader.position, loader.broken_off) == (1, 0, None)
    assert len(flat(numbers(loader))) == sum(ROWS)


ONE_PASS = (
    "this loop over the loader of split 'train' of dataset points cannot go on, .* a loader has one pass "
    "at a time; open another one"
)


def zip_with_itself(loader: Loader) -> None:
    for _ in zip(loader, loader, strict=True):
        pass


def zip_with_tensors(loader: Loader) -> None:
    for _ in zip(loader, loader.torch(), strict=True):
        pass


def zip_tensors(loader: Loader) -> None:
    tensors = loader.torch()
    for _ in zip(tensors, tensors, strict=True):
        pass


def looped_in_a_loop(loader: Loader) -> None:
    for _ in loader:
        for _ in loader:
            pass


def looped_in_the_last_batch(loader: Loader) -> None:
    for number, _ in enumerate(loader):
        if number == len(loader) - 1:
            list(loader)


def looked_at_in_a_loop(loader: Loader) -> None:
    for _ in loader:
        next(iter(loader))


def begun_twice(loader: Loader) -> None:
    first = iter(loader)
    _ = iter(loader)
    next(first)


def begun_again_and_ended(loader: Loader) -> None:
    first = iter(loader)
    next(first)
    list(loader)
    next(first)


def asked_for_again(loader: Loader) -> None:
    first = iter(loader)
    next(first)
    iter(loader)
    with pytest.raises(InvalidInput):
        next(first)
    next(first)


def compared_with_a_shifted_self(loader: Loader) -> None:
    later = iter(loader)
    next(later)
    for _ in zip(loader, later, strict=False):
        pass


def looped_in_another_thread(loader: Loader) -> None:
    first = iter(loader)
    next(first)
    other = threading.Thread(target=list, args=(loader,))
    other.start()
    other.join()
    next(first)


@pytest.mark.parametrize(
    "passes",
    [
        zip_with_itself,
        zip_with_tensors,
        zip_tensors,
        looped_in_a_loop,
        looped_in_the_last_batch,
        looked_at_in_a_loop,
        begun_twice,
        begun_again_and_ended,
        asked_for_again,
        compared_with_a_shifted_self,
        looped_in_another_thread,
    ],
)
def test_a_superseded_pass_is_an_error_and_the_next_loop_is_whole(
    datasets: dict[str, Dataset], passes: Callable[[Loader], None]
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    with pytest.raises(InvalidInput, match=ONE_PASS):
        passes(loader)
    gc.collect()
    epoch = loader.epoch
    assert sorted(flat(numbers(loader))) == list(range(sum(ROWS)))
    assert loader.epoch == epoch + 1


def looked_at(loader: Loader) -> list[int]:
    next(iter(loader))
    return flat(numbers(loader))


def looked_at_and_kept(loader: Loader) -> list[int]:
    look = iter(loader)
    next(look)
    return flat(numbers(loader))


def begun_and_kept(loader: Loader) -> list[int]:
    _ = iter(loader)
    return flat(numbers(loader))


def read_after_leaving(loader: Loader) -> list[int]:
    for _ in loader:
        break
    return flat(numbers(loader))


def cut_short_twice(loader: Loader) -> list[int]:
    for _ in range(2):
        assert len(list(islice(loader, 2))) == 2
    return flat(numbers(loader))


def ended_and_asked_again(loader: Loader) -> list[int]:
    first = iter(loader)
    list(first)
    rows = flat(numbers(loader))
    assert list(first) == []
    return rows


def beside_another(loader: Loader) -> list[int]:
    dataset = loader.plan.dataset
    assert isinstance(dataset, Dataset)
    other = dataset.loader("train", batch_size=16, seed=5)
    pairs = list(zip(loader, other, strict=True))
    assert sorted(flat(numbers(batch for _, batch in pairs))) == list(range(sum(ROWS)))
    return flat(numbers(batch for batch, _ in pairs))


def given_its_state_in_a_loop(loader: Loader) -> list[int]:
    state = loader.state_dict()
    for _ in loader:
        loader.load_state_dict(state)
    return flat(numbers(loader))


def read_beside_a_copy(loader: Loader) -> list[int]:
    first = iter(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert sorted(flat(numbers(copy))) == list(range(sum(ROWS)))
    return flat(numbers(first))


def as_tensors_then_arrays(loader: Loader) -> list[int]:
    list(loader.torch())
    return flat(numbers(loader))


@pytest.mark.parametrize(
    "passes",
    [
        looked_at,
        looked_at_and_kept,
        begun_and_kept,
        read_after_leaving,
        cut_short_twice,
        ended_and_asked_again,
        beside_another,
        given_its_state_in_a_loop,
        read_beside_a_copy,
        as_tensors_then_arrays,
    ],
)
def test_a_pass_behind_another_one_has_every_row_once(
    datasets: dict[str, Dataset], passes: Callable[[Loader], list[int]]
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    assert sorted(passes(loader)) == list(range(sum(ROWS)))


def test_an_iterator_fails_after_another_loop_and_ends_after_load_state_dict(
    datasets: dict[str, Dataset],
) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    first = iter(loader)
    next(first)
    state = loader.state_dict()
    second = iter(loader)
    with pytest.raises(InvalidInput, match="a loader has one pass at a time"):
        next(first)
    next(second)
    assert loader.epoch == 2
    loader.load_state_dict(state)
    assert list(second) == []
    assert (loader.epoch, loader.position) == (1, 16)
    assert len(list(loader)) == 12


def test_a_copy_in_another_process_goes_on_at_the_same_row(datasets: dict[str, Dataset]) -> None:
    loader = datasets["four shards"].loader("train", batch_size=16)
    iteration = iter(loader)
    next(iteration)
    copy = pickle.loads(pickle.dumps(loader))
    assert numbers(copy) == numbers(iteration)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_goes_on_with_an_iterator_of_its_parent(dataset: Dataset) -> None:
    iteration = iter(dataset.loader("train", batch_size=16))
    next(iteration)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(numbers(iteration)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        content = file.read()
    os.waitpid(child, 0)
    assert content == repr(numbers(iteration))
