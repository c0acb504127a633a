"""Features in serving: references, the online store's format and reader, and transforms of requests.

The package reads what was pushed. It must not know how a view is materialised, joined or pushed
(``resources/features``).
"""

from halving.features.online import OnlineFeatures
from halving.features.reference import Reference, parse_reference
from halving.features.transform import RequestTransform

__all__ = ["OnlineFeatures", "Reference", "RequestTransform", "parse_reference"]
