"""Messages of a predictor's process: what was sent is what is read, and nothing else is read at all."""

import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import Evaluation
from resources.evaluation.columns import Coded, encode
from resources.evaluation.predictor_messages import (
    PLOTLY,
    Answer,
    Done,
    Evaluated,
    Failed,
    Figure,
    Message,
    Served,
    Unreadable,
    from_bytes,
    to_bytes,
)

VALUES = st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())


@given(st.lists(VALUES))
def test_predictions_come_back_with_their_types(values: list[Any]) -> None:
    back = from_bytes(to_bytes(Answer(encode(values))))
    assert isinstance(back, Answer)
    assert isinstance(back.predictions, Coded)
    assert [(type(value), value) for value in back.predictions.objects()] == [
        (type(value), value) for value in values
    ]
    assert len(back) == len(values)


def test_numbers_that_are_not_finite_come_back() -> None:
    back = from_bytes(to_bytes(Answer(np.array([1.5, math.nan, -math.inf]))))
    assert isinstance(back, Answer)
    assert str(back.predictions) == "[ 1.5  nan -inf]"


def test_probabilities_costs_and_reasons_come_back() -> None:
    back = from_bytes(to_bytes(Answer(None, np.array([[0.25, 0.75]]), ("a", True))))
    assert isinstance(back, Answer)
    assert (back.probabilities is not None and back.probabilities.tolist(), back.classes) == (
        [[0.25, 0.75]],
        ("a", True),
    )
    for message in (
        Served({"rows": 1, "p50_ms": 0.5}, None, 3 << 20, "no batch"),
        Served(),
        Done(0),
        Done(3),
        Failed("it raised"),
    ):
        assert from_bytes(to_bytes(message)) == message


def test_an_evaluation_comes_back_with_its_figures() -> None:
    evaluation = Evaluation(
        metrics={"bleu": math.nan}, scores={"loss": [1.0, 2.0], "gain": [0.0, 1.0]}, lower_is_better=["loss"]
    )
    figures = [Figure("Dark", "image/png", b"\0png"), Figure("Line", PLOTLY, b"{}")]
    back = from_bytes(to_bytes(Evaluated(evaluation, figures)))
    assert isinstance(back, Evaluated)
    assert ({name: column.tolist() for name, column in back.evaluation.scores.items()}, back.figures) == (
        {"loss": [1.0, 2.0], "gain": [0.0, 1.0]},
        figures,
    )
    assert (math.isnan(back.evaluation.metrics["bleu"]), back.evaluation.lower_is_better) == (True, ("loss",))


def pack_message(about: Any, *parts: bytes) -> bytes:
    header = json.dumps({**about, "parts": [len(part) for part in parts]}).encode()
    return b"".join([len(header).to_bytes(8, "big"), header, *parts])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        pickle.dumps(Answer(encode(["a"]))),
        (1 << 62).to_bytes(8, "big"),
        (200_000).to_bytes(8, "big") + b"[" * 200_000,
        pack_message({"kind": "pickle"}),
        pack_message({"kind": "numbers"}),
        pack_message({"kind": "numbers"}, b"1234567"),
        pack_message({"kind": "values", "values": ["a"]}, np.array([1], np.int32).tobytes()),
        pack_message({"kind": "values", "values": ["a"]}, np.array([-1], np.int32).tobytes()),
        pack_message({"kind": "values", "values": [["a"]]}, np.array([0], np.int32).tobytes()),
        pack_message({"kind": "probabilities", "shape": [1, 3], "classes": None}, np.zeros(2).tobytes()),
        pack_message({"kind": "probabilities", "shape": [-1, 2], "classes": None}, np.zeros(2).tobytes()),
        pack_message({"kind": "probabilities", "shape": [1, 2], "classes": {"a": 1}}, np.zeros(2).tobytes()),
        pack_message(
            {"kind": "evaluation", "metrics": {}, "scores": [], "lower_is_better": [], "figures": []}
        ),
        pack_message(
            {
                "kind": "evaluation",
                "metrics": {"a": 1},
                "scores": [],
                "lower_is_better": [],
                "figures": [["T", 'image/"><script>']],
            },
            b"x",
        ),
        pack_message(
            {
                "kind": "served",
                "one_row": {"p50_ms": "0"},
                "batch": None,
                "peak_memory_bytes": None,
                "error": None,
            }
        ),
        pack_message({"kind": "failed", "reason": 3}),
        pack_message({"kind": "done"}),
        pack_message({"kind": "done", "rows": -1}),
        pack_message({"kind": "done", "rows": "3"}),
        pack_message({"kind": "done", "rows": True}),
        (30).to_bytes(8, "big") + b'{"kind":"numbers","parts":[9]}',
    ],
)
def test_whatever_else_is_sent_is_refused(content: bytes) -> None:
    with pytest.raises(Unreadable, match="it sent a message that is not valid"):
        from_bytes(content)


def test_a_message_that_was_cut_is_refused_wherever_it_was_cut() -> None:
    answers: list[Message] = [
        Answer(None, np.zeros((2, 2)), ("a", "b")),
        Answer(encode(["a", "b", "a"])),
        Answer(np.zeros(3)),
        Done(3),
    ]
    for content in map(to_bytes, answers):
        for length in range(len(content)):
            with pytest.raises(Unreadable):
                from_bytes(content[:length])
