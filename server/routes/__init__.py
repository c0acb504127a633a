"""The API's routes, a module for each noun. They translate between HTTP and ``resources``, and decide nothing themselves."""

from fastapi import APIRouter

from server.routes import curves, datasets, health, models, reports, runs, sweeps

ROUTERS: list[APIRouter] = [
    health.router,
    runs.router,
    curves.router,
    sweeps.router,
    models.router,
    models.signed,
    datasets.router,
    reports.router,
]
