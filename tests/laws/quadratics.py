"""Energies whose log Z is known: a quadratic, and a normalised one less a constant."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import unnorm as un
from unnorm.spaces import Real


def quadratic(precision, x):
    return 0.5 * x @ precision @ x


def quadratic_energy(precision) -> un.energies.FunctionEnergy:
    """x' A x / 2, with log Z = log det(2 pi A^-1) / 2."""
    precision = jnp.asarray(precision, float)
    return un.energies.FunctionEnergy(eqx.Partial(quadratic, precision), Real((len(precision),)))


def quadratic_truth(precision) -> float:
    precision = np.asarray(precision, np.float64)
    return 0.5 * (len(precision) * math.log(2 * math.pi) - np.linalg.slogdet(precision)[1])


def lifted(energy, constant, x):
    return energy(x) - constant


def lifted_energy(energy, constant: float) -> un.energies.FunctionEnergy:
    """A normalised energy less a constant, which is then its log Z."""
    return un.energies.FunctionEnergy(eqx.Partial(lifted, energy, jnp.asarray(constant)), energy.space)
