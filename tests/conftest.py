"""Settings and servers that every test shares."""

import os
from itertools import count
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.disks import mounted
from tests.servers import object_store

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)
settings.register_profile("par", deadline=None)
settings.load_profile("par")


@pytest.fixture(scope="session")
def s3():
    """The bucket of a real S3 server, as a URI with ``{}`` where a folder goes."""
    with object_store() as uri:
        yield uri


@pytest.fixture(scope="session", params=["local", "s3"])
def new_storage(request, tmp_path_factory):
    """A function that names a storage nobody has used, on a local disk and on an S3 server."""
    if request.param == "local":
        return lambda: str(tmp_path_factory.mktemp("storage"))
    uri, numbers = request.getfixturevalue("s3"), count()
    return lambda: uri.format(f"storage-{next(numbers)}")


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> tuple[Path, str]:
    """The storage of a small sweep that ran as a user runs it, "tiny", and what it printed; only to be read."""
    from tests.ray_jobs.sweeps import sweep, write_space

    storage = tmp_path_factory.mktemp("storage")
    code, output = sweep("--space", str(write_space(storage / "tiny.yaml")), "--storage", str(storage))
    assert code == 0, output
    return storage, output


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    with mounted(place, "2m"):
        yield place
