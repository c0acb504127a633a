"""Files and folders as sources, on a disk and on an object store."""

import io
import json
import re
import secrets
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, fs

from halving import Dataset, InvalidInput, NotFound, Store, StoreError
from halving.data.referenced_files import referenced_file
from halving.errors import StoreUnavailable
from resources.backend import Backend
from resources.datasets.referenced_files import verify_files
from resources.datasets.snapshots import take_snapshot
from resources.datasets.sources import open_source
from resources.source_files.listing import find_files
from tests.resources.datasets.specs import ids, spec
from tests.resources.datasets.tables import numbers, write
from tests.s3 import S3, Gate


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
def test_files_of_each_format_are_read_in_the_order_of_their_names(
    tmp_path: Path, backend: Backend, form: str, ending: str
) -> None:
    for number in (2, 0, 1):
        write(form, tmp_path / "raw" / f"{number}.{ending}", numbers(50, first=50 * number))
    for pattern in (str(tmp_path / "raw"), f"{tmp_path}/raw/*.{ending}", f"{tmp_path}/**/*.{ending}"):
        assert ids({"files": pattern}) == list(range(150))
    picked = [f"{tmp_path}/raw/1.{ending}", f"{tmp_path}/raw/[0]*"]
    assert ids({"files": picked}) == [*range(50, 100), *range(50)]
    snapshot = take_snapshot(backend.store, backend.catalog, spec({"files": str(tmp_path / "raw")}))
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    assert rows.to_pydict() == numbers(150).to_pydict()
    assert snapshot.source == f"files {tmp_path}/raw"


def within(root: str, path: str) -> str:
    """The address of a path within a store."""
    base, mark, options = root.partition("?")
    return f"{base}/{path}{mark}{options}"


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
def test_files_and_folders_on_an_object_store_are_read(
    any_store: Store, tmp_path: Path, form: str, ending: str
) -> None:
    for number in range(3):
        write(form, tmp_path / "file", numbers(10, first=10 * number))
        any_store.create(f"raw/{number}.{ending}", tmp_path / "file")
    assert ids({"files": within(any_store.root, f"raw/*.{ending}")}) == list(range(30))
    opened = open_source(spec({"folder": within(any_store.root, "raw")}))
    rows = [row for part in opened.parts for batch in part.read() for row in batch.to_pylist()]
    assert [row["path"] for row in rows] == [f"{number}.{ending}" for number in range(3)]
    assert rows[2]["content"] == (tmp_path / "file").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "folder", "one file"])
def test_an_object_store_that_is_away_while_a_source_is_listed_is_named_in_the_error(
    s3: S3, backend: Backend, kind: str
) -> None:
    gate = Gate((s3.host, s3.port))
    name = secrets.token_hex(6)
    store = Store(s3.root(name))
    for number in range(3):
        buffer = io.BytesIO()
        csv.write_csv(numbers(100, first=100 * number), buffer)
        store.create(f"raw/{number}.csv", buffer.getvalue())
    pattern = {"files": "raw/*.csv", "folder": "raw", "one file": "raw/0.csv"}[kind]
    address = within(store.root.replace(s3.endpoint, gate.endpoint), pattern)
    source = spec({"files": address})
    if kind == "folder":
        source = spec({"folder": address})
    gate.shut()
    with pytest.raises(StoreUnavailable, match=r"^dataset.source.\w+ = 's3://.*' cannot be (listed|read): "):
        take_snapshot(backend.store, backend.catalog, source)
    gate.open()
    if kind != "folder":  # Three files do not fill every split.
        rows = {"one file": 100, "files": 300}[kind]
        assert take_snapshot(backend.store, backend.catalog, source).rows == rows


@pytest.mark.parametrize("reference", ["digest", None])
@pytest.mark.parametrize("name", ["take #1.jpg", "100%.jpg", "[a] b?.jpg", "é.jpg"])
def test_files_whose_names_have_signs_are_found_again_by_their_location(
    any_store: Store, name: str, reference: str | None
) -> None:
    any_store.create(f"raw #2/{name}", b"a picture")
    folder = {"folder": within(any_store.root, "raw #2")}
    if reference:
        folder["reference"] = reference
    (part,) = open_source(spec(folder)).parts
    ((row,),) = [rows.to_pylist() for rows in part.read()]
    assert row["path"] == name
    content = row.get("content")
    if reference:
        content = referenced_file(row).read()
    assert content == b"a picture"


def test_each_file_of_a_folder_is_a_row_but_what_systems_leave_there(tmp_path: Path) -> None:
    for name in (
        "_DSC1.jpg",
        "_noise_/a.jpg",
        ".DS_Store",
        ".ipynb_checkpoints/a.jpg",
        "__MACOSX/._a.jpg",
        "cat/Thumbs.db",
        "cat/._b.jpg",
    ):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pictures" / name).write_bytes(b"a picture")
    opened = open_source(spec({"folder": str(tmp_path / "pictures")}))
    paths = [row["path"] for part in opened.parts for rows in part.read() for row in rows.to_pylist()]
    assert paths == ["_DSC1.jpg", "_noise_/a.jpg"]


@pytest.mark.parametrize(("form", "ending"), [("csv", "csv"), ("csv", "tsv"), ("json", "jsonl")])
def test_an_empty_file_of_spark_has_no_rows(tmp_path: Path, backend: Backend, form: str, ending: str) -> None:
    for number in (0, 2):
        (tmp_path / "raw" / f"part-{number}.{ending}").parent.mkdir(exist_ok=True)
        (tmp_path / "raw" / f"part-{number}.{ending}").touch()
    write(form, tmp_path / "raw" / f"part-1.{ending}", numbers(60))
    if ending == "tsv":
        csv.write_csv(numbers(60), tmp_path / "raw" / "part-1.tsv", csv.WriteOptions(delimiter="\t"))
    assert take_snapshot(backend.store, backend.catalog, spec({"files": str(tmp_path / "raw")})).rows == 60


def test_a_tabbed_file_goes_by_its_ending_and_not_by_its_folder(tmp_path: Path) -> None:
    write("csv", tmp_path / "export.tsv.d" / "rows.csv", numbers(10))
    assert ids({"files": f"{tmp_path}/export.tsv.d/rows.csv"}) == list(range(10))
    csv.write_csv(
        numbers(10),
        pa.CompressedOutputStream(str(tmp_path / "rows.tsv.gz"), "gzip"),
        csv.WriteOptions(delimiter="\t"),
    )
    assert ids({"files": f"{tmp_path}/rows.tsv.gz"}) == list(range(10))


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ISO-8859-15", "utf_16_le", "UTF8"])
def test_text_files_are_read_in_the_encoding_that_is_given(
    tmp_path: Path, backend: Backend, ending: str, encoding: str
) -> None:
    rows = [{"größe": number, "label": "schön" if number % 2 else "nah"} for number in range(60)]
    if ending == "csv":
        content = "größe,label\n" + "".join(f"{row['größe']},{row['label']}\n" for row in rows)
    else:
        content = json.dumps(rows, ensure_ascii=False)
    (tmp_path / f"rows.{ending}").write_bytes(content.encode(encoding))
    source = spec(
        {"files": str(tmp_path / f"rows.{ending}"), "encoding": encoding},
        splits={"train": 0.4, "validation": 0.3, "test": 0.3},
    )
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    read = pa.concat_tables(
        [
            Dataset(backend.store, "points", snapshot.digest).read(split)
            for split in ("train", "validation", "test")
        ]
    )
    assert read.sort_by("größe").to_pylist() == rows


def test_a_folder_by_reference_keeps_the_digest_of_each_file_and_not_its_content(
    tmp_path: Path, backend: Backend
) -> None:
    from halving.store.store import digest_of

    for number in range(40):
        path = tmp_path / "images" / "cat" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 1000)
    snapshot = take_snapshot(
        backend.store, backend.catalog, spec({"folder": str(tmp_path / "images"), "reference": "digest"})
    )
    dataset = Dataset(backend.store, "points", snapshot.digest)
    row = dataset.read("train").to_pylist()[0]
    assert set(row) == {"path", "label", "bytes", "sha256", "location"}
    assert f"sha256:{row['sha256']}" == digest_of(Path(row["location"]))
    assert dataset.referenced(row) == Path(row["location"]).read_bytes()
    Path(row["location"]).write_bytes(b"changed")
    with pytest.raises(
        OSError, match=f"{row['location']} is not any more what the snapshot refers to: its sha256 is "
    ):
        dataset.referenced(row)


@pytest.mark.parametrize("reference", ["etag", "version"])
def test_files_on_s3_are_referred_to_without_being_read_and_refused_once_changed(
    reference: str, s3: S3, tmp_path: Path, backend: Backend
) -> None:
    gate = Gate((s3.host, s3.port))
    root = s3.root(secrets.token_hex(6), endpoint=gate.endpoint)
    if reference == "version":
        Store(root).create("old/a.bin", b"before versions")
        with pytest.raises(
            InvalidInput,
            match=r"reference = 'version' is not accepted: s3://.* has none; give etag, or have its bucket",
        ):
            take_snapshot(
                backend.store,
                backend.catalog,
                spec({"folder": root.replace("?", "/old?"), "reference": reference}),
            )
        s3.keep_versions(root)
    contents = {f"raw/cat/{number} é?.bin": bytes([number]) * 100_000 for number in range(30)}
    for name, content in contents.items():
        Store(root).create(name, content)
    before = gate.carried
    source = spec({"folder": root.replace("?", "/raw?"), "reference": reference})
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    assert gate.carried - before < 100_000, "no file was read"

    dataset = Dataset(backend.store, "points", snapshot.digest)
    rows = dataset.read().to_pylist()
    assert set(rows[0]) == {"path", "label", "bytes", "etag", "location", reference}
    assert {f"raw/{row['path']}": dataset.referenced(row) for row in rows} == contents
    shards = [shard for split in dataset.splits for shard in dataset.shards(split)]
    assert list(verify_files(dataset, shards)) == [None] * 30

    changed = rows[3]
    gone = rows[7]
    again = rows[9]
    raw = f"{root.partition('?')[0].removeprefix('s3://')}/raw/"
    there = Store(root).filesystem
    for row, content in ((changed, b"other"), (again, contents[f"raw/{again['path']}"])):
        with there.open_output_stream(raw + row["path"]) as stream:
            stream.write(content)
    there.delete_file(raw + gone["path"])
    with pytest.raises(
        StoreError,
        match=(
            f"{re.escape(changed['location'])} is not any more .*: its {reference} is .*, not "
            f"{changed[reference]}"
        ),
    ):
        dataset.referenced(changed)
    with pytest.raises(
        NotFound, match=f"{re.escape(gone['location'])}, which the snapshot refers to, is gone"
    ):
        dataset.referenced(gone)
    refused = {changed["location"], gone["location"]}
    if reference == "version":  # The same bytes are another version, with the same etag.
        refused.add(again["location"])
        with pytest.raises(StoreError, match=r"its version is .*; delete its newer versions"):
            dataset.referenced(again)
    assert {file.location for file in verify_files(dataset, shards) if file} == refused


def test_the_samples_of_webdatasets_tars_are_rows(tmp_path: Path, backend: Backend) -> None:
    (tmp_path / "tars").mkdir()
    for shard in range(2):
        with tarfile.open(tmp_path / "tars" / f"{shard}.tar", "w") as tar:
            for number in range(30 * shard, 30 * shard + 30):
                members = {
                    "png": bytes([number]) * 50,
                    "cls": str(number % 3).encode(),
                    "txt": f"picture {number}".encode(),
                }
                for ending, content in members.items():
                    entry = tarfile.TarInfo(f"train/{number:04}.{ending}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
    snapshot = take_snapshot(
        backend.store, backend.catalog, spec({"files": str(tmp_path / "tars")}, target="cls")
    )
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("key").to_pylist()
    assert [row["key"] for row in rows] == [f"train/{number:04}" for number in range(60)]
    assert rows[31] == {"key": "train/0031", "png": bytes([31]) * 50, "cls": 1, "txt": "picture 31"}


def test_a_pattern_that_stays_in_a_folder_looks_into_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("parquet", tmp_path / "rows.parquet", numbers(5))
    write("parquet", tmp_path / "deep" / "er" / "rows.parquet", numbers(7))
    listed: list[str] = []
    original = fs.FileSelector

    def selector(base: str, recursive: bool) -> fs.FileSelector:
        listed.append(base)
        return original(base, recursive=recursive)

    monkeypatch.setattr("pyarrow.fs.FileSelector", selector)
    assert len(find_files("files", f"{tmp_path}/*.parquet")) == 1
    assert listed == [str(tmp_path)]
    assert len(find_files("files", f"{tmp_path}/*/*/*.parquet")) == 1
    assert len(find_files("files", f"{tmp_path}/**/*.parquet")) == 2
