"""What samplers and `sample` may be given: whatever is impossible is refused before any work, in one sentence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.arguments import real_numbers, shown, whole_number
from unnorm.energies.base import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.files import is_key
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.smc import TemperedSMC
from unnorm.scores import AbstractScore
from unnorm.spaces import AbstractArray, AbstractSpace, Categorical

#: Transitions of a run are numbered by 32-bit integers.
MOST_STEPS = 2**31 - 1


def require_parts(target: Any, sampler: Any, key: Any) -> None:
    """Refuse a target, a sampler or a key that is not one."""
    if not isinstance(target, AbstractEnergy | AbstractScore):
        raise InputError(
            f"chains need an energy or a score, not {shown(target)}; "
            "a function of one point becomes one by energies.FunctionEnergy(function, space)"
        )
    if isinstance(sampler, TemperedSMC):
        raise InputError(
            "TemperedSMC moves a population and runs no chains; call it as samplers.TemperedSMC(base)(target, key=key)"
        )
    if isinstance(sampler, type):
        raise InputError(f"the sampler is the class {sampler.__name__}; pass {sampler.__name__}(...) with its options")
    if not isinstance(sampler, AbstractSampler):
        raise InputError(f"chains need a sampler such as samplers.NUTS(), not {shown(sampler)}")
    if not _one_key(key):
        raise InputError(f"the key must be one random key of JAX such as jax.random.key(0), not {shown(key)}")


def _one_key(key: Any) -> bool:
    """Whether this is one key: of the new kind, or a pair of 32-bit numbers, which JAX takes as well."""
    if is_key(key):
        return key.shape == ()
    return isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32 and key.shape == (2,)


def run_lengths(chains: Any, steps: Any, thin: Any, warmup: Any) -> tuple[int, int, int, int]:
    """The lengths of a run as integers, refused unless it can be counted."""
    chains, steps, thin, warmup = (
        whole_number(value, what)
        for value, what in ((chains, "chains"), (steps, "steps"), (thin, "thin"), (warmup, "warmup"))
    )
    require(chains >= 1, f"at least one chain is needed, not {chains}")
    require(steps >= 1 and thin >= 1, f"steps and thin must be positive, not {steps} and {thin}")
    require(warmup >= 0, f"warmup must be 0 or more, not {warmup}")
    require(
        steps * thin <= MOST_STEPS,
        f"{steps} steps of {thin} transitions each are more than the {MOST_STEPS} that a run can count; "
        "use fewer, and go on from the last draws with start=",
    )
    require(warmup <= MOST_STEPS, f"warmup must be at most {MOST_STEPS}, not {warmup}")
    return chains, steps, thin, warmup


def starting_points(start: Any, chains: int, space: AbstractSpace | None) -> Any:
    """Where chains are told to begin: one point of the space for each, along a leading axis.

    Real points are not cast: an energy may be asked in other numbers than the space's own.
    """
    if space is not None and not isinstance(space, AbstractArray):
        points = space.cast(start, "starting")
        given = len(jax.tree.leaves(points)[0])
        require(given == chains, f"{chains} chains need {chains} starting points, not {given}")
        return points
    numbers = real_numbers(start)
    if numbers is None:
        raise InputError(f"start must be an array of real numbers with one point for each chain, not {shown(start)}")
    require(np.ndim(numbers) >= 1, f"{chains} chains need {chains} starting points, not the single number {numbers}")
    require(len(numbers) == chains, f"{chains} chains need {chains} starting points, not {len(numbers)}")
    return space.cast(numbers, "starting") if isinstance(space, Categorical) else jnp.asarray(numbers)
