"""What the tests of spaces share: texts of spaces, samples of them, and how to read what a space was refused for."""

import math
import re

from par.space.domains import Choice, IntRange

ANCHORING = """\
question: Does anchoring widen the range of step sizes at which seeds still reach G >= 8?
cost: about 3 minutes on 2 CPU cores
backbones: [tiny-qwen2]
fixed: {task.name: swap-s5, train.steps: 2000, stretch.enabled: true}
search:
  recurrence.step_size: {choice: [1, 2, 4]}
  recurrence.anchor: {choice: [first, none]}
  optim.lr: {float: [1.0e-5, 1.0e-3], log: true}
  recurrence.gradient_window: {int: [2, 8]}
  stretch.s_max: {float: [1, 16], log: true, when: {stretch.enabled: true}}
configurations: 8        # in total, over all backbones; each backbone gets its share
seeds: 2                 # per configuration
sampler: tpe             # tpe | random | grid
sampler_seed: 0
score: extrapolation_auc # any of par.metrics.SCORES
"""
LR = "optim.lr: {choice: [1]}"


def space(search="", *, fixed="", backbones="[tiny-qwen2]", rest="configurations: 4"):
    """A file whose ``fixed`` entries start at line 5, one a line, followed by the line ``search:`` and its entries."""
    entries = ["question: What?", f"backbones: {backbones}", rest, "fixed:" if fixed else "fixed: {}"]
    entries += [f"  {row}" for row in fixed.splitlines()]
    entries += ["search:", *(f"  {row}" for row in search.splitlines())]
    return "\n".join(entries) + "\n"


def draw(space_, rng):
    """One sample, drawn as a sampler would."""
    sample = {}
    for key, domain in space_.ordered():
        if not space_.is_active(key, sample):
            continue
        if isinstance(domain, Choice):
            sample[key] = rng.choice(domain.values)
        elif isinstance(domain, IntRange):
            sample[key] = rng.randrange(domain.low, domain.high + 1, domain.step)
        elif domain.log:
            drawn = math.exp(rng.uniform(math.log(domain.low), math.log(domain.high)))
            sample[key] = min(max(drawn, domain.low), domain.high)
        else:
            sample[key] = rng.uniform(domain.low, domain.high)
    return sample


def line_and_message(row: str) -> tuple[int, str]:
    """The line and the message of one fault."""
    match = re.fullmatch(r".*space\.yaml:(\d+): (\S.*)", row)
    assert match, f"not path:LINE: message: {row!r}"
    return int(match[1]), match[2]
