"""What expires of a run's records, and what is left of an ended trial's checkpoints: by tables."""

import pytest

from halving.maintenance.named_blobs import Record
from resources.retention.ended_trials import Trial, decide
from resources.retention.expired import Fate, expired_records
from resources.retention.policy import ProjectPolicy, parse_policy

DAY = 86_400.0
NOW = 1000 * DAY
CHECKPOINTS = tuple(f"checkpoints/{epoch}.json" for epoch in (1, 2, 3))
NAMES = ("artifacts/weights.json", *CHECKPOINTS, "end-0001.json", "media/1.json", "record.json")
SUPERSEDED = {"checkpoints/1.json", "checkpoints/2.json"}
POLICY = parse_policy({"checkpoints": {"days": 10}, "media": {"days": 10}, "artifacts": {"days": 10}}, "").of(
    "p"
)


def expired_names(
    fate: Fate, age: float, names: tuple[str, ...] = NAMES, policy: ProjectPolicy = POLICY
) -> set[str]:
    records = [Record("r", name, 1, NOW - age * DAY, (), False, "") for name in names]
    return {record.name for record in expired_records(records, fate, policy, NOW)}


@pytest.mark.parametrize(
    ("fate", "age", "names"),
    [
        (Fate(), 9, set()),
        # a script's newest stays: it may be continued
        (Fate(), 11, {*SUPERSEDED, "media/1.json", "artifacts/weights.json"}),
        (Fate(protected=True), 11, SUPERSEDED),
        (Fate(protected=True, whole=True), 11, set()),
        (Fate(registered=True), 11, {*SUPERSEDED, "media/1.json"}),
        (Fate("all", NOW - 9 * DAY), 99, set()),  # it counts from the sweep's end
        (Fate("all", NOW - 11 * DAY), 99, {"media/1.json", "artifacts/weights.json"}),
        (Fate("newest", NOW), 1, SUPERSEDED),  # decided is decided
        (Fate("none", NOW), 1, {*SUPERSEDED, "checkpoints/3.json"}),
        (Fate("none", NOW, whole=True), 1, set()),
    ],
)
def test_what_expires_is_what_should(fate: Fate, age: float, names: set[str]) -> None:
    assert expired_names(fate, age) == names


@pytest.mark.parametrize(
    ("attempts", "trains"),
    [
        ((), True),
        (("end-0001",), False),
        (("end-0001", "start-0002"), True),
        (("end-0002", "start-0002"), False),
        (("end-0003",), False),
    ],
)
def test_a_script_that_trains_keeps_all_its_checkpoints(attempts: tuple[str, ...], trains: bool) -> None:
    names = (*CHECKPOINTS, *(f"{name}.json" for name in attempts), "record.json")
    assert expired_names(Fate(), 99, names) == (set() if trains else SUPERSEDED)


def test_files_of_a_logged_model_that_are_no_runs_stay() -> None:
    assert expired_names(Fate(), 99, NAMES[:1]) == set()
    assert expired_names(Fate(), 99, (NAMES[0], "record.json")) == {NAMES[0]}


@pytest.mark.parametrize(
    ("fate", "goes"),
    [
        (Fate(), False),
        (Fate("all", NOW - 9 * DAY), False),
        (Fate("all", NOW - 11 * DAY), True),
        (Fate("all", NOW, registered=True), False),
    ],
)
def test_artifacts_of_trials_have_days_of_their_own(fate: Fate, goes: bool) -> None:
    policy = parse_policy({"artifacts": {"trials": {"days": 10}}}, "").of("p")
    assert expired_names(fate, 99, NAMES, policy) == ({"artifacts/weights.json"} if goes else set())


@pytest.mark.parametrize(
    ("trial", "left"),
    [
        (Trial(0, "all", None, None), "none"),
        (Trial(0, "all", None, "it is number 1 of its sweep"), "newest"),
        (Trial(0, "all", "somebody goes on from it", None), None),
        (Trial(0, "newest", None, None), "none"),
        (Trial(0, "newest", None, "it is number 1 of its sweep"), None),
        (Trial(0, "newest", "somebody goes on from it", None), None),
        (Trial(0, "none", None, "it is number 1 of its sweep"), None),
    ],
)
def test_what_is_left_of_a_trial_only_ever_gets_less(trial: Trial, left: str | None) -> None:
    assert decide([trial]).get(0) == left
