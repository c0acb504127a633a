"""The API's routes, a module for each noun. They translate between HTTP and ``resources``, and decide nothing themselves."""

from fastapi import APIRouter

from server.routes import health

ROUTERS: list[APIRouter] = [health.router]
