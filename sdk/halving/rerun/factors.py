"""The factors in which two trainings may differ, by their records: code, data, params and so on."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from halving.query.runs import RunInfo
from halving.records.gpus import visible_gpus
from halving.records.provenance import CHECKOUT, DIGEST

FACTORS = (
    "code",
    "arguments",
    "data",
    "params",
    "epochs",
    "seed",
    "settings",
    "python",
    "packages",
    "hardware",
    "image",
)
"""In the order in which they are printed."""
TRAINABLE_SOURCE = "the trainable's source"
"""The name for the code of an image, which has no commit."""
_ENVIRONMENT = ("python", "packages", "hardware", "image")
# These entries of the recorded determinism depend on the machine and the packages.
_NO_SETTINGS = ("torch.threads", "torch.cuda")
_NOT_RECORDED = object()  # for a fact that an earlier version did not record, which may differ or not

_OWN = ("halving", "halving-platform")  # These record and train again, but are no part of the training.


@dataclass(frozen=True)
class Difference:
    """One fact that differs.

    Attributes:
        factor: one of :data:`FACTORS`.
        name: the name of the fact, such as a package's or a param's.
        recorded, now: its two values as text for people; None where there is none.
    """

    factor: str
    name: str
    recorded: Any
    now: Any

    def as_dict(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.factor}: {self.name} was {_text(self.recorded)}, is {_text(self.now)}"


def differences(recorded: RunInfo, now: RunInfo) -> list[Difference]:
    """The differences of two runs, by the records of their first attempts."""
    ours = _facts(recorded.record)
    theirs = _facts(now.record)
    ours["image"], theirs["image"] = _images(
        recorded.record.get("provenance") or {}, now.record.get("provenance") or {}
    )
    return [difference for factor in FACTORS for difference in _compare(factor, ours[factor], theirs[factor])]


def environment_differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """The differences of two results of :func:`halving.records.provenance.environment`."""
    ours = environment_facts(recorded)
    theirs = environment_facts(now)
    ours["image"], theirs["image"] = _images(recorded, now)
    compared = [_compare(factor, ours[factor], theirs[factor]) for factor in _ENVIRONMENT]
    return [*chain.from_iterable(compared), *_local_sources(recorded, now)]


def epochs_difference(recorded: int | None, now: int | None) -> list[Difference]:
    """The difference of the epochs of two trials, which are in their checkpoints, not in their records."""
    return _compare("epochs", {"trained for": recorded}, {"trained for": now})


def _local_sources(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Packages from a folder or file outside the checkout, whose content may have changed."""
    versions = {_normal(name): version for name, version in (now.get("packages") or {}).items()}
    return [
        Difference(
            "packages", _normal(name), f"from {origin}, which is not recorded", versions.get(_normal(name))
        )
        for name, origin in local_origins(recorded).items()
    ]


def local_origins(provenance: Mapping[str, Any]) -> dict[str, str]:
    """The ``file:`` addresses of packages that were installed from outside the checkout, by name."""
    origins = (provenance.get("packages_from") or {}).items()
    return {
        name: origin for name, origin in origins if origin.startswith("file:") and _normal(name) not in _OWN
    }


def _facts(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The names and values of each factor."""
    provenance = record.get("provenance") or {}
    parent = record["parent"]
    git = provenance.get("git") or {}
    determinism = record.get("determinism") or {}
    trial = record.get("trial") or {}
    start = trial.get("start_from") or {}
    facts: dict[str, dict[str, Any]] = {
        "code": {
            "commit": git.get("commit"),
            "changes over it": git.get("patch"),
            "trainable": parent.get("trainable"),
        },
        "arguments": {},
        "data": {
            **{name: parent.get(name) for name in ("dataset", "snapshot")},
            "train_on": ", ".join(trial.get("train_on", ("train",))),
        },
        "params": dict(record["params"]),
        "epochs": {"max_epochs": trial.get("max_epochs")},
        "seed": {"seed": record.get("seed")},
        "settings": {
            **{name: value for name, value in determinism.items() if name not in _NO_SETTINGS},
            "start_from": start.get("digest"),
            "objectives": "; ".join(map(_objective, trial.get("objectives", ()))) or None,
        },
        **environment_facts(provenance),
    }
    if not git.get("commit"):
        facts["code"][TRAINABLE_SOURCE] = parent.get("trainable_sha256")
    if not trial:
        facts["arguments"]["command"] = _command(provenance)
    facts["hardware"]["torch.threads"] = determinism.get("torch.threads")
    if "cuda" not in provenance and "torch.cuda" in determinism:  # An earlier version recorded it there.
        facts["packages"]["the CUDA of PyTorch"] = determinism["torch.cuda"]
    facts["hardware"]["processes"] = world_size_of(trial.get("resources"))
    return facts


def world_size_of(resources: Mapping[str, Any] | None) -> int:
    """The number of processes of a trial, by its recorded resources; 1 in a record without them."""
    counts = resources or {}
    return int(counts.get("nodes", 1)) * int(counts.get("processes", 1))


def resized_attempts(info: RunInfo) -> list[Difference]:
    """Attempts of a trial with other numbers of processes than the first, which a rerun's number is.

    The resources of a trial may depend on its rung.
    """
    first = world_size_of((info.record.get("trial") or {}).get("resources"))
    later = {
        number: world_size_of((start.get("trial") or {}).get("resources"))
        for number, start in info.starts.items()
    }
    return [
        Difference("hardware", f"processes of attempt {number}", size, f"{first}, as of attempt 1")
        for number, size in later.items()
        if size != first
    ]


def halved_attempts(too_large: Mapping[int, int]) -> list[Difference]:
    """Attempts of a trial that ended because a micro-batch was too large; a rerun halves it from the start.

    Args:
        too_large: attempt to the rows of that micro-batch
            (:func:`halving.distributed.out_of_memory.too_large_by_attempt`).
    """
    return [
        Difference(
            "hardware",
            f"micro-batch of attempt {attempt}",
            f"{rows} rows, too many for a rank's memory",
            "half of them",
        )
        for attempt, rows in too_large.items()
    ]


def environment_facts(provenance: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The names and values of Python, packages, hardware and image that count as differences."""
    python = provenance.get("python") or {}
    hardware = provenance.get("hardware") or {}
    origins = {_normal(name): origin for name, origin in (provenance.get("packages_from") or {}).items()}
    versions = {_normal(name): version for name, version in (provenance.get("packages") or {}).items()}
    gpus = visible_gpus(
        hardware.get("gpus") or [], (hardware.get("visible_gpus") or {}).get("CUDA_VISIBLE_DEVICES")
    )
    return {
        "python": {python.get("implementation") or "Python": python.get("version")},
        "packages": {
            **{name: _with_origin(version, origins.get(name)) for name, version in versions.items()},
            "the CUDA of PyTorch": provenance.get("cuda", _NOT_RECORDED),
        },
        "hardware": {
            **{name: hardware.get(name) for name in ("machine", "platform", "cpus")},
            "GPUs": "; ".join(map(_without_id, gpus)) or None,
        },
        "image": {"image": provenance.get("image")},
    }


def exact_image(provenance: Mapping[str, Any]) -> str | None:
    """The image of a process, by its digest (``registry/train@sha256:…``) if recorded, else by its name."""
    named = provenance.get("image")
    digest = provenance.get("image_digest")
    if not named or not digest or "@" in named or named.startswith(DIGEST):
        return named
    folder, _, last = named.rpartition("/")
    repository = "/".join(filter(None, [folder, last.partition(":")[0]]))
    return f"{repository}@{digest}"


def same_image(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two processes ran in the same image, by its digest if both have recorded one, else by name."""
    ours, theirs = _images(first, second)
    return ours == theirs


def _images(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The images of two processes in a form that can be compared."""
    exact = exact_image(first), exact_image(second)
    if not all(image and DIGEST in image for image in exact):
        return {"image": first.get("image")}, {"image": second.get("image")}
    return {"image": exact[0]}, {"image": exact[1]}


def _compare(factor: str, recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    names = sorted(recorded.keys() | now.keys())
    return [
        Difference(factor, name, recorded.get(name), now.get(name))
        for name in names
        if not _same(recorded.get(name), now.get(name))
    ]


def _same(value: Any, other: Any) -> bool:
    if value is _NOT_RECORDED or other is _NOT_RECORDED:
        return True
    return bool(value == other) or (value != value and other != other)  # NaN equals NaN here.


def _normal(package: str) -> str:
    return package.lower().replace("_", "-").replace(".", "-")


def _with_origin(version: str, origin: str | None) -> str:
    """The version, and its repository's commit or its address, if it is not from an index or from files."""
    if not origin or origin.startswith((CHECKOUT, "file:")):
        return version
    return f"{version} ({origin})"


def _command(provenance: Mapping[str, Any]) -> str | None:
    return shlex.join(provenance.get("arguments") or ()) or None


def _objective(rule: Mapping[str, Any]) -> str:
    summary = rule.get("summary")
    if summary == "average":
        summary = f"average of {rule['window']}"
    direction = "maximize" if rule.get("maximize") else "minimize"
    return f"{rule.get('metric')} ({summary}, {direction})"


def _without_id(gpu: str) -> str:
    """``NVIDIA A100, driver 550.54`` for ``name, uuid, driver``, because equal GPUs are the same hardware."""
    name, _, driver = ([part.strip() for part in gpu.split(",")] + ["", ""])[:3]
    if not driver:
        return name
    return f"{name}, driver {driver}"


def _text(value: Any) -> str:
    if value is None:
        return "missing"
    return str(value)
