"""The repository's own rules: who imports whom, one name for a metric, pages whose links lead somewhere."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.utils.validation import _validate_metric_name
from typer.main import get_command

import par
from par import metrics
from par.metrics import Metric
from par.space.space import load_space
from ray_jobs.cli import app
from ray_jobs.sweep import app as sweeping

REPOSITORY = Path(__file__).resolve().parents[1]
FORBIDDEN = {"ray", "optuna", "mlflow", "ray_jobs"}
"""What nothing in par may import: the science stays free of cluster, search and tracking."""
HEAVY = FORBIDDEN | {"torch", "transformers"}
LIGHT = (
    "par.config.run", "par.space.space", "par.ledger.ledger", "par.cost.flops", "par.evaluation.thresholds",
    "par.report.overview", "par.report.page.page", "ray_jobs.cli",
)  # fmt: skip
"""What a space is checked with, a ledger read and a trace scored, within a second."""
ROOMS = (
    "par.errors", "par.metrics", "par.objects", "par.tasks", "par.config", "par.model", "par.training", "par.cost",
    "par.evaluation", "par.statistics", "par.space", "par.ledger", "par.race", "par.report", "par.seed", "par.testing",
    "par",
    "ray_jobs", "ray_jobs.provenance", "ray_jobs.options", "ray_jobs.console", "ray_jobs.mlflow_runs",
    "ray_jobs.optuna_studies", "ray_jobs.trial", "ray_jobs.driver", "ray_jobs.commands", "ray_jobs.sweep",
    "ray_jobs.train", "ray_jobs.evaluate", "ray_jobs.cli",
)  # fmt: skip
"""Packages and files in the order in which they build on each other: each may import those before it."""
LONGEST_FILE = 300
README, CHANGELOG = REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md"
GUIDES = (README, REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md")))
"""Pages that say how things are now."""
PAGES = (*GUIDES, CHANGELOG, *sorted((REPOSITORY / "docs" / "adr").glob("*.md")))
LONGEST_README = 150
SPACES = sorted((REPOSITORY / "search_spaces").glob("*.yaml"))
OF_OTHERS = {"--head", "--resources", "--working-dir", "--allowed-hosts", "--help"}
LINK = re.compile(r"\]\(([^)\s]+)\)")
ADR = re.compile(r"docs/adr/(\d{4})")
MAKE = re.compile(r"`make ([a-z-]+)|^make ([a-z-]+)", re.MULTILINE)


def sources(*packages: str) -> list[Path]:
    return [path for package in packages for path in sorted((REPOSITORY / package).rglob("*.py"))]


def imported(path: Path) -> Iterator[str]:
    """All that a file imports, wherever in it, and also by name through importlib, under dotted names."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__")):
                yield from (a.value for a in node.args if isinstance(a, ast.Constant))


def forbidden(path: Path) -> set[str]:
    return FORBIDDEN & {name.partition(".")[0] for name in imported(path)}


def module_of(path: Path, root: Path = REPOSITORY) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports_by_module(paths: list[Path], root: Path = REPOSITORY) -> dict[str, set[str]]:
    """Of each of the files the others that it imports."""
    known = {module_of(path, root) for path in paths}

    def among_them(name: str) -> str:
        """The file that a dotted name lies in."""
        while name and name not in known:
            name = name.rpartition(".")[0]
        return name

    return {module_of(path, root): {found for name in imported(path) if (found := among_them(name))} for path in paths}


def room(module: str) -> int:
    """The place of the room that a module lies in."""
    name = ".".join(module.split(".")[:2])
    assert name in ROOMS, f"{module} lies in no room: add it to ROOMS"
    return ROOMS.index(name)


def arrows_back_up(imports: dict[str, set[str]]) -> list[str]:
    """Imports of a room that comes later."""
    return sorted(f"{a} imports {b}" for a, found in imports.items() for b in found if room(b) > room(a))


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Files that import each other in a circle, if there are any."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as fault:
        return fault.args[1]
    return []


def spelled_again(path: Path) -> list[str]:
    """Names of metrics that a file writes down instead of taking them from par.metrics: whole ones with a mark of a
    name in them, such as d_0 or a/b, wherever they stand; words such as G where a value is looked up by them.
    """
    names = {value.name for value in vars(metrics).values() if isinstance(value, Metric)}
    marked = {name for name in names if re.search(r"[_/]|\d", name)}
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Constant(value=str(text)) if text in marked:
                found.append(text)
            case ast.Call(func=ast.Attribute(attr="get" | "score"), args=[ast.Constant(value=str(text)), *_]):
                found += {text} & (names - marked)
            case ast.Subscript(value=ast.Attribute(attr="metrics"), slice=ast.Constant(value=str(text))):
                found += {text} & (names - marked)
    return found


def rooms_of_the_map(page: str) -> dict[str, str]:
    """What the map of docs/architecture.md says of each room: par/model, ray_jobs/sweep …"""
    found: dict[str, str] = {}
    package = entry = ""
    for line in page.partition("## 2. Rooms")[2].partition("\n## ")[0].splitlines():
        if top := re.match(r" {4}([a-z]\w*)", line):
            package = top[1]
        elif head := re.match(r" {6}(\w+)(?:/|\.py)", line):
            entry = f"{package}/{head[1]}"
        if entry.startswith(f"{package}/"):
            found[entry] = found.get(entry, "") + line
    return found


def missing_in_the_map(page: str, modules: list[str]) -> list[str]:
    """Modules whose name does not stand at their room."""
    rooms = rooms_of_the_map(page)
    places = [("/".join(module.split(".")[:2]), module.split(".")[-1]) for module in modules]
    return [f"{room}: {name}" for room, name in places if not re.search(rf"\b{name}\b", rooms.get(room, ""))]


def loaded_by(module: str) -> set[str]:
    """The heavy packages that a fresh interpreter has loaded after importing ``module``."""
    script = f"import sys, {module}; print(*({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead to no file or folder."""
    targets = [target.partition("#")[0] for target in LINK.findall(page.read_text()) if "://" not in target]
    return [target for target in targets if target and not (page.parent / target).exists()]


def accepted_by_mlflow(name: str) -> bool:
    try:
        _validate_metric_name(name)
    except MlflowException:
        return False
    return True


def options() -> set[str]:
    """The options of every command, as typer knows them."""
    commands = [get_command(app), get_command(sweeping), *vars(get_command(app))["commands"].values()]
    return {name for command in commands for part in command.params for name in (*part.opts, *part.secondary_opts)}


def test_par_imports_no_cluster_library():
    """Nothing in par imports ray, optuna, mlflow or ray_jobs, not even inside a function."""
    assert {str(path): found for path in sources("par") if (found := forbidden(path))} == {}


@pytest.mark.parametrize(
    ("planted", "caught"),
    [
        ("import ray", {"ray"}),
        ("import numpy, mlflow.entities as e", {"mlflow"}),
        ("from optuna.trial import Trial", {"optuna"}),
        ("def f():\n    from ray_jobs.trial.spec import TrialSpec", {"ray_jobs"}),
        ("if TYPE_CHECKING:\n    import ray.tune", {"ray"}),
        ("importlib.import_module('ray.train')", {"ray"}),
        ("__import__('mlflow')", {"mlflow"}),
        ("import rayleigh\nfrom . import ray\n'import ray'", set()),
    ],
)
def test_a_planted_import_is_caught(tmp_path, planted, caught):
    """A forbidden import in a copy of a file of par is seen, in every form; what only looks like one is not."""
    copy = tmp_path / "config.py"
    copy.write_text((REPOSITORY / "par" / "config" / "run.py").read_text() + f"\n\n{planted}\n")
    assert forbidden(copy) == caught


@pytest.mark.parametrize("module", LIGHT)
def test_the_driver_checks_without_torch(module):
    """Spaces, ledgers and costs load in a fresh interpreter without torch, transformers or a cluster library."""
    assert loaded_by(module) - {module.partition(".")[0]} == set()


def test_a_heavy_module_is_seen():
    """The check above can fail: a module that needs torch is seen to load it."""
    assert loaded_by("par.model.anchor") == {"torch"}


def test_no_room_builds_on_a_later_one():
    """No file imports from a room that comes after its own in ROOMS, not even inside a function or for types alone."""
    assert arrows_back_up(imports_by_module(sources("par", "ray_jobs"))) == []


def test_no_files_import_each_other_in_a_circle():
    """The files of par and ray_jobs have an order in which each builds on earlier ones."""
    assert circle(imports_by_module(sources("par", "ray_jobs"))) == []


@pytest.mark.parametrize(
    ("planted", "arrows", "around"),
    [
        ("from par.model import build", ["par.tasks.early imports par.model.build"], True),
        ("def f():\n    from par.model.build import build", ["par.tasks.early imports par.model.build"], True),
        ("if TYPE_CHECKING:\n    import par.model.build", ["par.tasks.early imports par.model.build"], True),
        ("from par import errors\nimport numpy", [], False),
    ],
)
def test_an_arrow_back_up_and_a_circle_are_seen(tmp_path, planted, arrows, around):
    """The two checks above can fail: an earlier room that imports a later one is named, and so is a circle."""
    files = {"tasks/early": planted, "model/build": "from par.tasks.early import f", "errors": "", "__init__": ""}
    for name, text in files.items():
        path = tmp_path / "par" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    imports = imports_by_module(sorted((tmp_path / "par").rglob("*.py")), tmp_path)
    assert arrows_back_up(imports) == arrows
    assert (set(circle(imports)) == {"par.tasks.early", "par.model.build"}) is around


def test_a_file_outside_all_rooms_is_seen():
    """A new file or folder has to be given a place in the order."""
    with pytest.raises(AssertionError, match=r"par\.study\.ledger lies in no room"):
        room("par.study.ledger")


def test_the_version_is_written_once():
    """What is installed says the version that the code says."""
    assert par.__version__ == importlib.metadata.version("par")
    assert par.__version__ not in (REPOSITORY / "pyproject.toml").read_text()


def test_metrics_are_named_by_their_table():
    """Nowhere in par or ray_jobs is the name of a metric written down again."""
    files = [path for path in sources("par", "ray_jobs") if module_of(path) != "par.metrics"]
    assert {str(path): found for path in files if (found := spelled_again(path))} == {}


def test_a_second_spelling_is_seen(tmp_path):
    """The check above can fail, and takes neither a heading nor a docstring for a name."""
    path = tmp_path / "again.py"
    path.write_text('"""G and d50."""\nresult.score("G"), values["train/loss"], row.metrics["censored"], header("G")')
    assert sorted(spelled_again(path)) == ["G", "censored", "train/loss"]


def test_every_metric_has_a_name_of_its_own_that_mlflow_takes():
    """No two metrics share a name, and MLflow accepts each one."""
    names = [value.name for value in vars(metrics).values() if isinstance(value, Metric)]
    assert len(names) == len(set(names)) > 0
    assert [name for name in names if not accepted_by_mlflow(name)] == []


def test_a_name_that_mlflow_refuses_is_seen():
    """The check above can fail: MLflow refuses the @ that full-state accuracy at 16x would like to have."""
    assert not accepted_by_mlflow("full_state@16x")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_links_lead_somewhere(page):
    """Every relative link of a page leads to a file or folder of the repository."""
    assert broken_links(page) == []


def test_a_broken_link_is_seen(tmp_path):
    """The check above can fail: of a page's links the one without a target is named."""
    page = tmp_path / "page.md"
    page.write_text("[here](page.md#top) [away](https://example.org/none.md) [top](#top) [gone](no/page.md)")
    assert broken_links(page) == ["no/page.md"]


def test_code_cites_decisions_that_exist():
    """Every docs/adr/NNNN that code, a test or a page names is a page."""
    cited = {number for path in (*sources("par", "ray_jobs"), *PAGES) for number in ADR.findall(path.read_text())}
    there = {path.name[:4] for path in (REPOSITORY / "docs" / "adr").glob("*.md")}
    assert cited <= there
    assert "0008" in cited


def test_pages_name_make_targets_that_exist():
    """Every `make TARGET` that a page names is a target of the Makefile."""
    named = {a or b for page in PAGES for a, b in MAKE.findall(page.read_text())}
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert named <= set(targets)
    assert "sweep" in named


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_guides_name_options_that_exist(page):
    """Every option that a guide names is one of `par` or of ray_jobs/sweep.py, or of Ray or MLflow."""
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page.read_text()))
    assert named <= options() | OF_OTHERS
    assert page != README or "--seed" in named


def test_the_readme_is_a_start_page():
    """README.md is short: what a stranger does first, and where to read on."""
    assert len(README.read_text().splitlines()) <= LONGEST_README


def test_every_module_stands_in_the_map():
    """docs/architecture.md names every module of par and ray_jobs at the room that it lies in."""
    modules = [module_of(path) for path in sources("par", "ray_jobs") if path.name != "__init__.py"]
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    assert missing_in_the_map(page, modules) == []


def test_a_module_that_the_map_lacks_is_seen():
    """The check above can fail: a name that stands in another room, or only as a part of a word, does not count."""
    page = "## 2. Rooms\n\n    par/\n      model/  looped · anchored\n              · packing\n      cli.py  one\n"
    modules = ["par.model.packing", "par.cli", "par.model.anchor", "par.cost.packing", "ray_jobs.cli"]
    assert missing_in_the_map(page, modules) == ["par/model: anchor", "par/cost: packing", "ray_jobs/cli: cli"]


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.name)
def test_every_shipped_space_loads(path):
    """Every space in search_spaces is valid at both ends of each range, opens with a question and states its cost."""
    space = load_space(path)
    assert space.question.endswith("?") or "?" in space.question
    assert space.cost


@pytest.mark.parametrize("page", [README, REPOSITORY / "docs" / "spaces.md"], ids=lambda page: page.name)
def test_the_spaces_that_a_page_shows_load(tmp_path, page):
    """The examples of the start page and of the page on spaces are valid spaces."""
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        path = tmp_path / f"example-{number}.yaml"
        path.write_text(block)
        load_space(path)


def test_files_are_short():
    """No file of par or ray_jobs is longer than a person keeps in view."""
    lengths = {str(path): len(path.read_text().splitlines()) for path in sources("par", "ray_jobs")}
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}
