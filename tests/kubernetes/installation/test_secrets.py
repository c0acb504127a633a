"""After everything that the other files did: the planted secrets are nowhere but in the cluster's Secrets."""

from concurrent.futures import ThreadPoolExecutor

import dagster as dg
from pyarrow import fs

from tests.kubernetes.installation.harness import Installation
from tests.kubernetes.installation.specs import slow


def test_the_secrets_are_in_no_object_no_database_no_log_and_no_pod(installation: Installation) -> None:
    if earlier := installation.instance.get_runs(dg.RunsFilter(job_name="sweep"), limit=1):
        run = earlier[0].run_id
    else:  # this test runs alone
        run = installation.submit("sweep", slow("last", trials=1, epochs=2))
        installation.wait_for_run(run)
    texts = {
        "the cluster": installation.kubectl("get", "pods,jobs,deployments,configmaps,events", "-o", "json")
        + installation.story(),
        "Dagster's database": installation.postgres.dump("dagster"),
        "the catalog": installation.postgres.dump("catalog"),
        **objects(installation),
    }
    assert run in texts["Dagster's database"]
    assert any(name.startswith("halving/logs/") for name in texts)
    assert any(name.startswith("halving/experiments/runs/") for name in texts)
    leaks = [
        (secret, where)
        for where, text in texts.items()
        for secret, value in installation.secrets.items()
        if value in text
    ]
    assert leaks == []


def objects(installation: Installation) -> dict[str, str]:
    """Every object in the bucket, as far as it is text."""
    filesystem = installation.s3.filesystem()
    listed = filesystem.get_file_info(fs.FileSelector(installation.s3.bucket, recursive=True))
    paths = [entry.path for entry in listed if entry.is_file]
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(paths, pool.map(lambda path: read(filesystem, path), paths), strict=True))


def read(filesystem: fs.FileSystem, path: str) -> str:
    with filesystem.open_input_stream(path, compression=None) as stream:
        return stream.read().decode(errors="replace")
