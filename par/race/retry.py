"""What to do after a failure: pure functions of the attempts of a seed, each with its reason.

No clock, no disk, no cluster: what happened is in the attempts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from par.config.run import RunConfig
from par.errors import FROM_OUTSIDE, FailureKind
from par.ledger.records import Attempt
from par.ledger.state import ConfigState

BUDGETS = {FailureKind.WORKER_DIED: 2, FailureKind.HANG: 1}
"""How often a seed is started again from the same step after a failure that may pass; others do not."""
ADVICE = {
    FailureKind.WORKER_DIED: "its log may say why",
    FailureKind.HANG: "the stacks of its workers lie beside the attempt in the storage",
    FailureKind.OOM_GPU: "one prompt per pass does not fit: use more workers, a smaller window, or a larger device",
    FailureKind.OOM_HOST: "use fewer workers per node (--cpus-per-worker) or nodes with more memory",
    FailureKind.DISK: "free space (par gc), then start it again",
    FailureKind.NUMERIC: "the same step would fail again",
    FailureKind.CONFIG: "no seed of this configuration can run",
    FailureKind.DATA: "no seed of this configuration can run until what it names is put right",
}
WHOLE_CONFIGURATION = (FailureKind.CONFIG, FailureKind.DATA)
"""What fails for one seed fails for all of the configuration."""


@dataclass(frozen=True, slots=True)
class StartAgain:
    """The seed goes on from its last checkpoint."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The seed waits until a person asks for it with ``--failed``."""

    reason: str
    kind: FailureKind

    @property
    def whole_configuration(self) -> bool:
        """Whether the other seeds of the configuration are not to be started either."""
        return self.kind in WHOLE_CONFIGURATION


def decide(attempts: Sequence[Attempt]) -> StartAgain | GiveUp:
    """What becomes of a seed that has no result, after its attempts so far, all ended.

    A budget counts the failures of one kind since the seed last got on: an attempt that saved further steps renews it,
    and so does one that a person asked for.
    """
    if not attempts or attempts[-1].failure is None:
        return StartAgain("not finished" if attempts else "not begun")
    last = attempts[-1]
    if last.next_micro_batch is not None:
        return StartAgain(f"{last.failure}: with {last.next_micro_batch} prompts per pass")
    kind = FailureKind(last.failure)
    if kind in FROM_OUTSIDE:
        return StartAgain(f"{kind}: uses up no budget")
    if kind not in BUDGETS:
        return GiveUp(f"{kind}: {ADVICE[kind]}{_where(last)}", kind)
    used = _in_vain(attempts, kind)
    if not used:
        return StartAgain(f"{kind}: it had come further, to step {last.saved_step}")
    if used <= BUDGETS[kind]:
        return StartAgain(f"{kind}: start {used} of {BUDGETS[kind]} again from step {last.saved_step}")
    return GiveUp(f"{kind} after {used} attempts from step {last.saved_step}: {ADVICE[kind]}{_where(last)}", kind)


def _where(attempt: Attempt) -> str:
    return f"; log {attempt.log} on {attempt.node}" if attempt.log else ""


def fates(config: ConfigState) -> list[GiveUp]:
    """The seeds of a configuration that are given up, of those that have begun."""
    open_seeds = [lived.attempts for lived in config.seeds.values() if lived.result is None]
    decisions = [decide(attempts) for attempts in open_seeds if attempts and attempts[-1].ended]
    return [decision for decision in decisions if isinstance(decision, GiveUp)]


def _in_vain(attempts: Sequence[Attempt], kind: FailureKind) -> int:
    """Attempts of that kind that began where the next one would begin, since a person last asked for the seed."""
    count, saved = 0, attempts[-1].saved_step
    for attempt in reversed(attempts):
        if attempt.resumed_at < saved:
            break
        count += attempt.failure == kind
        if attempt.asked_for:
            break
    return count


def smaller_pass(run: RunConfig) -> int | None:
    """Half as many prompts per training pass; the global batch, its order and its gradient stay. None for a single."""
    prompts = run.prompts_per_pass
    return prompts // 2 if prompts > 1 else None


def learnt_pass(attempts: Sequence[Attempt]) -> int | None:
    """The prompts per pass that earlier attempts came down to; None if none of them ran out of memory."""
    return min((one.next_micro_batch for one in attempts if one.next_micro_batch is not None), default=None)
