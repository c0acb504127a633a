"""The rerun of a trial that ran in a pod, whose image is its code."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from halving.errors import InvalidInput
from halving.query.runs import RunInfo
from halving.records.provenance import DIGEST
from halving.rerun.factors import (
    TRAINABLE_SOURCE,
    Difference,
    environment_differences,
    exact_image,
    resized_attempts,
    same_image,
)
from halving.trial.messages import Ready


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """The pod that a trial is trained in again.

    Attributes:
        name: the image's name in the record.
        exact: the image by its digest, where that is recorded; else its name.
        resources: the pod's requests to the cluster, as the sweep's spec had them.
        trainable_sha256: the hash of the trainable's source file in the image; None without one.
        incomplete: attempts of the trial that ran in other images or with other resources.
    """

    name: str
    exact: str
    resources: Mapping[str, Any]
    trainable_sha256: str | None
    incomplete: tuple[Difference, ...] = ()

    def with_incomplete(self, more: Iterable[Difference]) -> "ImagePlan":
        """The plan with more differences that cannot be undone."""
        return replace(self, incomplete=(*self.incomplete, *more))

    @property
    def by_tag(self) -> bool:
        """Whether the record has no digest, so that the name may mean another image now."""
        return "@" not in self.exact


def missing_for_pod(info: RunInfo) -> str | None:
    """Why the record of a trial does not suffice to train it in a pod of its image; None if it does."""
    image = str(info.record["provenance"]["image"])
    trial = info.record["trial"]
    if image.startswith(DIGEST):
        return (
            f"its record has the digest of its image alone ({image}), and no name that a cluster could "
            "pull it by"
        )
    if not trial.get("resources"):
        return (
            f"it ran in the image {image}, and its record does not say with which resources: an earlier "
            "version of halving made it"
        )
    return None


def image_plan(info: RunInfo) -> ImagePlan:
    """The pod of a trial whose record suffices for it."""
    record = info.record
    exact = exact_image(record["provenance"])
    later = {number: start.get("provenance") or {} for number, start in info.starts.items()}
    return ImagePlan(
        name=str(record["provenance"]["image"]),
        exact=str(exact),
        resources=record["trial"]["resources"],
        trainable_sha256=info.parent.get("trainable_sha256"),
        incomplete=tuple(
            Difference(
                "image",
                f"attempt {number}",
                f"in the image {exact_image(theirs) or '(not recorded)'}",
                "in that of attempt 1",
            )
            for number, theirs in later.items()
            if not same_image(record["provenance"], theirs)
        )
        + tuple(resized_attempts(info)),
    )


def differences_before_start(image: ImagePlan, now: str | None) -> list[Difference]:
    """Differences from the record that are known before a pod starts, and an image that may be another one.

    Args:
        now: the image that the name means today, with its digest; None before the cluster has reported it,
            and where it does not.
    """
    differences = list(image.incomplete)
    if image.by_tag:
        differences.append(Difference("image", image.name, "named without its digest", now or "not known"))
    return differences


def tag_has_moved(image: ImagePlan, now: str | None) -> bool:
    """Whether a tag means another image now than the recorded one.

    Args:
        now: as for :func:`differences_before_start`.
    """
    if now is None or "@" in image.name or image.by_tag:
        return False
    return digest_in(now) != digest_in(image.exact)


def digest_in(image: str) -> str:
    """The digest, such as ``sha256:12…``, in the name of an image."""
    return image.rpartition("@")[2]


def pod_differences(
    image: ImagePlan, recorded: Mapping[str, Any], report: Ready, now: str | None = None
) -> list[Difference]:
    """Differences of the trainable and the environment that the pod itself reports.

    Args:
        recorded: the trial's provenance.
        now: as for :func:`differences_before_start`.

    Raises:
        InvalidInput: the report has not the form of an environment; any image may have sent it.
    """
    differences = []
    if report.trainable_sha256 != image.trainable_sha256:
        differences.append(
            Difference("code", TRAINABLE_SOURCE, image.trainable_sha256, report.trainable_sha256)
        )
    try:
        digest = None
        if now and not image.by_tag:
            digest = digest_in(now)
        differences += environment_differences(recorded, {**report.environment, "image_digest": digest})
        wrong = [
            f"{difference.factor}: {difference.name} = {difference.now!r:.80}"
            for difference in differences
            if isinstance(difference.now, dict | list)
        ]
        if wrong:
            raise ValueError(f"{wrong[0]}; give text or a number")
        "".join(map(str, differences)).encode()  # Half of a surrogate pair could not be printed or stored.
        if now is None and "@" not in image.name and not image.by_tag:
            differences.append(Difference("image", image.name, image.exact, "not known by its digest"))
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"the environment that the pod of the image {image.name} describes is not accepted: {error}; "
            "the SDK in the image has to be halving's own"
        ) from None
    return differences
