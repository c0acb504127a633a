"""The API's routes, a module for each noun.

They translate between HTTP and ``resources``, and decide nothing themselves.
"""

from fastapi import APIRouter

from server.access.policy import RoutePolicy
from server.routes import (
    alerts,
    ask_tell,
    curves,
    datasets,
    files,
    health,
    ingest,
    journal,
    links,
    live,
    media,
    models,
    reports,
    run_lifecycle,
    run_records,
    runs,
    session,
    shared_page,
    studies,
    sweeps,
    training_runs,
    views,
)

PREFIX = "/api/v1"
"""Of the addresses of all routes."""

ROUTERS: list[APIRouter] = [
    # These are first, because routes are tried in this order and programs ask many times a second.
    ask_tell.router,
    ingest.router,
    files.router,
    health.router,
    session.router,
    runs.router,
    run_records.router,
    run_lifecycle.router,
    curves.router,
    live.router,
    media.router,
    sweeps.router,
    studies.router,
    training_runs.router,
    models.router,
    models.signed,
    datasets.router,
    reports.router,
    shared_page.router,
    journal.router,
    views.router,
    links.router,
    alerts.router,
]

POLICIES: list[RoutePolicy] = [
    RoutePolicy("/api/"),  # of all routes that hand in none, and of addresses without a route
    *(
        policy.below(PREFIX)
        for module in (alerts, curves, files, health, ingest, models, session)
        for policy in module.POLICIES
    ),
]
