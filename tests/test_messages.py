"""What messages advise: every command and option that they name is one that a person has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from ray_jobs.cli import app
from tests.test_architecture import OF_OTHERS, imports_by_module, module_of, sources

COMMANDS = vars(get_command(app))["commands"]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
ADVICE = re.compile(r"\bpar ([a-z]+)((?: [^\s`:;,]+)*)")
"""A command as it is to be typed, up to a mark that no command has."""
FOREIGN = OF_OTHERS | {"--backend-store-uri", "--study-name"}


def options_of(command: str) -> set[str]:
    return {name for part in COMMANDS[command].params for name in (*part.opts, *part.secondary_opts)}


def texts(path: Path) -> Iterator[str]:
    """The strings of a file, with … for each value in them."""
    tree = ast.parse(path.read_text())
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def reached(module: str, imports: dict[str, set[str]]) -> set[str]:
    """The files whose messages a module can print."""
    found, left = set[str](), [module]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += imports.get(name, ())
    return found


def printers(paths: list[Path]) -> dict[str, set[str]]:
    """Of every file the commands that can print its messages."""
    imports = imports_by_module(paths)
    files = {
        name: reached(command.callback.__module__, imports) | {f"ray_jobs.{name}"} for name, command in COMMANDS.items()
    }
    return {module_of(path): {name for name in COMMANDS if module_of(path) in files[name]} for path in paths}


def bad_advice(path: Path, commands: set[str]) -> list[str]:
    """What a file's messages name and nobody has: commands, their options, options of the ``commands`` that print."""
    there = set[str]().union(*map(options_of, commands)) | FOREIGN
    found: list[str] = []
    for text in texts(path):
        for command, rest in ADVICE.findall(text):
            options = OPTION.findall(rest)
            known = command in COMMANDS
            found += [f"par {command} {option}" for option in options if not known or option not in options_of(command)]
            found += [f"par {command}"] * (not known and (not rest or f"`par {command}" in text))
        found += [option for option in OPTION.findall(ADVICE.sub("", text)) if option not in there]
    return found


def test_messages_name_commands_and_options_that_exist():
    """An option after `par COMMAND` is that command's, any other one of a command that can print the message."""
    paths = sources("par", "ray_jobs")
    by = printers(paths)
    assert {str(path): found for path in paths if (found := bad_advice(path, by[module_of(path)]))} == {}


@pytest.mark.parametrize(
    ("planted", "named"),
    [
        ('"call `par gc NAME --failed`"', ["par gc --failed"]),
        ('f"go on with par resume {name} --resume {name}"', ["par resume --resume"]),
        ('"use `par sweeps`"', ["par sweeps"]),
        ('"give --trackin-uri"', ["--trackin-uri"]),
        ('f"go on: par resume {name} --failed; or give --storage", "start it with --allowed-hosts"', []),
    ],
)
def test_bad_advice_is_seen(tmp_path, planted, named):
    """The check above can fail: a planted command or option that does not exist is named, and no other."""
    path = tmp_path / "message.py"
    path.write_text(planted)
    assert bad_advice(path, {"sweep", "resume"}) == named


def test_an_option_of_a_command_that_cannot_print_it_is_seen(tmp_path):
    """What only `par export` has is no advice in a message of `par gc`."""
    path = tmp_path / "message.py"
    path.write_text('"give --parquet FILE"')
    assert bad_advice(path, {"gc"}) == ["--parquet"]
    assert bad_advice(path, {"export"}) == []


def test_messages_of_the_driver_are_printed_by_both_doors():
    """The check knows who prints what: the driver's messages reach those who sweep and those who resume."""
    assert printers(sources("par", "ray_jobs"))["ray_jobs.driver.drive"] == {"sweep", "resume"}
