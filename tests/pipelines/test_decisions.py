"""People's decisions by Dagster's jobs, which say who decided and why, and observe the checkpoint."""

from typing import Any

import dagster as dg
import pytest

from pipelines.decisions import approve_version, promote_version, reject_version, rollback_model
from resources.backend import Backend
from resources.catalog import SweepRow, utcnow
from resources.registry.events import events_of
from resources.registry.versions import register
from tests.backends import snapshot_row
from tests.resources.registry.winners import winner


@pytest.fixture
def waiting(backend: Backend) -> Backend:
    """A model with a champion, and a version that waits for approval."""
    about = {
        "name": "digits",
        "spec_digest": "d",
        "snapshot": "sha256:s0",
        "driver": "job",
        "status": "evaluating",
    }
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s0"))
        session.flush()
        for number, spec in enumerate([{}, {"approval": {"required": True}}]):
            session.add(
                SweepRow(id=f"digits-{number}", ordinal=number, spec=spec, created_at=utcnow(), **about)
            )
    digest = backend.store.put_blob(b"weights")
    report = backend.store.put_blob(b"{}")
    for sweep, against in (("digits-0", None), ("digits-1", "1.0.0")):
        new = winner(sweep, checkpoint=digest, report=report, gates=[])
        register(backend.catalog, new, judged_against=against, auto_promote=False)
    return backend


def test_decisions_are_made_in_the_name_of_who_is_given_and_are_observed(waiting: Backend) -> None:
    version = {"model": "digits", "version": "1.0.1"}
    with dg.DagsterInstance.ephemeral() as instance:

        def run(job: dg.JobDefinition, **config: Any) -> bool:
            (op,) = job.graph.node_dict
            options: Any = {
                "run_config": {"ops": {op: {"config": config}}},
                "resources": {"backend": waiting},
            }
            return job.execute_in_process(**options, instance=instance, raise_on_error=False).success

        assert not run(promote_version, **version, by="ann")
        assert run(reject_version, **version, by="bob", note="too slow")
        assert run(approve_version, **version, by="bob", note="fast now")
        assert run(promote_version, **version, by="ann")
        assert run(promote_version, **version, by="zoe"), (
            "it is the champion already, which is nobody's decision"
        )
        assert run(rollback_model, model="digits", by="eve", note="worse")
        records = instance.fetch_observations(dg.AssetKey("promoted_checkpoint"), limit=9).records
        observations = [
            (record.asset_observation.partition, record.asset_observation.description)
            for record in reversed(records)
        ]
    assert observations == [
        ("digits-1", "1.0.1 rejected"),
        ("digits-1", "1.0.1 approved"),
        ("digits-1", "1.0.1 promoted: staging → champion"),
        ("digits-0", "1.0.0 rolled back: archived → champion"),
    ]
    with waiting.catalog.read() as session:
        decided = [
            (row.actor, row.kind) for row in events_of(session, "digits") if not row.actor.startswith("sweep")
        ]
    assert [actor for actor, kind in decided if kind != "replaced"] == ["bob", "bob", "ann", "eve"]
