"""What the cluster's pods use of this machine: an object store."""

import json
import os
import subprocess
from typing import Any

from pyarrow import fs

from tests.s3 import S3, Gate

SESSION = {"halving-tests": os.environ.get("PYTEST_XDIST_TESTRUNUID", "alone")}
"""The label of what these tests make on a cluster, whichever of xdist's workers does it."""


class ObjectStore:
    """An S3 API with one bucket on ``address``, behind a gate that can be shut: S3 that is unavailable.

    It takes any key.
    """

    bucket = "halving"

    def __init__(self, address: str) -> None:
        self._server = S3()
        self.gate = Gate((self._server.host, self._server.port), address)
        self.url = f"http://{self.gate.endpoint}"

    def make_bucket(self) -> None:
        self._server.filesystem().create_dir(self.bucket)

    def filesystem(self) -> fs.FileSystem:
        """All that is in it, whether the gate is open or shut."""
        return self._server.filesystem()

    def stop(self) -> None:
        self.gate.shut()
        self._server.stop()


def keep_bridge(address: str) -> None:
    """Give the bridge that the pods of this machine are on an address that stays, if there is one and it may
    be given one.

    Without it a bridge has the address of one of its pods; when that pod goes, the others do not reach the
    node for up to half a minute.
    """
    listing = subprocess.run(
        ["ip", "-json", "addr", "show", "type", "bridge"], capture_output=True, text=True, check=False
    ).stdout
    for bridge in json.loads(listing or "[]"):
        if address in {address_info["local"] for address_info in bridge.get("addr_info", ())}:
            # One that is set by hand stays; what it is does not matter.
            subprocess.run(
                ["ip", "link", "set", "dev", bridge["ifname"], "address", bridge["address"]], check=False
            )


def address_for_pods(core: Any) -> str:
    """This machine's address as pods see it: ``HALVING_TEST_HOST``, or that of the node, which then is this
    machine.
    """
    if named := os.environ.get("HALVING_TEST_HOST"):
        return named
    addresses = core.list_node().items[0].status.addresses
    return str(next(address.address for address in addresses if address.type == "InternalIP"))
