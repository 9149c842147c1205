"""cluster.yaml: what Ray's launcher would refuse, or accept and then run at a loss, is found without a cloud."""

import copy
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from ray.autoscaler._private.util import prepare_config, validate_config

from ray_jobs.trial.cluster import DRIVER

REPOSITORY = Path(__file__).resolve().parents[2]
SLOWEST_BOOT_MIN = 15
"""Minutes that a GPU node may take from its launch to its first trial."""
EXPERIMENT = re.compile(r"search_spaces|sweep\.py|--space|task\.|train\.|recurrence\.")

Config = dict[str, Any]


def read() -> Config:
    return yaml.safe_load((REPOSITORY / "cluster.yaml").read_text())


def head(config: Config) -> Config:
    return config["available_node_types"][config["head_node_type"]]


def others(config: Config) -> dict[str, Config]:
    return {name: node for name, node in config["available_node_types"].items() if name != config["head_node_type"]}


def commands(value: Any) -> Iterator[str]:
    """Every text in the configuration: commands are the only long ones."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from commands(item)


def option(command: str, name: str) -> str | None:
    return next((word.partition("=")[2] for word in shlex.split(command) if word.startswith(f"--{name}=")), None)


def valid_for_ray(config: Config) -> bool:
    """Ray's launcher accepts the file: its schema, its defaults, and the minimum of nodes within the maximum."""
    try:
        validate_config(prepare_config(copy.deepcopy(config)))
    except (jsonschema.ValidationError, ValueError):
        return False
    return True


def head_is_for_drivers(config: Config) -> bool:
    """The head has no GPU, is on demand, and it alone offers the drivers' resource."""
    node = head(config)
    alone = not any(DRIVER in other["resources"] for other in others(config).values())
    on_demand = "InstanceMarketOptions" not in node["node_config"]
    return node["resources"].get("GPU") == 0 and node["resources"].get(DRIVER, 0) >= 1 and alone and on_demand


def start_command_agrees(config: Config) -> bool:
    """`ray start` on the head states the same resources as the node type, of which the autoscaler knows."""
    command = config["head_start_ray_commands"][-1]
    resources = json.loads(option(command, "resources") or "{}")
    stated = {"CPU": int(option(command, "num-cpus") or 0), "GPU": int(option(command, "num-gpus") or 0), **resources}
    return stated == head(config)["resources"]


def gpus_start_from_none(config: Config) -> bool:
    """There are GPU workers, at least one can start, and none of any kind runs while nothing waits for it."""
    gpus = [node for node in others(config).values() if node["resources"].get("GPU", 0) > 0]
    startable = all(node.get("max_workers", 0) >= 1 for node in gpus)
    return bool(gpus) and startable and all(node.get("min_workers", 0) == 0 for node in others(config).values())


def gpus_are_spot(config: Config) -> bool:
    """GPU workers are bought on the spot market."""
    gpus = [node for node in others(config).values() if node["resources"].get("GPU", 0) > 0]
    return all(node["node_config"].get("InstanceMarketOptions") == {"MarketType": "spot"} for node in gpus)


def totals_agree(config: Config) -> bool:
    """Every type can reach its own maximum at once: none is negative, and together they stay within the total."""
    maxima = [node.get("max_workers", config["max_workers"]) for node in others(config).values()]
    return min(maxima) >= 0 and sum(maxima) <= config["max_workers"] and head(config).get("max_workers") == 0


def outlives_a_boot(config: Config) -> bool:
    """A node stays idle for at least twice a boot, so that none leaves while a trial waits for the last one."""
    return config["idle_timeout_minutes"] >= 2 * SLOWEST_BOOT_MIN


def versions_are_pinned(config: Config) -> bool:
    """Every node gets one version of every direct dependency, and pyproject.toml allows it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(text) for text in project["dependencies"]]
    words = [word for command in config["setup_commands"] for word in shlex.split(command)]
    pins = {Requirement(word).name: Requirement(word) for word in words if "==" in word}
    return {r.name for r in wanted} == pins.keys() and all(
        r.extras == pins[r.name].extras and all(r.specifier.contains(pin.version) for pin in pins[r.name].specifier)
        for r in wanted
    )


def repository_is_there(config: Config) -> bool:
    """The repository is copied to every node without what git ignores, and jobs start in its folder."""
    places = [place for place, source in config["file_mounts"].items() if source == "."]
    start = config["head_start_ray_commands"][-1].replace("~", "/home/ubuntu")
    return bool(places) and f"cd {places[0]} " in start and ".gitignore" in config["rsync_filter"]


def access_is_stated(config: Config) -> bool:
    """Every `ray start` states how it authenticates, and MLflow states whose requests it answers."""
    starts = [command for command in commands(config) if "ray start" in command]
    servers = [command for command in commands(config) if "mlflow server" in command]
    return (
        len(starts) == 2
        and all("RAY_AUTH_MODE=" in command for command in starts)
        and bool(servers)
        and all("--allowed-hosts" in command for command in servers)
    )


def shell_is_valid(config: Config) -> bool:
    """Every command parses."""
    lists = [value for key, value in config.items() if key.endswith("commands")]
    text = "\n".join(commands(lists))
    return subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).returncode == 0


def nothing_about_experiments(config: Config) -> bool:
    """The file speaks of machines: no space, no sweep, no setting of a run."""
    return not any(EXPERIMENT.search(text) for text in commands(config))


def put(value: Any, *keys: Any) -> Callable[[Config], None]:
    """A change that sets one place of the configuration."""

    def change(config: Config) -> None:
        for key in keys[:-1]:
            config = config[key]
        config[keys[-1]] = value

    return change


def rewrite(old: str, new: str, *keys: Any) -> Callable[[Config], None]:
    """A change that replaces a text that is there in one place of the configuration."""

    def change(config: Config) -> None:
        for key in keys[:-1]:
            config = config[key]
        assert old in config[keys[-1]]
        config[keys[-1]] = config[keys[-1]].replace(old, new)

    return change


TYPES = "available_node_types"
BROKEN = [
    (valid_for_ray, put(1, "max_wokers")),
    (valid_for_ray, put("eight", "max_workers")),
    (valid_for_ray, put("main", "head_node_type")),
    (valid_for_ray, put(9, TYPES, "gpu", "min_workers")),
    (head_is_for_drivers, put(1, TYPES, "head", "resources", "GPU")),
    (head_is_for_drivers, put({"CPU": 2, "GPU": 0}, TYPES, "head", "resources")),
    (head_is_for_drivers, put(1, TYPES, "gpu", "resources", DRIVER)),
    (head_is_for_drivers, put({"MarketType": "spot"}, TYPES, "head", "node_config", "InstanceMarketOptions")),
    (start_command_agrees, put(4, TYPES, "head", "resources", "CPU")),
    (start_command_agrees, rewrite("PAR_DRIVER", "DRIVER", "head_start_ray_commands", -1)),
    (gpus_start_from_none, put(1, TYPES, "gpu", "min_workers")),
    (gpus_start_from_none, put(0, TYPES, "gpu", "max_workers")),
    (gpus_start_from_none, put(0, TYPES, "gpu", "resources", "GPU")),
    (gpus_are_spot, put({}, TYPES, "gpu", "node_config")),
    (totals_agree, put(7, "max_workers")),
    (totals_agree, put(-1, TYPES, "gpu", "max_workers")),
    (totals_agree, put(1, TYPES, "head", "max_workers")),
    (outlives_a_boot, put(5, "idle_timeout_minutes")),
    (versions_are_pinned, rewrite("==2.60.0", "==2.62.0", "setup_commands", -1)),
    (versions_are_pinned, rewrite("torch==2.13.0", "", "setup_commands", -1)),
    (versions_are_pinned, rewrite("ray[default,train,tune]", "ray", "setup_commands", -1)),
    (repository_is_there, put({}, "file_mounts")),
    (repository_is_there, rewrite("cd ~/par", "cd ~", "head_start_ray_commands", -1)),
    (repository_is_there, put([], "rsync_filter")),
    (access_is_stated, rewrite("RAY_AUTH_MODE=disabled", "", "worker_start_ray_commands", -1)),
    (access_is_stated, rewrite("--allowed-hosts", "--hosts", "head_start_ray_commands", 1)),
    (shell_is_valid, rewrite("&)", "&", "head_start_ray_commands", 1)),
    (nothing_about_experiments, put(["python ray_jobs/sweep.py"], "head_setup_commands")),
]
LAWS = list(dict.fromkeys(law for law, _ in BROKEN))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_cluster_keeps_the_law(law):
    """The shipped file keeps every law, each stated by its own docstring."""
    assert law(read()), law.__doc__


@pytest.mark.parametrize(("law", "change"), BROKEN, ids=[law.__name__ for law, _ in BROKEN])
def test_a_broken_copy_is_refused(law, change):
    """Each law is broken by each change that is made against it: no law passes whatever the file says."""
    config = read()
    change(config)
    assert not law(config)
