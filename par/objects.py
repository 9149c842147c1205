"""Whole objects on a local disk or in an object store, and their JSON."""

import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from par.errors import DiskFullError, LedgerError

_NO_HARD_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}
"""What a file system without hard links, such as a mounted object store, answers."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a disk without room, and of a quota that is used up."""
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}")


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
            why = str(fault).replace(str(storage), public(storage))
            raise LedgerError(
                f"storage={public(storage)} cannot be used: {why}; give a path, s3://... or gs://..."
            ) from None
        return cls(filesystem, root.rstrip("/"))

    def below(self, folder: str) -> Self:
        """Narrow to a folder."""
        return type(self)(self.filesystem, f"{self.root}/{folder}")

    @property
    def is_local(self) -> bool:
        """Whether these are files of this machine's file system, or of one mounted there."""
        return isinstance(self.filesystem, LocalFileSystem)

    def put(self, path: str, data: bytes) -> None:
        """Write one object so that no reader ever sees a part of it, whenever the writer dies or is interrupted.

        Raises DiskFullError.
        """
        # A stream that an exception closes makes visible what it has so far. Signals interrupt the main thread alone.
        with self.space(), ThreadPoolExecutor(1) as pool:
            if self.is_local:
                pool.submit(_commit, Path(self.root, path), data, os.replace).result()
            else:
                pool.submit(self._upload, path, data).result()

    def create(self, path: str, data: bytes) -> bool:
        """Write one object unless it exists; return whether this call did.

        On a disk with hard links exactly one of several that create an object at once does. Elsewhere each of them may,
        and the last one stays: who must be alone waits a moment and reads it back. Raises DiskFullError.
        """
        if self.is_local:
            try:
                with self.space(), ThreadPoolExecutor(1) as pool:
                    pool.submit(_commit, Path(self.root, path), data, os.link).result()
            except FileExistsError:
                return False
            except OSError as fault:
                if fault.errno not in _NO_HARD_LINKS:
                    raise
            else:
                return True
        if self.exists(path):
            return False
        self.put(path, data)
        return True

    def get(self, path: str) -> bytes:
        """Read one object, whole even if it is replaced meanwhile. Raises FileNotFoundError."""
        if self.is_local:
            with self.filesystem.open_input_stream(f"{self.root}/{path}", compression=None) as stream:
                return stream.read()
        while True:
            data = self._download(path)
            if self.filesystem.get_file_info(f"{self.root}/{path}").size == len(data):
                return data

    def exists(self, path: str) -> bool:
        """Whether an object is there."""
        return self.filesystem.get_file_info(f"{self.root}/{path}").type == FileType.File

    def walk(self, folder: str = "", *, recursive: bool) -> list[str]:
        """List the paths of objects and folders below ``folder``, drafts included."""
        return [self._within(info) for info in self._infos(folder, recursive=recursive)]

    def sizes(self, folder: str = "") -> dict[str, int]:
        """List the bytes of every object below ``folder``, by path, drafts included."""
        infos = self._infos(folder, recursive=True)
        return {self._within(info): info.size for info in infos if info.type == FileType.File}

    def drafts(self, folder: str = "", *, before: datetime) -> list[str]:
        """List what writers that died left half-written below ``folder``, last touched ``before`` (with a time zone).

        On a local disk alone: what is half-written in an object store cannot be listed here.
        """
        infos = self._infos(folder, recursive=True)
        return [self._within(info) for info in infos if _DRAFT.fullmatch(info.base_name) and info.mtime < before]

    def delete(self, path: str) -> None:
        """Remove one object; that it is gone already is no error."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(f"{self.root}/{path}")

    def delete_folder(self, path: str) -> None:
        """Remove a folder with all that is below it, in no order; that it is gone already is no error."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(f"{self.root}/{path}")

    @contextmanager
    def space(self) -> Iterator[None]:
        """Within: a full disk raises DiskFullError, whatever a library has made of it."""
        try:
            yield
        except Exception as fault:
            if not _lacks_space(fault):
                raise
            raise DiskFullError.at(self.root, _free_bytes(self.root)) from fault

    def _upload(self, path: str, data: bytes) -> None:
        with self.filesystem.open_output_stream(f"{self.root}/{path}", compression=None) as stream:
            stream.write(data)

    def _download(self, path: str) -> bytes:
        """Read an object by one request, up to the length it had before: one that has grown since is cut there."""
        with self.filesystem.open_input_file(f"{self.root}/{path}") as file:
            return file.read_at(file.size(), 0)

    def _infos(self, folder: str, *, recursive: bool) -> list[FileInfo]:
        start = f"{self.root}/{folder}".rstrip("/")
        return self.filesystem.get_file_info(FileSelector(start, recursive=recursive, allow_not_found=True))

    def _within(self, info: FileInfo) -> str:
        return info.path[len(self.root) + 1 :]


def public(storage: str | Path) -> str:
    """Return the storage as it may be shown and recorded: without the key and the secret that a URI can carry."""
    uri = urlsplit(str(storage))
    return uri._replace(netloc=uri.netloc.rpartition("@")[2]).geturl() if "@" in uri.netloc else str(storage)


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


def _commit(path: Path, data: bytes, publish: Callable[[Path, Path], object]) -> None:
    """Write a draft under a name of its own, then rename or link it; both are on the disk before this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lacks_space(fault: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is that of a full disk."""
    while fault is not None:
        if isinstance(fault, OSError) and fault.errno in DISK_FULL:
            return True
        fault = fault.__cause__ or fault.__context__
    return False


def _free_bytes(folder: str) -> int:
    """Free bytes on the disk that a folder, there or not yet, lies on."""
    place = Path(folder)
    return shutil.disk_usage(next(path for path in (place, *place.parents) if path.exists())).free
