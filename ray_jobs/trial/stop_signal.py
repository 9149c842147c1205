"""What the driver tells the workers of a seed: whether to stop, and whether the seed is still theirs."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from par.errors import PreemptedError, StoppedError, SupersededError
from par.ledger.lease import LeaseRecord, latest
from ray_jobs.trial.spec import TrialSpec

POLL_S = 2.0
"""How often a worker looks; a small read of the storage each time."""


@dataclass(slots=True)
class StopSignal:
    """One worker's ear at the sweep's lease; a seed that runs without a driver hears nothing."""

    spec: TrialSpec
    clock: Callable[[], float] = monotonic
    _reason: StoppedError | None = None
    _looked: float = float("-inf")

    def should_stop(self) -> StoppedError | None:
        """Why the attempt is to end after the present step, None if it is not.

        Raises SupersededError once the seed is another's.
        """
        if self._reason is None and self.clock() - self._looked >= POLL_S:
            self._looked = self.clock()
            lease = self.check_ownership()
            self._reason = StoppedError(lease.stopping) if lease and lease.stopping else None
        return self._reason

    def node_goes(self) -> None:
        """Hear that a node of the seed will be taken away."""
        self._reason = PreemptedError("a node of the seed will be taken away")

    def check_ownership(self) -> LeaseRecord | None:
        """The lease that the seed runs under. Raises SupersededError, before anything is written, if it is lost.

        So it is if another attempt has begun: a worker may outlive its node's daemon, by which it was declared dead.
        """
        if self.spec.driver is None:
            return None
        ledger, spec = self.spec.ledger(), self.spec
        lease = latest(ledger)
        if lease is None or lease.owner != spec.driver:
            raise SupersededError(f"driver {spec.driver} has lost sweep {spec.sweep}: nothing more is written")
        if (last := ledger.last_attempt(spec.config, spec.seed)) > spec.attempt:
            raise SupersededError(f"attempt {last} has followed attempt {spec.attempt}: nothing more is written")
        return lease
