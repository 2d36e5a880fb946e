"""Song 2022, Table 4.2: the time of a second-order score, as a derivative or by networks of its own.

Printed, for a batch of 10 with D = 100: derivative 32,100 us; rank 20, 50, 200, 1000: 380, 377, 546, 1,840 us.
The source says only that the networks of alpha and beta have about as many parameters as that of s1. With rank 1000
beta has 100,000 outputs, so that s1 must have millions: it has as many here as alpha and beta of rank 1000 with the 32
units of Table 4.1, and those of the other ranks are as wide as that number allows. The Jacobian of the s1 of Table 4.1,
with 128 units and 42,000 parameters, is timed beside them.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from unnorm.scores import FromScore, low_rank_mlp

TIMED_RANKS = (20, 50, 200, 1000)
SMALL = "derivative of s1 of 128 units"
PRINTED_TIMES = {"derivative of s1": (32100, 156), "rank 20": (380, 7.9), "rank 50": (377, 10.8)}
PRINTED_TIMES |= {"rank 200": (546, 1.91), "rank 1000": (1840, 97.1)}


def _microseconds(function: Callable[[Array], Any], points: Array, runs: int = 7) -> list[float]:
    """The time of one call, in each of several runs of calls."""
    jax.block_until_ready(function(points))
    found = []
    for _ in range(runs):
        calls, began = 0, time.perf_counter()
        while time.perf_counter() - began < 0.1:
            jax.block_until_ready(function(points))
            calls += 1
        found.append((time.perf_counter() - began) / calls * 1e6)
    return found


def _parameters(module: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array)))


def widest(dimension: int, outputs: int, networks: int, parameters: int) -> int:
    """How many units two hidden layers may have in each of `networks` that share outputs and parameters.

    n w^2 + (n (d + 2) + o) w + o parameters are in n networks of d inputs, w units and o outputs in all.

    >>> widest(100, 100, 1, 100 * 128 + 128 * 128 + 128 * 100 + 2 * 128 + 100)
    128
    """
    slope = networks * (dimension + 2) + outputs
    root = math.sqrt(slope**2 + 4 * networks * (parameters - outputs))
    return int((root - slope) / (2 * networks))


def times(dimension: int) -> dict[str, list[float]]:
    """s2 for a batch of 10: the whole Jacobian of s1, or alpha and beta of each rank, with as many parameters."""
    points = jax.random.normal(jax.random.key(0), (10, dimension))
    key = jax.random.key(0)
    largest = low_rank_mlp(dimension, rank=TIMED_RANKS[-1], key=key)
    parameters = _parameters((largest.alpha, largest.beta))
    scores = {
        "derivative of s1": low_rank_mlp(
            dimension, rank=1, width=widest(dimension, dimension, 1, parameters), key=key
        ).score,
        SMALL: largest.score,
    }
    found = {name: _microseconds(jax.jit(jax.vmap(FromScore(s).matrix)), points) for name, s in scores.items()}
    for rank in TIMED_RANKS:
        width = widest(dimension, dimension * (rank + 1), 2, parameters)
        model = low_rank_mlp(dimension, rank=rank, factor_width=width, key=key)
        found[f"rank {rank}"] = _microseconds(jax.jit(jax.vmap(model.factors)), points)
    return found
