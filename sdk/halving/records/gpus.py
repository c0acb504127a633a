"""The GPUs that a recorded process could see: those of ``nvidia-smi`` that ``CUDA_VISIBLE_DEVICES`` names."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_SLICE = "MIG-"  # begins the id of a part of a GPU, which nvidia-smi does not list with the GPUs


class SeenGpus(NamedTuple):
    """The number of GPUs that a process could see.

    Attributes:
        kind: the kind of the first one, as ``nvidia-smi`` calls it; None without one.
    """

    number: int
    kind: str | None


def visible_gpus(gpus: Sequence[str], named: str | None) -> list[str]:
    """The machine's GPUs that ``CUDA_VISIBLE_DEVICES`` names, by number or the beginning of an id.

    An entry that names no GPU ends the list.

    Args:
        gpus: lines of nvidia-smi: ``name, uuid, driver``.
        named: the variable; None where it is not set.
    """
    return [gpus[place] for place in _visible_places(gpus, named)]


def seen_gpus(hardware: Mapping[str, Any], named: Sequence[str | None] = ()) -> SeenGpus:
    """The GPUs of a record's ``hardware`` that its process could see; a slice of a GPU counts as one.

    Args:
        named: ``CUDA_VISIBLE_DEVICES`` of each process of that machine, where there were several; by default
            that of the record.
    """
    gpus: list[str] = hardware.get("gpus") or []
    settings = named or [(hardware.get("visible_gpus") or {}).get("CUDA_VISIBLE_DEVICES")]
    slices = {
        name.strip()
        for setting in settings
        for name in (setting or "").split(",")
        if name.strip().startswith(_SLICE)
    }
    if gpus and slices:
        return SeenGpus(len(slices), f"{_name_of(gpus[0])} {_SLICE.strip('-')}")
    places = sorted({place for setting in settings for place in _visible_places(gpus, setting)})
    if not places:
        return SeenGpus(0, None)
    return SeenGpus(len(places), _name_of(gpus[places[0]]))


def _visible_places(gpus: Sequence[str], named: str | None) -> list[int]:
    if named is None:
        return list(range(len(gpus)))
    places = []
    for name in (part.strip() for part in named.split(",")):
        matches = [
            place
            for place, gpu in enumerate(gpus)
            if name and (name == str(place) or _id_of(gpu).startswith(name))
        ]
        if not matches:
            break
        places.append(matches[0])
    return places


def _name_of(gpu: str) -> str:
    return gpu.partition(",")[0].strip()


def _id_of(gpu: str) -> str:
    return gpu.partition(",")[2].partition(",")[0].strip()
