"""Checks of what a store holds, and of what killed processes have left on this machine."""

import random
from collections.abc import Iterator
from pathlib import Path

from halving.doctor.checks import ERROR, OK, WARNING, Finding
from halving.errors import NotFound, StoreError
from halving.ingest.recovery import recover
from halving.journal import directory
from halving.query.units import size
from halving.store.store import Store

_BLOBS = "artifacts/sha256"
_SAMPLE_FOLDERS = 16  # of 256
_SAMPLE_BYTES = 256 << 20
_SHOWN = 5


def check_journals(store: Store) -> Iterator[Finding]:
    """Journals of dead processes on this machine: points that are not in the store yet."""
    for reason in sorted(directory.untrusted(store)):
        yield Finding(ERROR, reason, "what is in these journals does not reach the store")
    left = [folder for folder in directory.attempt_folders(store) if _is_left(folder)]
    if not left:
        yield Finding(OK, f"no killed process has left points in {directory.journal_home(store)}")
        return
    whose = [directory.whose(folder) for folder in left]
    shown = ", ".join(f"{one.project}/{one.run} (attempt {one.attempt})" for one in whose[:_SHOWN])
    yield Finding(
        WARNING,
        f"killed processes have left the points of {len(left)} attempts in this machine's journals: {shown}",
        "they are not in the store, where others look, and these runs have no end",
        "halving recover",
        lambda: _recovered(store),
    )


def check_digests(store: Store, *, whole: bool = False) -> Iterator[Finding]:
    """That blobs are what their names say: all, or a sample of at most 256 MiB that is another each time."""
    prefixes = [f"{number:02x}" for number in range(256)]
    random.shuffle(prefixes)
    left, looked, read, damaged = _SAMPLE_BYTES, 0, 0, list[tuple[str, str]]()
    for prefix in prefixes if whole else prefixes[:_SAMPLE_FOLDERS]:
        for name, count, _ in store.files(f"{_BLOBS}/{prefix}"):
            digest = f"sha256:{name.rpartition('/')[2]}"
            if name.rpartition("/")[2].startswith(".") or (not whole and count > left):
                continue
            left, looked, read = left - count, looked + 1, read + count
            try:
                with store.blob_file(digest):
                    pass
            except NotFound:  # collected meanwhile
                continue
            except StoreError as error:
                damaged.append((digest, str(error)))
    for digest, reason in damaged:
        yield Finding(
            ERROR,
            reason if digest in reason else f"{digest}: {reason}",
            "the checkpoint, artifact or report that it is, or is a part of, cannot be read; a training that resumes from it fails",
            "bring it back from a backup: halving restore; or put the same content again",
        )
    if not damaged:
        of = "all" if whole else "a sample of"
        yield Finding(OK, f"{of} {looked} blobs ({size(read)}) are what their names say" + ("" if whole else "; --all reads all"))


def _is_left(folder: Path) -> bool:
    if not directory.claim(folder):
        return False  # a living process writes it
    directory.release(folder, remove=False)
    return True


def _recovered(store: Store) -> str:
    found = recover(store)
    done = [one for one in found if one.state == "recovered"]
    return f"{sum(one.points for one in done)} points of {len(done)} attempts were written into the store"
