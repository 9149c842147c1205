"""Train one tiny seed and plot its accuracy by depth: python examples/train_one_seed.py [FOLDER]"""

# %% What is trained: every setting has a default, and par.config.run says what each one means
import sys
from pathlib import Path

import altair as alt

from par.config.run import RunConfig
from par.ledger.ledger import ACCURACY, Ledger, SeedFolder
from par.ledger.records import ConfigRecord, SweepRecord
from par.report.plots import save_png
from par.seed import run_seed
from par.space.space import ALONE, space_of_run

run = RunConfig.from_dotted(
    {
        "backbone": "tiny-qwen2", "task.name": "swap-s3", "task.rendering": "compact", "task.train_depth": 4,
        "recurrence.gradient_window": 3, "train.steps": 20, "train.batch_size": 8, "compute.report_every": 5,
        "optim.lr": 1e-2, "optim.warmup_steps": 2, "evaluation.sequences": 16,
    }
)  # fmt: skip

# %% Where it lies: a ledger of one configuration; a second call goes on where the first one stopped
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results/example")
record = ConfigRecord.of(run, number=0, suggested={"variant": ALONE})
there = (folder / "one-seed" / "sweep.json").exists()
begun = SweepRecord(space=space_of_run(run, "one-seed").text)
ledger = Ledger.open(folder, "one-seed") if there else Ledger.create(folder, "one-seed", begun)
ledger.add_config(record)
seed = SeedFolder(ledger, record.id, run.seed)

# %% Train and evaluate it
result = run_seed(run, seed, report=print)
print({name: round(value, 3) for name, value in result.metrics.items()})

# %% Plot it
curve = ledger.read_table(seed.config, seed.seed, ACCURACY).to_pylist()
chart = alt.Chart(alt.Data(values=curve)).mark_line(point=True).encode(x="depth:Q", y="single_query:Q")
print(save_png(chart, folder / "accuracy_by_depth.png"))
