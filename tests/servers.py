"""Servers that tests talk to over loopback, each a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow.fs import S3FileSystem

S3_SERVER = """
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), sep=":", flush=True)
sys.stdin.read()
"""
"""It ends when its standard input does: also when the tests are killed."""


@contextmanager
def object_store() -> Iterator[str]:
    """An S3 server with a bucket; yields the URI of the bucket with its options, ``{}`` where a folder goes."""
    command, pipe = [sys.executable, "-c", S3_SERVER], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout
        endpoint = server.stdout.readline().strip()
        store = S3FileSystem(
            access_key="KEY", secret_key="SECRET", region="us-east-1", scheme="http", endpoint_override=endpoint,
            allow_bucket_creation=True,
        )  # fmt: skip
        store.create_dir("bucket")
        yield f"s3://KEY:SECRET@bucket/{{}}?region=us-east-1&scheme=http&endpoint_override={endpoint}"
