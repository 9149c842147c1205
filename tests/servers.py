"""Servers that tests talk to over loopback, each a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow.fs import S3FileSystem


@contextmanager
def object_store() -> Iterator[str]:
    """An S3 server with a bucket; yields the URI of the bucket with its options, ``{}`` where a folder goes."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            endpoint = next(m[1] for line in server.stderr if (m := re.search(r"http://(127\.0\.0\.1:\d+)", line)))
            store = S3FileSystem(
                access_key="KEY", secret_key="SECRET", region="us-east-1", scheme="http", endpoint_override=endpoint,
                allow_bucket_creation=True,
            )  # fmt: skip
            store.create_dir("bucket")
            yield f"s3://KEY:SECRET@bucket/{{}}?region=us-east-1&scheme=http&endpoint_override={endpoint}"
        finally:
            server.kill()
