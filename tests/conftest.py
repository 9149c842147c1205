"""Settings and servers that every test shares."""

import os
from itertools import count

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


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    with mounted(place, "2m"):
        yield place
