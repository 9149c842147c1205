"""How the tests begin a driver's search without a cluster."""

from par.errors import FailureKind
from par.ledger.ledger import Ledger
from par.ledger.records import now
from par.space.space import Space
from ray_jobs.driver.attempts import Attempts
from ray_jobs.driver.searcher import LedgerSearch
from ray_jobs.trial.spec import TrialSpec


def begin_search(ledger: Ledger, space: Space, *kinds: FailureKind) -> LedgerSearch:
    """Take the sweep over from a driver that died just now; seeds that were given up for ``kinds`` start again."""
    lives = Attempts(ledger, space.stages.all_seeds, lambda config, seed: 0, kinds)
    state = lives.take_over(ledger.read(), now())
    return LedgerSearch(
        lives, space, lambda record, seed: TrialSpec.of(ledger, record, seed, gpus=0, cpus=1).to_dict(), state.configs
    )
