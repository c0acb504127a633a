"""What was told long ago is deleted; what waits to be told is not, nor what says that something was told."""

from typing import Any

import pytest
from sqlalchemy import select, update

from resources.alerts.alert import Alert
from resources.alerts.channels import add_channel
from resources.alerts.old_alerts import KEPT_SECONDS, delete_old_alerts
from resources.alerts.outbox import raise_alert, write_messages
from resources.catalog import AlertDeliveryRow, AlertMessageRow, AlertRow, Catalog, RunRow

DAY = 86_400.0


def count_of(catalog: Catalog, row: Any) -> int:
    with catalog.read() as session:
        return len(session.scalars(select(row)).all())


def raise_for(catalog: Catalog, count: int, age: float, state: str) -> None:
    """Raise alerts of so many projects for one channel, each with a message in a state."""
    now = catalog.now()
    with catalog.write() as session:
        add_channel(session, "hook", "webhook", "https://hooks.example.com/", actor="ada")
        for number in range(count):
            name = f"p{number}"
            raise_alert(
                session, Alert(name, "diverged", "run", f"{name}/a", "it diverged", project=name), now
            )
    with catalog.write() as session:
        session.execute(update(AlertRow).values(at=now - age))
    write_messages(catalog)
    with catalog.write() as session:
        session.execute(update(AlertMessageRow).values(created=now - age, state=state))


@pytest.mark.parametrize("state", ["sent", "dead"])
def test_what_was_told_or_never_arrived_is_deleted_after_its_time(catalog: Catalog, state: str) -> None:
    raise_for(catalog, 1_100, KEPT_SECONDS + DAY, state)
    assert delete_old_alerts(catalog) == 1_100
    assert [count_of(catalog, row) for row in (AlertRow, AlertMessageRow, AlertDeliveryRow)] == [0, 0, 0]


@pytest.mark.parametrize(("age", "state"), [(KEPT_SECONDS - DAY, "sent"), (KEPT_SECONDS + DAY, "waiting")])
def test_what_is_young_or_waits_stays(catalog: Catalog, age: float, state: str) -> None:
    raise_for(catalog, 3, age, state)
    assert delete_old_alerts(catalog) == 0
    assert [count_of(catalog, row) for row in (AlertRow, AlertMessageRow, AlertDeliveryRow)] == [3, 3, 3]


def test_an_alert_of_a_run_that_trains_on_stays_so_that_it_is_not_told_again(catalog: Catalog) -> None:
    raise_for(catalog, 2, KEPT_SECONDS + DAY, "sent")
    with catalog.write() as session:
        row = RunRow(project="p1", run="a", status="running", lifecycle="active", started=1.0, attempt=1)
        row.look_again = 0.0
        row.signature = "s"
        row.revision = 1
        session.add(row)
    assert delete_old_alerts(catalog) == 1
    with catalog.read() as session:
        assert session.scalars(select(AlertRow.subject)).all() == ["p1/a"]
