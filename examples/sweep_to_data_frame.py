"""Read a sweep from its ledger into a data frame: python examples/sweep_to_data_frame.py STORAGE SWEEP"""

# %% A row per seed: what was searched, its status, every metric. The ledger may be read while the sweep runs
import sys

from par.ledger.current_space import current_space
from par.ledger.lease import holder
from par.ledger.ledger import Ledger
from par.report.export import seed_table

storage, sweep = sys.argv[1:3]
ledger = Ledger.open(storage, sweep)
seeds = seed_table(sweep, current_space(ledger), ledger.read(), driven=holder(ledger) is not None).to_pandas()
print(seeds[["configuration", "seed", "status", "G"]].to_string(index=False))

# %% How far G varies over the seeds of each configuration
print(seeds.groupby("configuration")["G"].describe()[["count", "mean", "std", "min", "max"]].to_string())
