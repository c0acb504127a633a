"""A store by its address: endpoints of one's own, and credentials that must not be in it."""

import secrets

import pytest

from halving import InvalidInput, Store
from tests.s3 import S3


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_an_endpoint_in_the_environment_is_used(s3: S3, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    root = s3.root(secrets.token_hex(6))
    monkeypatch.setenv(variable, f"http://{s3.endpoint}")
    store = Store(root.partition("?")[0])
    store.create("a/b", b"1")
    assert Store(root).read("a/b") == b"1"
    assert store.address("a/b") == Store(root).address("a/b") == f"{root.partition('?')[0]}/a/b"


@pytest.mark.parametrize(
    "root", ["s3://AKIAKEY:planted@bucket/lab", "s3://planted@bucket/lab?region=us-east-1", "gs://someone:planted@bucket/lab"]
)
def test_an_address_with_credentials_is_refused_without_being_shown(root: str) -> None:
    with pytest.raises(InvalidInput, match=r"it holds credentials.*AWS_ACCESS_KEY_ID") as raised:
        Store(root)
    assert "planted" not in str(raised.value)
    assert "AKIAKEY" not in str(raised.value)


def test_an_unknown_option_is_named_without_its_value() -> None:
    with pytest.raises(InvalidInput, match=r"option 'secret_key' .* is not accepted: give some of endpoint_override") as raised:
        Store("s3://bucket/lab?secret_key=planted").exists("a")
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize("root", ["s3:/bucket/lab", "gs:/bucket", "file:/srv/lab", "s3:/key:planted@bucket"])
def test_an_address_with_one_slash_is_no_folder(root: str) -> None:
    with pytest.raises(InvalidInput, match=rf"store's address = '{root[:3]}.*' is not accepted: give .*://… for an object store") as raised:
        Store(root)
    assert "planted" not in str(raised.value)
    assert Store(f"./{root}").folder is not None


@pytest.mark.parametrize("value", ["yes", "True", "1"])
def test_virtual_addressing_is_true_or_false(value: str) -> None:
    with pytest.raises(InvalidInput, match=f"force_virtual_addressing = '{value}' .* is not accepted: give true or false"):
        Store(f"s3://bucket/lab?force_virtual_addressing={value}").exists("a")


def test_a_scheme_that_arrow_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"ftp://host/lab.* is not accepted"):
        Store("ftp://host/lab").exists("a")
