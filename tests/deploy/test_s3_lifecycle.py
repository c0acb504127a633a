"""The tags of cold blobs and the lifecycle rules that move them, as far as the test's own S3 server takes
them.
"""

import json
import secrets
from pathlib import Path

from halving import Store
from halving.maintenance.cold_tier import Movable
from halving.store.store import blob_name
from resources.retention.policy import READ_AT_ONCE
from resources.retention.storage_class import TAG, tag_blobs
from resources.s3_client import s3_client
from tests.s3 import S3

RULES = json.loads((Path(__file__).parent.parent.parent / "deploy" / "s3-lifecycle.json").read_text())


def test_each_accepted_class_has_a_rule_for_its_tag_and_s3_takes_the_rules(s3: S3) -> None:
    store = Store(s3.root(secrets.token_hex(6)))
    client = s3_client(store)
    bucket = store.path("").partition("/")[0]
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=RULES)
    kept = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    tagged = [rule for rule in kept if "Transitions" in rule]
    assert {(rule["Filter"]["Tag"]["Key"], rule["Filter"]["Tag"]["Value"]) for rule in tagged} == {
        (TAG, each) for each in READ_AT_ONCE
    }
    assert all(
        [transition["StorageClass"] for transition in rule["Transitions"]] == [rule["Filter"]["Tag"]["Value"]]
        for rule in tagged
    )


def test_blobs_of_the_first_class_are_tagged_once_more_at_most_and_read_as_before(s3: S3) -> None:
    store = Store(s3.root(secrets.token_hex(6)))
    first, second = (Movable(store.put_blob(content), len(content)) for content in (b"first", b"second"))
    client = s3_client(store)
    (bucket, _, prefix) = store.path("").partition("/")
    moved = {"Bucket": bucket, "Key": f"{prefix}{blob_name(second.digest)}"}
    client.copy_object(CopySource=moved, StorageClass="GLACIER_IR", **moved)  # as the rules do it
    assert list(tag_blobs(store, [first, second], "GLACIER_IR", dry_run=True)) == [first]
    for _ in range(2):
        assert list(tag_blobs(store, [first, second], "GLACIER_IR")) == [first]
    tags = client.get_object_tagging(Bucket=bucket, Key=f"{prefix}{blob_name(first.digest)}")["TagSet"]
    assert tags == [{"Key": TAG, "Value": "GLACIER_IR"}]
    assert (store.get_blob(first.digest), store.get_blob(second.digest)) == (b"first", b"second")
