"""The fixtures of a backend and its catalog."""

from tests.backends import *  # noqa: F403
