"""What two trainings may differ in, as their records have it: code, arguments, data, params, epochs, seed,
settings, environment.
"""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
"""In the order in which they are shown."""
TRAINABLE_SOURCE = "the trainable's source"
"""Stands for the code of an image, which has no commit."""
_ENVIRONMENT = ("settings", "python", "packages", "hardware", "image")
# of what determinism is recorded by: they follow from the machine, and from the packages
_NO_SETTINGS = ("torch.threads", "torch.cuda")
_NOT_RECORDED = object()  # by an earlier version: nobody knows whether it differs

_OWN = ("halving", "halving-platform")  # these record and train again, and are no part of what is trained


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    Attributes:
        factor: one of :data:`FACTORS`.
        name: of what, for example a package's or a param's.
        recorded, now: its two values as a person reads them; None where there is none.
    """

    factor: str
    name: str
    recorded: Any
    now: Any

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.factor}: {self.name} was {_shown(self.recorded)}, is {_shown(self.now)}"


def differences(recorded: RunInfo, now: RunInfo) -> list[Difference]:
    """Every factor in which two runs differ, as their first attempts have it."""
    ours = _facts(recorded.record)
    theirs = _facts(now.record)
    ours["image"], theirs["image"] = _images(
        recorded.record.get("provenance") or {}, now.record.get("provenance") or {}
    )
    return [found for factor in FACTORS for found in _compared(factor, ours[factor], theirs[factor])]


def environment_differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """What differs between a recorded environment and another, each as
    :func:`halving.records.provenance.environment` gives it.
    """
    ours = environment_facts(recorded)
    theirs = environment_facts(now)
    ours["image"], theirs["image"] = _images(recorded, now)
    found = [
        found for factor in _ENVIRONMENT[1:] for found in _compared(factor, ours[factor], theirs[factor])
    ]
    return [*found, *_local_sources(recorded, now)]


def epochs_difference(recorded: int | None, now: int | None) -> list[Difference]:
    """How far two trials were trained, if that differs. It is in their checkpoints, not in their records."""
    return _compared("epochs", {"trained for": recorded}, {"trained for": now})


def _local_sources(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Packages that were installed from a folder or file outside the checkout: nobody knows whether those are
    what they were.
    """
    there = {_normal(name): version for name, version in (now.get("packages") or {}).items()}
    return [
        Difference(
            "packages", _normal(name), f"from {origin}, which is not recorded", there.get(_normal(name))
        )
        for name, origin in local_origins(recorded).items()
    ]


def local_origins(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Packages of an environment that were installed from a folder or file outside the checkout, and from
    which, as ``file:`` address.
    """
    origins = (provenance.get("packages_from") or {}).items()
    return {
        name: origin for name, origin in origins if origin.startswith("file:") and _normal(name) not in _OWN
    }


def _facts(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each factor its names and values."""
    provenance = record.get("provenance") or {}
    parent = record["parent"]
    git = provenance.get("git") or {}
    determinism = record.get("determinism") or {}
    trial = record.get("trial") or {}
    start = trial.get("start_from") or {}
    found = {
        "code": {
            "commit": git.get("commit"),
            "changes over it": git.get("patch"),
            "trainable": parent.get("trainable"),
            TRAINABLE_SOURCE: None if git.get("commit") else parent.get("trainable_sha256"),
        },
        "arguments": {} if trial else {"command": _command(provenance)},
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
    found["hardware"]["torch.threads"] = determinism.get("torch.threads")
    if "cuda" not in provenance and "torch.cuda" in determinism:  # where an earlier version had it
        found["packages"]["the CUDA of PyTorch"] = determinism["torch.cuda"]
    found["hardware"]["processes"] = world_size_of(trial.get("resources"))
    return found


def world_size_of(resources: Mapping[str, Any] | None) -> int:
    """In how many processes a trial with these recorded resources trained; a record from before there were
    gangs says nothing of them.
    """
    given = resources or {}
    return int(given.get("nodes", 1)) * int(given.get("processes", 1))


def resized_attempts(info: RunInfo) -> list[Difference]:
    """The attempts of a trial whose resources went by its rung, in another number of processes than the
    first: a rerun has that one's.
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
    """The attempts of a trial that ended because a micro-batch was too large: a rerun has half of it from its
    first step.

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
    """Of Python, packages, hardware and image what counts as a difference: names and values."""
    python = provenance.get("python") or {}
    hardware = provenance.get("hardware") or {}
    origins = {_normal(name): origin for name, origin in (provenance.get("packages_from") or {}).items()}
    gpus = visible_gpus(
        hardware.get("gpus") or [], (hardware.get("visible_gpus") or {}).get("CUDA_VISIBLE_DEVICES")
    )
    return {
        "python": {python.get("implementation") or "Python": python.get("version")},
        "packages": {
            name: _with_origin(version, origins.get(name))
            for name, version in (
                (_normal(name), version) for name, version in (provenance.get("packages") or {}).items()
            )
        }
        | {"the CUDA of PyTorch": provenance.get("cuda", _NOT_RECORDED)},
        "hardware": {
            **{name: hardware.get(name) for name in ("machine", "platform", "cpus")},
            "GPUs": "; ".join(map(_without_id, gpus)) or None,
        },
        "image": {"image": provenance.get("image")},
    }


def exact_image(provenance: Mapping[str, Any]) -> str | None:
    """The image that a process ran in, by its digest (``registry/train@sha256:…``) where its cluster has told
    it; else as it was named.
    """
    named = provenance.get("image")
    digest = provenance.get("image_digest")
    if not named or not digest or "@" in named or named.startswith(DIGEST):
        return named
    folder, _, last = named.rpartition("/")
    repository = "/".join(filter(None, [folder, last.partition(":")[0]]))
    return f"{repository}@{digest}"


def same_image(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two processes ran in one image, by their provenance: by its digest where that is known of both,
    else by its name.
    """
    first, second = _images(one, other)
    return first == second


def _images(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The images of two processes as they can be compared."""
    exact = exact_image(one), exact_image(other)
    if not all(image and DIGEST in image for image in exact):
        return {"image": one.get("image")}, {"image": other.get("image")}
    return {"image": exact[0]}, {"image": exact[1]}


def _compared(factor: str, recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    names = sorted(recorded.keys() | now.keys())
    return [
        Difference(factor, name, recorded.get(name), now.get(name))
        for name in names
        if not _same(recorded.get(name), now.get(name))
    ]


def _same(one: Any, other: Any) -> bool:
    if one is _NOT_RECORDED or other is _NOT_RECORDED:
        return True
    return bool(one == other) or (one != one and other != other)  # NaN is the same as NaN here


def _normal(package: str) -> str:
    return package.lower().replace("_", "-").replace(".", "-")


def _with_origin(version: str, origin: str | None) -> str:
    """The version, and where it was not taken from an index or from files, of which repository's commit or of
    what address it is.
    """
    return f"{version} ({origin})" if origin and not origin.startswith((CHECKOUT, "file:")) else version


def _command(provenance: Mapping[str, Any]) -> str | None:
    return shlex.join(provenance.get("arguments") or ()) or None


def _objective(rule: Mapping[str, Any]) -> str:
    of = (
        f"{rule.get('summary')} of {rule['window']}"
        if rule.get("summary") == "average"
        else rule.get("summary")
    )
    return f"{rule.get('metric')} ({of}, {'maximize' if rule.get('maximize') else 'minimize'})"


def _without_id(gpu: str) -> str:
    """``NVIDIA A100, driver 550.54`` of nvidia-smi's ``name, uuid, driver``: another GPU of the same kind is
    the same hardware.
    """
    name, _, driver = ([part.strip() for part in gpu.split(",")] + ["", ""])[:3]
    return f"{name}, driver {driver}" if driver else name


def _shown(value: Any) -> str:
    return "missing" if value is None else str(value)
