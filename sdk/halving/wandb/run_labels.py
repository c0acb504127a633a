"""What a run is called: its name, tags, group and so on, as the tags of a run in the store."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from halving.run.run import Run as HalvingRun
    from halving.wandb.run import Run
    from halving.wandb.settings import Settings

_MAX_TAG = 64
_FACTS = {
    "name": "name",
    "group": "group",
    "job_type": "job_type",
    "notes": "notes",
    "entity": "entity",
    "sweep": "wandb_sweep",
}
"""Attributes of :class:`Labels` and the tags that they become, as ``halving import wandb`` has them."""


@dataclass
class Labels:
    """A run's name and its other labels."""

    name: str | None = None
    tags: tuple[str, ...] = ()
    group: str | None = None
    job_type: str | None = None
    notes: str | None = None
    entity: str | None = None
    sweep: str | None = None
    recorded: Mapping[str, str] = field(default_factory=dict)
    """What a run that is opened again has of its script's labels; those that people added are not in it."""

    @classmethod
    def of(cls, settings: "Settings") -> "Labels":
        """The labels that settings name."""
        return cls(
            name=settings.run_name,
            tags=tuple(settings.run_tags or ()),
            group=settings.run_group,
            job_type=settings.run_job_type,
            notes=settings.run_notes,
            entity=settings.entity,
            sweep=settings.sweep_id,
        )

    def as_tags(self) -> dict[str, str]:
        """Tags of a run: a tag is ``true``, a fact has its name."""
        facts = {tag: getattr(self, field) for field, tag in _FACTS.items()}
        named = {tag: str(value) for tag, value in facts.items() if value}
        return {tag: "true" for tag in self.tags if tag} | named

    def completed(self, tags: Mapping[str, str]) -> "Labels":
        """These labels, with those of a run that is resumed where they say nothing."""
        names = set(_FACTS.values())
        earlier = {field: tags.get(tag) for field, tag in _FACTS.items()}
        merged = {field: getattr(self, field) or value for field, value in earlier.items()}
        own = tuple(tag for tag, value in tags.items() if tag not in names and value == "true")
        return Labels(tags=self.tags or own, recorded=self.of_script(tags), **merged)

    @staticmethod
    def of_script(tags: Mapping[str, str]) -> dict[str, str]:
        """Those of a run's tags that a script can have given it; the others are people's."""
        facts = set(_FACTS.values())
        return {tag: value for tag, value in tags.items() if tag in facts or value == "true"}


def tag_problem(tags: Iterable[str]) -> str | None:
    """What is wrong with tags; None if nothing is."""
    problems = []
    for number, tag in enumerate(tags):
        if not isinstance(tag, str):
            problems.append(f"Tag at index {number} is {tag!r:.80}. Tags must be texts")
        elif not tag:
            problems.append(
                f"Tag at index {number} is empty. Tags must be between 1 and {_MAX_TAG} characters"
            )
        elif len(tag) > _MAX_TAG:
            problems.append(
                f"Tag '{tag[:20]}...{tag[-20:]}' is {len(tag)} characters."
                f" Tags must be between 1 and {_MAX_TAG} characters"
            )
    return "; ".join(problems) or None


def run_url(run: "HalvingRun | None") -> str | None:
    """The address of a run's page on the server that it is sent to."""
    if run is None or not str(run.store.root).startswith(("http://", "https://")):
        return None
    return f"{str(run.store.root).rstrip('/')}/runs/{quote(run.project)}/{quote(run.id)}"


def project_url(run: "HalvingRun | None") -> str | None:
    """The address of all runs on the server that they are sent to."""
    if run is None or not str(run.store.root).startswith(("http://", "https://")):
        return None
    return f"{str(run.store.root).rstrip('/')}/"


def link_of(run: "Run") -> str:
    """A run's path in HTML, with a link if it has an address."""
    from html import escape

    path = escape(run.path)
    if run.url is None:
        return f"<code>{path}</code>"
    return f'<a href="{escape(run.url)}">{path}</a>'
