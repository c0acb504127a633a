"""The gate ``lineage``: all that a winner was made of can be found."""

from typing import Any

from halving import HalvingError, Store
from halving.records.run_record import RunRecords
from resources.registry.gates.verdict import FAIL, PASS, Verdict


def judge_lineage(store: Store, report: dict[str, Any]) -> Verdict:
    missing = missing_lineage(store, report)
    if missing:
        return Verdict("lineage", FAIL, f"missing: {'; '.join(missing)}")
    return Verdict("lineage", PASS, "run record, code, checkpoint and snapshot are all there")


def missing_lineage(store: Store, report: dict[str, Any]) -> list[str]:
    """What of the winner's origin is missing: run record, code, checkpoint or snapshot."""
    missing = []
    project = report.get("project", report["name"])  # a report from before sweeps had projects names none
    winner, records = report["winner"], RunRecords(store, project, report["winner"]["key"])
    try:
        record = records.read()
    except HalvingError as error:
        return [f"run record ({error})"]
    if record["params"] != winner["params"]:
        missing.append("params: those in the run's record differ from the catalog's")
    if final := report.get("final"):
        if not final["promotable"]:
            missing.append(f"final training: none of its {final['planned']} seeds is complete: {'; '.join(final['missing'])}")
        elif (trained_on := (record.get("trial") or {}).get("train_on")) != final["on"]:
            missing.append(f"final training: the run trained on {trained_on}, not on {final['on']}")
    git = record["provenance"].get("git") or {}
    if not (git.get("commit") or git.get("patch") or record["parent"].get("trainable_sha256")):
        missing.append("code: neither a git commit nor the trainable's digest was recorded")
    if git and git.get("dirty") is None:
        missing.append(f"code: git could not report what differs from the commit ({git.get('error')})")
    if record["parent"].get("snapshot") != report["snapshot"]["digest"]:
        missing.append(f"snapshot: the run trained on {record['parent'].get('snapshot')}")
    for title, digest in (("checkpoint", winner["checkpoint"]), ("dirty patch", git.get("patch"))):
        if digest and not store.has_blob(digest):
            missing.append(f"{title}: no blob {digest} in the store {store.root}")
    if winner["checkpoint"] not in [saved.digest for saved in records.checkpoints()]:
        missing.append("checkpoint: the run's record does not list it")
    return missing
