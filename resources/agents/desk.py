"""Who asks, what they may, and what the tools work on."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from halving.errors import HalvingError, NotFound
from halving.identifiers import check_name
from halving.store.store import Store
from resources.catalog import Catalog, WriteLogRow, utcnow
from resources.execution.external_loops import ExternalLoops

_MAX_TARGET_LETTERS = 500


class MayNot(HalvingError, PermissionError):
    """The agent may only read."""


@dataclass(frozen=True)
class Agent:
    """Who asks by tools, and what they may.

    Attributes:
        actor: who is named as the author of what is changed.
        writes: whether it may change anything.
        projects: the only projects that it may see and change; None is all.
        over_http: whether it asks over the network: then it may name only places that administrators listed.
    """

    actor: str
    writes: bool = True
    projects: frozenset[str] | None = None
    over_http: bool = False

    @property
    def visible_projects(self) -> list[str] | None:
        """The projects that it may see, sorted; None is all."""
        if self.projects is None:
            return None
        return sorted(self.projects)

    def sees(self, project: str) -> bool:
        """Whether it may know that the project exists."""
        return self.projects is None or project in self.projects

    def check(self, project: str | None, subject: str) -> None:
        """Refuse what is of another project as if it did not exist.

        Raises:
            NotFound: it is not among the agent's projects.
        """
        if self.projects is not None and project not in self.projects:
            raise NotFound(f"no {subject}; you may see the projects {', '.join(sorted(self.projects))}")

    def check_writes(self, tool: str) -> None:
        """Refuse a change by an agent that may only read.

        Raises:
            MayNot: it may not.
        """
        if not self.writes:
            raise MayNot(f"{tool} is not done: {self.actor!r} may only read; this needs the scope write")


@dataclass(frozen=True)
class Desk:
    """What a tool works on.

    Attributes:
        loops: the external loops of a study.
    """

    store: Store
    catalog: Catalog
    agent: Agent
    loops: Callable[[str], ExternalLoops]

    def run(self, name: str) -> tuple[str, str]:
        """``(project, run)`` of ``project/run``, if the agent may see it.

        Raises:
            InvalidInput: it is no such name.
            NotFound: it is of another project.
        """
        project, slash, run = name.strip().partition("/")
        if not slash:
            return self._run_by_id(name.strip())
        self.agent.check(check_name("project", project), f"run {name!r}")
        return project, check_name("run id", run)

    def note_write(self, session: Session, tool: str, target: str) -> None:
        """Add an entry to the write log, in the transaction of the change."""
        entry = WriteLogRow(
            at=utcnow(),
            actor=self.agent.actor,
            method="MCP",
            route=f"/mcp/{tool}",
            target=f"/mcp/{tool}/{target}"[:_MAX_TARGET_LETTERS],
            status=200,
        )
        session.add(entry)

    def _run_by_id(self, run: str) -> tuple[str, str]:
        from halving.query.runs import list_names

        check_name("run", run)
        matches = [pair for pair in list_names(self.store) if pair[1] == run and self.agent.sees(pair[0])]
        if len(matches) != 1:
            raise NotFound(f"no single run {run!r}: give project/run, as find_runs lists it")
        return matches[0]
