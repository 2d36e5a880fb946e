"""Second derivatives: the Hessians of a batch in one compiled call, and a diagonal in 784 dimensions without one.

The peer differentiates twice as a user of eager PyTorch does: the gradient with its graph kept, then a backward pass
for each coordinate; and `torch.func.hessian` under `vmap`, if that is faster. In 784 dimensions both sides estimate the
diagonal with the same fair signs. Values must agree before anything is timed.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unnorm as un
from benchmarks import langevin
from benchmarks.harness import Bar, Report, Side, compare, count, skipped, torch_is_missing
from unnorm.compiling import compiled
from unnorm.samplers import hessian_diagonal
from unnorm.scores import FromScore, as_score

POINTS, CALLS = 1_000, 10
PIXELS, IMAGES, PROBES, WIDTH, DEPTH = 784, 64, 10, 128, 3
#: Of the largest entry: float32 through two derivatives of four layers.
AGREEMENT = 1e-4


@compiled
def _hessians(target: Any, points: Any) -> Any:
    """Those of log q, at every point."""
    return jax.vmap(FromScore(target).matrix)(points)


@compiled
def _diagonals(target: Any, points: Any, keys: Any) -> Any:
    """Estimates with `PROBES` products."""
    score = as_score(target)
    return jax.vmap(
        lambda x, key: hessian_diagonal(lambda y: score(jnp.zeros(()), y), x, probes=PROBES, key=key)
    )(points, keys)  # fmt: skip


def _agree(found: np.ndarray, wanted: np.ndarray) -> Report:
    """The largest difference as a share of the largest entry; raises if it is more than rounding."""
    share = float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))
    if not share < AGREEMENT:
        raise AssertionError(f"the sides differ by {share:.2g} of the largest entry")
    return {"largest_difference": share}


def _sides(calls: dict[str, Callable[[], np.ndarray]], times: int) -> tuple[Side, ...]:
    from benchmarks.peers import per_thread_count

    def often(call: Callable[[], np.ndarray]) -> Callable[[], Any]:
        return lambda: [call() for _ in range(times)]

    return tuple(side for label, call in calls.items() for side in per_thread_count(often(call), times, label))


def _batch(repeats: int) -> Report:
    """1,000 Hessians of the plane."""
    import torch

    from benchmarks.peers import mlp, take_weights

    model = langevin.model()
    points = np.random.default_rng(0).normal(size=(POINTS, 2)).astype(np.float32)
    energy = take_weights(mlp(2, langevin.WIDTH, langevin.DEPTH), model).requires_grad_(False)
    begin = torch.from_numpy(points)

    def double_backward() -> np.ndarray:
        x = begin.detach().requires_grad_()
        (slope,) = torch.autograd.grad(-energy(x).sum(), x, create_graph=True)
        rows = [torch.autograd.grad(slope[:, i].sum(), x, retain_graph=i == 0)[0] for i in range(2)]
        return torch.stack(rows, 1).numpy()

    one = torch.func.vmap(torch.func.hessian(lambda x: -energy(x[None])[0]))

    def functional() -> np.ndarray:
        return one(begin).detach().numpy()

    def ours() -> np.ndarray:
        return np.asarray(_hessians(model, points))

    peers = {"PyTorch, double backward": double_backward, "torch.func": functional}
    checked = {label: _agree(call(), ours()) for label, call in peers.items()}
    side = Side("unnorm", lambda: [ours() for _ in range(CALLS)], CALLS)
    name = f"Hessians of {POINTS} points of the plane"
    return compare(name, side, *_sides(peers, CALLS), repeats=repeats, bar=Bar(1.3)) | {"checked": checked}


def _estimates(repeats: int) -> Report:
    """Diagonals of images, with the same signs on both sides."""
    import torch

    from benchmarks.peers import mlp, take_weights

    space = un.spaces.Real((PIXELS,))
    model = un.energies.MLPEnergy(space, width=WIDTH, depth=DEPTH, key=jax.random.key(0))
    images = np.random.default_rng(0).normal(size=(IMAGES, PIXELS)).astype(np.float32)
    keys = jax.random.split(jax.random.key(1), IMAGES)
    signs = np.asarray(jax.vmap(lambda key: jax.random.rademacher(key, (PROBES, PIXELS), jnp.float32))(keys))
    energy = take_weights(mlp(PIXELS, WIDTH, DEPTH), model).requires_grad_(False)
    begin, probes = torch.from_numpy(images), torch.from_numpy(np.array(signs))

    def double_backward() -> np.ndarray:
        x = begin.detach().requires_grad_()
        (slope,) = torch.autograd.grad(-energy(x).sum(), x, create_graph=True)
        total = torch.zeros_like(x)
        for k in range(PROBES):
            v = probes[:, k]
            total += v * torch.autograd.grad((slope * v).sum(), x, retain_graph=k < PROBES - 1)[0]
        return (total / PROBES).detach().numpy()

    def ours() -> np.ndarray:
        return np.asarray(_diagonals(model, images, keys))

    checked = _agree(double_backward(), ours())
    side = Side("unnorm", lambda: [ours() for _ in range(CALLS)], CALLS)
    peer = _sides({"PyTorch, double backward": double_backward}, CALLS)
    name = f"Hessian diagonals of {IMAGES} points of {PIXELS} dimensions, {PROBES} probes"
    return compare(name, side, *peer, repeats=repeats) | {"checked": checked}


def _scratch(covariance: un.samplers.AbstractCovariance) -> float:
    """Bytes beside inputs and outputs that the compiled step of one chain in 784 dimensions takes."""
    model = un.energies.MLPEnergy(un.spaces.Real((PIXELS,)), width=16, depth=2, key=jax.random.key(0))
    sampler = un.samplers.DenoisingGibbs(0.5, covariance)
    step = jax.jit(lambda x, key: sampler.step(model, x, key=key)[0])
    analysis: Any = step.lower(jnp.zeros(PIXELS), jax.random.key(1)).compile().memory_analysis()
    return float(analysis.temp_size_in_bytes)


def run(*, repeats: int) -> list[Report]:
    """The speed of both, and that a diagonal step has no room for a Hessian."""
    hessian = 4 * PIXELS**2
    room = count(
        f"scratch of a diagonal Gibbs step in {PIXELS} dimensions, Hessians",
        _scratch(un.samplers.DiagonalCovariance(PROBES)) / hessian, bar=Bar(0.5, at_least=False),
    )  # fmt: skip
    full = count(
        f"scratch of a full Gibbs step in {PIXELS} dimensions, Hessians",
        _scratch(un.samplers.FullCovariance()) / hessian, bar=Bar(1.0),
    )  # fmt: skip
    missing = torch_is_missing()
    if missing:
        return [room, full, skipped("hessians", missing)]
    return [room, full, _batch(repeats), _estimates(repeats)]
