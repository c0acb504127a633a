"""Addresses from which a checkpoint can be fetched for a while without a token.

S3's own address where the checkpoint is a file there, else one of this server.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from itsdangerous import BadSignature, URLSafeTimedSerializer

from halving import Store
from halving.checkpoints.download import is_sharded
from halving.errors import NotFound, StoreError
from halving.store.store import blob_name
from resources.s3_client import s3_client
from server.state import State

SECONDS = 900
PATH = "/api/v1/signed"


def checkpoint_link(state: State, digest: str) -> tuple[str, datetime]:
    """The address of a checkpoint, and until when it holds.

    What is in the store only in parts, this server puts together.
    """
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=SECONDS)
    if state.store.root.startswith("s3://") and not _is_in_parts(state.store, digest):
        holder = state.store
        with suppress(StoreError):  # it does not answer: the address holds for when it does
            # A version may be promoted long after its checkpoint has moved.
            holder = state.store.holder(blob_name(digest))
        if holder.root.startswith("s3://"):
            return _presign(holder, blob_name(digest)), expires_at
    return f"{PATH}/{_signer(state).dumps(digest)}", expires_at


def linked_digest(state: State, signed: str) -> str:
    """The digest that one of this server's own signed addresses names.

    Raises:
        NotFound: it was not made by this server, or is too old.
    """
    try:
        return str(_signer(state).loads(signed, max_age=SECONDS))
    except BadSignature:
        raise NotFound("this address does not hold, or no longer: ask for the champion again") from None


def _is_in_parts(store: Store, digest: str) -> bool:
    try:
        return is_sharded(store, digest)
    except (NotFound, StoreError):
        return False  # who fetches it is told so by S3


def _signer(state: State) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(state.signing_key, salt="checkpoint")


def _presign(store: Store, name: str) -> str:
    """A presigned S3 address of a file.

    Signing makes no request.
    """
    bucket, _, key = store.path(name).partition("/")
    return str(
        s3_client(store).generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=SECONDS
        )
    )
