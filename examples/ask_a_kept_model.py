"""Ask a trained model what each box holds: python examples/ask_a_kept_model.py [STORAGE] [SWEEP/CONFIG/seed-N]

Without a second argument it asks the seed that examples/train_one_seed.py has trained.
"""

# %% Which seed: its ledger says how its model was built, and where the weights are
import sys

import numpy as np

from par.ledger.ledger import Ledger, SeedFolder
from par.model.readout import answers
from par.seed import KeptModel
from par.tasks.streams import EVALUATION_SEED, Split, examples
from par.tasks.wording import NOUNS, contains, operation_sentences, query

storage = sys.argv[1] if len(sys.argv) > 1 else "results/example"
if len(sys.argv) > 2:
    sweep, config, name = sys.argv[2].split("/")
else:
    sweep, name = "one-seed", "seed-0"
    config = Ledger.open(storage, sweep).read().configs[0].id
kept = KeptModel.open(SeedFolder(Ledger.open(storage, sweep), config, int(name.removeprefix("seed-"))))
print(f"{kept.run.backbone}, {kept.step} steps on {kept.run.task.name}")

# %% A problem of four operations that it has never seen, in words
exam, index = kept.exam([4]), 7
problem = examples(exam.task, seed=EVALUATION_SEED, split=Split.TEST, indices=[index], depth=4)
things = [NOUNS[noun] for noun in problem.nouns_BN[0]]
print(" ".join(contains(box, problem.nouns_BN[0, box]) for box in range(exam.task.boxes)))
print("".join(operation_sentences(exam.task)[operation] for operation in problem.operations_BD[0]))

# %% One pass answers for all boxes
logits_1BNC, right_BN = exam.read(np.array([index]), exam.own_reads())
for box, (said, right) in enumerate(zip(answers(logits_1BNC[0])[0].tolist(), right_BN[0].tolist(), strict=True)):
    print(f"{query(box)} … {things[said]} ({'right' if said == right else f'it is the {things[right]}'})")
