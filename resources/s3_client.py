"""boto3's client for a store on S3, for what Arrow cannot do: sign addresses, set tags, delete in bulk."""

import os
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from halving.store.store import Store


def s3_client(store: Store) -> Any:
    """The client for a store's address, with options as Arrow reads them; all threads share it."""
    return _client(store.root)


@lru_cache(maxsize=8)
def _client(root: str) -> Any:
    import boto3
    from botocore.config import Config

    options = {key: values[-1] for key, values in parse_qs(urlsplit(root).query).items()}
    endpoint = (
        options.get("endpoint_override")
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
    )
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    style = "virtual" if options.get("force_virtual_addressing") == "true" or not endpoint else "path"
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=options.get("region")
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or "us-east-1",
        config=Config(signature_version="s3v4", s3={"addressing_style": style}, max_pool_connections=25),
        verify=options.get("tls_ca_file_path"),
    )
