"""Steps whose loss or gradients are not finite: none is applied, and the rank that began it is named.

All ranks count the same steps. A NaN of one rank reaches all others by itself: gradients are summed over
ranks, and a loss that is not finite makes its rank's gradients NaN. So the norm of the summed gradients is
finite on all ranks or on none, and nothing needs to be exchanged until a step is bad. Before the sum, each
rank keeps on its device whether its own loss and gradients were finite, and its host reads that a step later.

``system/skipped_steps`` is logged at each step that was left out: how many of the attempt were. Beside it,
``system/nonfinite_loss/rank.K`` and ``system/nonfinite_gradients/rank.K`` count those that began with the
loss, or only with the gradients, of rank K.
"""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from halving.errors import Diverged, InvalidInput

if TYPE_CHECKING:
    import torch

    from halving.distributed.ranks import Ranks


Log = Callable[..., None]
"""A function of a dict of names and numbers, and ``step=``."""


class _Flags(NamedTuple):
    step: int
    flags: "torch.Tensor"  # on the host: whether the step was bad, this rank's loss, this rank's gradients
    copied: Any  # a CUDA event, or None

    def read(self) -> list[bool]:
        if self.copied is not None:
            self.copied.synchronize()
        return [bool(flag) for flag in self.flags.tolist()]


class NonFinite:
    """Counts the steps that are not finite, and ends the training after too many in a row.

    Args:
        skips: so many bad steps in a row are left out; the next one in a row ends the training.
        log: records the counts; None where nothing is recorded.

    Attributes:
        in_a_row: bad steps up to now, without a good one between them.
    """

    def __init__(self, ranks: "Ranks", device: "torch.device", skips: int, log: Log | None = None) -> None:
        import torch

        self._ranks = ranks
        self._device = device
        self._skips = skips
        self._log = log
        self._counts: Counter[str] = Counter()
        self.in_a_row = 0
        self._own = torch.zeros(2, device=device)  # this step's: loss, gradients
        self._pending: list[_Flags] = []
        self._refusal: str | None = None

    def look_at_loss(self, loss: "torch.Tensor") -> None:
        """Remember, without waiting for the device, whether this rank's loss is finite."""
        self._own[0] += ~loss.detach().isfinite()

    def look_at_gradients(self, *gradients: "torch.Tensor") -> None:
        """Remember whether this rank's gradients are finite, before they are summed over ranks.

        It does not wait for the device.
        """
        import torch

        # The smallest and the largest are NaN where any is. A norm might overflow, and on a CPU the largest
        # norm takes 25 times as long.
        extremes = [extreme for each in gradients if each.numel() for extreme in torch.aminmax(each)]
        if extremes:
            self._own[1] += ~torch.stack(extremes).isfinite().all()

    @property
    def refuses(self) -> bool:
        """Whether this rank has refused a step."""
        return self._refusal is not None

    def refuse(self, why: str) -> None:
        """Remember why this rank does not accept a step; it has made its gradients NaN.

        So no rank applies the step, and it is the last one.
        """
        self._refusal = why

    def end_where_refused(self) -> None:
        """Raise the same error on all ranks if one has refused a step; a collective.

        Raises:
            InvalidInput: a rank has.
        """
        refusals = [why for why in self._ranks.gather("training.step", self._refusal) if why]
        if refusals:
            raise InvalidInput(f"{refusals[0]}. No rank has applied this step")

    def forget(self) -> None:
        """Forget the flags of this step, because it is computed again."""
        self._own.zero_()

    def end_step(self, step: int, bad: "torch.Tensor") -> None:
        """Queue the flags of a step, which the host reads one step later.

        Args:
            bad: 0-d, on the device, the same on all ranks: whether the summed gradients are not finite.
        """
        import torch

        flags = torch.stack([bad.to(torch.float32), *self._own])
        self._own.zero_()
        if self._device.type != "cuda":
            self._pending.append(_Flags(step, flags, None))
            return
        host = torch.empty(3, pin_memory=True)
        host.copy_(flags, non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record(torch.cuda.current_stream(self._device))
        self._pending.append(_Flags(step, host, copied))

    def count(self, up_to: int, scale: "Callable[[], float] | None" = None) -> None:
        """Count the steps up to this one that were not finite; all ranks must call it for the same steps.

        Where one of them is bad, it is a collective.

        Args:
            scale: of fp16's losses. While it is above 1 a bad step with finite losses is one whose scale was
                too large: it is left out and the scale is halved, as it should be.

        Raises:
            Diverged: there were too many in a row.
            InvalidInput: a rank has refused one.
        """
        while self._pending and self._pending[0].step <= up_to:
            pending = self._pending.pop(0)
            bad, *own = pending.read()
            if not bad:
                self.in_a_row = 0
                continue
            self.end_where_refused()
            of_ranks = self._ranks.gather("training.step", own)
            if scale is not None and scale() > 1 and not any(loss for loss, _ in of_ranks):
                continue
            self.in_a_row += 1
            self._record(pending.step, of_ranks)
            self._tell(pending.step, _cause(of_ranks))

    def _record(self, step: int, of_ranks: list[list[bool]]) -> None:
        """Log how many steps were left out, and how many of those the ranks behind this one began."""
        what, ranks = _culprits(of_ranks)
        names = ["system/skipped_steps", *(f"system/nonfinite_{what}/rank.{rank}" for rank in ranks)]
        self._counts.update(names)
        if self._log is not None and self._ranks.leads:
            self._log({name: self._counts[name] for name in names}, step=step)

    def _tell(self, step: int, cause: str) -> None:
        if self.in_a_row > self._skips:
            raise Diverged(
                f"{cause} at step {step}: {self.in_a_row} in a row, of which at most {self._skips} are "
                "left out. None of them was applied, "
                "and the last checkpoint is good. Lower the learning rate, or look at the data of these steps"
            )
        if self._ranks.leads:
            warnings.warn(
                f"step {step} was left out: {cause} ({self.in_a_row} in a row of at most {self._skips})",
                stacklevel=4,
            )


def _cause(of_ranks: list[list[bool]]) -> str:
    """What was not finite, and on which ranks, as a phrase."""
    what, ranks = _culprits(of_ranks)
    if not ranks:
        return "the norm of the gradients was infinite"
    if len(ranks) > 1:
        return f"the {what} of ranks {', '.join(map(str, ranks))} were NaN or infinite"
    was = "was" if what == "loss" else "were"
    return f"the {what} of rank {ranks[0]} {was} NaN or infinite"


def _culprits(of_ranks: list[list[bool]]) -> tuple[str, list[int]]:
    """Whether losses or only gradients were not finite, and on which ranks.

    There are no ranks where only the sum of the gradients was not finite.
    """
    for place, what in enumerate(("loss", "gradients")):
        if ranks := [rank for rank, own in enumerate(of_ranks) if own[place]]:
            return what, ranks
    return "gradients", []
