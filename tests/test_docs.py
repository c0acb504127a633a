"""What the documentation shows is accepted as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from resources.execution.kubernetes.cluster_config import ClusterConfig
from resources.features.view import load_view, parse_view
from resources.sweep_spec import parse_spec
from tests.backends import SMALL

DOCS = Path(__file__).parent.parent / "docs"
SEARCH, TRAINING, GANGS, DATA, FEATURES = (
    re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    for page in ("search.md", "training.md", "gangs.md", "data.md", "features.md")
)
SETTINGS = [example for example in GANGS if example.startswith("trial_pods:")]
EXAMPLES = [example for example in SEARCH + TRAINING + GANGS if example not in SETTINGS]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_a_spec_is_part_of_one(example: str) -> None:
    fields: dict[str, Any] = yaml.safe_load(example.replace("sha256:…", f"sha256:{'0' * 64}"))
    parse_spec({**SMALL, "strategy": {"random": {"budget": 27}}, **fields})


@pytest.mark.parametrize("example", SETTINGS, ids=range(len(SETTINGS)))
def test_every_example_of_the_clusters_settings_is_accepted(example: str) -> None:
    ClusterConfig.model_validate(yaml.safe_load(example))


@pytest.mark.parametrize("example", DATA + FEATURES, ids=range(len(DATA + FEATURES)))
def test_every_example_of_data_is_accepted(example: str) -> None:
    fields: dict[str, Any] = yaml.safe_load(example)
    if "entity" in fields:
        assert parse_view(fields) == load_view(DOCS.parent / "features" / "clicks.yaml")
        return
    rows = {} if fields["dataset"].keys() & {"source", "labels"} else {"source": "my_project:load"}
    parse_spec({**SMALL, "dataset": {"name": "points", "target": "label", **rows, **fields["dataset"]}})


def test_the_table_of_targets_says_what_make_help_says() -> None:
    contributing = (DOCS.parent / "CONTRIBUTING.md").read_text()
    row = re.compile(r"^\| `make ([a-z-]+)` \| (.+) \| (.+) \|$", re.MULTILINE)
    table = row.findall(contributing.partition("| target |")[2])
    helped = re.findall(
        r"^(check|steady|test[a-z-]*):[^#\n]*## Run (.+): (.+)$",
        (DOCS.parent / "Makefile").read_text(),
        re.MULTILINE,
    )
    assert sorted(table) == sorted(helped)
    assert len(table) == 8


def test_there_are_examples() -> None:
    assert len(SEARCH) >= 5
    assert len(TRAINING) >= 4
    assert SETTINGS
    assert len(DATA) >= 2
    assert len(FEATURES) >= 2
