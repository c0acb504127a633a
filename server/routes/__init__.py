"""The API's routes, a module for each noun. They translate between HTTP and ``resources``, and decide nothing themselves."""

from fastapi import APIRouter

from server.routes import datasets, health, models, reports, sweeps

ROUTERS: list[APIRouter] = [health.router, sweeps.router, models.router, models.signed, datasets.router, reports.router]
