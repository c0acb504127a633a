"""What the addresses of pages show."""

import pytest

from resources.views.page_address import parse_address
from server.pages import PATHS

HOSTS = ("", "https://h.example", "http://127.0.0.1:3001/ml/halving")


@pytest.mark.parametrize("host", HOSTS)
def test_runs_sweeps_and_compare_are_told_apart_below_any_path(host: str) -> None:
    assert parse_address(f"{host}/runs/digits/a%40b?tab=x") == ("run", "digits/a@b")
    assert parse_address(f"{host}/sweeps/digits-7f3a/") == ("sweep", "digits-7f3a")
    assert parse_address(f"{host}/?filter=a&top=3#x") == ("view", "filter=a&top=3")


@pytest.mark.parametrize("host", HOSTS)
def test_every_other_page_is_no_view_of_all_runs(host: str) -> None:
    for path in [*PATHS, "/shared/{secret}", "/api/v1/runs"]:
        target = parse_address(f"{host}{path}")
        is_shown = path in ("/", "/runs/{project}/{run}", "/sweeps/{name}")
        assert (target is not None) == is_shown, path


def test_what_is_no_address_shows_nothing() -> None:
    assert parse_address("https://[h.example/runs/digits/a") is None
