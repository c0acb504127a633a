"""Creates the network policies of a gang, and deletes them with it."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from resources.execution.kubernetes import api
from resources.execution.kubernetes.fence import Ask

_FORBIDDEN = 403

_log = logging.getLogger(__name__)


class GangNetwork:
    """The policies that let the pods of a gang reach each other and their worker, and nobody else.

    Args:
        policies: from the labels of the worker's own pod (None if it runs in none) to the policies.
    """

    def __init__(self, policies: Callable[[dict[str, str] | None], list[dict[str, Any]]]) -> None:
        self._policies = policies
        self._names: list[str] | None = None

    def open(self, ask: Ask) -> bool:
        """Create the policies; return False while the cluster's API does not answer."""
        if self._names is None and (names := ask(self._create)) is not None:
            self._names = names
        return self._names is not None

    def close(self, ask: Ask) -> None:
        """Delete the policies; any that stay are deleted with the worker's pod, and select nothing before."""
        for name in self._names or []:
            ask(partial(api.delete_policy, name))

    def _create(self) -> list[str]:
        from kubernetes.client import ApiException

        pod = api.own_pod()
        worker_labels = None
        if pod:
            worker_labels = pod.metadata.labels
        wanted = self._policies(worker_labels)
        try:
            for policy in wanted:
                api.create_policy(policy)
        except ApiException as error:
            if error.status != _FORBIDDEN:
                raise
            # A gang to which nothing is closed needs no policies.
            _log.warning(
                "a gang's network policies may not be created (%s): grant that as deploy/ does",
                api.message_of(error),
            )
            return []
        return [policy["metadata"]["name"] for policy in wanted]
