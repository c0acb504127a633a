"""The digest of a trial's image is recorded once, also if the store takes it only later."""

import logging

import pytest

from halving import Store, StoreError
from halving.query.runs import read_run
from halving.records.run_record import RunRecords
from halving.rerun.factors import exact_image
from resources.execution.kubernetes import image_note
from resources.execution.kubernetes.image_note import ImageNote
from tests.sdk.run.runs import start

DIGEST = f"sha256:{'12' * 32}"


def test_the_record_of_a_run_has_the_digest_that_its_cluster_has_told(store: Store) -> None:
    start(store, captured={"image": "registry.example:5000/train:1"}).finish()
    note = ImageNote(RunRecords(store, "p", "r"), 1, "registry.example:5000/train:1")
    for image in (None, "train:1", f"docker.io/train@{DIGEST}", "docker.io/train@sha256:other"):
        note.note(image)
    provenance = read_run(store, "p", "r").record["provenance"]
    assert (provenance["image"], provenance["image_digest"]) == ("registry.example:5000/train:1", DIGEST)
    assert exact_image(provenance) == f"registry.example:5000/train@{DIGEST}"


def test_an_image_that_is_named_by_its_digest_needs_no_note(store: Store) -> None:
    ImageNote(RunRecords(store, "p", "r"), 1, f"train@{DIGEST}").note(f"train@{DIGEST}")
    assert store.names("runs/project=p") == []


def test_what_the_store_refuses_is_written_later(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note = ImageNote(RunRecords(store, "p", "r"), 1, "train:1")
    with monkeypatch.context() as away:
        away.setattr(Store, "create", lambda *_, **__: (_ for _ in ()).throw(StoreError("the disk is full")))
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                note.note(f"train@{DIGEST}")
    assert (
        caplog.text.count("the digest of the image of run r is not written down yet: the disk is full") == 1
    )
    monkeypatch.setattr(image_note, "_AGAIN_SECONDS", 0.0)
    note._not_before = 0.0
    note.note(f"train@{DIGEST}")
    assert store.names("runs/project=p/r") == ["image-0001.json"]


@pytest.mark.parametrize(
    ("named", "exact"),
    [
        ("train", f"train@{DIGEST}"),
        ("train:1", f"train@{DIGEST}"),
        ("localhost:5000/team/train", f"localhost:5000/team/train@{DIGEST}"),
        (f"train@{DIGEST[:-1]}3", f"train@{DIGEST[:-1]}3"),
        (DIGEST, DIGEST),
        (None, None),
    ],
)
def test_an_image_is_named_by_its_repository_and_digest(named: str | None, exact: str | None) -> None:
    assert exact_image({"image": named, "image_digest": DIGEST}) == exact
    assert exact_image({"image": named}) == named
