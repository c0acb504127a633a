"""One script that logs media, with W&B itself (then imported) and with this module: the same is kept."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest

from halving import Store
from tests.sdk.conftest import Script
from tests.sdk.imports.copies import run_import
from tests.sdk.imports.tools import python_with, run_script

SCRIPT = """
import wave
import numpy as np
import wandb
from PIL import Image

noise = np.random.default_rng(0)
pixels = lambda *shape: noise.integers(0, 256, shape, dtype=np.uint8)
Image.fromarray(pixels(6, 5)).save("picture.png")
Image.fromarray(pixels(6, 5)).save("picture.jpg")
Image.new("L", (4, 4)).save("clip.gif", save_all=True, append_images=[Image.new("L", (4, 4), 255)])
with wave.open("tone.wav", "wb") as tone:
    tone.setparams((1, 2, 8_000, 0, "NONE", "NONE"))
    tone.writeframes(bytes(1_600))
run = wandb.init(project="p", id="r")
table = wandb.Table(columns=["a", "b"], data=[[1, "x"]])
table.add_data(2.5, None)
table.add_column("c", [True, False])
run.log({
    "grey": wandb.Image(pixels(6, 5)),
    "thin": wandb.Image(pixels(6, 5, 1)),
    "rgb": wandb.Image(pixels(6, 5, 3), caption="said"),
    "rgba": wandb.Image(pixels(6, 5, 4)),
    "whole": wandb.Image(pixels(6, 5, 3).astype(np.int64)),
    "float": wandb.Image(pixels(6, 5, 3).astype(np.float32)),
    "pil": wandb.Image(Image.fromarray(pixels(6, 5, 3))),
    "mode": wandb.Image(pixels(6, 5, 3), mode="L"),
    "png": wandb.Image("picture.png"),
    "jpg": wandb.Image("picture.jpg"),
    "several": [wandb.Image(pixels(6, 5), caption=f"c{n}") for n in range(3)],
}, step=1)
run.log({
    "histogram": wandb.Histogram(noise.normal(size=100)),
    "finished": wandb.Histogram(np_histogram=([3, 1, 2], [0.0, 0.5, 1.0, 1.5])),
    "table": table,
    "page": wandb.Html("<b>x</b>", inject=False),
    "pages": [wandb.Html(f"<b>{n}</b>", inject=False) for n in range(2)],
    "clip": wandb.Video("clip.gif", caption="a clip"),
    "tone": wandb.Audio("tone.wav", caption="a tone"),
    "text": "some words",
    "nested": {"picture": wandb.Image(pixels(6, 5))},
}, step=2)
run.finish()
"""


def content_of(store: Store, row: dict[str, Any]) -> Any:
    """What a medium holds: pixels, cells, counts or bytes."""
    content = store.get_blob(row["digest"])
    if row["kind"] == "image" and row["media_type"] == "image/png":
        return np.asarray(PIL.Image.open(io.BytesIO(content))).tolist()
    if row["kind"] == "table":
        return pq.read_table(io.BytesIO(content)).to_pydict()
    if row["kind"] == "histogram":
        return json.loads(content)
    return content


def media_of(store: Store) -> dict[tuple[str, int], tuple[str, str | None, Any]]:
    """The kind, the caption and the content of each medium, by its key and step."""
    rows = [json.loads(path.read_text()) for path in Path(store.root).glob("runs/*/*/media/*.json")]
    return {(row["key"], row["step"]): (row["kind"], row["caption"], content_of(store, row)) for row in rows}


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_media_are_what_wandb_itself_keeps(
    tmp_path: Path,
    script: Script,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    theirs = tmp_path / "theirs"
    python = python_with("wandb", "wandb==0.31.0", "numpy", "pillow")
    run_script(python, f"import os\nos.environ['WANDB_MODE'] = 'offline'\n{SCRIPT}", theirs)
    imported = Store(tmp_path / "imported")
    report = run_import(capsys, "wandb", theirs / "wandb", imported.root)
    assert report["not_taken"] == {}
    monkeypatch.setenv("WANDB__DISABLE_STATS", "true")
    done = script(SCRIPT.replace("import wandb", "import halving.wandb as wandb"))
    assert done.returncode == 0, done.stderr
    expected = media_of(imported)
    assert len(expected) == 23
    assert media_of(store) == expected
