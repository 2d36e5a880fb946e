"""A training step of a residual energy against the same network, loss and optimiser in eager PyTorch.

Both sides pick batches of 256 from 10,000 shuffled rows and draw their noise inside the timed region. Ours also keeps
the moving average of the weights and watches for losses that are not finite; the peer does neither.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unnorm as un
from benchmarks.harness import Bar, Report, Side, compare, skipped, torch_is_missing
from unnorm.training.loop import _recipe
from unnorm.training.optimisers import cosine
from unnorm.training.state import run_steps, start

ROWS, DIMENSION, WIDTH, BLOCKS, BATCH, NOISE, RATE = 10_000, 20, 128, 4, 256, 0.1, 1e-3
#: The peer has no cost per call, so fewer steps of it tell as much.
STEPS, PEER_STEPS = 200, 50


def data() -> np.ndarray:
    """The rows both sides learn from."""
    return np.random.default_rng(0).normal(size=(ROWS, DIMENSION)).astype(np.float32)


def model() -> un.energies.NeuralEnergy:
    """The energy both sides learn."""
    return un.energies.ResNetEnergy(un.spaces.Real((DIMENSION,)), width=WIDTH, blocks=BLOCKS, key=jax.random.key(0))


def ours(label: str, objective: un.objectives.AbstractObjective, steps: int = STEPS, learner: Any = None) -> Side:
    """`steps` steps of the training loop in one compiled call, each call going on where the last one stopped."""
    rows, learner = jnp.asarray(data()), model() if learner is None else learner
    recipe = _recipe(learner, objective, BATCH, 1_000_000, RATE, 0.999, cosine, None)
    states = [start(learner, recipe, rows, jax.random.key(1))]

    def call() -> None:
        states[0] = jax.block_until_ready(run_steps(recipe, states[0], rows, jnp.asarray(steps))).state

    return Side(label, call, steps)


def _peers(loss: Callable[[Any, Any], Any]) -> tuple[Side, ...]:
    import torch

    from benchmarks.peers import per_thread_count, resnet, take_weights

    energy = take_weights(resnet(DIMENSION, WIDTH, BLOCKS), model())
    optimiser = torch.optim.Adam(energy.parameters(), lr=RATE, fused=True)
    rows = torch.from_numpy(data())

    def batches():
        while True:
            order = torch.randperm(ROWS)
            for place in range(ROWS // BATCH):
                yield rows[order[place * BATCH : (place + 1) * BATCH]]

    stream = batches()

    def call() -> None:
        for _ in range(PEER_STEPS):
            optimiser.zero_grad()
            loss(energy, next(stream)).backward()
            optimiser.step()

    return per_thread_count(call, PEER_STEPS)


def _denoising(energy: Any, x: Any) -> Any:
    import torch

    z = torch.randn_like(x)
    y = (x + NOISE * z).requires_grad_()
    (gradient,) = torch.autograd.grad(energy(y).sum(), y, create_graph=True)
    return (z - NOISE * gradient).square().mean()


def _contrastive(energy: Any, x: Any) -> Any:
    import torch
    from torch.nn import functional

    # The ratio of the two directions of Gaussian noise is 1, so the peer need not compute it.
    y = x + NOISE * torch.randn_like(x)
    of_data, of_noise = energy(torch.cat([x, y])).chunk(2)
    return 2 * functional.softplus(of_data - of_noise).mean()


def run(*, repeats: int) -> list[Report]:
    """Denoising score matching and local conditional noise contrast."""
    missing = torch_is_missing()
    if missing:
        return [skipped("training", missing)]
    local = un.noises.Gaussian(NOISE)
    return [
        compare(
            "denoising score matching, a step",
            ours("unnorm", un.objectives.DSM(local)),
            *_peers(_denoising),
            repeats=repeats,
            bar=Bar(1.4),
        ),
        compare(
            "local CNCE, a step",
            ours("unnorm", un.objectives.CNCE(local)),
            *_peers(_contrastive),
            repeats=repeats,
            bar=Bar(1.2),
        ),
    ]
