"""What start_sweep refuses before it reads a spec."""

from resources.agents.desk import Agent, Desk
from resources.agents.toolbox import call_tool
from resources.backend import Backend
from resources.execution.external_loops import ExternalLoops


def test_a_spec_with_aliases_is_refused_before_it_is_read(backend: Backend) -> None:
    desk = Desk(
        backend.store, backend.catalog, Agent("robot"), lambda study: ExternalLoops(backend.catalog, study)
    )
    result = call_tool(desk, "start_sweep", {"spec": "a: &a [1, 1]\nb: &b [*a, *a]\nname: *b\n"})
    assert result.failed
    assert "it has an alias" in result.text
