"""One loop that runs any sampler: many chains, one compiled program, draws with their diagnostics."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from unnorm.devices import parts_of, require_divisible
from unnorm.energies.base import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.fingerprint import fingerprint
from unnorm.progress import progress as progress_bar
from unnorm.samplers.base import AbstractAdaptiveSampler, AbstractSampler, Target
from unnorm.samplers.chains import Moved, Span, advance, begin, is_tuned, shapes
from unnorm.samplers.checks import require_parts, run_lengths, starting_points
from unnorm.samplers.moves import count_of
from unnorm.samplers.stream import Stream
from unnorm.samplers.trace import Trace
from unnorm.scores import AbstractLevelScore, AbstractScore
from unnorm.spaces import AbstractArray, AbstractSpace

#: Bytes of draws that are held before they go to disk.
STREAM_BYTES = 2**24


def _space_of(target: Target) -> AbstractSpace | None:
    """The space of the target's points, if it says it."""
    return target.space if isinstance(target, AbstractEnergy | AbstractLevelScore) else None


def _start(target: Target, chains: int, key: PRNGKeyArray) -> Any:
    """Where chains begin when nobody says: where the space has them start."""
    space = _space_of(target)
    if space is None:
        raise InputError("a score does not say what its points look like; pass start=")
    return space.start(chains, key)


_energies_of = eqx.filter_jit(lambda target, xs: jax.vmap(target)(xs))
_scores_of = eqx.filter_jit(lambda target, xs: jax.vmap(lambda x: target(jnp.zeros(()), x))(xs))


def _check_start(target: Target, start: Any) -> None:
    space, count = _space_of(target), count_of(start)
    if isinstance(space, AbstractArray):
        expected, given = space.shape, start.shape[1:]
        require(given == expected, f"a starting point on {space} has shape {expected}, not {given}")
    if isinstance(target, AbstractScore):
        name, values = "score", np.asarray(_scores_of(target, start))
        shape, expected = values.shape[1:], start.shape[1:]
        require(shape == expected, f"a score has the shape of its point, {expected}, but this one returned {shape}")
    else:
        name, values = "energy", np.asarray(_energies_of(target, start))
        shape = values.shape[1:]
        require(shape == (), f"an energy returns one number per point, but this one returned shape {shape}")
    require(
        jnp.issubdtype(values.dtype, jnp.floating),
        f"the {name} returned numbers of type {values.dtype}, which have no gradient; return floating-point numbers",
    )
    bad = int(np.sum(~np.isfinite(values.reshape(count, -1)).all(axis=1)))
    require(
        bad == 0,
        f"the {name} is not finite at {bad} of {count} starting points; pass start= with points inside the target",
    )


def _ended_outside(target: Target, last: Any) -> int:
    """How many chains end where the energy is not finite.

    Walks without a correction tell it of the place they step from, so that nobody has told it of the last one.
    """
    if isinstance(target, AbstractScore):
        return 0
    # A walk to infinity has said so itself.
    every = [np.isfinite(leaf.reshape(len(leaf), -1)).all(axis=1) for leaf in jax.tree.leaves(last)]
    energies = _energies_of(target, jax.tree.map(jnp.asarray, last))
    return int(np.sum(np.all(every, axis=0) & ~np.isfinite(np.asarray(energies))))


def _prepare(
    sampler: AbstractSampler,
    target: Any,
    xs: Any,
    warmup: int,
    size: int,
    parts: int,
    key: PRNGKeyArray,
    progress: bool,
) -> tuple[AbstractSampler, Any]:
    """The sampler, tuned for every chain if it can be, and the states in which warm-up leaves the chains."""
    with progress_bar("warm-up", 1, show=progress) as shown:
        tuned, states = begin(sampler, target, xs, warmup, key, parts)
        if warmup and not is_tuned(sampler, warmup):
            states = advance(tuned, False, target, states, Span(0, 1, warmup), key, size, parts).states
        if progress:
            jax.block_until_ready(states)
        shown(1)
    return tuned, states


@dataclass
class _Tally:
    """What is counted along the way, whichever way the draws go."""

    accepted: np.ndarray
    divergences: int = 0
    clipped: int = 0

    def add(self, moved: Moved) -> None:
        self.accepted = self.accepted + moved.accepted.value()
        self.clipped += int(moved.clipped.value().sum())
        self.divergences += int(np.asarray(moved.divergences, np.int64).sum())

    def to_dict(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted.tolist(),
            "divergences": self.divergences,
            "clipped": self.clipped,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "_Tally":
        return _Tally(np.asarray(data["accepted"], np.float64), data["divergences"], data["clipped"])


def _resume(
    stream: Stream, sampler: AbstractSampler, target: Any, xs: Any, warmup: int, size: int, key, progress: bool
) -> tuple[AbstractSampler, Any, _Tally]:
    """Chains as the folder has them, which are warmed up and saved first if it has none.

    Chains that have just been saved are read back too: a resumed run then begins with the very same arrays.
    """
    if not stream.prepared:
        prepared = _prepare(sampler, target, xs, warmup, size, stream.parts, key, progress)
        stream.save(prepared, _Tally(np.zeros(count_of(xs))).to_dict())
    (tuned, states), counts = stream.restore(shapes(sampler, target, xs, warmup, key))
    return tuned, states, _Tally.from_dict(counts)


def _stream_size(steps: int, xs: Array) -> int:
    """Draws in a chunk that goes to disk: of a size that does not grow with the run."""
    return max(1, min(-(-steps // 25), STREAM_BYTES // max(1, xs.nbytes)))


def _together(*parts: np.ndarray) -> np.ndarray:
    """Draws chain by chain, of parts that have them step by step."""
    return np.moveaxis(np.concatenate(parts), 0, 1)


def sample(
    target: Target,
    sampler: AbstractSampler,
    *,
    chains: int = 64,
    steps: int = 1000,
    warmup: int | None = None,
    thin: int = 1,
    start: Any = None,
    to: Path | str | None = None,
    key: PRNGKeyArray,
    progress: bool = True,
) -> Trace:
    """Run `chains` chains, keep `steps` draws of each, one after every `thin` transitions.

    `start` holds one point of the target's space for each chain; without it chains begin where the space says.
    Adaptive samplers (MALA, HMC, NUTS, ParallelTempering) spend `warmup` steps (default 500) on tuning, beginning with
    the step and mass they were made with; `warmup=0` runs them as they were made. The others (default 0) just discard
    them. The same target and shapes compile nothing on a second call.

    With `to`, draws go to that folder chunk by chunk and the trace reads them from there, so that memory does not grow
    with `steps`. A run that was stopped goes on when called again with the same arguments, and ends with the very draws
    of one that was not; other arguments are refused, and so is a second process while the first is at work. A folder
    holds points that are arrays.

    >>> import jax, unnorm as un
    >>> target = un.energies.standard_gaussian(2)
    >>> un.sample(target, un.samplers.MALA(), chains=4, steps=10, key=jax.random.key(0)).draws.shape
    (4, 10, 2)
    """
    require_parts(target, sampler, key)
    adaptive = isinstance(sampler, AbstractAdaptiveSampler)
    chains, steps, thin, warmup = run_lengths(
        chains, steps, thin, (500 if adaptive else 0) if warmup is None else warmup
    )
    require(
        not adaptive or warmup == 0 or warmup >= 20,
        f"{type(sampler).__name__} needs at least 20 warm-up steps to tune itself, or none (warmup=0) to run as given, "
        f"not {warmup}",
    )
    sampler.check(target)
    # The check has settled it: from here on the target is one that this sampler walks.
    walked: Any = target
    require_divisible(chains, "chains")
    start_key, warm_key, draw_key = jax.random.split(key, 3)
    xs = _start(target, chains, start_key) if start is None else starting_points(start, chains, _space_of(target))
    if isinstance(target, AbstractScore) or target.space.continuous:
        xs = xs.astype(float)  # whole numbers have no gradient
    _check_start(target, xs)
    per_chain = is_tuned(sampler, warmup)
    # Every call of the compiled loop costs about a millisecond: one is enough where nobody watches. Sizes in steps of a
    # 25th let runs of nearly the same length share a program.
    size = -(-steps // 25) * (1 if progress else 25) if to is None else _stream_size(steps, xs)
    stream, parts = None, parts_of(chains)
    if to is not None:
        require(eqx.is_array(xs), f"a folder holds points that are arrays, not those of {_space_of(target)}; omit to=")
        asked = {
            "target": fingerprint(target),
            "sampler": fingerprint(sampler),
            "number of chains": chains,
            "number of steps": steps,
            "warm-up": warmup,
            "thinning": thin,
            "start": fingerprint(xs),
            "key": fingerprint(key),
        }
        # A state that cannot be made (a mass of another size) is refused before anything is written. Without a folder
        # the first program refuses it, and a short run is spared the time of tracing it once more.
        eqx.filter_eval_shape(sampler.init, walked, xs[0])
        stream = Stream(to, asked, steps, parts)
        parts = stream.parts
    with nullcontext() if stream is None else stream.alone():
        if stream is None:
            tuned, states = _prepare(sampler, walked, xs, warmup, size, parts, warm_key, progress)
            tally = _Tally(np.zeros(chains))
        else:
            tuned, states, tally = _resume(stream, sampler, walked, xs, warmup, size, warm_key, progress)
        drawn = []
        done = 0 if stream is None else stream.done
        with progress_bar("sampling", steps, show=progress) as shown:
            shown(done)
            for first in range(done, steps, size):
                count = min(size, steps - first)
                moved = advance(tuned, per_chain, walked, states, Span(first, count, thin), draw_key, size, parts)
                tally.add(moved)
                states, draws = moved.states, jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n], moved.draws)
                if stream is None:
                    drawn.append(draws)
                else:
                    stream.save((tuned, states), tally.to_dict(), draws)
                shown(count)
    draws = jax.tree.map(_together, *drawn) if stream is None else stream.draws()
    last = jax.tree.map(lambda leaf: np.asarray(leaf[:, -1]), draws)
    divergences = tally.divergences + _ended_outside(target, last)
    return Trace(draws, tally.accepted / (steps * thin), divergences, tuned, tally.clipped)
