"""Checkpoints of a gang that go straight to S3: no byte of them lies on a disk of the machine."""

import resource
import secrets
from urllib.parse import urlsplit

import pytest
import torch

from halving import Store
from halving.checkpoints.restoring import saved_state
from halving.checkpoints.sharded.manifest import Manifest
from halving.checkpoints.sharded.save import Staging
from halving.distributed.ranks import Ranks
from halving.store.deadline import Deadline
from halving.store.store import blob_name
from tests.gangs import run_gang
from tests.s3 import S3

LARGE = 12_000_000  # numbers: each rank writes a tensor of 48 MB


def state() -> dict[str, torch.nn.Parameter]:
    torch.manual_seed(3)
    return {name: torch.nn.Parameter(torch.randn(LARGE)) for name in ("left", "right")}


def saved_without_a_disk(ranks: Ranks, address: str) -> tuple[str | None, str | None]:
    """The digest of the checkpoint, and how it went wrong on this rank."""
    staging = Staging(Store(address), ranks)
    # makes the ranks' process group, which is by a file in this test
    first = staging.begin({"small": 1}, Deadline())
    first.join()
    ranks.barrier("the first save")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # whoever writes to a file now gets an error
    try:
        save = staging.begin({"model": torch.nn.ParameterDict(state())}, Deadline())
        save.join()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    return save.digest, None if save.error is None else str(save.error)


def tag(s3: S3, store: Store, digest: str) -> str:
    """The ETag of a blob, which names the number of parts of a multipart upload."""
    import boto3

    client = boto3.client("s3", endpoint_url=f"http://{s3.endpoint}", region_name="us-east-1")
    address = urlsplit(store.root)
    key = f"{address.path.strip('/')}/{blob_name(digest)}"
    etag: str = client.head_object(Bucket=address.netloc, Key=key)["ETag"]
    return etag.strip('"')


@pytest.mark.slow
def test_large_parts_go_to_s3_in_several_requests_and_never_to_a_disk(s3: S3) -> None:
    store = Store(s3.root(secrets.token_hex(6)))
    (digest, own), (_, other) = run_gang(2, saved_without_a_disk, store.root)
    assert (own, other) == (None, None)
    assert digest is not None
    tensors = Manifest.parse(store.get_blob(digest)).tensors
    blobs = [chunk.place.blob for tensor in tensors.values() for chunk in tensor.chunks]
    assert len(set(blobs)) == 2
    for blob in blobs:
        parts = tag(s3, store, blob).partition("-")[2]
        assert int(parts) > 1
    restored = saved_state(store, digest)["model"]
    assert all(torch.equal(restored[name], value) for name, value in state().items())
