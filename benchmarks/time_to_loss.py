"""Seconds to the held-out loss that a plain PyTorch U-Net has on MNIST after 150 seconds of training.

Both sides: MNIST in [-1, 1], 59,000 pictures to learn from and the other 1,000 held out, the U-Net that `unnorm fit`
takes for pictures of this size, VP noise, network and score related by `Scaled`, the mean of |sigma s + z|^2 over
levels uniform in time, batches of 64. The peer: PyTorch's first weights, Adam at 0.001, eager, channels last. Ours: as
shipped, first weights, optimiser, rate and schedule fixed beforehand by `catalogue.diffusion`. The held-out loss is
over the same pictures, levels and noises on both sides, by the weights themselves (no average), and time is that of
training alone: compiling and judging are apart (the first call, which compiles, is reported).

    PYTHONPATH=src:. python -m benchmarks.time_to_loss [--seeds 3] [--seconds 150] [--direction muon|adam] [--rate R]
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import unnorm as un
from benchmarks.harness import Report, environment, say
from unnorm import catalogue
from unnorm.data.mnist import mnist
from unnorm.training import muon
from unnorm.training.loop import _recipe
from unnorm.training.optimisers import adam, cosine
from unnorm.training.state import run_steps, split, start

BATCH, HELD_OUT, CHUNK = 64, 1000, 25
DIRECTIONS = {"muon": muon, "adam": adam}


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and held-out ones."""
    images = mnist().train.images[..., None] * 2 - 1
    return images[:-HELD_OUT], images[-HELD_OUT:]


def model(train: np.ndarray, seed: int) -> un.scores.LevelledScore:
    """What is shipped for pictures of this size."""
    space = un.spaces.Real(train.shape[1:])
    context = catalogue.Context(space, None, jax.random.key(seed), train[:2000])
    entry = catalogue.find(catalogue.MODELS, "diffusion", "model")
    made: Any = entry.build(catalogue.read_options(entry, {}), context)
    return made


class Judged:
    """The held-out loss of an answer network(x, level): the same noise for everybody."""

    def __init__(self, score: un.scores.LevelledScore, held_out: np.ndarray):
        rng = np.random.default_rng(0)
        n = len(held_out)
        ts = ((np.arange(n) + 0.5) / n).astype(np.float32)
        rng.shuffle(ts)
        zs = rng.normal(size=held_out.shape).astype(np.float32)
        noise, reading = score.noise, jax.vmap(lambda t: score.preconditioning.read(score.noise, t))(jnp.asarray(ts))
        wide = (slice(None), None, None, None)
        alpha, sigma = (np.asarray(jax.vmap(f)(jnp.asarray(ts)))[wide] for f in (noise.alpha, noise.sigma))
        self.own, self.width, self.ratio = (np.asarray(v)[wide] for v in (reading.own, reading.width, reading.ratio))
        self.points, self.sigma, self.z, self.ts = alpha * held_out + sigma * zs, sigma, zs, ts

    def __call__(self, answer: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        """Of the network's answers."""
        scores = -self.points / self.own**2 - self.ratio / self.width * answer(self.points / self.width, self.ts)
        return float(np.mean((self.sigma * scores + self.z) ** 2))


Curve = list[tuple[float, int, float]]


def ours(train: np.ndarray, held_out: np.ndarray, options: argparse.Namespace, seed: int) -> tuple[Curve, float]:
    """(seconds, step, held-out loss) every so often; and what the first call took."""
    score = model(train, seed)
    recipe = _recipe(score, un.objectives.DSM(), BATCH, options.steps, options.rate, 0.99, cosine, None,
                     direction=DIRECTIONS[options.direction]())  # fmt: skip
    rows, state = jnp.asarray(train), start(score, recipe, jnp.asarray(train), jax.random.key(seed + 1))
    judged, skeleton = Judged(score, held_out), split(score)[1]
    answers = eqx.filter_jit(lambda net, x, t: jax.lax.map(lambda p: net(*p), (x, t), batch_size=100))

    def loss_of(weights: Any) -> float:
        net = eqx.combine(weights, skeleton).network
        return judged(lambda x, t: np.asarray(answers(net, jnp.asarray(x, jnp.float32), jnp.asarray(t))))

    began = time.perf_counter()
    jax.block_until_ready(run_steps(recipe, state, rows, jnp.asarray(1)).state.weights)
    first, seconds, curve = time.perf_counter() - began, 0.0, []
    while seconds < options.longest and int(state.step) < options.steps:
        began = time.perf_counter()
        state = jax.block_until_ready(run_steps(recipe, state, rows, jnp.asarray(CHUNK))).state
        seconds += time.perf_counter() - began
        if int(state.step) % (4 * CHUNK) == 0:
            curve.append((seconds, int(state.step), loss_of(state.average if options.average else state.weights)))
            say(f"  ours {seconds:6.1f} s, step {int(state.step)}: {curve[-1][2]:.5f}")
        if curve and curve[-1][2] <= options.goal:
            break
    return curve, first


def theirs(train: np.ndarray, held_out: np.ndarray, options: argparse.Namespace, seed: int) -> Curve:
    """The same of the peer, at the end."""
    import torch

    from benchmarks.peer_unet import channels_first, twin

    torch.manual_seed(seed)
    score: Any = model(train, seed)
    judged, spread = Judged(score, held_out), score.preconditioning.spread
    net, rng = twin(score.network).plain(), np.random.default_rng(seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    rows, low, high = channels_first(train), score.noise.low, score.noise.high

    def answer(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            pairs = zip(np.array_split(x, 10), np.array_split(t, 10), strict=True)
            found = [net(channels_first(a.astype(np.float32)), torch.from_numpy(b)) for a, b in pairs]
        return torch.cat(found).permute(0, 2, 3, 1).numpy()

    def step() -> None:
        x, t = rows[torch.from_numpy(rng.integers(len(rows), size=BATCH))], torch.rand(BATCH) * (1 - 1e-5) + 1e-5
        total = (low * t + (high - low) * t**2 / 2)[:, None, None, None]
        alpha, sigma = torch.exp(-total / 2), torch.sqrt(-torch.expm1(-total))
        width, z = torch.sqrt((alpha * spread) ** 2 + sigma**2), torch.randn_like(x)
        y = alpha * x + sigma * z
        scores = -y / width**2 - alpha * spread / sigma / width**2 * net(y / width, t)
        optimiser.zero_grad()
        (sigma * scores + z).square().mean().backward()
        optimiser.step()

    for _ in range(3):
        step()
    seconds, steps, curve = 0.0, 3, []
    while seconds < options.seconds:
        began = time.perf_counter()
        for _ in range(CHUNK):
            step()
        seconds, steps = seconds + time.perf_counter() - began, steps + CHUNK
        if steps // CHUNK % 8 == 0 or seconds >= options.seconds:
            curve.append((seconds, steps, judged(answer)))
            say(f"  PyTorch {seconds:6.1f} s, step {steps}: {curve[-1][2]:.5f}")
    return curve


def run(options: argparse.Namespace) -> list[Report]:
    """A report for each seed."""
    train, held_out = pictures()
    reports = []
    for seed in range(options.first, options.first + options.seeds):
        say(f"time to loss, seed {seed}")
        peer = [] if options.alone else theirs(train, held_out, options, seed)
        options.goal = peer[-1][2] if peer else -1.0
        curve, first = ours(train, held_out, options, seed)
        reached = bool(curve[-1][2] <= options.goal)
        reports.append({
            "seed": seed, "peer": peer, "ours": curve, "first_call_seconds": first, "goal": options.goal,
            "seconds": curve[-1][0] if reached else None, "met": reached and curve[-1][0] <= options.seconds,
        })  # fmt: skip
        say(f"  goal {options.goal:.5f}: {'reached' if reached else 'not reached'} after {curve[-1][0]:.0f} s")
    return reports


def main() -> None:
    """One JSON document on stdout."""
    shipped = catalogue.find(catalogue.MODELS, "diffusion", "model").training(un.spaces.Real((28, 28, 1)))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_to_loss", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--longest", type=float, default=300.0, help="where ours gives up")
    parser.add_argument("--steps", type=int, default=1200, help="over which our rate falls")
    parser.add_argument("--direction", choices=DIRECTIONS, default=shipped.get("direction", "adam"))
    parser.add_argument("--rate", type=float, default=shipped["rate"])
    parser.add_argument("--average", action="store_true", help="judge our averaged weights, as a run keeps them")
    parser.add_argument("--alone", action="store_true", help="without the peer")
    options = parser.parse_args()
    print(json.dumps({"environment": environment(), "results": run(options)}, indent=2))


if __name__ == "__main__":
    main()
