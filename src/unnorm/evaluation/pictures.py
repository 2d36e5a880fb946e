"""Figures for pictures: how near a restored one is to the true one, and a drawn one to those that were trained on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unnorm.arguments import require_positive
from unnorm.errors import require

Image = Float[Array, "h w c"]


def psnr(x: Image, truth: Image, *, span: float = 2.0) -> Float[Array, ""]:
    """10 log10(span^2 / mean squared error), in decibels; `span` is from black to white.

    >>> round(float(psnr(jnp.zeros((2, 2, 1)), jnp.full((2, 2, 1), 0.2))), 4)
    20.0
    """
    return 10 * jnp.log10(span**2 / jnp.mean((x - truth) ** 2))


def ssim(x: Image, truth: Image, *, span: float = 2.0, window: int = 7) -> Float[Array, ""]:
    """The structural similarity (Wang et al. 2004): 1 for equal pictures; the mean over square windows and channels.

        (2 m n + c) (2 s + e) / ((m^2 + n^2 + c) (v + w + e)),  c = (.01 span)^2,  e = (.03 span)^2

    with means m, n, sample variances v, w and covariance s of each window.

    >>> picture = jnp.arange(64.0).reshape(8, 8, 1) / 32 - 1
    >>> round(float(ssim(picture, picture)), 4)
    1.0
    """
    require_positive(span, "the span of a picture")
    rows, columns = x.shape[:2]
    require(1 < window <= min(rows, columns), f"a window of {window} does not fit into a picture of {rows} x {columns}")
    places = window**2

    def means(a):
        whole = jnp.pad(jnp.cumsum(jnp.cumsum(a, 0), 1), ((1, 0), (1, 0), (0, 0)))
        k = window
        return (whole[k:, k:] - whole[:-k, k:] - whole[k:, :-k] + whole[:-k, :-k]) / places

    # About the middle of each picture: squares of large values would swallow the differences.
    shift = jnp.mean(truth)
    x, truth = x - shift, truth - shift
    m, n = means(x), means(truth)
    unbiased = places / (places - 1)
    v, w = unbiased * (means(x**2) - m**2), unbiased * (means(truth**2) - n**2)
    s = unbiased * (means(x * truth) - m * n)
    m, n = m + shift, n + shift
    c, e = (0.01 * span) ** 2, (0.03 * span) ** 2
    return jnp.mean((2 * m * n + c) * (2 * s + e) / ((m**2 + n**2 + c) * (v + w + e)))


class Nearest(NamedTuple):
    """Of every row the nearest one of others: its number, and how far it is."""

    places: np.ndarray
    distances: np.ndarray


def nearest(rows: Any, others: Any, *, block: int = 256) -> Nearest:
    """The nearest of `others` to every row, by the Euclidean distance.

    Draws nearer to training rows than fresh rows are have been memorised.

    >>> nearest([[0.0], [3.0]], [[1.0], [2.5]]).places.tolist()
    [0, 1]
    """
    rows = np.asarray(rows, np.float32).reshape(len(rows), -1)
    others = np.asarray(others, np.float32).reshape(len(others), -1)
    require(
        rows.shape[1] == others.shape[1], f"rows of {rows.shape[1]} numbers have no neighbours of {others.shape[1]}"
    )
    middle = others.mean(0)
    against = jnp.asarray(others - middle)
    squares = jnp.sum(against**2, 1)

    @jax.jit
    def some(part):
        far = jnp.sum(part**2, 1)[:, None] - 2 * part @ against.T + squares[None]
        index = jnp.argmin(far, axis=1)
        return index, jnp.sqrt(jnp.sum((part - against[index]) ** 2, 1))

    found = [some(jnp.asarray(rows[i : i + block] - middle)) for i in range(0, len(rows), block)]
    return Nearest(*(np.concatenate([np.asarray(part) for part in parts]) for parts in zip(*found, strict=True)))
