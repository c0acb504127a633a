"""A store by its address: endpoints of one's own, and credentials that must not be in it."""

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from halving import InvalidInput, Store
from tests.s3 import S3

CHECKOUT = Path(__file__).parents[3]


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_an_endpoint_in_the_environment_is_used(
    s3: S3, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    root = s3.root(secrets.token_hex(6))
    monkeypatch.setenv(variable, f"http://{s3.endpoint}")
    store = Store(root.partition("?")[0])
    store.create("a/b", b"1")
    assert Store(root).read("a/b") == b"1"
    assert store.address("a/b") == Store(root).address("a/b") == f"{root.partition('?')[0]}/a/b"


@pytest.mark.parametrize(
    "root",
    [
        "s3://AKIAKEY:planted@bucket/lab",
        "s3://planted@bucket/lab?region=us-east-1",
        "gs://someone:planted@bucket/lab",
    ],
)
def test_an_address_with_credentials_is_refused_without_being_shown(root: str) -> None:
    with pytest.raises(InvalidInput, match=r"it holds credentials.*AWS_ACCESS_KEY_ID") as raised:
        Store(root)
    assert "planted" not in str(raised.value)
    assert "AKIAKEY" not in str(raised.value)


def test_an_unknown_option_is_named_without_its_value() -> None:
    with pytest.raises(
        InvalidInput, match=r"option 'secret_key' .* is not accepted: give some of endpoint_override"
    ) as raised:
        Store("s3://bucket/lab?secret_key=planted").exists("a")
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize("root", ["s3:/bucket/lab", "gs:/bucket", "file:/srv/lab", "s3:/key:planted@bucket"])
def test_an_address_with_one_slash_is_no_folder(root: str) -> None:
    with pytest.raises(
        InvalidInput,
        match=rf"store's address = '{root[:3]}.*' is not accepted: give .*://… for an object store",
    ) as raised:
        Store(root)
    assert "planted" not in str(raised.value)
    assert Store(f"./{root}").folder is not None


@pytest.mark.parametrize("value", ["yes", "True", "1"])
def test_virtual_addressing_is_true_or_false(value: str) -> None:
    with pytest.raises(
        InvalidInput, match=f"force_virtual_addressing = '{value}' .* is not accepted: give true or false"
    ):
        Store(f"s3://bucket/lab?force_virtual_addressing={value}").exists("a")


def test_a_scheme_that_arrow_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"ftp://host/lab.* is not accepted"):
        Store("ftp://host/lab").exists("a")


FORKS_WHILE_A_REQUEST_WAITS = """
import os, sys, threading
from halving import Store
from tests.s3 import Gate
from tests.waiting import wait_for

host, port, address, endpoint = sys.argv[1:]
gate = Gate((host, int(port)))
store = Store(address.replace(endpoint, gate.endpoint))
store.create("a", b"1")
waits = Store(store.root)
waits.filesystem
gate.open(), gate.swallow()
before = gate.connections
threading.Thread(target=lambda: waits.exists("a"), daemon=True).start()
wait_for(lambda: gate.connections > before, 30, "a request")
reading, writing = os.pipe()
if os.fork():
    gate.open()
    os.write(writing, b"opened")
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
os.read(reading, 6)
print(store.read("a"), Store(store.root).read("a"), flush=True)
sys.exit(7)
"""


def test_a_child_forked_while_a_request_waits_reads_the_store_and_ends(s3: S3) -> None:
    address = s3.root(secrets.token_hex(6))
    script = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        FORKS_WHILE_A_REQUEST_WAITS,
        s3.host,
        str(s3.port),
        address,
        s3.endpoint,
    ]
    done = subprocess.run(script, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (7, "b'1' b'1'\n")
