"""The U-Net that pictures of 28 x 28 get: a training step in the loop, by itself and in eager PyTorch; forward passes.

Denoising at levels uniform in time, batches of 64, Adam on both sides, the same weights at first (seen to give the same
answers). The forward pass is of the network alone, compiled with the convolutions handed to a library and without.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unnorm as un
from benchmarks.harness import Bar, Report, Side, compare, count, say, skipped, torch_is_missing
from unnorm.compiling import compiled
from unnorm.training.loop import _recipe
from unnorm.training.optimisers import cosine
from unnorm.training.state import run_steps, start

SHAPE, BATCH, STEPS = (28, 28, 1), 64, 5


def score() -> un.scores.LevelledScore:
    """The model both sides learn."""
    network = un.networks.UNet(SHAPE, channels=32, multipliers=(1, 2, 2), key=jax.random.key(0))
    return un.scores.LevelledScore(network=network, noise=un.noises.VariancePreserving(), space=un.spaces.Real(SHAPE))


def _network() -> Any:
    return score().network


def rows() -> np.ndarray:
    """Pictures of noise, which cost what others do."""
    return np.random.default_rng(0).normal(size=(1000, *SHAPE)).astype(np.float32)


def _ours() -> tuple[Side, Side, float]:
    """A loop of steps in one program, a program of one step, and the seconds in which the first was compiled."""
    model, data = score(), jnp.asarray(rows())
    recipe = _recipe(model, un.objectives.DSM(), BATCH, 1_000_000, 1e-3, 0.999, cosine, None)
    states = [start(model, recipe, data, jax.random.key(1))]

    def loop(steps: int) -> None:
        states[0] = jax.block_until_ready(run_steps(recipe, states[0], data, jnp.asarray(steps))).state

    began = time.perf_counter()
    loop(1)
    first = time.perf_counter() - began
    one = compiled(lambda recipe, state, data: _update(recipe, state, data))

    def alone() -> None:
        for _ in range(STEPS):
            states[0] = jax.block_until_ready(one(recipe, states[0], data))

    return Side("unnorm, in a loop", lambda: loop(STEPS), STEPS), Side("unnorm, by itself", alone, STEPS), first


def _update(recipe: Any, state: Any, data: Any) -> Any:
    from unnorm.training.state import update

    return update(recipe, state, data)[0]


def _theirs() -> tuple[Side, ...]:
    import torch

    from benchmarks.peer_unet import channels_first, twin
    from benchmarks.peers import per_thread_count

    net, data = twin(_network()), channels_first(rows())
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)

    def steps() -> None:
        for _ in range(STEPS):
            x, t = data[torch.randint(len(data), (BATCH,))], torch.rand(BATCH) * (1 - 1e-5) + 1e-5
            total = (0.1 * t + 19.9 * t**2 / 2)[:, None, None, None]
            alpha, sigma = torch.exp(-total / 2), torch.sqrt(-torch.expm1(-total))
            z = torch.randn_like(x)
            y = alpha * x + sigma * z
            # Width 1, as the spread of the data is taken to be.
            scores = -y - alpha / sigma * net(y, t)
            optimiser.zero_grad()
            (sigma * scores + z).square().mean().backward()
            optimiser.step()

    return per_thread_count(steps, STEPS)


def _passes() -> tuple[list[Side], tuple[Side, ...]]:
    import torch

    from benchmarks.peer_unet import channels_first, twin
    from benchmarks.peers import per_thread_count

    network, x = _network(), jnp.asarray(rows()[:BATCH])
    ts, ours = jnp.linspace(0.1, 0.9, BATCH), []
    for label, convolves in (("unnorm, convolutions by the library", True), ("unnorm", False)):
        run = compiled(lambda net, x, t: jax.vmap(net)(x, t), convolves=convolves)

        def call(run: Any = run) -> None:
            for _ in range(STEPS):
                jax.block_until_ready(run(network, x, ts))

        ours.append(Side(label, call, STEPS))
    net, given, levels = twin(network), channels_first(np.array(x)), torch.from_numpy(np.array(ts))

    def forward() -> None:
        with torch.no_grad():
            for _ in range(STEPS):
                net(given, levels)

    return ours, per_thread_count(forward, STEPS)


def run(*, repeats: int) -> list[Report]:
    """Steps, passes, and what compiling costs."""
    missing = torch_is_missing()
    loop, alone, first = _ours()
    say(f"U-Net: the first step, compiled: {first:.1f} s")
    reports = [
        count("U-Net, seconds to compile a training step", first, bar=Bar(30.0, at_least=False)),
        compare("U-Net, a step in a loop and by itself", loop, alone, repeats=repeats, bar=Bar(1 / 1.1)),
    ]
    if missing:
        return [*reports, skipped("U-Net against PyTorch", missing)]
    passes, peers = _passes()
    return [
        *reports,
        compare("U-Net, a step in a loop", loop, *_theirs(), repeats=repeats, bar=Bar(0.6)),
        *(compare("U-Net, a forward pass", ours, *peers, repeats=repeats, bar=Bar(0.75)) for ours in passes),
    ]
