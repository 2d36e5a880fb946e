"""Samplers through `sample`: Langevin and HMC against torchebm's and ebmkit's, HMC and NUTS against bare blackjax.

Against blackjax both sides do the same work: the same target, the same window adaptation for every chain, the same
trajectories with the same keys, the same number of draws kept. Blackjax's is one compiled scan without a progress bar;
ours may cost a twentieth more. Before the timing, the mean energies of both sides' draws must agree within five
standard errors (chains are independent; each gives one mean).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import unnorm as un
from benchmarks import langevin
from benchmarks.harness import Bar, Report, Side, compare, skipped, torch_is_missing

CHAINS, WARM_UP, LEAPFROGS, DOUBLINGS, ACCEPTANCE = 64, 100, 10, 8, 0.8
#: Eager sides cost the same per step however many there are; ours tunes itself, for no fewer steps than these.
PEER_STEPS, TUNED_STEPS, LEAST_WARM_UP, PEER_STEP_SIZE = 25, 100, 20, 0.2
TOO_FAR = 5.0


@dataclass(frozen=True)
class Case:
    """A sampler on a target, and blackjax's algorithm with the options of its warm-up."""

    title: str
    target: un.energies.AbstractEnergy
    sampler: un.samplers.AbstractSampler
    steps: int
    algorithm: Any
    extra: dict[str, Any]


def _cases() -> tuple[Case, ...]:
    # A draw from the Gaussian is far cheaper than one from the network: more of them, or a call is over at once.
    targets = (
        ("an MLP energy", langevin.model(), 1),
        ("a Gaussian of 10 dimensions", un.energies.standard_gaussian(10), 10),
    )
    hmc, nuts = un.samplers.HMC(leapfrogs=LEAPFROGS), un.samplers.NUTS(max_doublings=DOUBLINGS)
    return tuple(
        case
        for name, target, times in targets
        for case in (
            Case(f"HMC on {name}", target, hmc, 300 * times, blackjax.hmc, {"num_integration_steps": LEAPFROGS}),
            Case(f"NUTS on {name}", target, nuts, 150 * times, blackjax.nuts, {"max_num_doublings": DOUBLINGS}),
        )
    )


def _start(target: Any, chains: int = CHAINS) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(chains, *target.space.shape)).astype(np.float32)


def _ours(case: Case) -> Side:
    start = _start(case.target)

    def call() -> np.ndarray:
        return un.sample(
            case.target, case.sampler, chains=CHAINS, steps=case.steps, warmup=WARM_UP, start=start,
            key=jax.random.key(0), progress=False,
        ).draws  # fmt: skip

    return Side("unnorm", call, case.steps)


def _bare(case: Case) -> Side:
    """What a user of blackjax writes, with the keys that `sample` makes."""

    def log_density(x):
        return -case.target(x)

    warm_up = blackjax.window_adaptation(
        case.algorithm, log_density, target_acceptance_rate=ACCEPTANCE, adaptation_info_fn=lambda *_: None,
        **case.extra,
    )  # fmt: skip
    kernel = case.algorithm.build_kernel()

    def move(state, step_size, mass, key):
        if case.algorithm is blackjax.nuts:
            return kernel(key, state, log_density, step_size, mass, DOUBLINGS)
        # Trajectories of random length, as ours.
        shorten, key = jax.random.split(key)
        step_size = step_size * jax.random.uniform(shorten, minval=0.5, maxval=1.0)
        return kernel(key, state, log_density, step_size, mass, LEAPFROGS)

    @jax.jit
    def program(xs, key):
        _, warm_key, key = jax.random.split(key, 3)
        run: Any = warm_up.run
        (warm, tuned), _ = jax.vmap(lambda k, x: run(k, x, num_steps=WARM_UP))(jax.random.split(warm_key, CHAINS), xs)

        def step(states, number):
            keys = jax.random.split(jax.random.fold_in(key, number), CHAINS)
            states, info = jax.vmap(move)(states, tuned["step_size"], tuned["inverse_mass_matrix"], keys)
            return states, (states.position, info.acceptance_rate, info.is_divergent)

        states = jax.vmap(lambda x: case.algorithm.init(x, log_density))(warm.position)
        _, (draws, acceptance, divergent) = jax.lax.scan(step, states, jnp.arange(case.steps))
        return draws, acceptance.mean(0), divergent.sum()

    start = jnp.asarray(_start(case.target))

    def call() -> np.ndarray:
        draws, _, _ = jax.block_until_ready(program(start, jax.random.key(0)))
        return np.moveaxis(np.asarray(draws), 0, 1)

    return Side("blackjax", call, case.steps)


def _agree(target: Any, ours: np.ndarray, *others: np.ndarray) -> Report:
    """Mean energies with their standard errors; raises if two differ."""
    energies = jax.jit(jax.vmap(jax.vmap(target)))
    means = [np.asarray(energies(jnp.asarray(draws))).mean(1) for draws in (ours, *others)]
    found = [(float(m.mean()), float(m.std(ddof=1) / len(m) ** 0.5)) for m in means]
    for value, error in found[1:]:
        if abs(value - found[0][0]) > TOO_FAR * np.hypot(error, found[0][1]):
            raise AssertionError(f"mean energies (and standard errors) differ: {found}")
    return {"mean_energies": found}


def _against_blackjax(case: Case, repeats: int) -> Report:
    sides = _ours(case), _bare(case)
    checked = _agree(case.target, *(side.call() for side in sides))
    report = compare(f"{case.title}, a draw of {CHAINS} chains", *sides, repeats=repeats, bar=Bar(0.95))
    return report | {"checked": checked}


def _eager_sides(walks: dict[str, Callable[[], np.ndarray]], steps: int) -> tuple[Side, ...]:
    from benchmarks.peers import per_thread_count

    return tuple(side for label, walk in walks.items() for side in per_thread_count(walk, steps, label))


def _langevin_walks(steps: int) -> dict[str, Callable[[], np.ndarray]]:
    """torchebm's and ebmkit's Langevin on the twin of our energy; draws are chains x steps."""
    import torch

    from benchmarks.peers import mlp, take_weights
    from benchmarks.rivals import missing, torchebm_model

    energy = take_weights(mlp(2, langevin.WIDTH, langevin.DEPTH), langevin.model()).requires_grad_(False)
    start = torch.from_numpy(langevin.start())
    walks: dict[str, Callable[[], np.ndarray]] = {}
    if missing("torchebm") is None:
        from torchebm.samplers import LangevinDynamics as Walk

        theirs = Walk(torchebm_model(energy), step_size=langevin.STEP_SIZE, noise_scale=1.0)
        walks["torchebm"] = lambda: theirs.sample(x=start, n_steps=steps, return_trajectory=True).numpy()
    if missing("ebmkit") is None:
        from ebm.samplers import LangevinDynamics

        kit = LangevinDynamics(langevin.STEP_SIZE, steps=steps)
        walks["ebmkit"] = lambda: kit.sample(energy, start, return_trajectory=True)[1:].transpose(0, 1).numpy()
    return walks


def _hmc_walks() -> dict[str, Callable[[], np.ndarray]]:
    """Their HMC, of fixed step and untuned."""
    import torch

    from benchmarks.peers import mlp, take_weights
    from benchmarks.rivals import missing, torchebm_model

    energy = take_weights(mlp(2, langevin.WIDTH, langevin.DEPTH), langevin.model()).requires_grad_(False)
    start = torch.from_numpy(_start(langevin.model(), langevin.CHAINS))
    walks: dict[str, Callable[[], np.ndarray]] = {}
    if missing("torchebm") is None:
        from torchebm.samplers import HamiltonianMonteCarlo

        theirs = HamiltonianMonteCarlo(
            torchebm_model(energy), step_size=PEER_STEP_SIZE, n_leapfrog_steps=LEAPFROGS
        )  # fmt: skip
        walks["torchebm"] = lambda: theirs.sample(x=start, n_steps=PEER_STEPS, return_trajectory=True).numpy()
    if missing("ebmkit") is None:
        from ebm.samplers import HMC

        kit = HMC(PEER_STEP_SIZE, LEAPFROGS, steps=PEER_STEPS)
        walks["ebmkit"] = lambda: kit.sample(energy, start, return_trajectory=True)[1:].transpose(0, 1).numpy()
    return walks


def _against_torch(repeats: int) -> list[Report]:
    without = torch_is_missing()
    if without:
        return [skipped("samplers of torchebm and ebmkit", without)]
    from benchmarks.rivals import PACKAGES, missing

    left_out = [skipped(f"samplers of {package}", why) for package in PACKAGES if (why := missing(package))]
    if len(left_out) == len(PACKAGES):
        return left_out
    model, chains = langevin.model(), langevin.CHAINS
    walks = _langevin_walks(langevin.PEER_STEPS)
    mine = un.sample(
        model, un.samplers.Langevin(langevin.STEP_SIZE), chains=chains, steps=langevin.PEER_STEPS,
        start=langevin.start(), key=jax.random.key(0), progress=False,
    )  # fmt: skip
    checked = _agree(model, mine.draws, *(walk() for walk in walks.values()))
    name, sides = f"Langevin, a step of {chains} chains", _eager_sides(walks, langevin.PEER_STEPS)
    walked = compare(name, langevin.ours(), *sides, repeats=repeats, bar=Bar(1.6)) | {"checked": checked}

    start = _start(model, chains)

    def call() -> np.ndarray:
        return un.sample(
            model, un.samplers.HMC(leapfrogs=LEAPFROGS), chains=chains, steps=TUNED_STEPS,
            warmup=LEAST_WARM_UP, start=start, key=jax.random.key(0), progress=False,
        ).draws  # fmt: skip

    tuned = Side("unnorm, tuning included", call, TUNED_STEPS)
    walks = _hmc_walks()
    # The first draws of untuned chains have not settled.
    settled = [draws[:, draws.shape[1] // 5 :] for draws in (call(), *(walk() for walk in walks.values()))]
    checked = _agree(model, *settled)
    name = f"HMC, a draw of {chains} chains"
    leapt = compare(name, tuned, *_eager_sides(walks, PEER_STEPS), repeats=repeats, bar=Bar(1.0))
    return [*left_out, walked, leapt | {"checked": checked}]


def run(*, repeats: int) -> list[Report]:
    """All samplers."""
    return [*_against_torch(repeats), *(_against_blackjax(case, repeats) for case in _cases())]
