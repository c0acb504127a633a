"""Contents that the catalog names and the store must have, and what to do if one is missing."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving import Store
from halving.maintenance.blob_collection import parts_of
from halving.query.runs import in_threads
from halving.store.store import blob_name
from resources.catalog import ModelVersionRow, ReportRow, SweepRow, TrialRow

FROM_A_BACKUP = "bring it back from a backup: halving restore"


class NamedContent(NamedTuple):
    """A content that the store should have.

    Attributes:
        title: what it is and of what, for people.
        means: what its absence means.
        mend: what mends its absence.
    """

    digest: str
    title: str
    means: str
    mend: str
    is_checkpoint: bool = False


def contents_of_models(session: Session) -> list[NamedContent]:
    """The contents of versions that are not archived, and each sweep's report with its page."""
    contents: list[NamedContent] = []
    for row in session.scalars(select(ModelVersionRow).where(ModelVersionRow.stage != "archived")):
        means = f"{row.model}@{row.version} ({row.stage}) cannot be loaded, served or judged"
        for part, digest in (
            ("checkpoint", row.checkpoint),
            ("manifest", row.manifest),
            ("report", row.report),
        ):
            if digest:
                is_checkpoint = part == "checkpoint"
                mend = FROM_A_BACKUP
                if is_checkpoint and row.run:
                    mend = f"halving rerun {row.run} trains it again; or {FROM_A_BACKUP}"
                title = f"the {part} of {row.model}@{row.version}"
                contents.append(NamedContent(digest, title, means, mend, is_checkpoint=is_checkpoint))
    for sweep, digest, page in session.execute(select(ReportRow.sweep, ReportRow.digest, ReportRow.html)):
        means = f"its page and `halving leaderboard {sweep}` lack the evaluation"
        contents.append(NamedContent(digest, f"the report of {sweep}", means, FROM_A_BACKUP))
        contents.append(NamedContent(page, f"the page of the report of {sweep}", means, FROM_A_BACKUP))
    return contents


def contents_of_paused_trials(session: Session) -> list[NamedContent]:
    """The checkpoints from which paused trials of open searches are resumed."""
    query = select(TrialRow.sweep, TrialRow.number, TrialRow.checkpoint).join(
        SweepRow, SweepRow.id == TrialRow.sweep
    )
    waiting = query.where(
        SweepRow.status == "searching", TrialRow.status == "paused", TrialRow.checkpoint.is_not(None)
    )
    means = "the trial cannot be resumed when it is promoted, and fails"
    return [
        NamedContent(
            digest, f"the checkpoint of {sweep}.{number:04d}", means, FROM_A_BACKUP, is_checkpoint=True
        )
        for sweep, number, digest in session.execute(waiting)
        if digest is not None
    ]


def find_missing(
    store: Store, contents: Iterable[NamedContent], is_there: Callable[[str], bool]
) -> list[NamedContent]:
    """Find the contents that the store lacks, each once, and missing parts of sharded checkpoints.

    Args:
        store: the store from which the manifests of sharded checkpoints are read.
        is_there: whether the store has a file of this name.

    Raises:
        StoreError: the store cannot be read.
    """
    named: dict[str, NamedContent] = {}
    for content in contents:
        named.setdefault(content.digest, content)
    present, missing = _divide(named.values(), is_there)
    checkpoints = [content for content in present if content.is_checkpoint]
    parts: dict[str, NamedContent] = {}
    for content, digests in zip(
        checkpoints, in_threads(lambda content: parts_of(store, content.digest), checkpoints), strict=True
    ):
        for part in (f"sha256:{digest.hex()}" for digest in digests):
            parts.setdefault(part, content._replace(digest=part, title=f"a part of {content.title}"))
    return missing + _divide(parts.values(), is_there)[1]


def _divide(
    contents: Iterable[NamedContent], is_there: Callable[[str], bool]
) -> tuple[list[NamedContent], list[NamedContent]]:
    """Divide contents into those that the store has, and those that are missing."""
    every = list(contents)
    answers = in_threads(lambda content: is_there(blob_name(content.digest)), every)
    present = [content for content, there in zip(every, answers, strict=True) if there]
    missing = [content for content, there in zip(every, answers, strict=True) if not there]
    return present, missing
