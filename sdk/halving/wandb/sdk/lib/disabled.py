"""``wandb.sdk.lib.disabled``: classes that frameworks compare with; nothing is an instance of them.

As in W&B since 0.18, ``wandb.init(mode="disabled")`` returns a :class:`halving.wandb.run.Run`.
"""

from typing import Any


class RunDisabled:
    """No run is one."""


class SummaryDisabled(dict[str, Any]):
    """No summary is one."""
