"""Features in serving: references, the online store's format, its reader, and a view's transform on the rows
of a request.

It reads what was pushed; it must not know how a view is materialised, joined or pushed
(``resources/features``).
"""

from halving.features.online import OnlineFeatures
from halving.features.reference import Reference, parse_reference
from halving.features.transform import RequestTransform

__all__ = ["OnlineFeatures", "Reference", "RequestTransform", "parse_reference"]
