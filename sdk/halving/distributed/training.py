"""One training step on any number of ranks: what ``run.distribute`` returns.

The step is the unit, because everything that concerns a batch happens around its loss: it is cut into
micro-batches, computed in mixed precision, summed over ranks, clipped, left out where it is not finite, and
computed again where memory was not enough.
"""

import secrets
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from halving.distributed import exact, out_of_memory, wrapping
from halving.distributed.accepted import check_model, check_optimizer, check_trained
from halving.distributed.ddp import Ddp, unused_in
from halving.distributed.keyed_random import generators_kept, key_generators
from halving.distributed.micro_batches import bounds, micro_batch_count, part_of, rows_of
from halving.distributed.nonfinite import Log, NonFinite
from halving.distributed.options import Options
from halving.distributed.out_of_memory import MemoryNotes
from halving.distributed.precision import Precision
from halving.errors import InvalidInput, MicroBatchTooLarge, OutOfMemory

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

    from halving.distributed.ranks import Ranks

Loss = Callable[..., Any]
"""``loss(model, *batch)``: the mean loss over a batch's rows, a 0-d tensor."""
_WARM_UPS = 2  # backward passes after which DDP has its final buckets


def distribute(
    ranks: "Ranks",
    device: "torch.device",
    model: "nn.Module",
    optimizer: "Optimizer",
    *,
    seed: int | None = None,
    notes: MemoryNotes | None = None,
    log: Log | None = None,
    **options: Any,
) -> "Training":
    """Prepare the training of a model on all ranks, or on the only one.

    The model is changed in place (moved to the device, its blocks wrapped, its parameters sharded) and
    remains what is evaluated and saved, under the names that its parameters have always had. All ranks begin
    with rank 0's parameters. Parameters may be frozen and unfrozen between steps, the same ones on all ranks.

    Args:
        ranks: the ranks that train together.
        device: the device of this rank.
        optimizer: over parameters of the model; where they are sharded it must not have made steps yet.
        seed: the seed of the random numbers within a step; None: rank 0 draws one.
        notes: of earlier attempts that ended because memory was not enough.
        log: records how many steps were left out because they were not finite.
        precision: ``"fp32"``, ``"bf16"``, or ``"fp16"`` with scaled losses; parameters and optimizer are fp32
            always.
        accumulate: into how many micro-batches each rank cuts its share of a batch, or ``"auto"``: as many as
            keep a micro-batch no larger than ``micro_batch``, or where that is not given, than it was when
            the training began. So the global batch, and with it the training, is the same on any number of
            ranks. No part is empty: where a rank's share has fewer rows than that, all ranks cut theirs into
            as many parts as it has rows.
        micro_batch: the most rows that a rank computes at once; not beside a number for ``accumulate``.
        clip: the largest norm of the gradients, over all ranks; None does not clip.
        shard: ``"ddp"`` keeps the whole model on every rank, ``"fsdp"`` (FSDP2) a part of it.
        blocks: the classes of the modules that are checkpointed, compiled and sharded one by one; by default
            the members of the model's longest ``ModuleList``, else of its longest ``Sequential``.
        activation_checkpointing: compute the blocks' activations again in the backward pass instead of
            keeping them.
        compile: compile the blocks; a dict gives options of ``torch.compile``.
        exact: the same bits on any number of ranks (:mod:`halving.distributed.exact`); a number says into how
            many micro-batches each global batch is cut (8).
        unused_parameters: the loss may leave parameters unused, on all ranks or on some; without it all that
            require gradients must take part with DDP, and the same ones always with FSDP2. An exact training
            accepts them without this option.
        skips: so many steps in a row whose loss or gradients are not finite are left out; the next one raises
            ``Diverged``.
        out_of_memory: ``"fail"``, or ``"halve"``: one more try with half the micro-batch.

    Raises:
        InvalidInput: an argument is not accepted; the model is wrapped already, or has nothing to train, or
            trains in half precision; the optimizer has parameters that are not the model's, or wants a
            closure.
    """
    chosen = Options.of(options)
    check_model(model)
    check_optimizer(optimizer, model)
    if chosen.leaves is not None:
        exact.check_leaves(chosen.leaves, ranks.world_size)
        exact.check_exact(model, device)
    is_sharded = chosen.shard == "fsdp" and ranks.world_size > 1
    precision = Precision(chosen.precision, device, cast_by_model=is_sharded)
    nonfinite = NonFinite(ranks, device, chosen.skips, log)

    # Before any other collective: it is the one that names what each rank has called.
    def begin() -> list[int | None]:
        shared_seed = secrets.randbits(62) if seed is None else seed
        too_large = notes.too_large() if notes else None
        return [shared_seed, too_large]

    drawn, too_large = ranks.together("run.distribute()", begin)
    wrapping.prepare(ranks, device, model, optimizer, chosen, precision, nonfinite)
    ddp = None
    if ranks.world_size > 1 and chosen.shard == "ddp" and chosen.leaves is None:
        ddp = Ddp(model, device, nonfinite.look_at_gradients, unused_parameters=chosen.unused_parameters)
    return Training(
        ranks, device, model, ddp, optimizer, chosen, precision, nonfinite, drawn, notes, too_large
    )


class Training:
    """The training of a model by an optimizer. Get one from :func:`distribute`.

    Attributes:
        steps: the number of steps so far, also of those that were left out.
        micro_batch: the most rows that a rank computes at once; None before the first step, and where
            ``accumulate`` is a number.
        gradient_norm: the norm of the last step's gradients, over all ranks and before clipping: 0-d, on the
            device.
    """

    def __init__(
        self,
        ranks: "Ranks",
        device: "torch.device",
        model: "nn.Module",
        ddp: Ddp | None,
        optimizer: "Optimizer",
        options: Options,
        precision: Precision,
        nonfinite: NonFinite,
        seed: int,
        notes: MemoryNotes | None,
        too_large: int | None,
    ) -> None:
        self.steps = 0
        self.micro_batch = options.micro_batch
        self.gradient_norm: torch.Tensor | None = None
        self._ranks = ranks
        self._device = device
        self._model = model
        self._ddp = ddp
        self._optimizer = optimizer
        self._options = options
        self._precision = precision
        self._nonfinite = nonfinite
        self._seed = seed
        self._notes = notes
        self._halved = False
        self._warm_ups = self._needed_warm_ups()
        self._parameters = dict(model.named_parameters())
        self._are_trained = self._gradient_flags()
        if too_large is not None:
            self._halve(too_large)

    def step(self, loss: Loss, *batch: Any) -> "torch.Tensor":
        """Make one step of the optimizer.

        Args:
            loss: called as ``loss(model, *batch)`` with some of the batch's rows, on the device; it gives
                their *mean* loss, a 0-d tensor. Use the model that it is given. It may be called more than
                once for the same rows.
            batch: this rank's share of a global batch, as a loader of ``run.dataset`` deals it: tensors,
                arrays or lists with the rows as first dimension, or dicts and tuples of them. Arrays become
                tensors; anything else is handed on as it is.

        Returns:
            The mean loss over the rows of all ranks, 0-d on the device. To log it does not wait for the
            device.

        Raises:
            Diverged: too many steps in a row had a loss or gradients that are not finite. None of them was
                applied.
            OutOfMemory: memory was not enough, also with half the micro-batch if that is allowed.
            MicroBatchTooLarge: memory was not enough for one of several ranks, and the trial's next attempt
                begins with the half.
            InvalidInput: the batch has no rows or differing numbers of them, or the loss is no function or
                not one number; the ranks train different parameters, or the loss leaves some of them unused;
                no rank has applied the step then.
        """
        import torch.distributed as dist

        if not callable(loss):
            raise InvalidInput(
                f"a loss of type {type(loss).__name__} is not accepted: give training.step(loss, *batch) "
                "the function loss(model, *batch)"
            )
        rows = self._begin_together(rows_of(batch))
        buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]
        self._optimizer.zero_grad(set_to_none=True)
        while True:
            try:
                compute = self._sum_exactly if self._options.leaves else self._accumulate
                with generators_kept(self._device):
                    mean = compute(loss, batch, rows)
                break
            except Exception as error:
                if not out_of_memory.is_out_of_memory(error):
                    raise
                self._handle_out_of_memory(error, rows)
            self._begin_again(buffers)
        # The optimizer makes its step meanwhile; an exact mean is that of all ranks already.
        summing = None
        if self._ranks.world_size > 1 and not self._options.leaves:
            summing = dist.all_reduce(mean, async_op=True)
        try:
            self._update(buffers)
        except Exception as error:
            if not out_of_memory.is_out_of_memory(error):
                raise
            raise OutOfMemory(
                f"rank {self._ranks.rank} ran out of memory in the optimizer's step: {self._memory()}"
            ) from error
        if summing is not None:
            summing.wait()
        return mean

    def state_dict(self) -> dict[str, Any]:
        """Plain data from which a training resumes as if it had not been interrupted, on any number of ranks.

        It is the same on all ranks.
        """
        return {
            "steps": self.steps,
            "seed": self._seed,
            "micro_batch": self.micro_batch,
            "halved": self._halved,
            "left_out": self._nonfinite.in_a_row,
            "scaler": self._precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned."""
        self.steps = state["steps"]
        self._seed = state["seed"]
        self._nonfinite.in_a_row = state["left_out"]
        self._precision.load_state_dict(state["scaler"])
        if self._options.micro_batch is None or state["halved"]:
            sizes = [size for size in (state["micro_batch"], self.micro_batch) if size is not None]
            self.micro_batch = min(sizes, default=None)
        self._halved = self._halved or state["halved"]

    def _begin_together(self, own: int) -> list[int]:
        """Exchange the rows of each rank's share and the parameters that it trains; return the rows of each.

        It waits for the other ranks' processes, not for any device.

        Raises:
            InvalidInput: they train different parameters, or a rank has left out the last step for an error
                of which the others hear now.
        """
        import torch
        import torch.distributed as dist

        if self._ranks.world_size == 1:
            return [own]
        trained = self._gradient_flags()
        of_all = [torch.empty(3, dtype=torch.int64) for _ in range(self._ranks.world_size)]
        dist.all_gather(of_all, torch.tensor([own, zlib.crc32(trained), self._nonfinite.refuses]))
        rows, sets, refusals = (list(each) for each in zip(*(sent.tolist() for sent in of_all), strict=True))
        if any(refusals):
            self._nonfinite.end_where_refused()
        if len(set(sets)) > 1:
            self._refuse_different_sets(trained)
        if trained != self._are_trained:
            self._train(trained)
        return rows

    def _gradient_flags(self) -> bytes:
        """Which of the model's parameters require gradients, a byte each. It takes 30 ns for each."""
        return bytes([each.requires_grad for each in self._parameters.values()])

    def _train(self, trained: bytes) -> None:
        """Train other parameters than before, from this step on.

        DDP sums the gradients only of those that required them when it was made.
        """
        check_trained(self._model)
        self._are_trained = trained
        if self._ddp is not None:
            self._ddp.wrap_again()
            self._warm_ups = self._needed_warm_ups()
        if self._options.shard == "fsdp":
            wrapping.sum_shards(self._model, self._ranks, self._nonfinite.look_at_gradients)

    def _needed_warm_ups(self) -> int:
        """How many backward passes DDP needs until its buckets are final.

        DDP that finds unused parameters keeps its first buckets, and two numbers have one sum in any order.
        """
        if self._ddp is None or self._ranks.world_size <= 2 or self._options.unused_parameters:
            return 0
        return _WARM_UPS

    def _refuse_different_sets(self, trained: bytes) -> None:
        """Raise an error that names a parameter that only some ranks train; a collective."""
        of_ranks = [bytes.fromhex(text) for text in self._ranks.gather("training.step", trained.hex())]
        name, flags = next(
            (name, flags)
            for name, *flags in zip(self._parameters, *of_ranks, strict=True)
            if len(set(flags)) > 1
        )
        own = [rank for rank, flag in enumerate(flags) if flag]
        others = [rank for rank, flag in enumerate(flags) if not flag]
        raise InvalidInput(
            f"the parameter {name!r} requires gradients on rank {own[0]} and none on rank {others[0]}, "
            "which is not accepted: every rank "
            "must freeze and unfreeze the same parameters before the same step"
        )

    def _accumulate(self, loss: Loss, batch: Sequence[Any], rows: Sequence[int]) -> "torch.Tensor":
        """Compute the gradients of the mean loss over all rows; return this rank's part of that mean."""
        import torch

        options = self._options
        rank = self._ranks.rank
        world_size = self._ranks.world_size
        if options.accumulate == "auto" and self.micro_batch is None:
            self.micro_batch = max(rows)
        parts = bounds(rows[rank], self._count(rows))
        self._warm_up(loss, part_of(batch, *parts[0], self._device))
        mean = torch.zeros((), device=self._device)
        for number, (first, end) in enumerate(parts):
            key_generators(self._device, self._seed, self.steps, rank, number)
            weight = (end - first) / sum(rows)
            # FSDP2 sums gradients over ranks with each micro-batch, for it keeps only shards.
            summing: AbstractContextManager[None] = nullcontext()
            if self._ddp is not None:
                summing = self._ddp.summing(is_last=number == len(parts) - 1)
            with summing:
                # DDP and FSDP2 give the mean over ranks, and what is wanted is the sum.
                mean += weight * self._backward(
                    loss, part_of(batch, first, end, self._device), weight * world_size
                )
        return mean

    def _sum_exactly(self, loss: Loss, batch: Sequence[Any], rows: Sequence[int]) -> "torch.Tensor":
        """Do as :meth:`_accumulate`, with the same bits on any number of ranks; return the whole mean."""
        import torch

        leaves = self._options.leaves or 1
        total = sum(rows)
        start = sum(rows[: self._ranks.rank])
        share = leaves // self._ranks.world_size
        numbers = range(self._ranks.rank * share, (self._ranks.rank + 1) * share)
        own = bounds(total, leaves)[numbers.start : numbers.stop]
        if (own[0][0], own[-1][1]) != (start, start + rows[self._ranks.rank]):
            raise InvalidInput(
                f"batches of {list(rows)} rows on the ranks are not accepted with exact = "
                f"{self._options.exact!r}: rank r of R must have "
                "the rows from B*r//R to B*(r+1)//R of B, as loaders of run.dataset deal them"
            )
        parameters = self._trained_parameters()
        tree = exact.TreeSum()
        for number, (first, end) in zip(numbers, own, strict=True):
            key_generators(self._device, self._seed, self.steps, number)
            weight = (end - first) / total
            mean = torch.zeros((), device=self._device)
            if end > first:
                mean = weight * self._backward(
                    loss, part_of(batch, first - start, end - start, self._device), weight
                )
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
            tree.add([*gradients, mean])
            self._optimizer.zero_grad(set_to_none=True)
        *own_gradients, _ = tree.total
        self._nonfinite.look_at_gradients(*own_gradients)
        *gradients, mean = exact.sum_over_ranks(tree.total, self._ranks.world_size)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return mean

    def _backward(self, loss: Loss, part: Sequence[Any], weight: float) -> "torch.Tensor":
        """Add the gradients of ``weight * loss``; return the loss."""
        import torch

        model = self._model
        if self._ddp is not None:
            model = self._ddp.module
        with self._precision.casting():
            value = loss(model, *part)
        if (
            not isinstance(value, torch.Tensor)
            or value.numel() != 1
            or not value.requires_grad
            or not value.is_floating_point()
        ):
            raise InvalidInput(
                f"a loss of {value!r:.200} is not accepted: loss(model, *batch) must return the mean loss "
                "of the rows, a 0-d tensor"
            )
        self._nonfinite.look_at_loss(value)
        weighted = self._precision.scaler.scale(value.float() * weight)
        # A loss that is not finite makes all gradients NaN, also where its own would be finite: so every rank
        # sees it.
        torch.autograd.backward(weighted, torch.ones_like(weighted) + 0 * value.detach().float())
        if self._ddp is not None and self._ddp.lacks_gradients:
            self._leave_out(self._ddp, value)
        return value.detach().float().reshape(())

    def _leave_out(self, ddp: Ddp, loss: "torch.Tensor") -> None:
        """Let no rank apply this step, whose gradients DDP could not sum, and tell all of them why."""
        import torch

        trained = {name: each for name, each in self._parameters.items() if each.requires_grad}
        unused = unused_in(loss, trained)
        where = f"the loss of rank {self._ranks.rank} in step {self.steps + 1}"
        if unused:
            more = ""
            if len(unused) > 1:
                more = f" (and {len(unused) - 1} more: {', '.join(unused[1:]):.200})"
            self._nonfinite.refuse(
                f"the parameter {unused[0]!r}{more} takes no part in {where}, which is not accepted, for "
                "DDP waits for its gradient: "
                "freeze it by requires_grad_(False), or give run.distribute unused_parameters=True or "
                "exact=True"
            )
        else:
            self._nonfinite.refuse(
                f"{where} is not accepted, for DDP has not seen its forward pass: call the model that "
                "loss(model, *batch) is given, once"
            )
        ddp.send_nan()
        for each in self._trained_parameters()[:1]:
            each.grad = torch.full_like(each, float("nan"))

    def _update(self, buffers: "Sequence[tuple[torch.Tensor, torch.Tensor]]") -> None:
        """Clip the gradients and step the optimizer; if they are not finite, restore the buffers."""
        import torch
        from torch.nn.utils import clip_grads_with_norm_, get_total_norm

        scaler = self._precision.scaler
        parameters = self._trained_parameters()
        scaler.unscale_(self._optimizer)
        norm = get_total_norm([each.grad for each in parameters if each.grad is not None])
        if hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()
        if self._options.clip is not None:
            clip_grads_with_norm_(parameters, self._options.clip, norm)
        bad = ~norm.isfinite() | self._is_nan_elsewhere(parameters)
        waits = self._step_unless(bad)
        scaler.update()
        for buffer, before in buffers:
            buffer.copy_(torch.where(bad, before, buffer))
        self.gradient_norm = norm
        self.steps += 1
        self._nonfinite.end_step(self.steps, bad)
        scale = (lambda: self._precision.scale) if scaler.is_enabled() else None
        checked_steps = self.steps
        if not waits:
            checked_steps -= 1
        self._nonfinite.count(checked_steps, scale)

    def _is_nan_elsewhere(self, parameters: "Sequence[nn.Parameter]") -> "bool | torch.Tensor":
        """Whether DDP has summed NaN for trained parameters that are not the optimizer's.

        That is so where a rank has refused the step: whoever has those parameters must leave it out, too.
        """
        from torch.nn.utils import get_total_norm

        if self._ddp is None or len(parameters) >= sum(self._are_trained):
            return False
        own = {id(each) for each in parameters}
        others = [
            each.grad for each in self._parameters.values() if each.grad is not None and id(each) not in own
        ]
        return ~get_total_norm(others).isfinite()

    def _step_unless(self, bad: "torch.Tensor") -> bool:
        """Step the optimizer unless ``bad``; return whether that waited for the device."""
        optimizer = self._optimizer
        scaler = self._precision.scaler
        # GradScaler asks the same: such an optimizer can leave out a step on the device.
        is_fused = getattr(optimizer, "_step_supports_amp_scaling", False)
        if scaler.is_enabled():
            scaler.step(optimizer)
        elif is_fused:
            optimizer.grad_scale = None  # type: ignore[attr-defined]
            optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
            try:
                optimizer.step()
            finally:
                del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]
        elif not bad.item():
            optimizer.step()
        return not is_fused

    def _warm_up(self, loss: Loss, part: Sequence[Any]) -> None:
        """Let DDP settle its buckets, on which the last bits of the sums depend.

        DDP does so in the first backward pass of a process. Without this, a resumed training would differ
        from one that was not interrupted.
        """
        before = [(buffer, buffer.clone()) for buffer in self._model.buffers()]
        while self._warm_ups and self._ddp is not None:
            key_generators(self._device, self._seed, self.steps, self._ranks.rank, 0)
            with self._ddp.summing(is_last=True):
                self._backward(loss, part, 1.0)
            self._nonfinite.end_where_refused()
            self._begin_again(before)
            self._warm_ups -= 1

    def _begin_again(self, buffers: "Sequence[tuple[torch.Tensor, torch.Tensor]]") -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._nonfinite.forget()
        for buffer, before in buffers:
            buffer.copy_(before)

    def _handle_out_of_memory(self, error: Exception, rows: Sequence[int]) -> None:
        """Halve the micro-batch for which memory was not enough, or raise."""
        count = self._options.leaves // self._ranks.world_size if self._options.leaves else self._count(rows)
        rank = self._ranks.rank
        size = -(-max(rows) // count)
        what = (
            f"rank {rank} ran out of memory in step {self.steps + 1}, with {count} micro-batches of {size} "
            f"rows: {self._memory()}"
        )
        if self._options.out_of_memory == "halve" and not self._halved and size > 1:
            if self._ranks.world_size == 1:
                warnings.warn(f"{what}. The step is made again with half the micro-batch", stacklevel=3)
                out_of_memory.free(error, self._device)
                self._halve(size)
                return
            if self._notes is not None:
                self._notes.leave(rank, size, self._memory())
                raise MicroBatchTooLarge(
                    f"{what}. An attempt that goes on from its last checkpoint begins with half the "
                    "micro-batch"
                ) from error
        self._nonfinite.forget()
        if table := out_of_memory.summary(self._device):
            # It is no note of the error raised below, because the last line of a trial's error must say what
            # happened.
            error.add_note(table)
        raise OutOfMemory(
            f"{what}. {self._memory_advice(size)}; activation_checkpointing=True and shard='fsdp' need less"
        ) from error

    def _memory_advice(self, micro_batch: int) -> str:
        if self._halved:
            return "It had been halved before"
        if micro_batch == 1:
            return "A micro-batch of one row cannot be halved"
        return "Give a smaller micro_batch, or out_of_memory='halve'"

    def _halve(self, too_large: int) -> None:
        half = -(-too_large // 2)
        self.micro_batch = min(self.micro_batch or half, half)
        self._halved = True

    def _count(self, rows: Sequence[int]) -> int:
        minimum = 1
        if isinstance(self._options.accumulate, int):
            minimum = self._options.accumulate
        return micro_batch_count(rows, self.micro_batch, minimum)

    def _memory(self) -> str:
        return out_of_memory.describe_memory(self._device)

    def _trained_parameters(self) -> "list[nn.Parameter]":
        return [
            each for group in self._optimizer.param_groups for each in group["params"] if each.requires_grad
        ]
