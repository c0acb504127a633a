"""The list of prices: what is not in it is refused at once, and a node costs what its GPUs do, or its
cores.
"""

from pathlib import Path

import pytest

from halving.errors import InvalidInput
from resources.analysis.costs.prices import load_prices

OWN = """
date: 2026-01-31
currency: EUR
gpu_hour: {default: {price: 3}, a100: {price: 4.5, source: a contract}}
cpu_hour: {price: 0.1}
gb_month: {price: 0.02}
spot: {share: 0.5}
"""


def write_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    monkeypatch.setenv("HALVING_PRICES", str(tmp_path / "prices.yaml"))


def test_every_shipped_price_says_where_it_is_from() -> None:
    prices = load_prices()
    assert all(
        price.source for price in (*prices.gpu_hour.values(), prices.cpu_hour, prices.gb_month, prices.spot)
    )
    assert (
        prices.node_hour(gpus=8, cpus=64, gpu_type="h100", spot=False) == 8 * prices.gpu_hour["default"].price
    )
    assert prices.node_hour(gpus=0, cpus=4, gpu_type=None, spot=False) == 4 * prices.cpu_hour.price


def test_a_list_of_ones_own_counts_by_its_kinds_of_gpus_and_its_discount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_prices(tmp_path, monkeypatch, OWN)
    prices = load_prices()
    assert (prices.currency, prices.about()) == ("EUR", "prices of 2026-01-31")
    assert prices.node_hour(gpus=2, cpus=8, gpu_type="a100", spot=True) == 4.5
    assert prices.node_hour(gpus=2, cpus=8, gpu_type="v100", spot=False) == 6.0


@pytest.mark.parametrize(
    ("gpu_type", "price"),
    [
        ("NVIDIA A100-SXM4-40GB", 4.5),
        ("NVIDIA A100-SXM4-80GB", 5.5),
        ("nvidia-tesla-a100", 4.5),
        ("NVIDIA L40S", 3.0),  # no l4
        ("NVIDIA L4", 1.0),
        ("NVIDIA default", 3.0),
    ],
)
def test_a_gpu_by_its_drivers_name_costs_what_most_words_of_it_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu_type: str, price: float
) -> None:
    write_prices(
        tmp_path,
        monkeypatch,
        OWN.replace(
            "{default: {price: 3},", "{default: {price: 3}, l4: {price: 1}, A100-80GB: {price: 5.5},"
        ),
    )
    assert load_prices().node_hour(gpus=1, cpus=1, gpu_type=gpu_type, spot=False) == price


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OWN + "gpu_hours: {default: 3}\n", "gpu_hours"),
        (OWN.replace("price: 0.1", "price: -0.1"), "cpu_hour.price = -0.1"),
        (OWN.replace("price: 0.1", "price: .inf"), "cpu_hour.price = inf"),
        (OWN.replace("default: {price: 3}, ", ""), "gpu_hour: ['a100'] lacks default"),
        (OWN.replace("date: 2026-01-31", ""), "date"),
        ("- 3", "prices.yaml"),
        ("a: [", "prices.yaml"),
    ],
)
def test_what_is_no_list_of_prices_is_refused_by_field_and_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    write_prices(tmp_path, monkeypatch, text)
    with pytest.raises(InvalidInput, match="HALVING_PRICES = ") as refused:
        load_prices()
    assert said in str(refused.value)


def test_a_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALVING_PRICES", "/nowhere/prices.yaml")
    with pytest.raises(InvalidInput, match="give the path of a list of prices in YAML"):
        load_prices()
