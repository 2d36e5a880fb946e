"""Which parts of a module are learnt, and which are given.

By default every array of real numbers is learnt. A module with parts that are given (a reference, a noise, a level)
says so by being an `AbstractPartlyFixed`; training then leaves them alone, and no optimiser has memory of them.
"""

from abc import abstractmethod
from typing import Any, TypeVar

import equinox as eqx
import jax

T = TypeVar("T")


class AbstractPartlyFixed(eqx.Module):
    """A module that names those of its parts that are given and not learnt."""

    @abstractmethod
    def fixed_parts(self) -> tuple[Any, ...]:
        """Those parts: fields of the module, or what is within them, as they are."""


def held(tree: T) -> T:
    """The same tree, through which no gradient passes.

    >>> import jax.numpy as jnp
    >>> float(jax.grad(lambda x: x * held(x))(jnp.asarray(3.0)))
    3.0
    """
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)


def trainable(model: Any) -> Any:
    """True at what is learnt, in a tree shaped like the model: its real arrays but for what modules in it call fixed.

    A filter as those of equinox: `equinox.partition(model, trainable(model))`. What it
    leaves out is not in the weights that an optimiser sees.

    >>> import unnorm as un
    >>> model = un.energies.tilt(un.energies.standard_gaussian(2), key=jax.random.key(0))
    >>> trainable(model).network.layers[0].bias, trainable(model).reference.mean
    (True, False)
    """
    leaves, structure = jax.tree.flatten(model)
    # By the place of each leaf and not by the leaf: one array may be given at one place and learnt at another.
    fixed = set(_fixed_leaves(jax.tree.unflatten(structure, range(len(leaves)))))
    learnt = [eqx.is_inexact_array(leaf) and place not in fixed for place, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, learnt)


def _fixed_leaves(tree: Any) -> list[Any]:
    """The leaves of the fixed parts of every module in the tree, the tree itself included."""
    found = jax.tree.leaves(tree.fixed_parts()) if isinstance(tree, AbstractPartlyFixed) else []
    within = jax.tree.leaves(tree, is_leaf=lambda node: node is not tree and isinstance(node, AbstractPartlyFixed))
    for node in within:
        if node is not tree and isinstance(node, AbstractPartlyFixed):
            found += _fixed_leaves(node)
    return found
