"""Shards of a state on any storage, by torch.distributed.checkpoint: written straight to a disk or an object store."""

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from par.errors import DiskFullError
from par.objects import Objects

READ_AHEAD = 8 * 2**20
"""Bytes asked of an object store at once: small tensors come together."""


def save(state: Mapping[str, Tensor], place: Objects, *, together: bool) -> None:
    """Write a state into an empty folder, each worker its shards; ``together`` if there are several.

    Raises what any of them failed with, on all of them; DiskFullError where a disk is full.
    """
    with _one_fault():
        dcp_save(dict(state), storage_writer=_Writer(place), no_dist=not together)


def load(state: Mapping[str, Tensor], place: Objects, *, together: bool) -> None:
    """Read a state into the given tensors, however they are sharded. Raises what any worker failed with, on all."""
    with _one_fault():
        dcp_load(dict(state), storage_reader=_Reader(place), no_dist=not together)


def shapes(place: Objects) -> dict[str, tuple[int, ...]]:
    """The whole shape of every tensor of a saved state."""
    saved = _Reader(place).read_metadata().state_dict_metadata
    return {name: tuple(meta.size) for name, meta in saved.items()}  # pyright: ignore[reportAttributeAccessIssue]


class _Files(FileSystemBase):
    """One folder as torch.distributed.checkpoint sees it. Names are those within the folder."""

    def __init__(self, place: Objects) -> None:
        self.place = place

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """Open a file; one that did not get whole is in no manifest."""
        with self.place.space(), self._open(str(path), mode) as stream:
            yield stream

    def _open(self, name: str, mode: str) -> Any:
        path, filesystem = f"{self.place.root}/{name}", self.place.filesystem
        if self.place.is_local:
            return Path(path).open(mode)
        if "r" in mode:
            return io.BufferedReader(filesystem.open_input_file(path), READ_AHEAD)  # pyright: ignore[reportArgumentType]
        return filesystem.open_output_stream(path)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return suffix

    def init_path(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        return path

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        if self.place.is_local:
            Path(self.place.root).mkdir(parents=True, exist_ok=True)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self.place.filesystem.move(f"{self.place.root}/{path}", f"{self.place.root}/{new_path}")

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return self.place.exists(str(path))

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self.place.delete(str(path))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False


class _Writer(FileSystemWriter):
    def __init__(self, place: Objects) -> None:
        super().__init__(Path(), sync_files=place.is_local)
        self.fs = _Files(place)


class _Reader(FileSystemReader):
    def __init__(self, place: Objects) -> None:
        super().__init__(Path())
        self.fs = _Files(place)

    def _slice_file(self, file: Any, sinfo: Any) -> IO[bytes]:
        """At most one request per tensor: torch.load would make several, each a round trip to an object store."""
        file.seek(sinfo.offset)
        return io.BytesIO(file.read(sinfo.length))


@contextmanager
def _one_fault() -> Iterator[None]:
    """Raise a worker's own fault, a full disk first: DCP's collection of them is no Exception and passes all handlers.

    Drops the warning that a single process is a single process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            yield
        except CheckpointException as failed:
            faults = [fault for fault, _ in failed.failures.values()]
            raise next((fault for fault in faults if isinstance(fault, DiskFullError)), faults[0]) from failed
