"""Training steps of a small convolutional energy on images of 28 x 28: our convolutions against JAX's own.

The same network, loss, weights and descent on both sides, once as a loop of 20 steps in one program, which is how a
model is trained, and once as 20 calls of a program of one step. The losses: of the energy itself, whose gradient needs
each convolution's first derivatives, and of its score, which needs the mixed second ones. The gradients of both sides
must agree before anything is timed.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Bar, Report, Side, compare
from unnorm.compiling import compiled
from unnorm.networks import Conv

IMAGES, SIDE, WIDTH, STEPS, RATE = 32, 28, 16, 20, 1e-3
#: Of the largest entry: float32, and sums over all pixels of all images.
AGREEMENT = 1e-4

Apply = Callable[[Conv, Any], Any]
Loss = Callable[[Apply, Any, Any], Any]


def layers() -> tuple[Conv, ...]:
    """A layer at full resolution, one that halves it, two at half of it, one of them with a spread kernel."""
    keys = jax.random.split(jax.random.key(0), 4)
    return (
        Conv(1, WIDTH, key=keys[0]),
        Conv(WIDTH, 2 * WIDTH, stride=2, key=keys[1]),
        Conv(2 * WIDTH, 2 * WIDTH, key=keys[2]),
        Conv(2 * WIDTH, 2 * WIDTH, dilation=2, key=keys[3]),
    )


def _ours(layer: Conv, x: Any) -> Any:
    return layer(x)


def _plain(layer: Conv, x: Any) -> Any:
    settings: Any = (layer.stride, layer.padding, None, layer.dilation)
    y = jax.lax.conv_general_dilated(x[None], layer.kernel, *settings, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y[0] + layer.bias


def _energy(apply: Apply, network: Any, x: Any) -> Any:
    for layer in network:
        x = jax.nn.silu(apply(layer, x))
    return jnp.mean(x)


def _of_energy(apply: Apply, network: Any, images: Any) -> Any:
    return jnp.mean(jax.vmap(lambda x: (_energy(apply, network, x) - jnp.mean(x)) ** 2)(images))


def _of_score(apply: Apply, network: Any, images: Any) -> Any:
    score = jax.grad(lambda x: -_energy(apply, network, x))
    return jnp.mean(jax.vmap(lambda x: jnp.sum((score(x) + x) ** 2))(images))


def _programs(apply: Apply, loss: Loss) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """One step, and the loop."""

    def step(network: Any, images: Any) -> Any:
        value, slope = eqx.filter_value_and_grad(lambda net: loss(apply, net, images))(network)
        return jax.tree.map(lambda w, s: w - RATE * s, network, slope), value

    def loop(network: Any, images: Any) -> Any:
        return jax.lax.scan(lambda net, _: step(net, images), network, length=STEPS)

    return compiled(step), compiled(loop)


def _agree(found: Any, wanted: Any) -> Report:
    """The largest difference as a share of the largest entry; raises if it is more than rounding."""
    shares = [
        float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    ]
    if not max(shares) < AGREEMENT:
        raise AssertionError(f"the sides differ by {max(shares):.2g} of the largest entry")
    return {"largest_difference": max(shares)}


def _both(name: str, loss: Loss, repeats: int) -> list[Report]:
    network = layers()
    images = jnp.asarray(np.random.default_rng(0).normal(size=(IMAGES, SIDE, SIDE, 1)), jnp.float32)
    slopes = [compiled(jax.grad(lambda net, a=apply: loss(a, net, images)))(network) for apply in (_ours, _plain)]
    checked = _agree(*slopes)
    alone, loops = [], []
    for label, apply in (("unnorm", _ours), ("jax.lax", _plain)):
        step, loop = _programs(apply, loss)

        def calls(step: Any = step) -> None:
            state = network
            for _ in range(STEPS):
                state, _ = step(state, images)
            jax.block_until_ready(state)

        alone.append(Side(f"{label}, by itself", calls, STEPS))
        loops.append(Side(f"{label}, in a loop", lambda loop=loop: jax.block_until_ready(loop(network, images)), STEPS))
    title = f"convolutions, {name}, a step"
    return [
        compare(f"{title} in a loop", *loops, repeats=repeats, bar=Bar(10.0)) | {"checked": checked},
        compare(f"{title} by itself", *alone, repeats=repeats, bar=Bar(0.9)) | {"checked": checked},
        compare(f"{title} in a loop and by itself", loops[0], alone[0], repeats=repeats, bar=Bar(0.9)),
    ]


def run(*, repeats: int) -> list[Report]:
    """Both losses."""
    return [*_both("loss of energies", _of_energy, repeats), *_both("loss of scores", _of_score, repeats)]
