"""Train one seed in this process, without a cluster.

python ray_jobs/train.py --space search_spaces/ablation.yaml --variant "no anchoring" --seed 3
ray job submit -- python ray_jobs/train.py --set backbone=tiny-qwen2 --set train.steps=200
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":  # a job starts this file where par is not installed
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from par.config.keys import known_keys, new_name
from par.config.run import RunConfig
from par.errors import ConfigError, StoppedError
from par.ledger.current_space import current_space
from par.ledger.ledger import Ledger, sweeps
from par.ledger.records import ConfigRecord
from par.objects import public
from par.space.parse import LAST_FIRST_SEED, VARIANT
from par.space.space import ALONE, Space, load_space, space_of_run
from par.space.yaml_lines import did_you_mean
from ray_jobs import options as o
from ray_jobs.console import refusing, say, warn
from ray_jobs.driver.resolve import RESERVED, begin, storage_of

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def train(
    space: Annotated[Path | None, typer.Option(help="Take the settings of this search space.")] = None,
    variant: Annotated[str | None, typer.Option(help="Of the space's variants this one.", show_default=False)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, over the space's; repeats."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LAST_FIRST_SEED, help="The seed.")] = 0,
    name: Annotated[
        str | None, typer.Option(help="Folder of the result in STORAGE.", show_default="from space, settings and seed")
    ] = None,
    storage: o.Storage = None,
    tracking_uri: o.TrackingUri = None,
    cpus_per_worker: o.CpusPerWorker = None,
    mlflow: Annotated[bool, typer.Option("--mlflow/--no-mlflow", help="Log the run in MLflow.")] = True,
) -> None:
    """Train and evaluate one seed in this process, without Ray.

    Settings come from a space (its fixed ones and those of --variant), from --set, or from both; what is left out has
    its default. Example: par train --space search_spaces/smoke.yaml --set recurrence.anchor=none --seed 3

    The same command goes on from the last checkpoint, and repeats nothing that is done. SIGTERM and Ctrl-C save a
    checkpoint first. The result is a sweep of one seed: `par status`, `par report` and `par export` read it.

    Exit code: 0 when the seed has a result, 1 when a disk is full, 2 for bad input, 143 or 130 after a signal.
    """
    with refusing():
        from ray_jobs.mlflow_runs.store import default_uri, open_store

        home = storage_of(storage, tracking_uri if mlflow else "none")
        run = run_of(None if space is None else load_space(space), variant, settings or [], seed)
        uri = (tracking_uri or default_uri(home)) if mlflow else None
        store = None if uri is None else open_store(uri)
        ledger, record = _ledger_of(run, name or _name_of(space, run), home)
        if done := ledger.read_config(record.id).results.get(seed):
            say(f"{ledger.name}: seed {seed} is done, nothing is repeated: {done.outcome()}")
            return
        import torch

        from ray_jobs.driver.one_seed import train_seed
        from ray_jobs.driver.stopping import Stopping

        stopping = Stopping()
        torch.set_num_threads(max(1, int(cpus_per_worker or 1)))
        try:
            with stopping.on_signals():
                result = train_seed(ledger, record, run, stopping, store)
        except StoppedError as fault:
            warn(f"{fault}: saved; the same command goes on from there")
            raise typer.Exit(stopping.exit_code) from None
        say(f"{ledger.name}: {result.outcome()}")
        say(f"par report {ledger.name} --storage {public(home)}")


def run_of(space: Space | None, variant: str | None, settings: list[str], seed: int) -> RunConfig:
    """The run that a person asks for. Raises ConfigError for what does not exist, or is missing."""
    given = dict(_setting(text) for text in settings)
    chosen = {} if space is None else _of_space(space, variant, given)
    if space is None and variant is not None:
        raise ConfigError(f"--variant {variant} needs --space: variants are named there")
    run = RunConfig.from_dotted({**chosen, **given, "seed": seed})
    if run.compute.workers > 1:
        raise ConfigError(
            f"compute.workers={run.compute.workers} needs a cluster: use par sweep, or --set compute.workers=1 here"
        )
    return run


def _setting(text: str) -> tuple[str, Any]:
    """Key and value of one --set. Raises ConfigError for a key that does not exist."""
    key, equals, value = text.partition("=")
    key, known = key.strip(), set(known_keys(RunConfig)) - {"seed"}
    if not equals:
        raise ConfigError(f"--set {text}: write KEY=VALUE, e.g. train.steps=200")
    if key == "seed":
        raise ConfigError(f"--set {text}: give --seed {value}")
    if key not in known:
        hint = did_you_mean(key, known) or "docs/spaces.md lists all settings"
        message = next(new_name(key), f"{key} does not exist: {hint}")
        raise ConfigError(f"--set {text}: {message}")
    try:
        return key, YAML(typ="safe").load(value)
    except (YAMLError, ValueError, LookupError, RecursionError):
        raise ConfigError(f"--set {text}: {value} cannot be read as a value") from None


def _of_space(space: Space, variant: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a space, but for those that it searches, which must be given."""
    if variant is not None and variant not in space.variants:
        hint = did_you_mean(variant, space.variants) or f"it has {', '.join(space.variants) or 'none'}"
        raise ConfigError(f"--variant {variant} is none of {space.name}: {hint}")
    if space.variants and variant is None:
        raise ConfigError(f"{space.name} has variants, choose one with --variant: {', '.join(space.variants)}")
    searched = [key for key, _ in space.ordered() if key != VARIANT and space.is_active(key, given)]
    if missing := [key for key in searched if key not in given]:
        raise ConfigError(f"{space.name} searches {', '.join(missing)}: give each a value, --set {missing[0]}=VALUE")
    if "backbone" not in given and len(space.backbones) > 1:
        raise ConfigError(f"{space.name} has several backbones: --set backbone=… one of {', '.join(space.backbones)}")
    return {**space.fixed, **space.variants.get(variant or "", {}), "backbone": next(iter(space.backbones))}


def _name_of(space: Path | None, run: RunConfig) -> str:
    of = "train" if space is None else re.sub(r"[^A-Za-z0-9]+", "-", space.stem).strip("-")
    return f"{of[:60]}-{run.fingerprint()[:8]}-seed-{run.seed}"


def _ledger_of(run: RunConfig, name: str, storage: str) -> tuple[Ledger, ConfigRecord]:
    """The ledger of this one seed, begun where it does not exist. Raises ConfigError if it is another run's."""
    record = ConfigRecord.of(run, number=0, suggested={VARIANT: ALONE})
    if name not in sweeps(storage):
        if name in RESERVED:
            raise ConfigError(f"--name {name}: MLflow's files have that name, give another")
        begin(space_of_run(run, name), name, storage).add_config(record)
    ledger = Ledger.open(storage, name)
    if current_space(ledger).meaning() != space_of_run(run, name).meaning():
        place = public(storage)
        raise ConfigError(f"--name {name} is taken by other settings or another seed in {place}: give another name")
    if not ledger.read().configs:  # begun by a process that died at once
        ledger.add_config(record)
    return ledger, record


if __name__ == "__main__":
    app()
