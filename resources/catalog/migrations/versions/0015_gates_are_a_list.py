"""gates are a list"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_SWEEPS = sa.table("sweeps", sa.column("id", sa.Text), sa.column("spec", sa.JSON))
_INTENTS = sa.table("intents", sa.column("id", sa.Text), sa.column("payload", sa.JSON))


def upgrade() -> None:
    _each_spec(_as_list)


def downgrade() -> None:
    _each_spec(_as_object)


def _each_spec(changed: Any) -> None:
    connection = op.get_bind()
    for row in connection.execute(sa.select(_SWEEPS)).all():
        if "gates" in row.spec:
            spec = {**row.spec, "gates": changed(row.spec["gates"])}
            connection.execute(sa.update(_SWEEPS).where(_SWEEPS.c.id == row.id).values(spec=spec))
    for row in connection.execute(sa.select(_INTENTS)).all():
        if "gates" in (row.payload.get("spec") or {}):
            spec = {**row.payload["spec"], "gates": changed(row.payload["spec"]["gates"])}
            connection.execute(sa.update(_INTENTS).where(_INTENTS.c.id == row.id).values(payload={**row.payload, "spec": spec}))


def _as_list(gates: Any) -> Any:
    """What was a metric and a margin is the gate of the champion; no margin at all is now the usual one, since none can be shown.

    Where neither was given, they are the gates of a spec that names none: launched again, that is the same spec.
    """
    if isinstance(gates, list):
        return gates
    compared = {name: gates[name] for name in ("metric", "margin") if gates.get(name)}
    leakage: list[dict[str, Any]] = [] if compared else [{"leakage": {"accept": []}}]
    return [{"finite_metrics": {}}, {"lineage": {}}, *leakage, {"non_inferior": compared}]


def _as_object(gates: Any) -> Any:
    """Only the gate of the champion has a place in the older form."""
    compared: dict[str, Any] = next((gate["non_inferior"] for gate in gates if "non_inferior" in gate), {})
    return {name: compared[name] for name in ("metric", "margin") if compared.get(name)}
