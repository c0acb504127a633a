"""Names of artifacts: any text that a file may be called, each in a record of its own."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from halving import InvalidInput
from halving.identifiers import artifact_record, check_artifact_name, check_name, is_artifact_name
from tests.properties import examples
from tests.sdk.artifact_names import NAMES

_RECORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_accepted_as_it_is(name: str) -> None:
    assert check_artifact_name("artifact name", name) == name
    assert _RECORD.fullmatch(artifact_record(name))


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../up",
        "/etc/passwd",
        "a/../b",
        "a//b",
        "a/",
        "./a",
        "a\nb",
        "a\0",
        "\x7f",
        "\udc80",
        "木" * 667,
        3,
        None,
    ],
)
def test_what_leads_elsewhere_or_cannot_be_shown_is_refused_by_name(name: str) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"artifact name .* is not accepted: give text of 1-2,000 bytes in UTF-8 without control",
    ):
        check_artifact_name("artifact name", name)


def test_records_of_these_names_differ() -> None:
    names = {
        *NAMES,
        *map(artifact_record, NAMES),
        *(artifact_record(artifact_record(name)) for name in NAMES),
    }
    assert len({artifact_record(name) for name in names}) == len(names)


@settings(max_examples=examples(200))
@given(st.text(min_size=1, max_size=150), st.text(min_size=1, max_size=150))
@example("a/b", "a-b")
def test_two_names_never_have_one_record(first: str, other: str) -> None:
    made = artifact_record(first) if is_artifact_name(first) else other
    for name, another in ((first, other), (first, made)):
        if is_artifact_name(name) and is_artifact_name(another):
            assert _RECORD.fullmatch(artifact_record(name))
            assert (artifact_record(name) == artifact_record(another)) == (name == another)


@pytest.mark.parametrize("name", ["weights.pt", "A.csv", "a@2", "2026+11"])
def test_a_plain_name_is_its_own_record(name: str) -> None:
    assert artifact_record(check_name("name", name)) == name
    assert artifact_record(name, as_is=False) != name
