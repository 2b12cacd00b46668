"""Small files in a folder, or wherever PyArrow has a file system for: written whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path, PurePath
from typing import Any

from pyarrow import fs

IDENTITY = "raftlog-sink-id"
"""In a checkpoint: what its micro-batches are written under."""


class Folder:
    """`where` is a path, or a URI such as s3://bucket/lake. It need not be there yet."""

    def __init__(self, where: str) -> None:
        self.where = where.rstrip("/")
        self.is_uri = "://" in where
        self.files: Any = fs.LocalFileSystem()
        self.root = str(Path(where).absolute())
        if self.is_uri:
            self.files, self.root = fs.FileSystem.from_uri(self.where)

    def path(self, name: str) -> str:
        """For `files`."""
        return f"{self.root}/{name}"

    def spelt(self, name: str) -> str:
        """For Spark."""
        if self.is_uri:
            return f"{self.where.replace('s3://', 's3a://')}/{name}"
        return f"file://{self.root}/{name}"

    def write(self, name: str, text: str) -> None:
        path = self.path(name)
        self.files.create_dir(path.rpartition("/")[0])
        with self.files.open_output_stream(f"{path}.tmp") as stream:
            stream.write(text.encode())
        self._rename(f"{path}.tmp", path)

    def read(self, name: str) -> str | None:
        """None for a file that is not there."""
        try:
            with self.files.open_input_stream(self.path(name)) as stream:
                return bytes(stream.read()).decode()
        except FileNotFoundError:
            return None

    def names(self, below: str, ending: str) -> list[str]:
        """All files with that ending below a folder, sorted."""
        selector = fs.FileSelector(self.path(below).rstrip("/"), allow_not_found=True, recursive=True)
        found = [each.path for each in self.files.get_file_info(selector) if each.path.endswith(ending)]
        return sorted(path[len(self.root) + 1 :] for path in found)

    def move(self, name: str, to: str) -> None:
        self.files.create_dir(self.path(to).rpartition("/")[0])
        self._rename(self.path(name), self.path(to))

    def _rename(self, path: str, to: str) -> None:
        """On a disk of this machine the file and its name are there for good: a checkpoint may count on them."""
        is_local = isinstance(self.files, fs.LocalFileSystem)
        if is_local:
            _sync(path)
        self.files.move(path, to)
        if is_local:
            above = PurePath(to).relative_to(self.root).parents
            for folder in [*(f"{self.root}/{each}" for each in above), str(PurePath(self.root).parent)]:
                _sync(folder)


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def identity(checkpoint: str, job: str) -> str:
    """What a job is called by what it writes: another name for each checkpoint, the same as long as it is there."""
    folder = Folder(checkpoint)
    known = folder.read(IDENTITY)
    if known is None:
        known = f"{job}-{uuid.uuid4().hex}"
        folder.write(IDENTITY, known)
    return known
