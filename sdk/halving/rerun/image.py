"""What has to be brought back of a trial that ran in a pod: its image is its code, and what differs there is
known before it trains.
"""

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
        name: of the image, as its record has it.
        exact: the same by its digest, where that is recorded.
        resources: what the pod asks the cluster for, as the sweep's spec had it.
        trainable_sha256: of the trainable's source file in the image; None where it was not found.
        incomplete: what of the trial another image had.
    """

    name: str
    exact: str
    resources: Mapping[str, Any]
    trainable_sha256: str | None
    incomplete: tuple[Difference, ...] = ()

    def with_incomplete(self, more: Iterable[Difference]) -> "ImagePlan":
        """The same, with more that cannot be brought back."""
        return replace(self, incomplete=(*self.incomplete, *more))

    @property
    def by_tag(self) -> bool:
        """Whether its digest is not recorded: then its name may mean another image now."""
        return "@" not in self.exact


def lacks(info: RunInfo) -> str | None:
    """Why a trial that ran in an image cannot be trained in a pod of it, by its record; None: it can."""
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
    """The pod of a trial whose record lacks nothing for it."""
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


def known_before(image: ImagePlan, now: str | None) -> list[Difference]:
    """What differs, or cannot be known, before a pod is there.

    Args:
        now: the image that the name means today, with its digest; None while nobody knows, and where the
            cluster does not say.
    """
    tag = (
        [Difference("image", image.name, "named without its digest", now or "not known")]
        if image.by_tag
        else []
    )
    return [*image.incomplete, *tag]


def is_moved(image: ImagePlan, now: str | None) -> bool:
    """Whether a tag means another image now than the recorded one.

    Args:
        now: as :func:`known_before` has it.
    """
    return (
        now is not None
        and "@" not in image.name
        and not image.by_tag
        and digest_in(now) != digest_in(image.exact)
    )


def digest_in(image: str) -> str:
    """The digest of an image that is named by it, such as ``sha256:12…``."""
    return image.rpartition("@")[2]


def known_in_pod(
    image: ImagePlan, recorded: Mapping[str, Any], said: Ready, now: str | None = None
) -> list[Difference]:
    """What the pod itself says: of the trainable, and of the environment.

    Args:
        recorded: the trial's provenance.
        now: as :func:`known_before` has it.

    Raises:
        InvalidInput: what it says has not the form of an environment; any image may be in there.
    """
    found = []
    if said.trainable_sha256 != image.trainable_sha256:
        found.append(Difference("code", TRAINABLE_SOURCE, image.trainable_sha256, said.trainable_sha256))
    try:
        digest = digest_in(now) if now and not image.by_tag else None
        found += environment_differences(recorded, {**said.environment, "image_digest": digest})
        if wrong := next((one for one in found if isinstance(one.now, dict | list)), None):
            raise ValueError(f"{wrong.factor}: {wrong.name} = {wrong.now!r:.80}; give text or a number")
        "".join(map(str, found)).encode()  # what is no text could not be printed, nor be kept
        if now is None and "@" not in image.name and not image.by_tag:
            found.append(Difference("image", image.name, image.exact, "not known by its digest"))
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"the environment that the pod of the image {image.name} describes is not accepted: {error}; "
            "the SDK in the image has to be halving's own"
        ) from None
    return found
