"""Dotted keys of earlier versions: read in what was recorded, refused with the new name in what a person gives."""

import json
from dataclasses import replace
from typing import Any

import pytest

from par.config.keys import RENAMED, known_keys, leaves, nest, renamed, renamed_text
from par.config.run import RunConfig
from par.errors import ConfigError, SpaceError
from par.ledger.current_space import current_space, write_totals
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SweepRecord, SweepTotals
from par.space.space import parse_space
from par.testing import tiny_run

OLD_NAMES = {new: old for old, new in RENAMED.items()}
SPACE = """\
question: Does train.workers matter? # train.workers was free
backbones: [tiny-qwen2]
fixed:
  task.rendering: compact
  train.steps: 20
  optim.warmup_steps: 2
  {group}.checkpoint_every: 5
search:
  '{group}.micro_batch': {{choice: [1, 2]}}
  optim.lr: {{choice: [1e-3], when: {{{group}.micro_batch: 2}}}}
  "{group}.attention" : {{choice: [split]}}
sampler: grid
seeds: 1
"""
"""A space in the keys of one version."""


def as_recorded_before(run: dict[str, Any]) -> dict[str, Any]:
    """The nested settings of a run as an earlier version wrote them."""
    return json.loads(json.dumps(nest({OLD_NAMES.get(key, key): value for key, value in leaves(run)})))


def test_each_old_key_has_one_successor():
    """No old key is a setting today, every new one is, and no two became one."""
    known = set(known_keys(RunConfig))
    assert known.isdisjoint(RENAMED)
    assert set(RENAMED.values()) == {key for key in known if key.startswith("compute.")}
    assert len(OLD_NAMES) == len(RENAMED)


@pytest.mark.parametrize("changes", [{}, {"compute__workers": 2, "compute__micro_batch": 1, "compute__compile": True}])
def test_a_configuration_of_an_earlier_version_is_the_same(changes):
    """Its record is read under today's keys, what the search chose too, and names the same run under the same id."""
    record = ConfigRecord.of(tiny_run(**changes), number=3, suggested={"compute.workers": 2, "optim.lr": 1e-3})
    before = record.to_dict() | {
        "run": as_recorded_before(dict(record.run)),
        "suggested": {"train.workers": 2, "optim.lr": 1e-3},
    }
    assert "compute" not in before["run"]
    read = ConfigRecord.from_dict(before)
    assert read == record
    assert RunConfig.model_validate({**read.run, "seed": 0}).fingerprint()[:8] == read.id


def test_what_is_written_today_is_read_as_it_is():
    """Reading changes nothing that has today's keys."""
    record = ConfigRecord.of(tiny_run(), number=0, suggested={"variant": "plain"})
    assert ConfigRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    assert renamed_text(SPACE.format(group="compute")) == SPACE.format(group="compute")
    assert renamed({"train.steps": 3, "compute.workers": 2}) == {"train.steps": 3, "compute.workers": 2}


@pytest.mark.parametrize("where", ["began", "made larger"])
def test_a_recorded_space_of_an_earlier_version_is_read(tmp_path, where):
    """It means what it meant, and can be recorded again; a sentence that mentions an old key stays as it is."""
    old, new = (SPACE.format(group=group) for group in ("train", "compute"))
    ledger = Ledger.create(tmp_path, "sweep", SweepRecord(space=old, space_path="sweep.yaml"))
    if where == "made larger":
        ledger.write_totals(SweepTotals(space=old, seeds=(3,)))
    read = current_space(ledger)
    assert read.text == new
    assert read.question == "Does train.workers matter?"
    expected = parse_space(new, tmp_path / "sweep.yaml")
    assert replace(read, stages=expected.stages).fingerprint() == expected.fingerprint()
    write_totals(ledger, read)
    assert current_space(ledger) == read


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_key_of_a_person_is_refused_with_its_new_name(old):
    """In settings and in spaces, wherever a key may stand."""
    message = f"{old} is {RENAMED[old]} now"
    with pytest.raises(ConfigError, match=rf"^{message}$"):
        RunConfig.from_dotted({old: 1})


def test_a_space_of_a_person_is_refused_with_the_new_names(tmp_path):
    """Each old key at its line: fixed, searched, or a condition."""
    with pytest.raises(SpaceError) as refused:
        parse_space(SPACE.format(group="train"), tmp_path / "space.yaml")
    lines = {row.partition("space.yaml:")[2] for row in str(refused.value).split("\n")}
    assert "7: fixed: train.checkpoint_every is compute.checkpoint_every now" in lines
    assert "9: search: train.micro_batch is compute.micro_batch now" in lines
    assert "11: search: train.attention is compute.attention now" in lines
    assert any(row.startswith("10: ") and "train.micro_batch is compute.micro_batch now" in row for row in lines)
