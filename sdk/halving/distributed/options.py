"""The options of training a model on many ranks, and their checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from halving.distributed import exact, out_of_memory, precision
from halving.errors import InvalidInput

if TYPE_CHECKING:
    from torch import nn

SHARDS = ("ddp", "fsdp")


@dataclass(frozen=True, kw_only=True)
class Options:
    """See :func:`halving.distributed.training.distribute`.

    Raises:
        InvalidInput: a value is not accepted, or two do not go together.
    """

    precision: str = "fp32"
    accumulate: int | str = "auto"
    micro_batch: int | None = None
    clip: float | None = 1.0
    shard: str = "ddp"
    blocks: "Sequence[type[nn.Module]] | None" = None
    activation_checkpointing: bool = False
    compile: bool | Mapping[str, Any] = False
    exact: bool | int = False
    unused_parameters: bool = False
    skips: int = 3
    out_of_memory: str = "fail"

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options with these values; unknown names are refused."""
        names = [field.name for field in fields(cls)]
        for name, value in values.items():
            _check(name, value, name in names, f"run.distribute() takes {', '.join(names)}")
        return cls(**values)

    def __post_init__(self) -> None:
        for name, choices in (
            ("precision", precision.PRECISIONS),
            ("shard", SHARDS),
            ("out_of_memory", out_of_memory.CHOICES),
        ):
            value = getattr(self, name)
            _check(name, value, value in choices, f"give one of {', '.join(map(repr, choices))}")
        _check(
            "accumulate",
            self.accumulate,
            self.accumulate == "auto" or _is_whole(self.accumulate, 1),
            "give 'auto', or micro-batches: 1, 2, …",
        )
        _check(
            "micro_batch",
            self.micro_batch,
            self.micro_batch is None or _is_whole(self.micro_batch, 1),
            "give rows: 1, 2, …, or leave it out",
        )
        is_cut_once = self.accumulate == "auto" or self.micro_batch is None
        _check(
            "micro_batch",
            self.micro_batch,
            is_cut_once,
            f"leave it out with accumulate={self.accumulate!r}, which fixes the parts",
        )
        _check(
            "clip",
            self.clip,
            self.clip is None or _is_positive(self.clip),
            "give the largest norm of the gradients, above 0, or None",
        )
        _check("skips", self.skips, _is_whole(self.skips, 0), "give steps: 0, 1, 2, …")
        _check(
            "exact",
            self.exact,
            isinstance(self.exact, bool) or _is_whole(self.exact, 1),
            "give True, False, or the micro-batches of a batch",
        )
        is_flag = isinstance(self.activation_checkpointing, bool)
        _check(
            "activation_checkpointing",
            self.activation_checkpointing,
            is_flag,
            "give True or False, and in blocks=… the classes",
        )
        _check(
            "unused_parameters",
            self.unused_parameters,
            isinstance(self.unused_parameters, bool),
            "give True or False",
        )
        is_compile = isinstance(self.compile, (bool, Mapping))
        _check("compile", self.compile, is_compile, "give True, False, or a dict of options of torch.compile")
        are_classes = self.blocks is None or (
            isinstance(self.blocks, Sequence) and all(isinstance(each, type) for each in self.blocks)
        )
        _check("blocks", self.blocks, are_classes, "give a list of classes of modules")
        if self.exact:
            self._check_exact()

    @property
    def leaves(self) -> int | None:
        """The micro-batches of each global batch in an exact training, else None."""
        if self.exact is True:
            return exact.MICRO_BATCHES
        return self.exact or None

    def _check_exact(self) -> None:
        """Check the options that an exact training fixes, such as how a batch is cut."""
        for name, accepted in (
            ("shard", "ddp"),
            ("accumulate", "auto"),
            ("micro_batch", None),
            ("out_of_memory", "fail"),
        ):
            value = getattr(self, name)
            _check(
                name,
                value,
                value == accepted,
                (
                    f"with exact={self.exact!r} leave it out: how a batch is cut is fixed, on any number of "
                    "ranks"
                ),
            )


def _check(name: str, value: object, accepted: bool, advice: str) -> None:
    if not accepted:
        raise InvalidInput(f"{name} = {value!r} is not accepted: {advice}")


def _is_whole(value: object, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
