"""What lies in a seed's folder of checkpoints, and what of it is to stay. Loads without torch.

    step_<k>/weights/…     shards of the model
    step_<k>/state/…       shards of optimizer and teacher: what training needs beside the weights to go on
    step_<k>/history.json  reports up to there
    step_<k>/COMMIT.json   the manifest: written last, with the size of every file

A checkpoint exists once its manifest does, and as long as its files have the sizes that it states.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

from par.errors import CheckpointError
from par.objects import Objects, encode

WEIGHTS, STATE, HISTORY, MANIFEST = "weights", "state", "history.json", "COMMIT.json"
FORMAT = 2
_STEP = re.compile(r"step_\d{8,}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """The manifest of one checkpoint."""

    step: int
    steps: int
    """Of the whole run."""
    world_size: int
    """Workers that wrote it; any number can read it."""
    fingerprint: str
    seed: int
    accuracy: float | None
    """By which the best is chosen; None where it was not measured."""
    files: Mapping[str, int]
    """Bytes of each file, by its path in the checkpoint's folder."""

    @property
    def name(self) -> str:
        """Its folder."""
        return folder_name(self.step)

    @property
    def trainable(self) -> bool:
        """Whether it has what training needs beside the weights."""
        return any(path.startswith(f"{STATE}/") for path in self.files)

    @property
    def resumable(self) -> bool:
        """Whether its run can go on from it: after the last step weights are enough."""
        return self.trainable or self.step == self.steps

    def weights_alone(self) -> "Commit":
        """The same checkpoint without optimizer and teacher."""
        return replace(
            self, files={path: size for path, size in self.files.items() if not path.startswith(f"{STATE}/")}
        )

    def write(self, folder: Objects) -> None:
        """Make the checkpoint exist: its files are all there."""
        folder.put(f"{self.name}/{MANIFEST}", encode(MANIFEST, {"format": FORMAT, **asdict(self)}))


def folder_name(step: int) -> str:
    """Where the checkpoint of a step lies; names sort like steps."""
    return f"step_{step:08d}"


def committed(folder: Objects) -> list[Commit]:
    """The checkpoints that exist, oldest first. Raises CheckpointError for one of another format."""
    files = folder.sizes()
    found = (_read(folder, name) for name in sorted(_folders_of(files)) if f"{name}/{MANIFEST}" in files)
    return [commit for commit in found if commit and _whole(commit, files)]


def last_resumable(commits: Sequence[Commit]) -> Commit | None:
    """The last checkpoint from which training can go on."""
    return next((commit for commit in reversed(commits) if commit.resumable), None)


def best(commits: Sequence[Commit]) -> Commit:
    """Of at least one checkpoint that of the highest accuracy, of equal ones the last; unmeasured is below all."""
    return max(commits, key=lambda commit: (-1.0 if commit.accuracy is None else commit.accuracy, commit.step))


def to_keep(commits: Sequence[Commit], *, done: bool) -> list[Commit]:
    """What is to stay: the last one whole, and the weights of the best; of a seed that is done weights alone."""
    if not commits:
        return []
    last, chosen = last_resumable(commits) or commits[-1], best(commits)
    last = last.weights_alone() if done else last
    return [last] if chosen.step == last.step else [chosen.weights_alone(), last]


def surplus(files: Collection[str], kept: Sequence[Commit]) -> list[str]:
    """Of the objects in a folder of checkpoints those that belong to none of ``kept``; others than checkpoints stay."""
    needed = {f"{commit.name}/{path}" for commit in kept for path in (*commit.files, MANIFEST)}
    return [path for path in files if _STEP.fullmatch(path.partition("/")[0]) and path not in needed]


def tidy(folder: Objects, *, done: bool = False) -> None:
    """Delete what is not to stay. Killed at any moment, it leaves the checkpoints valid that are.

    What was never committed goes first: it makes room for the rest.
    """
    commits = committed(folder)
    _delete(folder, commits)
    kept = to_keep(commits, done=done)
    for commit in kept:
        if commit not in commits:
            commit.write(folder)
    _delete(folder, kept)


def _delete(folder: Objects, kept: Sequence[Commit]) -> None:
    """Delete what belongs to none of ``kept``, whole folders at once."""
    for name in _folders_of(folder.walk(recursive=False)) - {commit.name for commit in kept}:
        folder.delete_folder(name)
    for commit in kept:
        if not commit.trainable:
            folder.delete_folder(f"{commit.name}/{STATE}")
    for path in surplus(folder.sizes(), kept):
        folder.delete(path)


def _folders_of(paths: Collection[str]) -> set[str]:
    return {name for path in paths if _STEP.fullmatch(name := path.partition("/")[0])}


def _read(folder: Objects, name: str) -> Commit | None:
    """The manifest of a checkpoint; None where it is not whole."""
    try:
        manifest = json.loads(folder.get(f"{name}/{MANIFEST}"))
        if manifest["format"] == FORMAT:
            return Commit(**{field.name: manifest[field.name] for field in fields(Commit)})
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    raise CheckpointError(
        f"{folder.root}/{name} has format={manifest['format']}, this par reads {FORMAT}: use the par that wrote it"
    )


def _whole(commit: Commit, files: Mapping[str, int]) -> bool:
    return all(files.get(f"{commit.name}/{path}") == size for path, size in commit.files.items())
