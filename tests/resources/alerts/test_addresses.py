"""No message reaches an address that is not public, however it is written or resolved."""

import socket
from typing import Any

import pytest

from halving.errors import HalvingError, InvalidInput
from resources.alerts.addresses import AddressRefused, may_reach, parse_networks, resolve
from resources.alerts.http_post import check_url, post
from tests.alert_receiver import THIS_MACHINE, Receiver

FORGED = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://localhost/",
    "http://[::]/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[fd00::1]/",
    "http://[fe80::1]/",
    "http://169.254.169.254/latest/meta-data",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://198.18.0.1/",
    "http://192.0.2.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "https://hooks.example.com@127.0.0.1/",
    "http://127.0.0.1\\@hooks.example.com/",
    "http://①②⑦.0.0.1/",
    "http://127.0.0.1:0/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "http://127.0.0.1/\r\nHost: hooks.example.com",
]


@pytest.mark.parametrize("url", FORGED)
def test_no_message_is_sent_to_a_forged_address(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_to_connect(*arguments: Any, **named: Any) -> None:
        raise AssertionError(f"a connection was opened: {arguments}")

    monkeypatch.setattr(socket, "create_connection", refuse_to_connect)
    with pytest.raises((AddressRefused, InvalidInput)):
        post(url, b"{}", {})


def test_a_name_that_resolves_elsewhere_the_second_time_is_connected_where_it_was_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["93.184.216.34", "127.0.0.1"]
    opened: list[str] = []

    def resolve_differently(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    def note_connection(address: tuple[str, int], *_: Any, **__: Any) -> None:
        opened.append(address[0])
        raise OSError("not connected in a test")

    monkeypatch.setattr(socket, "getaddrinfo", resolve_differently)
    monkeypatch.setattr(socket, "create_connection", note_connection)
    with pytest.raises(OSError, match="not connected in a test"):
        post("http://rebinding.example/", b"{}", {})
    assert opened == ["93.184.216.34"]
    with pytest.raises(AddressRefused):
        post("http://rebinding.example/", b"{}", {})
    assert opened == ["93.184.216.34"]


def test_one_private_address_among_public_ones_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [("93.184.216.34", 443), ("10.0.0.7", 443)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", place) for place in places])
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.7"):
        resolve("mixed.example", 443)
    assert len(resolve("mixed.example", 443, parse_networks(["10.0.0.0/24"]))) == 2


def test_a_redirection_to_a_private_address_is_not_followed(receiver: Receiver) -> None:
    receiver.answers = [(307, {"Location": "http://169.254.169.254/"})]
    answer = post(receiver.url, b"{}", {}, THIS_MACHINE)
    assert answer.status == 307
    assert receiver.bodies == []


def test_a_listed_network_is_reached_and_its_neighbour_is_not(receiver: Receiver) -> None:
    assert post(receiver.url, b'{"a": 1}', {}, THIS_MACHINE).status == 204
    assert receiver.bodies == [{"a": 1}]
    with pytest.raises(AddressRefused):
        post(receiver.url, b"{}", {}, parse_networks(["10.0.0.0/8"]))


def test_a_network_that_is_none_is_refused_with_what_is_accepted() -> None:
    with pytest.raises(InvalidInput, match=r"network '10\.0\.0\.1/8' is not accepted: give one such as"):
        parse_networks(["10.0.0.1/8"])


@pytest.mark.parametrize(
    "url", ["https://hooks.example.com/services/T0/B0/x?y=1", "http://example.com:8080/"]
)
def test_addresses_as_services_give_them_are_accepted(url: str) -> None:
    check_url(url)


def test_an_address_on_the_internet_may_be_reached() -> None:
    (address,) = [parse_networks(["93.184.216.34/32"])[0].network_address]
    assert may_reach(address)


def test_the_refusal_is_an_error_that_a_builtin_handler_catches() -> None:
    assert issubclass(AddressRefused, HalvingError)
    assert issubclass(AddressRefused, PermissionError)
