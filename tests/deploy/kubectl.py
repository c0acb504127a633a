"""The kubectl of this machine: whether it builds our manifests."""

import json
import shutil
import subprocess
from functools import cache

OLDEST = (1, 27)  # of those tried; kustomize in 1.20 does not know replacements


@cache
def unusable() -> str | None:
    """Why it does not; None where it does."""
    needed = "needs kubectl {}.{} or newer, which has kustomize in it".format(*OLDEST)
    if not shutil.which("kubectl"):
        return needed
    output = subprocess.run(
        ["kubectl", "version", "--client", "--output=json"], capture_output=True, text=True, check=True
    ).stdout
    client = json.loads(output)["clientVersion"]
    version = int(client["major"]), int(client["minor"].rstrip("+"))
    return None if version >= OLDEST else f"{needed}; this is {client['gitVersion']}"
