"""What became of a sweep that something killed, beside one that was left alone: one row of the kill matrix."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from optuna.trial import TrialState
from rich.table import Table

from par.ledger.ledger import HISTORY, Ledger
from par.space.space import parse_space
from ray_jobs.optuna_studies.study import BackboneStudy
from tests.kills.scene import CONFIGURATIONS, NAME, Scene
from tests.ray_jobs.sweeps import results, runs

BEGIN, END = "<!-- kill matrix -->", "<!-- end of the kill matrix -->"
COLUMNS = (
    "what dies", "lives of its seed", "finished seeds as before", "seeds done", "MLflow runs", "told once",
    "as undisturbed", "seconds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of so many are as they should be."""

    found: int
    wanted: int

    @property
    def green(self) -> bool:
        return self.found == self.wanted

    def __str__(self) -> str:
        return f"{self.found} of {self.wanted}" if self.wanted else "–"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kill and what came of it."""

    killed: str
    lives: tuple[str, ...]
    """How each attempt of the seed that was hit ended."""
    as_before: Share
    """Results from before the kill, byte for byte."""
    done: Share
    """Seeds with a result; their number is configurations times seeds."""
    runs: Share
    """Finished runs in MLflow: the sweep, its configurations, their seeds."""
    told: Share
    """Configurations with a verdict and exactly one finished trial in a study rebuilt from the ledger."""
    undisturbed: Share
    """Seeds whose result and losses are, bit for bit, those of a sweep that was left alone."""
    seconds: float
    """From the kill to the first checkpoint of the next attempt."""

    @classmethod
    def of(cls, killed: str, scene: Scene, reference: Path, attempt: str) -> "Row":
        """Look at a sweep that is over; ``attempt`` is one of the seed that was hit."""
        seeds, after = CONFIGURATIONS * scene.seeds, results(scene.storage, NAME)
        wanted = 1 + CONFIGURATIONS + seeds
        statuses = [run.info.status for run in runs(scene.tracking)]
        return cls(
            killed=killed,
            lives=tuple(life.get("failure", "done") for life in scene.lives_of(attempt)),
            as_before=Share(
                found=sum(after.get(path) == data for path, data in scene.finished.items()), wanted=len(scene.finished)
            ),
            done=Share(found=len(after), wanted=seeds),
            runs=Share(found=len(statuses) if set(statuses) == {"FINISHED"} else 0, wanted=wanted),
            told=Share(found=told_once(scene), wanted=CONFIGURATIONS),
            undisturbed=Share(found=len(same_seeds(scene, reference)), wanted=seeds),
            seconds=scene.seconds,
        )

    @property
    def shares(self) -> tuple[Share, ...]:
        return (self.as_before, self.done, self.runs, self.told, self.undisturbed)

    @property
    def green(self) -> bool:
        return all(share.green for share in self.shares)

    def cells(self) -> list[str]:
        return [self.killed, " → ".join(self.lives), *map(str, self.shares), f"{self.seconds:.1f}"]


def told_once(scene: Scene) -> int:
    """Configurations of which a study rebuilt from the ledger has exactly one trial, complete with their score."""
    ledger = Ledger.open(scene.storage, NAME)
    space, state = parse_space(ledger.sweep.space, Path("space.yaml")), ledger.read()
    trials = [
        trial
        for backbone in space.backbones
        for trial in BackboneStudy(space, backbone, state.configs).study.get_trials(deepcopy=False)
    ]
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    verdicts = [config.verdict.score for config in state.configs if config.verdict]
    return len(verdicts) if sorted(verdicts) == sorted(trial.value for trial in complete) else 0


def same_seeds(scene: Scene, reference: Path) -> list[str]:
    """Results that are those of the reference, losses of every record included."""
    left_alone = results(reference, NAME)
    return [
        path
        for path, data in results(scene.storage, NAME).items()
        if data == left_alone.get(path) and _losses(scene.storage, path) == _losses(reference, path)
    ]


def _losses(storage: Path, result: str) -> dict[str, list]:
    table = pq.read_table(storage / NAME / Path(result).parent / HISTORY)
    return table.select(["step", "train/loss"]).to_pydict()


def table(rows: Iterable[Row]) -> Table:
    """The matrix for a terminal."""
    shown = Table(*COLUMNS, title="Kill matrix")
    for row in rows:
        shown.add_row(*row.cells(), style="green" if row.green else "red")
    return shown


def markdown(rows: Iterable[Row]) -> str:
    """The matrix for a page."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_into(page: Path, rows: Iterable[Row]) -> None:
    """Put the matrix between the two comments of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{markdown(rows)}\n{END}{rest.partition(END)[2]}")
