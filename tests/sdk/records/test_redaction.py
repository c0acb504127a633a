"""No password and no key comes into a run's record."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from halving import Store
from halving.records.provenance import git_state
from halving.records.redaction import without_secrets
from tests.sdk.conftest import Script


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["train.py", "--api-key=planted"], ["train.py", "--api-key=…"]),
        (
            ["train.py", "--hf_token", "planted", "--lr", "0.1"],
            ["train.py", "--hf_token", "…", "--lr", "0.1"],
        ),
        (["train.py", "db.password=planted=1\nmore"], ["train.py", "db.password=…"]),
        (["train.py", "postgresql://me:planted@host/db"], ["train.py", "postgresql://host/db"]),
        (["train.py", "x=planted-value/y"], ["train.py", "x=…/y"]),
        (["--secret-key=planted", "--secret-key", "planted"], ["--secret-key=…", "--secret-key", "…"]),
        (
            ["SECRET_KEY=planted", "--private-key=planted", "auth.key=planted"],
            ["SECRET_KEY=…", "--private-key=…", "auth.key=planted"],
        ),
        (
            ["--auth=planted", "--pwd=planted", "storage_key=planted"],
            ["--auth=…", "--pwd=…", "storage_key=…"],
        ),
        (["--wandb-key=planted", "connection_string=planted"], ["--wandb-key=…", "connection_string=…"]),
        (["postgresql://me:plan/ted@host/db", "x://me:pl@an/ted"], ["postgresql://host/db", "x://an/ted"]),
        (
            ["http://host:9000/a@2", "http://host/a@2", "s3://b/x,x://u:plan/ted@h"],
            ["http://host:9000/a@2", "http://host/a@2", "s3://b/x,x://h"],
        ),
        (['{"api_key": "planted", "lr": 0.1}'], ['{"api_key": "…", "lr": 0.1}']),
        (["an-aws-key", "a-wandb-key", "a-pg-password"], ["…", "…", "…"]),
        (
            ["/home/me/x", "--sort-key=accuracy", "--author=somebody"],
            ["/home/me/x", "--sort-key=accuracy", "--author=somebody"],
        ),
        (["train.py", "--tokens-per-batch", "524288"], ["train.py", "--tokens-per-batch", "524288"]),
        (
            ["train.py", "--max_tokens=100000", "--pad-token", "<pad>"],
            ["train.py", "--max_tokens=100000", "--pad-token", "<pad>"],
        ),
        (
            ["train.py", "lr=0.1", "--name=keyboard", "s3://bucket/lab"],
            ["train.py", "lr=0.1", "--name=keyboard", "s3://bucket/lab"],
        ),
    ],
)
def test_what_is_named_like_a_secret_or_is_one_of_the_environments_is_hidden(
    command: list[str], expected: list[str]
) -> None:
    environment = {
        "AWS_SECRET_ACCESS_KEY": "planted-value",
        "HOME": "train.py",
        "MY_TOKEN": "lr",
        "PWD": "/home/me",
        "OLDPWD": "/home/me",
    }
    environment |= {"AWS_SECRET_KEY": "an-aws-key", "WANDB_KEY": "a-wandb-key", "PGPASSWORD": "a-pg-password"}
    assert without_secrets(command, environment) == expected


@pytest.mark.slow
def test_a_planted_secret_is_in_no_file_of_a_run(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "HALVING_CATALOG"):
        monkeypatch.setenv(name, "planted-secret")
    source = (
        "import halving\n"
        "with halving.init('p', {'lr': 0.1}, id='r') as run:\n"
        "    for epoch in run.epochs(2): run.report(loss=1.0); run.save(epoch=epoch)\n"
    )
    done = script(source, "--password", "planted-secret", "planted-secret", "x://me:planted-secret@host")
    assert done.returncode == 0, done.stderr
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"planted-secret" in path.read_bytes()] == []
    record = json.loads((tmp_path / "store/runs/project=p/r/record.json").read_bytes())
    assert record["provenance"]["command"] == [
        sys.executable,
        str(tmp_path / "script.py"),
        "--password",
        "…",
        "…",
        "x://host",
    ]


def test_untracked_files_that_are_made_for_secrets_are_listed_and_not_in_the_patch(
    tmp_path: Path, store: Store
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True)
    for name in (".env", "deploy.pem", "train.py"):
        (checkout / name).write_text("planted")
    state = git_state(store, checkout)
    assert state is not None
    assert [file["path"] for file in state["left_out"]] == [".env", "deploy.pem"]
    assert b"train.py" in store.get_blob(state["patch"])
    assert b"deploy.pem" not in store.get_blob(state["patch"])


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("train.py", 'api_key = "planted"', 'api_key = "…"'),
        ("train.py", "token: str = r'planted'", "token: str = r'…'"),
        ("train.py", 'os.environ["WANDB_API_KEY"] = "planted"', 'os.environ["WANDB_API_KEY"] = "…"'),
        ("train.py", 'login(token="planted", lr=1)', 'login(token="…", lr=1)'),
        (
            "train.py",
            'password = "pl$an>ted"; mask_token = "[MASK]"',
            'password = "…"; mask_token = "[MASK]"',
        ),
        ("train.py", "x = 'an-environments'", "x = '…'"),
        (
            "train.py",
            'token = tokenizer.pad_token or "<|endoftext|>"',
            'token = tokenizer.pad_token or "<|endoftext|>"',
        ),
        (
            "train.py",
            'unk_token="<|unknown|>", max_tokens="100000"',
            'unk_token="<|unknown|>", max_tokens="100000"',
        ),
        ("train.py", 'password = os.environ["PASSWORD"]', 'password = os.environ["PASSWORD"]'),
        ("conf/db.yaml", "password: planted", "password: …"),
        (
            "run.sh",
            "export HF_TOKEN=planted A_TOKEN='$HF_TOKEN' B_TOKEN=$HF_TOKEN",
            "export HF_TOKEN=… A_TOKEN='$HF_TOKEN' B_TOKEN=$HF_TOKEN",
        ),
        ("conf.json", '{"secret": "planted", "a": "b"}', '{"secret": "…", "a": "b"}'),
        ("deploy.pem", "anything that it holds", "…"),
        ("latin.py", "secret = 'planted' # \udcff", "secret = '…' # \udcff"),
    ],
)
def test_a_secret_in_a_tracked_file_is_hidden_in_the_patch_which_still_applies(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, file: str, line: str, expected: str
) -> None:
    monkeypatch.setenv("MY_TOKEN", "an-environments")
    checkout = tmp_path / "checkout"
    path = checkout / file
    path.parent.mkdir(parents=True)
    git = ["git", "-C", str(checkout), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    committed = 'password = "in the commit"\n++ b/x.pem\nend\n'
    path.write_text(committed)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=first"], check=True)
    path.write_text(f"{committed}{line}\n++ b/y.pem\n", errors="surrogateescape")
    state = git_state(store, checkout)
    assert state is not None
    assert state["patch_redacted"] >= (line != expected)
    subprocess.run([*git, "checkout", "--quiet", "."], check=True)
    subprocess.run([*git, "apply", "-"], input=store.get_blob(state["patch"]), check=True)
    last = "…" if file == "deploy.pem" else "++ b/y.pem"
    assert path.read_text(errors="surrogateescape") == f"{committed}{expected}\n{last}\n"
