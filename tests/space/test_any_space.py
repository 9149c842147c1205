"""Search spaces drawn at random: an accepted one has valid samples alone, a refused one no traceback."""

import json
import math
import random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from par.config.backbones import BACKBONES
from tests.space.spaces import ANCHORING, draw

NUMBERS = {
    "recurrence.step_size": (1, 4), "recurrence.gradient_window": (1, 8), "schedule.iterations": (1, 16),
    "schedule.overrun": (0, 3), "train.steps": (150, 500), "optim.warmup_steps": (0, 250),
    "train.batch_size": (1, 12), "compute.micro_batch": (1, 6), "compute.workers": (1, 4), "halting.k": (1, 9),
    "halting.m": (6, 12), "task.train_depth": (8, 16), "halting.tau": (0.1, 0.9), "stretch.start": (0.0, 1.0),
    "stretch.ramp": (0.0, 0.3), "optim.lr": (1e-5, 1e-2), "train.query_reset": (0.0, 1.0),
}  # fmt: skip
WORDS = {
    "recurrence.anchor": ["first", "none"], "objective": ["progress", "final_every", "final_only"],
    "schedule.kind": ["forced", "hold", "fixed", "random"], "task.rendering": ["text", "compact"],
    "task.name": ["swap-s3", "s5", "a5"], "halting.mode": ["forced", "learned"], "stretch.enabled": [True, False],
    "recurrence.split": [None, [1, 1, 1], [8, 8, 8]], "evaluation.depths": [None, [16, 32], [8]],
}  # fmt: skip


@st.composite
def values(draw_, key):
    """A value that may be right for ``key``."""
    if key in WORDS:
        return draw_(st.sampled_from(WORDS[key]))
    low, high = NUMBERS[key]
    whole = st.integers(math.ceil(low), math.floor(high))
    return draw_(whole if isinstance(low, int) else st.floats(low, high).map(lambda x: max(round(x, 3), low)))


@st.composite
def domains(draw_, key):
    """A domain of ``key``, each of whose values is right on its own."""
    if key in WORDS or draw_(st.booleans()):
        return {"choice": draw_(st.lists(values(key), min_size=1, max_size=3, unique_by=repr))}
    low, high = sorted((draw_(values(key)), draw_(values(key))))
    floats = isinstance(low, float) or (key == "schedule.iterations" and draw_(st.booleans()))
    return {"float" if floats else "int": [low, high]} | ({"log": True} if low > 0 and draw_(st.booleans()) else {})


@st.composite
def space_texts(draw_):
    """A file of up to seven searched and two fixed settings, with conditions; JSON is YAML."""
    keys = draw_(st.lists(st.sampled_from([*NUMBERS, *WORDS]), unique=True, min_size=2, max_size=9))
    fixed = {key: draw_(values(key)) for key in keys[7:]}
    search = {}
    for key in keys[:7]:
        parents = [k for k, domain in search.items() if "choice" in domain and draw_(st.integers(0, 3)) == 0]
        when = {parent: draw_(st.sampled_from(search[parent]["choice"])) for parent in parents[:2]}
        search[key] = draw_(domains(key)) | ({"when": when} if when else {})
    names = draw_(st.lists(st.sampled_from(list(BACKBONES)), unique=True, min_size=1, max_size=2))
    entries = {"question": "?", "backbones": names, "configurations": 9, "fixed": fixed, "search": search}
    return json.dumps(entries)


@settings(max_examples=150, deadline=None)
@given(text=space_texts())
def test_every_sample_of_an_accepted_space_is_a_valid_run(load, faults, text):
    """No sample of an accepted space is refused by a run, on any backbone: nothing fails after the sweep has begun."""
    if refused := faults(text):
        event(f"refused with {min(len(refused), 2)} faults")
        return
    event("accepted")
    read, rng = load(text), random.Random(0)
    for _ in range(40):
        sample = draw(read, rng)
        for backbone in read.backbones:
            read.run_config(backbone, sample, seed=0)


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(["", "grid", "choice", "1e-5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["choice", "float", "when"]), inner),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_file_ends_in_a_traceback(faults, data):
    """Whatever stands in place of any value, the answer is a space or path:LINE: message with a line of the file."""
    tree = {
        "question": "?", "cost": "", "backbones": ["tiny-qwen2"], "configurations": 4, "seeds": 2, "sampler": "tpe",
        "sampler_seed": 0, "score": "G", "fixed": {"train.steps": 300, "stretch.enabled": True},
        "search": {"optim.lr": {"float": [1, 2], "log": True, "when": {"stretch.enabled": True}},
                   "halting.k": {"int": [1, 3], "step": 1}, "halting.m": {"choice": [8, 9]}},
    }  # fmt: skip
    for _ in range(data.draw(st.integers(1, 3))):
        node = tree
        while True:
            key = data.draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
            if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
                node[key] = data.draw(junk)
                break
            node = node[key]
    text = json.dumps(tree, indent=1)
    assert all(1 <= line <= text.count("\n") + 1 for line, _ in faults(text))


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, len(ANCHORING)), extra=st.sampled_from(["", "[", "'", "\t", "- ", "&a *a", "!!int x", "%"]))
def test_no_broken_text_ends_in_a_traceback(faults, cut, extra):
    """A file that ends anywhere, in anything, is a space or a list of faults."""
    faults(ANCHORING[:cut] + extra)
