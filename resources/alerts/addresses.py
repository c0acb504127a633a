"""Which network addresses a message may be sent to.

Whoever sets a channel's address could otherwise make the server talk to machines that only it can reach: a
cloud's metadata service, a database, its own API. So the address is checked at the connection, when its name
has been resolved: a name that resolves to another address a second time (DNS rebinding) gains nothing,
because the connection goes to the very address that was checked.
"""

import socket
from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from halving.errors import HalvingError, InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IPv6 addresses that stand for an IPv4 address: those of NAT64 (RFC 6052) and "IPv4-compatible" ones, which
# end with it.
_ENDS_WITH_IPV4 = (ip_network("64:ff9b::/96"), ip_network("::/96"))


class AddressRefused(HalvingError, PermissionError):
    """The address is one that no message may be sent to."""


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse the private networks that administrators have listed, such as ``10.1.0.0/16``.

    Raises:
        InvalidInput: a text is no network.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError:
            raise InvalidInput(
                f"network {text!r} is not accepted: give one such as 10.1.0.0/16 or fd00:1::/64"
            ) from None
    return tuple(networks)


def resolve(host: str, port: int, allowed: Sequence[Network] = ()) -> list[Address]:
    """Resolve a host, and return its addresses if a message may be sent to all of them.

    Args:
        allowed: private networks that may be reached all the same.

    Raises:
        AddressRefused: one of its addresses is not public, and in none of the ``allowed`` networks.
        OSError: it cannot be resolved.
    """
    addresses: list[Address] = []
    for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = ip_address(str(place[0]).partition("%")[0])
        if not may_reach(address, allowed):
            raise AddressRefused(
                f"{host!r} is {address}, which is not a public address: messages go there only if an "
                "administrator lists its network (halving serve --alert-network)"
            )
        if address not in addresses:
            addresses.append(address)
    return addresses


def may_reach(address: Address, allowed: Sequence[Network] = ()) -> bool:
    """Whether an address is public, or in one of the ``allowed`` networks."""
    inner = _inner_address(address)
    if any(inner in network for network in allowed if network.version == inner.version):
        return True
    return inner.is_global and not inner.is_multicast


def _inner_address(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _ENDS_WITH_IPV4):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address
