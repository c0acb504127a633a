"""Fixtures: a backend, its catalog and specs."""

from tests.backends import *  # noqa: F403
