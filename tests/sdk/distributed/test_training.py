"""Trainings on one, two and four ranks over gloo: what must be the same, and what must be close."""

from typing import Any

import pytest

from halving.distributed.ranks import Ranks
from tests.gangs import run_gang
from tests.sdk.distributed.trainings import every, later, resume_net, train_net, train_on, train_poisoned

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gangs")]

FP32 = {
    "ddp": {},
    "fsdp": {"shard": "fsdp"},
    "in micro-batches": {"micro_batch": 3},
    "sharded, in micro-batches": {"shard": "fsdp", "accumulate": 2},
    "checkpointed": {"activation_checkpointing": True},
    "fused": {"fused": True},
}
COMPILED = {
    "sharded, checkpointed and compiled": {
        "shard": "fsdp",
        "activation_checkpointing": True,
        "compile": {"backend": "eager"},
    }
}
MIXED = {
    f"{shard} in {precision}": {"shard": shard, "precision": precision}
    for shard in ("ddp", "fsdp")
    for precision in ("bf16", "fp16")
}
EXACT = {
    f"exact in {precision}": {"exact": True, "precision": precision, "dropout": 0.3}
    for precision in ("fp32", "bf16")
}
ALL = FP32 | MIXED | EXACT


RELAY = {"exact": True, "dropout": 0.3}


@pytest.fixture(scope="module")
def gangs() -> dict[int, list[dict[str, Any]]]:
    """The results of each configuration's training, by world size and rank; and of one with mixed gangs."""
    results = {}
    saved = None
    for turn, size in enumerate((1, 2, 4)):
        results[size] = run_gang(
            size, _all, ALL | (COMPILED if size == 2 else {}), saved, range(2 * turn, 2 * turn + 2)
        )
        saved = results[size][0]["in turn"][0]
    return results


def _all(
    ranks: Ranks, configurations: dict[str, dict[str, Any]], saved: bytes | None, steps: range
) -> dict[str, Any]:
    results: dict[str, Any] = {
        "each": train_net(ranks, configurations),
        "in turn": train_on(ranks, saved, steps, **RELAY),
    }
    if saved is None:
        results["whole"] = train_on(ranks, None, range(6), **RELAY)
    return results


@pytest.fixture(scope="module")
def losses(gangs: Any) -> dict[int, list[dict[str, Any]]]:
    """By world size, for each rank: what each configuration's training gave."""
    return {size: [of_rank["each"] for of_rank in of_ranks] for size, of_ranks in gangs.items()}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("name", "within"), [*((name, 1e-6) for name in FP32), *((name, 5e-3) for name in MIXED)]
)
def test_losses_and_norms_are_those_of_one_rank(losses: Any, size: int, name: str, within: float) -> None:
    alone = losses[1][0][name][0]
    together = losses[size][0][name][0]
    assert together[::2] == pytest.approx(alone[::2], abs=within)
    assert together[1::2] == pytest.approx(alone[1::2], rel=2 * within)  # of the norms
    assert min(alone[1::2]) > 0.5  # so all steps were clipped


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", EXACT)
def test_an_exact_training_is_the_same_bit_for_bit_on_any_number_of_ranks(
    losses: Any, size: int, name: str
) -> None:
    assert all(of_rank[name] == losses[1][0][name] for of_rank in losses[size])


def test_an_exact_training_that_goes_on_on_more_ranks_is_the_same_bit_for_bit(gangs: Any) -> None:
    _, whole, weights = gangs[1][0]["whole"]
    assert [value for size in (1, 2, 4) for value in gangs[size][0]["in turn"][1]] == whole
    assert gangs[4][3]["in turn"][2] == weights


def test_wrapped_models_keep_their_state_names_and_all_ranks_get_the_same_loss(losses: Any) -> None:
    names = losses[1][0]["ddp"][1]
    for of_ranks in losses.values():
        assert all(results[1] == names for of_rank in of_ranks for results in of_rank.values())
        assert all(
            of_rank[name][0][::2] == of_ranks[0][name][0][::2] for of_rank in of_ranks for name in of_rank
        )
    assert losses[2][0][next(iter(COMPILED))][0] == pytest.approx(losses[1][0]["ddp"][0], abs=1e-6)


RESUMED = {
    # wide enough for buckets whose parts are summed in different orders
    "ddp": {"width": 96, "dropout": 0.3},
    "fsdp": {"width": 96, "dropout": 0.3, "shard": "fsdp"},
    "fp16": {"precision": "fp16", "dropout": 0.3},
}
KINDS = {"loss": {}, "gradients": {}}
WAYS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp fused": {"fused": True},
    "fsdp": {"shard": "fsdp"},
    "fsdp fused": {"shard": "fsdp", "fused": True},
}


@pytest.fixture(scope="module")
def three() -> list[dict[str, Any]]:
    """What three ranks gave."""
    bad = {
        f"{kind} {way}": later(train_poisoned, kind, (2, 5, 6, 7, 8), **options)
        for kind, way, options in [
            *(("loss", *each) for each in WAYS.items()),
            ("gradients", "ddp", {}),
            ("gradients", "fsdp", WAYS["fsdp"]),
        ]
    }
    bad |= {"exact": later(train_poisoned, "gradients", (2, 5, 6, 7, 8), exact=24)}
    return run_gang(3, _three, bad)


def _three(ranks: Any, bad: dict[str, Any]) -> dict[str, Any]:
    return {"resumed": resume_net(ranks, RESUMED)} | every(ranks, **bad)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_training_is_the_same_bit_for_bit_as_one_that_was_not_interrupted(
    three: Any, name: str
) -> None:
    whole, again = three[0]["resumed"][name]
    assert whole == again


@pytest.mark.parametrize(
    "name", [*(f"loss {way}" for way in WAYS), "gradients ddp", "gradients fsdp", "exact"]
)
def test_a_nan_of_one_rank_is_applied_by_none_and_too_many_in_a_row_end_all_of_them(
    three: Any, name: str
) -> None:
    what = "the loss of rank 1 was NaN" if name.startswith("loss") else "the gradients of rank 1 were NaN"
    for of_rank in three:
        # A fused optimizer is told on the device, and the host hears of it a step later.
        assert of_rank[name]["changed"] == ([0, 1, 3, 4, 9] if "fused" in name else [0, 1, 3, 4])
        assert f"{what} or infinite at step 9" in of_rank[name]["ended"]
    assert [each.split(":")[0] for each in three[0][name]["warned"]] == [
        f"step {step} was left out" for step in (3, 6, 7, 8)
    ]
    assert all(what in each for each in three[0][name]["warned"])
    assert not three[1][name]["warned"]
