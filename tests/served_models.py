"""Predictors and exporters of models that tests export, load and serve."""

from typing import Any

import pyarrow as pa

from halving import TrainedRun


def predict(run: TrainedRun, table: pa.Table) -> list[str]:
    """By a threshold that the checkpoint holds."""
    threshold = run.restore(threshold=None)["threshold"]
    return ["high" if x > threshold else "low" for x in table["x"].to_pylist()]


def predict_numbers(run: TrainedRun, table: pa.Table) -> list[float]:
    slope = run.restore(slope=None)["slope"]
    return [float(x * slope[0] + run.params["offset"]) for x in table["x"].to_pylist()]


def predict_too_few(run: TrainedRun, table: pa.Table) -> list[str]:
    return ["high"]


def predict_by_its_data(run: TrainedRun, table: pa.Table) -> list[str]:
    return [run.dataset.name] * table.num_rows


def export_numbers(run: TrainedRun, wrong: float = 0.0) -> Any:
    """The line as a graph."""
    from onnx import TensorProto, helper

    slope = run.restore(slope=None)["slope"]
    nodes = [
        helper.make_node("Mul", ["x", "slope"], ["scaled"]),
        helper.make_node("Add", ["scaled", "offset"], ["y"]),
    ]
    constants = [
        helper.make_tensor("slope", TensorProto.DOUBLE, [1], [float(slope[0])]),
        helper.make_tensor("offset", TensorProto.DOUBLE, [1], [run.params["offset"] + wrong]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["rows"]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "line", [x], [y], initializer=constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def export_wrongly(run: TrainedRun) -> bytes:
    return bytes(export_numbers(run, wrong=1.0).SerializeToString())


def export_nothing(run: TrainedRun) -> str:
    return "nothing"


def export_raising(run: TrainedRun) -> bytes:
    raise KeyError("no such layer")
