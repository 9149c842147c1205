"""Which sweep a command means, and what it may have more of."""

import pytest

from par.errors import ConfigError, FailureKind
from par.ledger.current_space import current_space
from ray_jobs.driver.resolve import Totals, begin, new_sweep, resumed_sweep
from ray_jobs.options import kinds_of

SPACE = """
question: Which?
backbones: [{backbones}]
fixed: {{task.name: swap-s3, task.rendering: compact, task.train_depth: {depth}}}
search: {{optim.lr: {{float: [1.0e-4, 1.0e-2], log: true}}}}
configurations: {configurations}
seeds: {seeds}
score: {score}
"""
FIRST = {"backbones": "tiny-qwen2", "depth": 4, "configurations": 4, "seeds": 2, "score": "extrapolation_auc"}


@pytest.fixture
def write(tmp_path):
    def write(name: str = "space.yaml", **changes: object):
        path = tmp_path / name
        path.write_text(SPACE.format(**FIRST | changes))
        return path

    return write


@pytest.fixture
def storage(tmp_path, write):
    folder = str(tmp_path / "results")
    begin(new_sweep(write(), "demo", folder, Totals(), dry_run=False), "demo", folder)
    return folder


def resume(storage, space=None, *, dry_run: bool = False, **totals: int):
    return resumed_sweep("demo", storage, space, Totals(**totals), dry_run=dry_run)[0]


def test_a_sweep_grows_to_a_total_and_stays_so(storage):
    """More configurations or seeds are totals: said again they change nothing, and left out they stay (R3)."""
    for _ in range(2):
        grown = resume(storage, configurations=30, seeds=3)
        assert (grown.configurations, grown.stages.rungs[-1]) == (30, 3)
    assert (resume(storage).configurations, resume(storage).stages.rungs[-1]) == (30, 3)


def test_a_new_sweep_has_the_totals_that_were_asked_for(tmp_path, write):
    """Totals of the command line stand in the place of those in the file, and stay when the sweep goes on."""
    folder, totals = str(tmp_path / "others"), Totals(configurations=2, seeds=1)
    space = new_sweep(write(), "demo", folder, totals, dry_run=False)
    begin(space, "demo", folder)
    assert (space.configurations, space.stages.rungs[-1]) == (2, 1)
    assert resume(folder) == space


def test_a_dry_run_makes_nothing_larger(storage):
    """What --dry-run shows is not wanted yet."""
    assert resume(storage, configurations=30, dry_run=True).configurations == 30
    assert resume(storage).configurations == 4


@pytest.mark.parametrize("key", ["configurations", "seeds"])
def test_nothing_is_taken_away(storage, key):
    """A total below what there is is refused, with both numbers."""
    with pytest.raises(ConfigError, match=rf"--{key} 1: there are {FIRST[key]} in total"):
        resume(storage, **{key: 1})


def test_a_grid_has_no_more_configurations(tmp_path, write):
    """The combinations of a grid are what they are."""
    folder = str(tmp_path / "grids")
    grid = write("grid.yaml", configurations=4)
    text = grid.read_text().replace("{float: [1.0e-4, 1.0e-2], log: true}", "{choice: [1.0e-3, 1.0e-2]}")
    grid.write_text(text.replace("configurations: 4\n", "sampler: grid\n"))
    begin(new_sweep(grid, "demo", folder, Totals(), dry_run=False), "demo", folder)
    with pytest.raises(ConfigError, match="have 2: leave it out"):
        resume(folder, configurations=9)


def test_further_backbones_are_further_studies(storage, write):
    """A space that adds backbones, configurations or seeds is taken over, and recorded (S2)."""
    larger = write("larger.yaml", backbones="tiny-qwen2, tiny-qwen3", configurations=8)
    assert resume(storage, larger).backbones == ("tiny-qwen2", "tiny-qwen3")
    found = resume(storage)
    assert (found.backbones, found.configurations, found.stages.rungs[-1]) == (("tiny-qwen2", "tiny-qwen3"), 8, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"score": "G"}, "score: extrapolation_auc became G"),
        ({"depth": 6}, "fixed.task.train_depth: 4 became 6"),
        ({"backbones": "tiny-qwen3"}, r"backbones: \['tiny-qwen2'\] became \['tiny-qwen3'\]"),
        ({"configurations": 2}, "configurations: 4 became 2"),
        ({"backbones": "tiny-qwen2, tiny-qwen3", "score": "G"}, "score: extrapolation_auc became G"),
    ],
)
def test_any_other_change_is_refused_with_what_differs(storage, write, changes, said):
    """Another score, another task, fewer of anything: the difference is listed, and nothing is recorded (S3)."""
    with pytest.raises(ConfigError, match=said):
        resume(storage, write("other.yaml", **changes))
    assert resume(storage).text == SPACE.format(**FIRST)


def test_status_and_sync_read_the_same_space(storage):
    """Whoever asks the ledger for the space has it with the totals that are wanted by now."""
    grown = resume(storage, seeds=5)
    _, ledger = resumed_sweep("demo", storage, None, Totals(), dry_run=True)
    assert current_space(ledger) == grown


def test_kinds_are_chosen_by_name():
    """--failed alone means every kind; --kinds some of them, in whatever case; what does not exist is refused (R16)."""
    assert kinds_of(failed=False, kinds=None) == ()
    assert kinds_of(failed=True, kinds=None) == tuple(FailureKind)
    assert kinds_of(failed=True, kinds="oom_gpu, HANG") == (FailureKind.OOM_GPU, FailureKind.HANG)
    with pytest.raises(ConfigError, match="--kinds OOPS: choose from STOPPED"):
        kinds_of(failed=True, kinds="HANG,OOPS")
    with pytest.raises(ConfigError, match="needs --failed"):
        kinds_of(failed=False, kinds="HANG")
