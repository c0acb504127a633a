"""Text files as sources."""

from pathlib import Path

from pyarrow import fs

from resources.source_files.listing import SourceFile


def file_of(folder: Path, content: bytes | str, name: str = "rows.csv") -> SourceFile:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return SourceFile(fs.LocalFileSystem(), str(path), name, path.stat().st_size, 0, str(folder))
