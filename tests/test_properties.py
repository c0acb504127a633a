"""How many examples a property test is tried on."""

import pytest

from tests import properties


@pytest.mark.parametrize(("number", "tried"), [(100, 20), (500, 100), (6, 3), (2, 2)])
def test_a_fifth_of_the_examples_is_tried_but_no_fewer_than_three(
    monkeypatch: pytest.MonkeyPatch, number: int, tried: int
) -> None:
    monkeypatch.setattr(properties, "ALL", False)
    assert properties.examples(number) == tried


def test_all_examples_are_tried_where_all_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "ALL", True)
    assert properties.examples(100) == 100
