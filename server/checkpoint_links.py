"""Addresses from which a checkpoint can be fetched for a while without a token: S3's own where the store is there, else this server's."""

import os
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

from itsdangerous import BadSignature, URLSafeTimedSerializer

from halving import Store
from halving.errors import NotFound
from halving.store.store import blob_name
from server.state import State

SECONDS = 900
PATH = "/api/v1/signed"


def checkpoint_link(state: State, digest: str) -> tuple[str, datetime]:
    """The address of a blob, and until when it holds."""
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=SECONDS)
    if state.store.root.startswith("s3://"):
        return _presigned(state.store, blob_name(digest)), expires_at
    return f"{PATH}/{_signer(state).dumps(digest)}", expires_at


def linked_digest(state: State, signed: str) -> str:
    """The blob that one of this server's own addresses names.

    Raises:
        NotFound: it was not made by this server, or is too old.
    """
    try:
        return str(_signer(state).loads(signed, max_age=SECONDS))
    except BadSignature:
        raise NotFound("this address does not hold, or no longer: ask for the champion again") from None


def _signer(state: State) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(state.signing_key, salt="checkpoint")


def _presigned(store: Store, name: str) -> str:
    """S3's address of a file; only the request's signature is in it, and no request is made."""
    import boto3
    from botocore.config import Config

    options = {key: values[-1] for key, values in parse_qs(urlsplit(store.root).query).items()}
    endpoint = options.get("endpoint_override") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    style = "virtual" if options.get("force_virtual_addressing") == "true" or not endpoint else "path"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        config=Config(signature_version="s3v4", s3={"addressing_style": style}),
    )
    bucket, _, key = store.path(name).partition("/")
    return str(client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=SECONDS))
