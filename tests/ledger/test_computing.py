"""How a sweep is computed: kept in the ledger, taken up again by a resume, without secrets."""

import pytest

from par.errors import ConfigError
from par.ledger.ledger import Ledger
from par.ledger.records import Computing, SweepRecord
from ray_jobs.driver.drive import Options
from ray_jobs.driver.resolve import require_mlflow, require_secret, without_password


def test_what_is_said_now_counts_and_else_what_was_said_before(tmp_path):
    """A resume that says nothing computes as before, one that says something changes that alone; an old ledger has
    nothing kept."""
    ledger = Ledger.create(tmp_path, "demo", SweepRecord(space=""))
    assert Ledger.open(tmp_path, "demo").computing() == Computing()
    ledger.keep_computing(Computing(gpus_per_worker=1, max_concurrent=2, grace_s=5))
    kept = Ledger.open(tmp_path, "demo").computing()
    assert Computing().over(kept) == kept
    assert Computing(max_concurrent=4).over(kept) == Computing(gpus_per_worker=1, max_concurrent=4, grace_s=5)


def test_a_cluster_whose_gpus_come_later_still_gets_gpu_trials(tmp_path):
    """A sweep begun with one GPU per worker on a cluster without a GPU node yet goes on with one, not on CPUs."""
    ledger, empty = Ledger.create(tmp_path, "demo", SweepRecord(space="")), {"CPU": 4.0}
    ledger.keep_computing(Computing(gpus_per_worker=1, max_concurrent=2))
    resumed = Options(storage=str(tmp_path), address="cluster", **Computing().over(ledger.computing()).to_dict())
    assert resumed.demand(1, empty).gpus_per_worker == 1
    assert resumed.scales_up
    assert Options(storage=str(tmp_path), address="cluster").demand(1, empty).gpus_per_worker == 0


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("http://user:secret@host:5000", "http://***@host:5000"),
        ("postgresql://host/db?user=a&password=secret", "postgresql://host/db?***"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
        (None, None),
    ],
)
def test_no_password_is_kept(uri, kept):
    """Of the address of an MLflow store the ledger has what is no secret."""
    assert without_password(Computing(tracking_uri=uri)).tracking_uri == kept


def test_a_password_that_was_not_kept_is_asked_for():
    """A resume does not go on without the secret that the sweep had; an address that had none is taken up as it is."""
    kept = without_password(Computing(tracking_uri="http://user:secret@host:5000"))
    with pytest.raises(ConfigError, match=r"\*\*\*@host:5000.*give --tracking-uri, or set MLFLOW_TRACKING_URI"):
        require_secret(kept.tracking_uri)
    require_secret(Computing(tracking_uri="http://user:other@host:5000").over(kept).tracking_uri)
    require_secret("http://host:5000")
    require_secret(None)


def test_an_object_store_needs_mlflows_address_from_somewhere():
    """A sweep on an object store runs with the address that was kept; without any it is refused with the option."""
    require_mlflow("s3://bucket/par", "http://host:5000")
    require_mlflow("results", None)
    with pytest.raises(ConfigError, match="give --tracking-uri"):
        require_mlflow("s3://bucket/par", None)
