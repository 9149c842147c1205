"""What `import par` offers: each name under its type, none before it is asked for. `make lint` checks the types."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import pytest

import par

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = [name for names in par._MODULES.values() for name in names]


def train_and_read(storage: Path) -> par.DepthCurve:
    """Settings, a ledger, one seed, and the model that it keeps, by public names alone."""
    run = par.RunConfig.from_dotted({**TINY, "train.steps": 4})
    record = assert_type(par.ConfigRecord.of(run, number=0, suggested={}), par.ConfigRecord)
    ledger = assert_type(par.Ledger.create(storage, "public", par.SweepRecord(space="")), par.Ledger)
    ledger.add_config(record)
    folder = par.SeedFolder(ledger, record.id, run.seed)
    result = assert_type(par.run_seed(run, folder, report=print), par.SeedResult)
    assert result.step == 4
    kept = assert_type(par.KeptModel.open(folder), par.KeptModel)
    exam = assert_type(kept.exam([4, 8]), par.Exam)
    return assert_type(par.depth_curve(exam), par.DepthCurve)


if TYPE_CHECKING:
    load: Callable[[Path], par.Space] = par.load_space
    TINY: dict[str, object]
else:
    from par.testing import TINY


def test_a_seed_by_public_names(tmp_path):
    """They are enough to train a seed and to read its model."""
    curve = train_and_read(tmp_path)
    assert curve.depths == (4, 8)
    found = assert_type(par.extrapolation(curve.depths, curve.single_query, train_depth=4), par.Extrapolation)
    assert found.G >= 0
    with pytest.raises(par.ParError):
        par.load_space(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name):
    """It is where the package says, it is listed, and it explains itself."""
    assert name in dir(par)
    assert getattr(par, name).__doc__


def test_other_names_are_not():
    """A name that does not exist is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="has no attribute 'Sweep'"):
        _ = par.Sweep


def test_import_is_cheap():
    """Neither the package nor its settings load torch."""
    code = "import par, sys; par.RunConfig; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
