"""Independent draws of a density that is close to one that can be drawn from: propose many, keep by weight.

Chains started at data stay in the mode where they began; draws of a good proposal do not. Where the weights
exp(-E(x)) / q(x) vary little (a tilted reference, whose weight is its network's alone), this is both right and fast.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc.resampling import systematic
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.arguments import whole_number
from unnorm.compiling import compiled
from unnorm.energies.base import AbstractEnergy, AbstractNormalised
from unnorm.energies.tilted import Tilted
from unnorm.errors import InputError, require
from unnorm.estimate import require_weights
from unnorm.progress import progress as progress_bar
from unnorm.words import lines

#: Draws that are chosen together.
BLOCK = 512
#: With a smaller share of effective proposals the draws are too few different ones.
LEAST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Resampled:
    """Draws, and how good the proposals were.

    `effective` is (sum w)^2 / (m sum w^2), the share of the m `proposals` that count; `repeated` the number of draws
    that stand there a second time.
    """

    draws: Shaped[np.ndarray, "n ..."]
    proposals: int
    effective: float
    repeated: int

    @property
    def flat(self) -> Shaped[np.ndarray, "n ..."]:
        """All draws along one axis."""
        return self.draws

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with these draws, in sentences; empty if nothing was seen."""
        if self.effective >= LEAST_SHARE:
            return ()
        return (
            f"Only {self.effective:.1%} of the proposals are effective: the density is far from what it is proposed "
            f"by, and {self.repeated} of {len(self.draws)} draws are repeated; draw by chains instead "
            "(--sampler nuts, samplers.NUTS).",
        )

    def __str__(self) -> str:
        facts = [
            ("points", f"of shape {self.draws.shape[1:]}"),
            ("effective", f"{self.effective:.1%} of {self.proposals:,} proposals"),
            ("repeated", f"{self.repeated:,} draws"),
            *[("warning", sentence) for sentence in self.warnings],
        ]
        return lines(f"{len(self.draws):,} independent draws", facts)


def _tilt(model: Tilted, x: Shaped[Array, "..."]) -> Float[Array, ""]:
    return -model.tilt(x)


def _difference(pair: tuple[AbstractEnergy, AbstractNormalised], x: Shaped[Array, "..."]) -> Float[Array, ""]:
    target, base = pair
    return base(x) - target(x)


@compiled
def _block(base: AbstractNormalised, weigh, arguments, proposals: int, key: PRNGKeyArray):
    """`BLOCK` draws, how many of them are repeated, and log sum w, log sum w^2 of all proposals."""
    propose, choose = jax.random.split(key)
    xs = base.samples(BLOCK * proposals, key=propose)
    logs = jax.vmap(lambda x: weigh(arguments, x))(xs)
    # Each proposal is taken as often as its weight says, to within one.
    chosen = systematic(choose, jax.nn.softmax(logs), BLOCK)
    sums = jax.nn.logsumexp(logs), jax.nn.logsumexp(2 * logs)
    return xs[chosen], jnp.sum(chosen[1:] == chosen[:-1]), sums


class ImportanceResampling(eqx.Module):
    """Of `proposals` draws of q for every draw wanted, those that exp(-E) / q makes likely (Rubin 1987).

    They are independent but for the weights they are chosen by, whose error falls with their number. The choice is
    systematic, so that no proposal is taken twice unless its weight is above that of `proposals` average ones. Without
    a `base` a tilted energy is proposed by its reference.

    >>> import unnorm as un
    >>> target = un.energies.gaussian([0.5], [[0.8]])
    >>> draw = ImportanceResampling(un.energies.standard_gaussian(1))
    >>> bool(abs(draw(target, 4000, key=jax.random.key(0)).draws.mean() - 0.5) < 0.1)
    True
    """

    base: AbstractNormalised | None = None
    proposals: int = eqx.field(static=True, default=16, converter=lambda n: whole_number(n, "proposals of a draw"))

    def __check_init__(self):
        require(self.proposals >= 2, f"a draw is chosen among at least 2 proposals, not {self.proposals}")

    def __call__(self, target: AbstractEnergy, n: int, *, key: PRNGKeyArray, progress: bool = False) -> Resampled:
        """n draws."""
        base = target.reference if self.base is None and isinstance(target, Tilted) else self.base
        if base is None:
            raise InputError(
                f"independent draws need a density to propose them, and {type(target).__name__} has no reference; "
                "pass base=, or draw by chains (--sampler nuts, samplers.NUTS)"
            )
        require(target.space == base.space, f"the base is on {base.space} and the target on {target.space}")
        require(whole_number(n, "draws") >= 1, f"at least one draw is needed, not {n}")
        own = isinstance(target, Tilted) and base is target.reference
        weigh, arguments = (_tilt, target) if own else (_difference, (target, base))
        draws, repeated, sums, blocks = [], 0, [], -(-n // BLOCK)
        with progress_bar("draws", n, show=progress) as advance:
            for block in range(blocks):
                found, again, of_weights = _block(
                    base, weigh, arguments, self.proposals, jax.random.fold_in(key, block)
                )
                draws.append(np.asarray(found))
                repeated += int(again)
                sums.append([float(s) for s in of_weights])
                advance(min(BLOCK, n - block * BLOCK))
        first, second = np.logaddexp.reduce(np.asarray(sums), axis=0)
        require_weights([first])
        count = blocks * BLOCK * self.proposals
        return Resampled(np.concatenate(draws)[:n], count, float(np.exp(2 * first - second) / count), repeated)
