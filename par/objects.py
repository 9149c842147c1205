"""Whole objects on a local disk or in an object store, and their JSON."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from par.errors import LedgerError


@dataclass(frozen=True, slots=True)
class Objects:
    """Whole objects under one folder, local or in an object store, by their path within it."""

    filesystem: FileSystem
    root: str

    @classmethod
    def at(cls, storage: str | Path) -> Self:
        """Open a local path, or a URI such as s3://bucket/folder. Raises LedgerError for an unknown scheme."""
        if "://" not in str(storage):
            return cls(LocalFileSystem(), str(Path(storage).expanduser().resolve()))
        try:
            filesystem, root = FileSystem.from_uri(str(storage))
        except ValueError as fault:
            raise LedgerError(f"storage={storage} cannot be used: {fault}; give a path, s3://... or gs://...") from None
        return cls(filesystem, root.rstrip("/"))

    def below(self, folder: str) -> Self:
        """Narrow to a folder."""
        return type(self)(self.filesystem, f"{self.root}/{folder}")

    def put(self, path: str, data: bytes) -> None:
        """Write one object so that no reader ever sees a part of it."""
        if isinstance(self.filesystem, LocalFileSystem):
            _commit(Path(self.root, path), data)
            return
        with self.filesystem.open_output_stream(f"{self.root}/{path}") as stream:
            stream.write(data)

    def get(self, path: str) -> bytes:
        """Read one object. Raises FileNotFoundError."""
        with self.filesystem.open_input_stream(f"{self.root}/{path}") as stream:
            return stream.read()

    def exists(self, path: str) -> bool:
        """Whether an object is there."""
        return self.filesystem.get_file_info(f"{self.root}/{path}").type == FileType.File

    def walk(self, folder: str = "", *, recursive: bool) -> list[str]:
        """List the paths of objects and folders below ``folder``, drafts included."""
        start = f"{self.root}/{folder}".rstrip("/")
        infos = self.filesystem.get_file_info(FileSelector(start, recursive=recursive, allow_not_found=True))
        return [info.path[len(self.root) + 1 :] for info in infos]


def encode(name: str, record: Mapping[str, Any]) -> bytes:
    """Turn a record into JSON that a person can read.

    Raises LedgerError that names the object and the dotted key of a value that JSON cannot hold, such as NaN.
    """
    plain = {key: _plain(value, f"{name}: {key}") for key, value in record.items()}
    return (json.dumps(plain, indent=2, allow_nan=False) + "\n").encode()


def decode(name: str, data: bytes) -> dict[str, Any]:
    """Read a record back. Raises LedgerError that names the object if it is not one."""
    try:
        record = json.loads(data)
    except ValueError as fault:
        raise LedgerError(f"{name} is no JSON ({fault}): restore it from a copy") from None
    if not isinstance(record, dict):
        raise LedgerError(f"{name} holds {type(record).__name__}, not an object: restore it from a copy")
    return record


def _plain(value: object, key: str) -> object:
    match value:
        case float() if not math.isfinite(value):
            raise LedgerError(f"{key}={value} is not finite: leave it out, or record a failure")
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(item, f"{key}[{i}]") for i, item in enumerate(value)]
        case Mapping() if all(isinstance(name, str) for name in value):
            return {name: _plain(item, f"{key}.{name}") for name, item in value.items()}
        case _:
            raise LedgerError(f"{key}={value!r} is a {type(value).__name__}: JSON holds int, float, str, list and dict")


def _commit(path: Path, data: bytes) -> None:
    """Write a draft under a name of its own, then rename it; both are on the disk before this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    with draft.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
