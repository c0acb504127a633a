"""Downloads of checkpoints as one file, whether the store has them in one part or in many."""

from collections.abc import Mapping
from importlib import import_module

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from halving.checkpoints.download import download, is_sharded
from server.state import State


async def checkpoint_response(state: State, digest: str, headers: Mapping[str, str]) -> StreamingResponse:
    """The response that sends a checkpoint as one file.

    A fault of the store that is there before its first byte is raised.

    Raises:
        NotFound: no such blob.
        StoreError: it cannot be read, or lacks a part.
    """
    if await state.store_threads.read(is_sharded, state.store, digest):
        # With torch, which may take longer to import than the store has for its answer.
        await run_in_threadpool(import_module, "halving.checkpoints.sharded.assembled")
    checkpoint = await state.store_threads.read(download, state.store, digest)
    return StreamingResponse(
        state.store_threads.stream(checkpoint.pieces),
        200,
        {**headers, "Content-Length": str(checkpoint.size)},
    )
