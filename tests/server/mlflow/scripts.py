"""Scripts with MLflow's own client, for processes of their own."""

AGAIN = """
def again(call, *given, **named):
    # An answer that breaks off behind its headers is the one fault
    # after which MLflow's client does not ask again.
    from mlflow.exceptions import MlflowException
    while True:
        try:
            return call(*given, **named)
        except MlflowException as error:
            if "IncompleteRead" not in str(error):
                raise

"""
"""The beginning of scripts with MLflow's own client whose server is killed."""

UPLOAD = """
import os, sys
from pathlib import Path
os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
os.environ["MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD"] = "true"
os.environ["MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE"] = str(5 << 20)
os.environ["MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE"] = str(5 << 20)
from mlflow import MlflowClient
from mlflow.store.artifact import http_artifact_repo

client, sent = MlflowClient(), []
true_put = http_artifact_repo.requests.put
http_artifact_repo.requests.put = lambda url, **given: sent.append(url) or true_put(url, **given)
content = os.urandom((12 << 20) + 7)
Path("weights.bin").write_bytes(content)
run = client.create_run("0").info.run_id
for folder in (None, "deep/er"):
    client.log_artifact(run, "weights.bin", folder)
assert len(sent) == 6, sent
files = [(file.path, file.file_size) for file in client.list_artifacts(run)]
assert files == [("deep", None), ("weights.bin", len(content))]
for path in ("weights.bin", "deep/er/weights.bin"):
    assert Path(client.download_artifacts(run, path)).read_bytes() == content
"""
"""Uploads a file of three parts, twice, and reads it back."""
