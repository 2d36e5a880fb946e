"""The equations between noise and data as diffrax knows them, for its solvers.

Both run from level 1 down to a level above the noise's least one. The process is dX = f X dt + g dB with the f and g of
the noise (`drift`, `diffusion`); with the exact score both give the marginals of the noised data (Song et al. 2021).
"""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from unnorm.scores import AbstractLevelledScore

if TYPE_CHECKING:
    import diffrax


def flow_term(score: AbstractLevelledScore) -> "diffrax.ODETerm":
    """The probability flow dx / dt = f x - g^2 s / 2; the `args` of `diffrax.diffeqsolve` are the condition.

    >>> import diffrax, jax.numpy as jnp, unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, noise)  # data N(0, I)
    >>> options = {"t0": 1.0, "t1": 0.001, "dt0": -0.1, "y0": jnp.ones(2)}
    >>> diffrax.diffeqsolve(flow_term(score), diffrax.Heun(), **options).ys.round(4).tolist()
    [[1.0, 1.0]]
    """
    import diffrax  # Half a second, which most of the library does without.

    def velocity(t: Any, x: Any, condition: Any) -> Any:
        return score.noise.flow(t, x, score(t, x, condition))

    return diffrax.ODETerm(velocity)


def reverse_terms(score: AbstractLevelledScore, path: "diffrax.AbstractBrownianPath") -> "diffrax.MultiTerm":
    """The reverse process dx = (f x - g^2 s) dt + g dB, for solvers of stochastic equations.

    `path` is a Brownian path of one point over the levels that are walked; the `args` are the condition.

    >>> import diffrax, jax, unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, noise)  # data N(0, I)
    >>> path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(2,), key=jax.random.key(0))
    >>> options = {"t0": 1.0, "t1": 0.001, "dt0": -0.01, "y0": jnp.ones(2)}
    >>> diffrax.diffeqsolve(reverse_terms(score, path), diffrax.Euler(), **options).ys.shape
    (1, 2)
    """
    import diffrax
    import lineax

    def drift(t: Any, x: Any, condition: Any) -> Any:
        return score.noise.reverse_drift(t, x, score(t, x, condition))

    def spread(t: Any, x: Any, condition: Any) -> Any:
        return lineax.DiagonalLinearOperator(jnp.full_like(x, score.noise.diffusion(t)))

    return diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(spread, path))
