"""When a gang of pods forms, with which of them, and when it may grow: by tables."""

import pytest

from resources.execution.kubernetes.gang_rules import (
    GROW_AFTER_SECONDS,
    SETTLE_SECONDS,
    PodState,
    may_look_for_more,
    pods_to_form,
    pods_to_keep,
)

NONE = PodState.UNPLACED
STARTING = PodState.STARTING
STUCK = PodState.STUCK
HERE = PodState.HERE
SOON = SETTLE_SECONDS - 1
LATE = SETTLE_SECONDS


@pytest.mark.parametrize(
    ("pods", "min_nodes", "seconds", "expected"),
    [
        ([STARTING, HERE], 2, 0, [0, 1]),  # all have a place: the next gang may form
        ([NONE, HERE], 2, LATE, None),  # not elastic: it waits
        ([NONE, HERE], 1, SOON, None),  # the other may still get one
        ([NONE, HERE], 1, LATE, [1]),
        ([NONE, NONE, STARTING], 2, LATE, None),  # fewer than it may shrink to
        ([NONE, STUCK], 1, LATE, [1]),  # it has a node, though it cannot start on it
        ([NONE, NONE], 1, LATE, None),
    ],
)
def test_a_gang_keeps_its_turn_until_all_have_a_place_or_enough_for_an_elastic_one(
    pods: list[PodState], min_nodes: int, seconds: float, expected: list[int] | None
) -> None:
    assert pods_to_keep(pods, min_nodes, seconds) == expected


@pytest.mark.parametrize(
    ("pods", "min_nodes", "seconds", "expected"),
    [
        ([HERE, HERE], 2, 0, [0, 1]),
        ([HERE, STARTING], 1, 1000, None),  # an image may take long
        ([HERE, STUCK], 2, 1000, None),
        ([HERE, STUCK], 1, SOON, None),
        ([HERE, STUCK], 1, LATE, [0]),
        ([STUCK, STUCK], 1, LATE, None),
        ([STUCK, HERE, HERE], 2, LATE, [1, 2]),
    ],
)
def test_a_gang_forms_of_all_its_pods_or_without_those_that_cannot_start(
    pods: list[PodState], min_nodes: int, seconds: float, expected: list[int] | None
) -> None:
    assert pods_to_form(pods, min_nodes, seconds) == expected


@pytest.mark.parametrize(
    ("size", "seconds", "wanted", "expected"),
    [
        (1, GROW_AFTER_SECONDS, False, True),
        (2, GROW_AFTER_SECONDS, False, False),  # it is whole
        (1, GROW_AFTER_SECONDS - 1, False, False),  # it has only begun
        (1, GROW_AFTER_SECONDS, True, False),  # another gang comes first
    ],
)
def test_a_gang_looks_for_more_nodes_after_a_while_if_nobody_else_wants_to_form(
    size: int, seconds: float, wanted: bool, expected: bool
) -> None:
    assert may_look_for_more(size, 2, seconds, wanted=wanted) is expected
