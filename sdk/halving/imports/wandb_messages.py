"""The messages in a ``.wandb`` file that are read here: a part of W&B's ``wandb_internal.proto``.

They are described by their field numbers, so the package ``wandb`` is not needed. Protocol Buffers passes
over fields that are not named here.
"""

from functools import cache
from importlib import import_module
from typing import Any

from halving.errors import ExtraMissing, HalvingError

# Each message's fields with their number and type; a type with * is repeated.
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Record": {
        "history": (2, "HistoryRecord"),
        "summary": (3, "SummaryRecord"),
        "config": (5, "ConfigRecord"),
        "stats": (7, "StatsRecord"),
        "artifact": (8, "ArtifactRecord"),
        "tbrecord": (9, "Unread"),
        "alert": (10, "Unread"),
        "metric": (12, "MetricRecord"),
        "output_raw": (13, "OutputRawRecord"),
        "run": (17, "RunRecord"),
        "exit": (18, "RunExitRecord"),
        "use_artifact": (25, "Unread"),
        "environment": (26, "EnvironmentRecord"),
    },
    "Timestamp": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "GitRepoRecord": {"remote_url": (1, "string"), "commit": (2, "string")},
    "RunRecord": {
        "run_id": (1, "string"),
        "entity": (2, "string"),
        "project": (3, "string"),
        "config": (4, "ConfigRecord"),
        "summary": (5, "SummaryRecord"),
        "run_group": (6, "string"),
        "job_type": (7, "string"),
        "display_name": (8, "string"),
        "notes": (9, "string"),
        "tags": (10, "string*"),
        "sweep_id": (12, "string"),
        "host": (13, "string"),
        "start_time": (17, "Timestamp"),
        "git": (21, "GitRepoRecord"),
    },
    "ConfigRecord": {"update": (1, "Item*"), "remove": (2, "Item*")},
    "SummaryRecord": {"update": (1, "Item*"), "remove": (2, "Item*")},
    "HistoryRecord": {"item": (1, "Item*"), "step": (2, "HistoryStep")},
    "HistoryStep": {"num": (1, "int64")},
    "Item": {  # of a config, a summary and a history; only a history's has more than value_json
        "key": (1, "string"),
        "nested_key": (2, "string*"),
        "boolean": (4, "bool"),
        "integer": (5, "sint64"),
        "number": (6, "double"),
        "text": (7, "string"),
        "json": (8, "string"),
        "value_json": (16, "string"),
    },
    "StatsRecord": {"timestamp": (2, "Timestamp"), "item": (3, "StatsItem*")},
    "StatsItem": {"key": (1, "string"), "value_json": (16, "string")},
    "MetricRecord": {"step_metric": (4, "string"), "expanded_from_glob": (10, "bool")},
    "ArtifactRecord": {"type": (4, "string")},
    "OutputRawRecord": {"timestamp": (2, "Timestamp")},
    "RunExitRecord": {"exit_code": (1, "int32")},
    "EnvironmentRecord": {
        "os": (1, "string"),
        "python": (2, "string"),
        "args": (5, "string*"),
        "program": (6, "string"),
        "git": (9, "GitRepoRecord"),
        "host": (12, "string"),
        "executable": (14, "string"),
        "cpu_count_logical": (17, "uint32"),
        "gpu_type": (18, "string"),
        "gpu_count": (19, "uint32"),
        "memory": (21, "MemoryInfo"),
        "gpu_nvidia": (24, "GpuNvidiaInfo*"),
    },
    "MemoryInfo": {"total": (1, "uint64")},
    "GpuNvidiaInfo": {"name": (1, "string")},
    "Unread": {},  # what is only counted
}


class NoMessage(HalvingError, ValueError):
    """Bytes that are not a message of W&B's."""


@cache
def record_class() -> Any:
    """The class ``Record``, in a pool of its own, so that it can coexist with W&B's.

    Raises:
        ExtraMissing: Protocol Buffers is not installed.
    """
    try:
        descriptors = import_module("google.protobuf.descriptor_pb2")
        pools = import_module("google.protobuf.descriptor_pool")
        factory = import_module("google.protobuf.message_factory")
    except ImportError:
        raise ExtraMissing("W&B's files need the package protobuf: pip install 'halving[wandb]'") from None
    kinds = descriptors.FieldDescriptorProto
    file = descriptors.FileDescriptorProto(
        name="halving/wandb.proto", package="halving.wandb", syntax="proto2"
    )
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            type_name = kind.rstrip("*")
            field = described.field.add(name=name, number=number)
            field.label = kinds.LABEL_OPTIONAL
            if kind.endswith("*"):
                field.label = kinds.LABEL_REPEATED
            if type_name in _FIELDS:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".halving.wandb.{type_name}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{type_name.upper()}")
    pool = pools.DescriptorPool()
    pool.Add(file)
    return factory.GetMessageClass(pool.FindMessageTypeByName("halving.wandb.Record"))


def parse(data: bytes) -> Any:
    """Parse a record.

    Raises:
        NoMessage: it is none.
    """
    kind = record_class()
    try:
        return kind.FromString(data)
    except import_module("google.protobuf.message").DecodeError as error:
        raise NoMessage(f"{len(data)} bytes are no record of W&B's ({error})") from None


def milliseconds(time: Any) -> int:
    """Convert a ``Timestamp`` to ms since 1970; 0 if it was not set."""
    return int(time.seconds * 1000 + time.nanos // 1_000_000)
