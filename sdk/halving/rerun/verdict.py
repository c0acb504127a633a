"""The verdict on a rerun: whether its metrics and weights are those of the recorded run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from halving.checkpoints.restoring import saved_weights
from halving.errors import NotFound
from halving.query.runs import RunInfo
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.rerun.comparison import FirstDifference, count, first_difference, read_points, up_to
from halving.rerun.factors import Difference, differences
from halving.store.store import Store

IDENTICAL = "identical"
DIFFERS = "differs"
FINISHED = "finished"
PAUSED = "paused"
FAILED = "failed"
_CUT_SHORT = ("terminated", "crashed", "unfinished")


@dataclass(frozen=True)
class Verdict:
    """The result of a rerun.

    Attributes:
        verdict: ``identical`` or ``differs``.
        rerun_of: ``project/run`` of the recorded run.
        run: the id of the new run, in the same project.
        trial: whether it is a trial of a sweep.
        status: the statuses of both, the recorded one first.
        points: the number of points of the recorded run that were compared.
        first_difference: that of the metrics; None if all are equal.
        weights: digests of both, at the same epoch; None where there is none.
        weights_equal: None if they could not be compared.
        factors: known differences between the two, by their records and by what the record lacked.
        not_compared: parts of the two that were not compared, in words.
    """

    verdict: str
    rerun_of: str
    run: str
    trial: bool
    status: tuple[str, str]
    points: int
    first_difference: FirstDifference | None
    weights: tuple[str | None, str | None]
    weights_equal: bool | None
    factors: list[Difference] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)

    @property
    def unexplained(self) -> bool:
        """Whether the two differ although both are complete and their records have no difference."""
        return self.verdict == DIFFERS and not self.factors and not set(self.status) & {*_CUT_SHORT, FAILED}

    def as_dict(self) -> dict[str, Any]:
        """The JSON that ``halving rerun --json`` prints."""
        return {
            "verdict": self.verdict,
            "rerun_of": self.rerun_of,
            "run": self.run,
            "trial": self.trial,
            "status": dict(zip(("recorded", "rerun"), self.status, strict=True)),
            "points": self.points,
            "first_difference": self.first_difference and self.first_difference.as_dict(),
            "weights": {
                **dict(zip(("recorded", "rerun"), self.weights, strict=True)),
                "equal": self.weights_equal,
            },
            "factors": [factor.as_dict() for factor in self.factors],
            "not_compared": self.not_compared,
        }


def expected_ends(status: str, *, trial: bool) -> tuple[str, ...]:
    """The statuses of a rerun that can be compared with a run that ended with ``status``.

    A trial is trained again to its newest checkpoint, whatever happened to it afterwards. A script that was
    ended from outside may end by itself this time.
    """
    if trial or status == PAUSED:
        return (FINISHED,)
    if status in _CUT_SHORT:
        return (FINISHED, FAILED)
    return (status,)


def judge_rerun(
    store: Store, info: RunInfo, new: RunInfo, ignore: Sequence[str], missing: Sequence[Difference] = ()
) -> Verdict:
    """Compare a rerun with the recorded run.

    Args:
        info: the recorded run. If it did not end by itself, the two are compared as far as both went.
        missing: differences that remained, beside those of the two records.
    """
    recorded, again = (read_points(store, run.project, run.run, ignore) for run in (info, new))
    trial = "trial" in info.parent
    not_compared = []
    if trial and info.status not in (FINISHED, PAUSED):
        recorded, left_out = up_to(recorded, again)
        if left_out:
            not_compared.append(
                f"{left_out} metric points that the trial logged after its newest checkpoint, before it "
                f"ended as {info.status}"
            )
    elif not trial and info.status in _CUT_SHORT:
        again, left_out = up_to(again, recorded)
        if left_out:
            not_compared.append(
                f"{left_out} metric points that the rerun logged after the end of the recorded run, which "
                f"ended as {info.status}"
            )
    first = first_difference(recorded, again)
    weights, equal, about = _weights(store, info, new)
    verdict = IDENTICAL
    if first is not None or equal is False:
        verdict = DIFFERS
    return Verdict(
        verdict=verdict,
        rerun_of=f"{info.project}/{info.run}",
        run=new.run,
        trial=trial,
        status=(info.status, new.status),
        points=count(recorded),
        first_difference=first,
        weights=weights,
        weights_equal=equal,
        factors=list(dict.fromkeys([*missing, *differences(info, new)])),
        not_compared=[*not_compared, *about, *_files(store, info)],
    )


def has_weights(store: Store, info: RunInfo) -> bool:
    """Whether a run has a checkpoint whose weights can be compared."""
    return any(saved.weights or saved.sharded for saved in _checkpoints(store, info).values())


def _checkpoints(store: Store, info: RunInfo) -> dict[int, SavedCheckpoint]:
    """A run's newest checkpoint after each epoch, the newest last."""
    return {saved.epoch: saved for saved in RunRecords(store, info.project, info.run).checkpoints()}


def _weights_in(store: Store, saved: SavedCheckpoint) -> str | None:
    """The digest of the weights in a checkpoint.

    That of a sharded checkpoint is computed now, because no process had all weights when it was saved.
    """
    if saved.weights is not None or not saved.sharded:
        return saved.weights
    try:
        return saved_weights(store, saved.digest)
    except NotFound:  # The checkpoint was superseded, and retention has deleted it.
        return None


def _is_gone(store: Store, saved: SavedCheckpoint) -> bool:
    """Whether a checkpoint is deleted, without a digest of its weights in its record."""
    return saved.weights is None and saved.sharded and not store.has_blob(saved.digest)


def _weights(
    store: Store, info: RunInfo, new: RunInfo
) -> tuple[tuple[str | None, str | None], bool | None, list[str]]:
    """The digests at the newest common epoch, whether they are equal, and what was not compared."""
    ours = _checkpoints(store, info)
    theirs = _checkpoints(store, new)
    if not ours:
        return (None, None), None, ["weights: run.save saved none"]
    common = max(ours.keys() & theirs.keys(), default=None)
    if common is None:
        newest = _weights_in(store, ours[max(ours)])
        # The epochs of checkpoints depend on time, but a complete training without any checkpoint differs.
        if not theirs and info.status not in _CUT_SHORT:
            return (newest, None), False, []
        reason = f"the two have no checkpoint of the same epoch ({max(ours)} is the recorded run's newest)"
        return (newest, None), None, [f"weights: {reason}"]
    pair = _weights_in(store, ours[common]), _weights_in(store, theirs[common])
    if None in pair:
        gone = [
            f"{run.project}/{run.run}"
            for run, saved in ((info, ours[common]), (new, theirs[common]))
            if _is_gone(store, saved)
        ]
        reason = "weights: the checkpoint's record has no digest of them"
        if gone:
            deleted = " and of ".join(gone)
            reason = f"weights after epoch {common}: retention has deleted the checkpoint of {deleted}"
        return pair, None, [reason]
    notes = []
    if common != max(ours):
        notes.append(f"weights after epoch {common}: only until there both have checkpoints")
    return pair, pair[0] == pair[1], notes


def _files(store: Store, info: RunInfo) -> list[str]:
    """The numbers of artifacts and media, which are not compared because they often have times and paths."""
    folder = f"runs/project={info.project}/{info.run}"
    counts = {kind: len(store.names(f"{folder}/{kind}")) for kind in ("artifacts", "media")}
    return [f"{number} {kind}" for kind, number in counts.items() if number]
