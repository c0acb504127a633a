"""Halving deployed, once for all tests of this folder; a test that fails tells what the cluster has to
say.
"""

from collections.abc import Iterator

import pytest

from tests.kubernetes.installation.harness import Installation

_installations: list[Installation] = []


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """Halving, deployed; see :class:`Installation` for what can be done to it."""
    installation = Installation()
    _installations.append(installation)
    yield installation
    _installations.clear()
    installation.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and _installations:
        report.sections.append(("the cluster", _installations[0].story()))
    return report
