"""The watch: which of the things that happened become alerts.

It looks at what the catalog says already, and adds alerts to the outbox in one transaction with the place up
to which it has looked. So a look that is killed is made again, and nothing is told twice, because each alert
has a key. It must not know how an alert reaches anybody.
"""

from resources.watch.watching import LOOK_SECONDS, Watch

__all__ = ["LOOK_SECONDS", "Watch"]
