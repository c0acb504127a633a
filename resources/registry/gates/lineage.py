"""The gate ``lineage``: all that a winner was made of still exists."""

from collections.abc import Mapping
from typing import Any

from halving import Dataset, HalvingError, Store
from halving.data.shards import shards_of
from halving.query.runs import in_threads
from halving.records.redaction import holds_secrets
from halving.records.run_record import RunRecords
from halving.text import size
from resources.registry.gates.verdict import FAIL, PASS, Verdict

_CODE = (
    ".c",
    ".cc",
    ".cfg",
    ".cpp",
    ".cu",
    ".h",
    ".hpp",
    ".ini",
    ".ipynb",
    ".py",
    ".pyx",
    ".rs",
    ".sh",
    ".toml",
    ".yaml",
    ".yml",
)
"""Endings of the names of code files; any other file that the record lacks counts as data beside the code."""
_SETTINGS = (".cfg", ".ini", ".toml", ".yaml", ".yml")
MAX_FILES_IN_REASON = 5


def judge_lineage(store: Store, report: dict[str, Any], *, with_rows: bool = True) -> Verdict:
    """Judge whether all that the winner was made of still exists.

    The reason of a pass names the files beside the code that were not recorded.

    Args:
        with_rows: whether every shard of the snapshot is looked for, with many requests to an object store.

    Raises:
        StoreUnavailable: the store cannot be read, which is no verdict on the winner.
    """
    # A report from before sweeps had projects names no project.
    project = report.get("project", report["name"])
    records = RunRecords(store, project, report["winner"]["key"])
    try:
        record = records.read()
    except HalvingError as error:
        if isinstance(error, ConnectionError):
            raise
        return Verdict("lineage", FAIL, f"missing: run record ({error})")
    missing = _missing(records, record, report, with_rows=with_rows)
    if missing:
        return Verdict("lineage", FAIL, f"missing: {'; '.join(missing)}")
    reason = "run record, code as it was recorded, checkpoint and snapshot are all there"
    if unrecorded := _unrecorded_beside_code(_git_of(record)):
        reason += f"; not recorded: {unrecorded}"
    return Verdict("lineage", PASS, reason)


def _missing(
    records: RunRecords, record: Mapping[str, Any], report: Mapping[str, Any], *, with_rows: bool
) -> list[str]:
    """A sentence for each missing part of the winner's code, checkpoint, snapshot and final training."""
    missing = []
    store = records.store
    winner = report["winner"]
    if record["params"] != winner["params"]:
        missing.append("params: those in the run's record differ from the catalog's")
    if final := report.get("final"):
        if not final["promotable"]:
            missing.append(
                f"final training: none of its {final['planned']} seeds is complete: "
                f"{'; '.join(final['missing'])}"
            )
        elif (trained_on := (record.get("trial") or {}).get("train_on")) != final["on"]:
            missing.append(f"final training: the run trained on {trained_on}, not on {final['on']}")
    git = _git_of(record)
    if not (git.get("commit") or git.get("patch") or record["parent"].get("trainable_sha256")):
        missing.append("code: neither a git commit nor the trainable's digest was recorded")
    if git and git.get("dirty") is None:
        missing.append(f"code: git could not report what differs from the commit ({git.get('error')})")
    left_out = [entry for entry in git.get("left_out") or [] if _is_code(entry)]
    if left_out:
        missing.append(
            f"code: {_name_files(left_out)}, changed or new over the commit and not recorded; commit what "
            "the training needs"
        )
    if unlisted := git.get("left_out_count", 0) - len(git.get("left_out") or []):
        missing.append(
            f"code: {unlisted} more files were not recorded, too many to be named; commit them, or let git "
            "ignore them"
        )
    if record["parent"].get("snapshot") != report["snapshot"]["digest"]:
        missing.append(f"snapshot: the run trained on {record['parent'].get('snapshot')}")
    if with_rows:
        missing += _missing_of_snapshot(store, report["snapshot"])
    for title, digest in (("checkpoint", winner["checkpoint"]), ("dirty patch", git.get("patch"))):
        if digest and not store.has_blob(digest):
            missing.append(f"{title}: no blob {digest} in the store {store.root}")
    if winner["checkpoint"] not in [saved.digest for saved in records.checkpoints()]:
        missing.append("checkpoint: the run's record does not list it")
    return missing


def _missing_of_snapshot(store: Store, snapshot: Mapping[str, Any]) -> list[str]:
    """A sentence on missing files of the snapshot; damaged ones are noticed when they are read."""
    dataset = Dataset(store, snapshot["key"].partition("@")[0], snapshot["digest"])
    try:
        manifest = dataset.manifest
    except HalvingError as error:
        if isinstance(error, ConnectionError):
            raise
        return [f"snapshot: {error}"]
    names = [shard.name for split in manifest["shards"] for shard in shards_of(manifest, split)]
    gone = [name for name, exists in zip(names, in_threads(store.exists, names), strict=True) if not exists]
    if not gone:
        return []
    problem = (
        f"snapshot: {len(gone)} of its shards are gone, such as {gone[0]}; halving datasets fetch brings "
        "them back from another store"
    )
    return [problem]


def _git_of(record: Mapping[str, Any]) -> dict[str, Any]:
    return record["provenance"].get("git") or {}


def _is_code(entry: Mapping[str, Any]) -> bool:
    """Whether an unrecorded file is code: by its ending, or as a repository with changes of its own.

    A settings file with secrets is not code.
    """
    return entry["path"].endswith(("/", *_CODE)) and not _is_settings_of_secrets(entry["path"])


def _is_settings_of_secrets(path: str) -> bool:
    """Whether a file is one such as ``credentials.yaml``, which training needs and nobody should commit."""
    return path.endswith(_SETTINGS) and holds_secrets(path)


def _unrecorded_beside_code(git: Mapping[str, Any]) -> str:
    """The changes over the commit that the record lacks, in words; "" if it has all."""
    words = []
    if left_out := git.get("left_out"):
        words.append(_name_files(left_out))
    if git.get("patch_redacted"):
        words.append(f"{git['patch_redacted']} changed lines, since each holds a secret")
    return ", ".join(words)


def _name_files(left_out: list[dict[str, Any]]) -> str:
    names = []
    for entry in left_out[:MAX_FILES_IN_REASON]:
        name = entry["path"]
        if not name.endswith("/"):  # A repository has no size.
            name += f" ({size(entry['bytes'])})"
        names.append(name)
    text = ", ".join(names)
    if len(left_out) > MAX_FILES_IN_REASON:
        text += f" and {len(left_out) - MAX_FILES_IN_REASON} more"
    return text
