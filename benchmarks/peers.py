"""The peer: the same networks in eager PyTorch, written as its users write them."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import unnorm as un
from benchmarks.harness import Side


class Block(nn.Module):
    """h + V silu(W silu(h))."""

    def __init__(self, width: int):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return h + self.second(functional.silu(self.first(functional.silu(h))))


class Energy(nn.Module):
    """exp(a) |x|^2 / 2 + network(x), for a batch."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.log_confinement = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * self.log_confinement.exp() * x.square().sum(1) + self.network(x)[:, 0]


class SecondOrder(nn.Module):
    """s1 of an energy, and networks for s2."""

    def __init__(self, energy: Energy, alpha: nn.Module, beta: nn.Module | None):
        super().__init__()
        self.energy = energy
        self.alpha = alpha
        self.beta = beta


def resnet(dimension: int, width: int, blocks: int) -> Energy:
    """The twin of `energies.ResNetEnergy`."""
    body = [Block(width) for _ in range(blocks)]
    return Energy(nn.Sequential(nn.Linear(dimension, width), *body, nn.SiLU(), nn.Linear(width, 1)))


def mlp(dimension: int, width: int, depth: int) -> Energy:
    """The twin of `energies.MLPEnergy`."""
    sizes = [dimension, *[width] * depth]
    hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.SiLU())]
    return Energy(nn.Sequential(*hidden, nn.Linear(width, 1)))


def _same(peer: nn.Module, ours: Callable[[Any], Any], width: int) -> None:
    """See that both compute the same."""
    points = np.random.default_rng(0).normal(size=(8, width)).astype(np.float32)
    with torch.no_grad():
        found = peer(torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(found, np.asarray(jax.vmap(ours)(points)), rtol=1e-4, atol=1e-3)


def take_arrays(peer: nn.Module, ours: Any) -> nn.Module:
    """Give a network the weights of ours, and see that it then computes the same."""
    arrays = [np.array(a) for a in jax.tree.leaves(eqx.filter(ours, eqx.is_array))]
    with torch.no_grad():
        for parameter, array in zip(peer.parameters(), arrays, strict=True):
            parameter.copy_(torch.from_numpy(array))
    _same(peer, ours, arrays[0].shape[1])
    return peer


def take_weights(peer: Energy, ours: un.energies.NeuralEnergy) -> Energy:
    """Give the peer our weights, and see that it then computes our energies."""
    network: Any = take_arrays(peer.network, ours.network)
    with torch.no_grad():
        peer.log_confinement.fill_(float(ours.log_confinement))
    _same(peer, ours, network[0].in_features)
    return peer


def per_thread_count(call: Callable[[], Any], steps: int, label: str = "PyTorch") -> tuple[Side, ...]:
    """The peer with PyTorch's own choice of threads, and with one.

    On a busy machine its threads wait for each other in busy loops and one alone is faster by far; on a quiet one it is
    the other way round. The fair rival is the better of the two.
    """
    default = torch.get_num_threads()

    def with_threads(threads: int) -> Callable[[], Any]:
        def run() -> Any:
            torch.set_num_threads(threads)
            result = call()
            torch.set_num_threads(default)
            return result

        return run

    return tuple(
        Side(f"{label}, {threads} thread{'s' * (threads > 1)}", with_threads(threads), steps)
        for threads in dict.fromkeys((default, 1))
    )
