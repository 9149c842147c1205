"""An attempt in the ledger, from its start to its end."""

from contextlib import suppress

import pytest

from par.ledger.ledger import Ledger, SeedFolder
from par.ledger.records import ConfigRecord, SweepRecord
from par.testing import tiny_run
from ray_jobs.trial.attempt import attempted


@pytest.mark.parametrize(
    ("fault", "failure"), [(None, None), (OSError("gone"), "WORKER_DIED"), (KeyboardInterrupt(), "STOPPED")]
)
def test_how_it_ended(tmp_path, fault, failure):
    """Only one that ended without an exception has no failure; a person's Ctrl-C is a stop."""
    ledger = Ledger.create(tmp_path, "sweep", SweepRecord(space=""))
    record = ConfigRecord.of(tiny_run(), number=0, suggested={})
    ledger.add_config(record)
    with suppress(OSError, KeyboardInterrupt), attempted(SeedFolder(ledger, record.id, 0), tiny_run(), devices=1):
        if fault is not None:
            raise fault
    (attempt,) = ledger.read_config(record.id).attempts(0)
    assert (attempt.ended, attempt.failure) == (True, failure)
