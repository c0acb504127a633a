"""Every look at a test split is counted, also when two come at once."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from resources.catalog import Catalog
from resources.evaluation.split_wear import WORN_FROM, SplitWear, record_judgement, split_digest


def look(catalog: Catalog, checkpoint: str, content: str = "sha256:s") -> SplitWear:
    return record_judgement(catalog, digest=content, split="test", checkpoint=checkpoint, sweep="digits-1")


def test_winners_are_counted_once_and_looks_each_time_on_each_content_apart(catalog: Catalog) -> None:
    assert look(catalog, "sha256:a") == SplitWear(1, 1)
    assert look(catalog, "sha256:b") == SplitWear(2, 2)
    assert look(catalog, "sha256:a") == SplitWear(2, 3)
    assert look(catalog, "sha256:a", content="sha256:other") == SplitWear(1, 1)


def test_a_split_is_known_by_its_rows_whatever_else_its_snapshot_holds() -> None:
    test = [["a" * 64, 10, 100], ["b" * 64, 5, 50]]
    more = [["c" * 64, 1, 10]]
    content = split_digest({"shards": {"train": [["d" * 64, 80, 800]], "test": test}}, "test")
    assert split_digest({"shards": {"train": more, "test": test}}, "test") == content
    assert split_digest({"shards": {"test": test + more}}, "test") != content
    assert split_digest({"shards": {"test": test[::-1]}}, "test") != content


def test_looks_at_once_are_all_counted(catalog: Catalog) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: look(catalog, f"sha256:{number % 3}"), range(12)))
    assert look(catalog, "sha256:0") == SplitWear(3, 13)


@pytest.mark.parametrize("winners", [2, 10, 100])
def test_the_optimism_is_the_expected_largest_of_as_many_normal_draws(winners: int) -> None:
    drawn = np.random.default_rng(0).normal(size=(20_000, winners)).max(axis=1).mean()
    assert SplitWear(winners, winners).optimism == pytest.approx(drawn, abs=0.03)


def test_a_split_is_worn_from_ten_winners_on() -> None:
    assert (SplitWear(WORN_FROM - 1, 99).as_dict()["worn"], SplitWear(WORN_FROM, 10).as_dict()["worn"]) == (
        False,
        True,
    )
    assert SplitWear(1, 5).optimism == 0.0
