"""Evaluate the model that a seed has kept, at other depths or in other ways than its run did.

python ray_jobs/evaluate.py smoke/1a2b3c4d/seed-0 --depths 32,64,1024
ray job submit -- python ray_jobs/evaluate.py smoke/1a2b3c4d/seed-0 --halting
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if __name__ == "__main__":  # a job starts this file where par is not installed
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.table import Table

from par.config.groups import HaltingConfig
from par.config.run import RunConfig
from par.errors import ConfigError
from par.ledger.ledger import Ledger, SeedFolder
from par.objects import Objects, public
from par.tasks.groups import chance
from par.tasks.streams import Split
from ray_jobs import options as o
from ray_jobs.console import out, refusing, warn
from ray_jobs.driver.progress import shown
from ray_jobs.driver.resolve import default_storage, writable

if TYPE_CHECKING:
    from par.evaluation.accuracy import DepthCurve
    from par.evaluation.exam import Exam
    from par.evaluation.halting import HaltingCurve
    from par.seed.kept import KeptModel

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
SPLITS = (Split.TEST, Split.CALIBRATION, Split.VALIDATION)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def evaluate(
    seed: Annotated[
        str,
        typer.Argument(metavar="SEED", help="SWEEP/CONFIG/seed-N, or the folder of a seed; SWEEP if it has only one."),
    ],
    depths: Annotated[
        str | None,
        typer.Option(metavar="D,D,…", help="Operations, e.g. 32,64,1024.", show_default="those of the run"),
    ] = None,
    halting: Annotated[
        bool, typer.Option("--halting", help="Let the model halt by the rule, too; it must have learned to.")
    ] = False,
    tau: Annotated[float | None, typer.Option(help="Of the halting rule.", show_default="the run's")] = None,
    k: Annotated[int | None, typer.Option(help="Of the halting rule.", show_default="the run's")] = None,
    m: Annotated[int | None, typer.Option(help="Of the halting rule.", show_default="the run's")] = None,
    step_size: Annotated[
        int | None, typer.Option(min=1, help="c: read depth d at iteration ceil(d/c).", show_default="the run's")
    ] = None,
    stretch: Annotated[float, typer.Option(help="s: multiply positions by it.")] = 1.0,
    split: Annotated[str, typer.Option(help=f"Frozen prompts: {', '.join(SPLITS)}.")] = Split.TEST,
    sequences: Annotated[int | None, typer.Option(min=1, help="Prompts.", show_default="the run's")] = None,
    to: Annotated[
        str | None, typer.Option("--out", metavar="FOLDER", help="Where files go.", show_default="beside the result")
    ] = None,
    storage: o.Storage = None,
    cpus_per_worker: o.CpusPerWorker = None,
) -> None:
    """Read a kept model at more depths than its run did, with another c, stretch or halting rule.

    Prints a table and writes evaluation-N.parquet and evaluation-N.png, N being the first number that is free: nothing
    is written over, and the sweep's results stay as they are. The Parquet file says in its metadata how it was read.

    Example: par evaluate smoke/1a2b3c4d/seed-0 --depths 32,64,128,1024

    Exit code: 0, 1 when a disk is full, or 2 for a seed without a model or a question that cannot be asked.
    """
    with refusing():
        folder = seed_folder(seed, storage)
        asked = None if depths is None else depths_of(depths)
        if split not in SPLITS:
            raise ConfigError(f"--split {split}: choose one of {', '.join(SPLITS)}")
        from par.evaluation.exam import FARTHEST

        if not 0 < stretch <= FARTHEST:
            raise ConfigError(
                f"--stretch {stretch:g}: give a factor above 0 and at most {FARTHEST:g}, 1 leaves positions"
            )
        place = folder.objects if to is None else Objects.at(to if "://" in to else writable(to, "--out"))
        if to is None and place.is_local:
            writable(place.root, "give --out FOLDER:")
        recorded = RunConfig.model_validate(folder.ledger.read_config(folder.config).record.run)
        rule = rule_of(recorded.halting, tau=tau, k=k, m=m, wanted=halting)
        import torch

        from par.evaluation.accuracy import depth_curve
        from par.evaluation.halting import halting_curve
        from par.seed.kept import KeptModel

        torch.set_num_threads(max(1, int(cpus_per_worker or 1)))
        kept = KeptModel.open(folder)
        exam = kept.exam(asked, step_size=step_size, sequences=sequences, split=Split(split), stretch=stretch)
        if kept.step < kept.run.train.steps:
            warn(f"The seed is not done: its model stands at step {kept.step} of {kept.run.train.steps}")
        with shown() as show:

            def heard(prompts: int, phase: str = "evaluate") -> None:
                show({"phase": phase, "prompts": prompts, "sequences": exam.sequences})

            heard(0)
            curve = depth_curve(exam, keep=lambda tally: heard(tally.prompts))
            halted = halting_curve(exam, rule, partial(heard, phase="halting")) if halting else None
        out.print(table_of(kept.run, exam, curve, halted))
        how = how_read(folder, kept, exam, rule if halting else None)
        for name in write_new(place, files_of(how, kept.run, exam, curve, halted)):
            out.print(public(f"{place.root}/{name}"), soft_wrap=True, highlight=False)


def seed_folder(text: str, storage: str | None) -> SeedFolder:
    """The seed that a person means: a folder, or names of which those that leave no choice may be missing.

    Raises ConfigError that lists what there is to choose from.
    """
    path = Path(text).expanduser().resolve()
    if folder := next((one for one in (path, *path.parents) if (one / "sweep.json").is_file()), None):
        storage, names = str(folder.parent), [folder.name, *path.relative_to(folder).parts[1:]]
    else:
        names = text.strip("/").split("/")
    sweep, config, name, *more = [*names, "", ""]
    if any(more) or not sweep:
        raise ConfigError(f"{text or 'SEED'} is no seed: give SWEEP/CONFIG/seed-N, or a folder that exists")
    ledger = Ledger.open(storage or default_storage(), sweep)
    configs = {one.id: one for one in ledger.read().configs}
    found = configs[_chosen(text, "configuration", config, configs)]
    number = _chosen(text, "seed", name, [f"seed-{number}" for number in found.seeds])
    return SeedFolder(ledger, found.id, int(number.removeprefix("seed-")))


def _chosen(text: str, what: str, name: str, there: Iterable[str]) -> str:
    names = list(there)
    if name in names:
        return name
    if not name and len(names) == 1:
        return names[0]
    fault = f"there is no {what} {name}" if name else f"the {what} is missing"
    remedy = f"choose one of {', '.join(names)}" if names else "none has begun yet"
    raise ConfigError(f"{text}: {fault}: {remedy}")


def depths_of(text: str) -> tuple[int, ...]:
    """The depths, ascending. Raises ConfigError for what is no whole number, or out of range."""
    from par.evaluation.exam import DEEPEST

    words = [word.strip() for word in text.split(",") if word.strip()]
    faulty = [word for word in words if not re.fullmatch(r"\d{1,9}", word) or not 1 <= int(word) <= DEEPEST]
    if faulty or not words:
        raise ConfigError(f"--depths {text}: {', '.join(faulty) or 'nothing'} is no depth: give 1 to {DEEPEST}")
    return tuple(sorted({int(word) for word in words}))


def rule_of(trained: HaltingConfig, *, tau: float | None, k: int | None, m: int | None, wanted: bool) -> HaltingConfig:
    """The halting rule. Raises ConfigError where the model has not learned to halt, or no such rule exists."""
    changes = {name: value for name, value in (("tau", tau), ("k", k), ("m", m)) if value is not None}
    if changes and not wanted:
        raise ConfigError(f"--{next(iter(changes))} needs --halting: it belongs to the rule")
    if wanted and trained.mode != "learned":
        raise ConfigError("--halting: the model was trained with halting.mode=forced, and says no Yes: leave it out")
    settings = {f"halting.{name}": value for name, value in (trained.model_dump() | changes).items()}
    return RunConfig.from_dotted(settings).halting


def table_of(run: RunConfig, exam: "Exam", curve: "DepthCurve", halted: "HaltingCurve | None") -> Table:
    """A row per depth."""
    table, d_train = Table(), run.task.train_depth
    columns = ["depth", "of d_train", "iteration", "single query", "full state", "chance"]
    columns += ["halting: single query", "full state", "not halted", "iterations"] if halted else []
    for column in columns:
        table.add_column(column, justify="right")
    for place, depth in enumerate(exam.depths):
        right = (curve.single_query[place], curve.full_state[place], chance(exam.task, depth).single_query)
        row = [str(depth), f"{depth / d_train:.3g}×", str(exam.completing[place]), *(f"{share:.1%}" for share in right)]
        if halted:
            shares = (halted.single_query[place], halted.full_state[place], halted.not_halted[place])
            mean = halted.mean_iterations[place]
            row += [*(f"{share:.1%}" for share in shares), "–" if mean is None else f"{mean:.1f}"]
        table.add_row(*row)
    return table


def how_read(folder: SeedFolder, kept: "KeptModel", exam: "Exam", rule: HaltingConfig | None) -> dict[str, Any]:
    """Which model was read, and how."""
    return {
        "sweep": folder.ledger.name, "config": folder.config, "seed": folder.seed, "step": kept.step,
        "split": str(exam.split), "step_size": exam.step_size, "stretch": exam.stretch, "sequences": exam.sequences,
        "rule": None if rule is None else rule.model_dump(include={"tau", "k", "m"}),
    }  # fmt: skip


def files_of(
    how: Mapping[str, Any], run: RunConfig, exam: "Exam", curve: "DepthCurve", halted: "HaltingCurve | None"
) -> dict[str, bytes]:
    """The table and the picture, by ending."""
    from par.report.page.gathered import Curve
    from par.report.plots import as_png, one_model
    from par.seed.evaluate import curve_rows, to_parquet

    rows = [row | {"iteration": at} for row, at in zip(curve_rows(curve), exam.completing, strict=True)]
    curves = {"the known iteration": Curve(curve.depths, curve.single_query, curve.full_state)}
    if halted is not None:
        more = ({f"halting_{name}": value for name, value in row.items()} for row in curve_rows(halted))
        rows = [row | other for row, other in zip(rows, more, strict=True)]
        curves["its halting"] = Curve(halted.depths, halted.single_query, halted.full_state)
    rule = how["rule"] and ", ".join(f"{name} = {value:g}" for name, value in how["rule"].items())
    said = f"{exam.split} prompts, {exam.sequences} per depth; step {how['step']}; c = {exam.step_size}"
    said += f"; stretch {exam.stretch:g}" + (f"; halting by {rule}" if rule else "")
    title = [f"{how['sweep']}/{how['config']}/seed-{how['seed']}", said]
    return {
        "parquet": to_parquet(rows, {"par.evaluation": json.dumps(how)}),
        "png": as_png(one_model(title, run, curves)),
    }


def write_new(place: Objects, files: Mapping[str, bytes]) -> list[str]:
    """Write the files under the first number at which there is none; return their names.

    Raises ConfigError if the place refuses.
    """
    (ending, data), *others = files.items()
    try:
        number = next(number for number in count(1) if place.create(f"evaluation-{number}.{ending}", data))
        for other, more in others:
            place.put(f"evaluation-{number}.{other}", more)
    except OSError as fault:
        raise ConfigError(f"{public(place.root)} cannot be written: {fault}: give --out another folder") from None
    return [f"evaluation-{number}.{ending}" for ending in files]


if __name__ == "__main__":
    app()
