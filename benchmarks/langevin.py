"""1,000 Langevin chains on a 2-D energy through `sample` against the loop a PyTorch user writes."""

import jax
import numpy as np

import unnorm as un
from benchmarks.harness import Bar, Report, Side, compare, compilations, count, skipped, torch_is_missing

CHAINS, STEP_SIZE, WIDTH, DEPTH = 1_000, 0.01, 128, 3
#: The peer has no cost per call, so fewer steps of it tell as much.
STEPS, PEER_STEPS = 1_000, 100


def model(seed: int = 0) -> un.energies.NeuralEnergy:
    """The target."""
    return un.energies.MLPEnergy(un.spaces.Real((2,)), width=WIDTH, depth=DEPTH, key=jax.random.key(seed))


def start(seed: int = 0) -> np.ndarray:
    """Where the chains begin."""
    return np.random.default_rng(seed).normal(size=(CHAINS, 2)).astype(np.float32)


def ours(seed: int = 0) -> Side:
    """Draws through `sample`."""
    target, begin = model(seed), start(seed)

    def call() -> np.ndarray:
        return un.sample(
            target, un.samplers.Langevin(STEP_SIZE), chains=CHAINS, steps=STEPS, start=begin,
            key=jax.random.key(seed), progress=False,
        ).draws  # fmt: skip

    return Side("unnorm", call, STEPS)


def _peers() -> tuple[Side, ...]:
    import torch

    from benchmarks.peers import mlp, per_thread_count, take_weights

    energy = take_weights(mlp(2, WIDTH, DEPTH), model()).requires_grad_(False)
    begin = torch.from_numpy(start())

    def call() -> np.ndarray:
        x, draws = begin, []
        for _ in range(PEER_STEPS):
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(energy(x).sum(), x)
            x = (x - STEP_SIZE * gradient + (2 * STEP_SIZE) ** 0.5 * torch.randn_like(x)).detach()
            draws.append(x)
        return torch.stack(draws, 1).numpy()

    return per_thread_count(call, PEER_STEPS)


def _new_programs() -> int:
    """How many programs a second call compiles: other weights, starts and key, the same shapes."""
    ours().call()
    other = ours(seed=1)
    with compilations() as compiled:
        other.call()
    return len(compiled)


def run(*, repeats: int) -> list[Report]:
    """The speed, and that nothing compiles twice."""
    again = count("Langevin, programs compiled by a second call", _new_programs(), bar=Bar(0, at_least=False))
    missing = torch_is_missing()
    if missing:
        return [again, skipped("langevin", missing)]
    name = f"Langevin, a step of {CHAINS} chains"
    return [again, compare(name, ours(), *_peers(), repeats=repeats, bar=Bar(1.6))]
