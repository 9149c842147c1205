"""Every metric once: its name, its unit, and which way is better."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """A named quantity. ``better`` is None for a number that is only watched."""

    name: str
    unit: str
    better: Literal["lower", "higher"] | None = None


LOSS = Metric("train/loss", "nats/target", "lower")
GRAD_NORM = Metric("train/grad_norm", "largest norm before clipping")
RATE_FACTOR = Metric("train/rate_factor", "share of the peak rates")
ITERATIONS = Metric("train/iterations", "iterations/step")
DRIFT = Metric("train/drift", "rms(s_R)/rms(s_1)")
STEPS_PER_S = Metric("train/steps_per_s", "steps/s", "higher")
FLOPS = Metric("train/flops_per_s", "FLOP/s per worker", "higher")
UTILISATION = Metric("train/utilisation", "share of the device's matrix-product peak", "higher")
PEAK_MEMORY = Metric("train/peak_memory", "GiB", "lower")
ON_THE_WAY = Metric("train/single_query_1x", "share right at d_train, validation prompts", "higher")
TRAINING = (LOSS, GRAD_NORM, RATE_FACTOR, ITERATIONS, DRIFT, STEPS_PER_S, FLOPS, UTILISATION, PEAK_MEMORY, ON_THE_WAY)
"""The metrics of a training record."""

BATCH_DRIFT = Metric("eval/batch_drift", "largest logit difference between a prompt alone and in its batch", "lower")
EVALUATION_PROMPTS = Metric("eval/prompts_per_pass", "prompts")
SINGLE_QUERY = Metric("eval/single_query", "share right", "higher")
FULL_STATE = Metric("eval/full_state", "share right", "higher")
G = Metric("G", "d50/d_train", "higher")
D50 = Metric("d50", "operations", "higher")
CENSORED = Metric("censored", "0 or 1")
N_CROSSINGS = Metric("n_crossings", "crossings of 50 %")
EXTRAPOLATION_AUC = Metric("extrapolation_auc", "share right", "higher")
FULL_STATE_16X = Metric("full_state_16x", "share right", "higher")
HALTING_AUC = Metric("halting_auc", "share halted right", "higher")
HALTING_FULL_STATE = Metric("halting_full_state_1x", "share halted right", "higher")
NOT_HALTED = Metric("not_halted_1x", "share of questions", "lower")
HALTING_ITERATIONS = Metric("halting_iterations_1x", "iterations, mean over the questions that halted", "lower")
HALTING_READS = Metric("halting_reads_1x", "read-outs asked for/question", "lower")
HALTING_COMPUTED = Metric("halting_computed_1x", "read-outs computed/question", "lower")
HALTING_CODA_CALLS = Metric("halting_coda_calls", "calls/batch", "lower")
CHOSEN_TAU = Metric("chosen_tau", "probability")
CHOSEN_K = Metric("chosen_k", "iterations")
CHOSEN_M = Metric("chosen_m", "iterations")
TRACE_KNOWN_DEPTH = Metric("trace_known_depth", "share right, mean over depths, at the known iteration", "higher")
TRACE_CONFIGURED = Metric("trace_configured", "share halted right, mean over depths, by the configured rule", "higher")
TRACE_CALIBRATED = Metric("trace_calibrated", "as trace_chosen, on the prompts that the rule was chosen on", "higher")
TRACE_CHOSEN = Metric("trace_chosen", "share halted right, mean over depths, by the chosen rule", "higher")
DRIFT_HALF = Metric("drift_half", "rms(s_k)/rms(s_1) at k = R/2, d_train")
DRIFT_ONCE = Metric("drift_once", "rms(s_k)/rms(s_1) at k = R, d_train")
DRIFT_TWICE = Metric("drift_twice", "rms(s_k)/rms(s_1) at k = 2R, d_train")
DRIFT_MAX = Metric("drift_max", "rms(s_k)/rms(s_1), largest of the training records and of the trained model", "lower")
TOKENS_PER_S = Metric("tokens_per_s", "tokens trained on/s, branches and padding included, all workers", "higher")
GPU_HOURS = Metric("gpu_hours", "hours x devices of all attempts; devices are GPUs, or workers without any", "lower")
GRAD_SPIKES = Metric("grad_spikes", "records above 10 times the median", "lower")
DIVERGED_STEP = Metric("diverged_step", "steps; of a diverged seed, the one that was not taken")
LAST_GRAD_NORM = Metric("last_grad_norm", "largest norm before clipping, last record before the divergence")
LAST_DRIFT = Metric("last_drift", "rms(s_R)/rms(s_1), last record before the divergence in which it is finite")
ACC_1X = Metric("acc_1x", "share right at d_train, single query", "higher")
ACC_8X = Metric("acc_8x", "share right at 8 d_train, single query", "higher")
ACC_16X = Metric("acc_16x", "share right at 16 d_train, single query", "higher")

SCORE = Metric("score", "lower bound over seeds", "higher")
G_MEAN = Metric("G_mean", "d50/d_train", "higher")
G_MIN = Metric("G_min", "d50/d_train", "higher")
G_SD = Metric("G_sd", "d50/d_train", "lower")
SUCCESS_16X = Metric("success_16x", "share of seeds with G >= 16; a censored seed counts with its bound", "higher")
SUCCESS_LO = Metric("success_lo", "lower end of the exact 95 % interval of success_16x", "higher")
SUCCESS_HI = Metric("success_hi", "upper end of the exact 95 % interval of success_16x", "higher")
N_SEEDS = Metric("n_seeds", "seeds")
N_FAILED = Metric("n_failed", "seeds", "lower")
OPTIMISM = Metric("optimism", "mean score over the seeds of the search - that over fresh seeds", "lower")

SCORES: dict[str, Metric] = {m.name: m for m in (EXTRAPOLATION_AUC, G, FULL_STATE_16X)}
"""What a seed can be scored by."""


def by_name(values: Mapping[Metric, float | None]) -> dict[str, float]:
    """The values by name, without those that are None or not finite: neither is ever recorded."""
    return {metric.name: value for metric, value in values.items() if value is not None and isfinite(value)}
