"""What a model is: an energy, a function of one point.

p(x) = exp(-E(x)) / Z. Energies form a small algebra: `e1 + e2` is a product of experts (E1 + E2), `b * e` tempers
(b E, so p becomes p^b / Z_b), `e.fixing({i: v})` fixes coordinates and leaves an energy of the others.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.arguments import shown
from unnorm.errors import InputError, require
from unnorm.parts import AbstractPartlyFixed
from unnorm.spaces import AbstractArray, AbstractOnRows, AbstractSpace
from unnorm.words import model_words

Point = Shaped[Array, "..."]
Scalar = Float[Array, ""]
#: Values by the number of their coordinate. (The keys of a mapping are of one type, so two are named.)
Values = Mapping[int, float | Scalar] | Mapping[np.integer, float | Scalar]


class AbstractEnergy(AbstractOnRows):
    """E(x) of one point x; vmap it for many."""

    space: eqx.AbstractVar[AbstractSpace]

    def rows_space(self) -> AbstractSpace:
        """The rows it is trained on are points like any other."""
        return self.space

    @abstractmethod
    def __call__(self, x: Point) -> Scalar:
        """The energy of one point."""

    def __add__(self, other: "AbstractEnergy") -> "Sum":
        return Sum((self, other))

    def __rmul__(self, inverse_temperature: float | Scalar) -> "Tempered":
        return Tempered(jnp.asarray(inverse_temperature, dtype=float), self)

    def fixing(self, values: Values) -> "Fixing":
        """The energy of the remaining coordinates when those named are held at their values."""
        return Fixing(self, values)

    def __str__(self) -> str:
        return model_words(self)


class AbstractNormalised(AbstractEnergy):
    """An energy whose constant is known: E(x) = -log p(x) exactly, and p can be drawn from."""

    @abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Point:
        """One independent draw from p."""

    def log_prob(self, x: Point) -> Scalar:
        """log p(x)."""
        return -self(x)

    def samples(self, n: int, *, key: PRNGKeyArray) -> Point:
        """n independent draws, along a leading axis."""
        return jax.vmap(lambda k: self.sample(key=k))(jax.random.split(key, n))


class Sum(AbstractEnergy):
    """E(x) = sum_i E_i(x): a product of experts."""

    terms: tuple[AbstractEnergy, ...]
    space: AbstractSpace = eqx.field(static=True)

    def __init__(self, terms: tuple[AbstractEnergy, ...]):
        spaces = [term.space for term in terms]
        require(len(terms) > 0, "a sum of energies needs at least one term")
        require(
            all(space == spaces[0] for space in spaces),
            f"energies can be added only on one space, not on {spaces[0]} and "
            f"{next((s for s in spaces if s != spaces[0]), None)}",
        )
        self.terms = terms
        self.space = spaces[0]

    def __call__(self, x: Point) -> Scalar:
        return sum((term(x) for term in self.terms[1:]), self.terms[0](x))


class Tempered(AbstractEnergy):
    """E(x) = b E_0(x): p_0 raised to the power b."""

    inverse_temperature: Scalar
    energy: AbstractEnergy
    space: AbstractSpace = eqx.field(static=True)

    def __init__(self, inverse_temperature: Scalar, energy: AbstractEnergy):
        self.inverse_temperature = inverse_temperature
        self.energy = energy
        self.space = energy.space

    def __call__(self, x: Point) -> Scalar:
        return self.inverse_temperature * self.energy(x)


class Shifted(AbstractEnergy):
    """E(x) = E_0(x) + c with a learnt constant c: the density is the same, but exp(-E) can learn to be normalised.

    Noise-contrastive estimation learns c = log Z_0. Neural energies have such a constant already, their last bias.

    >>> import jax.numpy as jnp, unnorm as un
    >>> float(
    ...     Shifted(un.energies.FunctionEnergy(lambda x: 0.5 * jnp.sum(x**2), un.spaces.Real((1,))), 2.0)(jnp.zeros(1))
    ... )
    2.0
    """

    energy: AbstractEnergy
    constant: Scalar
    space: AbstractSpace = eqx.field(static=True)

    def __init__(self, energy: AbstractEnergy, constant: float | Scalar = 0.0):
        self.energy = energy
        self.constant = jnp.asarray(constant, dtype=float)
        self.space = energy.space

    def __call__(self, x: Point) -> Scalar:
        return self.energy(x) + self.constant


class Fixing(AbstractEnergy, AbstractPartlyFixed):
    """E(free) = E_0(free and fixed together): the conditional density of the free coordinates.

    Coordinates are numbered along the flattened point. Training leaves the values alone.

    >>> import unnorm as un
    >>> un.energies.standard_gaussian(3).fixing({0: 1.0}).space
    Real(shape=(2,))
    """

    energy: AbstractEnergy
    values: Shaped[Array, " fixed"]
    fixed: tuple[int, ...] = eqx.field(static=True)
    free: tuple[int, ...] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, energy: AbstractEnergy, values: Values):
        space = energy.space
        if not isinstance(space, AbstractArray):
            raise InputError(
                f"fixing() holds single coordinates, and those of {space} are not free of each other; it takes an "
                "energy on a Real, Binary or Categorical space"
            )
        size = space.size
        bad = [i for i in values if not (isinstance(i, int | np.integer) and 0 <= i < size)]
        require(not bad, f"coordinate {bad[:1]} does not exist; a point has coordinates 0 to {size - 1}")
        require(len(values) < size, "every coordinate is fixed, so nothing is left to model")
        self.energy = energy
        self.fixed = tuple(int(i) for i in values)
        self.values = _fixed_values(space, values)
        self.free = tuple(i for i in range(size) if i not in values)
        self.shape = space.shape
        self.space = space.of_shape((len(self.free),))

    def fixed_parts(self) -> tuple[Any, ...]:
        return (self.values,)

    def whole(self, x: Point) -> Point:
        """The full point: x in the free coordinates, the fixed values in the others."""
        size = len(self.fixed) + len(self.free)
        flat = jnp.zeros(size, x.dtype).at[np.array(self.free)].set(x)
        if self.fixed:
            flat = flat.at[np.array(self.fixed)].set(self.values.astype(x.dtype))
        return flat.reshape(self.shape)

    def __call__(self, x: Point) -> Scalar:
        return self.energy(self.whole(x))


def _fixed_values(space: AbstractArray, values: Values) -> Shaped[Array, " fixed"]:
    """The values in the type of the space's coordinates, refused unless they are such (a traced value passes)."""
    kind = space.struct().dtype
    if not values:
        return jnp.zeros(0, kind)
    one = space.of_shape(())
    for i, value in values.items():
        if space.continuous or isinstance(value, Tracer):
            continue
        try:
            with jax.ensure_compile_time_eval():
                one.cast(jnp.asarray(value)[None], "fixed")
        except InputError:
            raise InputError(
                f"coordinate {i} of a point of {space} cannot be {value}; fix it at a value that such points have"
            ) from None
    return jnp.stack([jnp.asarray(value, dtype=kind) for value in values.values()])


class FunctionEnergy(AbstractEnergy):
    """Any callable of one point as an energy; arrays inside it (if it is a pytree) are its parameters.

    >>> import jax.numpy as jnp, unnorm as un
    >>> float(FunctionEnergy(lambda x: jnp.sum(x**4), un.spaces.Real((2,)))(jnp.ones(2)))
    2.0
    """

    function: Callable[[Point], Scalar]
    space: AbstractSpace = eqx.field(static=True)

    def __init__(self, function: Callable[[Point], Scalar], space: AbstractSpace):
        if not (callable(function) and isinstance(space, AbstractSpace)):
            raise InputError(
                "an energy is made of a function of one point and the space of its points, as in "
                f"FunctionEnergy(function, Real((2,))), not of {shown(function)} and {shown(space)}"
            )
        self.function = function
        self.space = space

    def __call__(self, x: Point) -> Scalar:
        value = self.function(x)
        if jnp.shape(value) != ():
            raise InputError(f"an energy returns one number per point, but this one returned shape {jnp.shape(value)}")
        return value
