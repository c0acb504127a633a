"""What the documentation shows is accepted as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from resources.sweep_spec import parse_spec
from tests.backends import SMALL

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", (DOCS / "search.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_a_spec_is_part_of_one(example: str) -> None:
    given: dict[str, Any] = yaml.safe_load(example)
    parse_spec({**SMALL, "strategy": {"random": {"budget": 27}}, **given})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
