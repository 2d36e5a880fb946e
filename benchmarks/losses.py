"""Every objective in eager PyTorch, for a batch, as its users write it: one pass over all points, no redundant graph.

A loss is made from its model and the training rows (chains and anchors live inside it) and maps a batch to a number.
For the exact trace five ways were timed (loop, tiled batch, batched backward, `hessian`, `jvp`); the fastest is here.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.setting import DRAWS, FLOOR, MOVES, REPLAY, RESTART, STEP_SIZE, WIDE, geyer
from benchmarks.training import BATCH, NOISE

Loss = Callable[[Tensor], Tensor]


def _score(energy: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Points that remember where they go, and the score there, differentiable."""
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(energy(x).sum(), x, create_graph=True)
    return x, -gradient


def _rademacher(x: Tensor) -> Tensor:
    return torch.empty_like(x).bernoulli_(0.5).mul_(2).sub_(1)


def _squares(x: Tensor) -> Tensor:
    return x.square().sum(1)


def _walk(energy: Any, x: Tensor, moves: int) -> Tensor:
    """Unadjusted Langevin."""
    for _ in range(moves):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(energy(x).sum(), x)
        x = x.detach() - STEP_SIZE * gradient + (2 * STEP_SIZE) ** 0.5 * torch.randn_like(gradient)
    return x


def _contrast(energy: Any, x: Tensor, chains: Tensor) -> Tensor:
    of_data, of_chains = energy(torch.cat([x, chains])).split([len(x), len(chains)])
    return of_data.mean() - of_chains.mean()


def cd(energy: Any, rows: Tensor) -> Loss:
    """Contrastive divergence."""
    return lambda x: _contrast(energy, x, _walk(energy, x, MOVES))


def short_run(energy: Any, rows: Tensor) -> Loss:
    """Chains from noise."""
    return lambda x: _contrast(energy, x, _walk(energy, torch.randn_like(x), MOVES))


def _persistent(energy: Any, kept: Tensor) -> Loss:
    def loss(x: Tensor) -> Tensor:
        whole = len(kept) == len(x)
        rows = slice(None) if whole else torch.randint(len(kept), (len(x),))
        fresh = torch.rand(len(x), 1) < RESTART
        chains = _walk(energy, torch.where(fresh, torch.randn_like(x), kept[rows]), MOVES)
        kept[rows] = chains
        return _contrast(energy, x, chains)

    return loss


def pcd(energy: Any, rows: Tensor) -> Loss:
    """As many persistent chains as the batch has rows."""
    return _persistent(energy, rows[torch.randint(len(rows), (BATCH,))])


def replay(energy: Any, rows: Tensor) -> Loss:
    """A buffer of chains, some of which move."""
    return _persistent(energy, rows[torch.randint(len(rows), (REPLAY,))])


def geyer_mcmc(energy: Any, rows: Tensor) -> Loss:
    """Draws of an anchor, reweighted."""
    anchor = copy.deepcopy(energy)
    draws = _walk(anchor, rows[torch.randint(len(rows), (geyer.chains,))], geyer.burn_in)
    age = 0

    def loss(x: Tensor) -> Tensor:
        nonlocal draws, age
        with torch.no_grad():
            weights = (anchor(draws) - energy(draws)).softmax(0)
            share = 1 / (len(draws) * weights.square().sum())
        if age >= geyer.every or not share >= geyer.least:
            anchor.load_state_dict(energy.state_dict())
            draws, age = _walk(anchor, draws, geyer.moves), 0
        age += 1
        points = torch.cat([x, draws])
        with torch.no_grad():
            before = anchor(points)
        of_data, of_draws = (energy(points) - before).split([len(x), len(draws)])
        return of_data.mean() + (-of_draws).logsumexp(0) - math.log(len(draws))

    return loss


def nce(energy: Any, rows: Tensor) -> Loss:
    """Against N(0, I)."""

    def loss(x: Tensor) -> Tensor:
        points = torch.cat([x, torch.randn_like(x)])
        log_q = -0.5 * _squares(points) - 0.5 * x.shape[1] * math.log(2 * math.pi)
        of_data, of_noise = (-energy(points) - log_q).chunk(2)
        return functional.softplus(-of_data).mean() + functional.softplus(of_noise).mean()

    return loss


def cnce(draws: int) -> Callable[[Any, Tensor], Loss]:
    """Local noise, whose two directions have the same density."""

    def make(energy: Any, rows: Tensor) -> Loss:
        def loss(x: Tensor) -> Tensor:
            many = x.repeat(draws, 1)
            energies = energy(torch.cat([x, many + NOISE * torch.randn_like(many)]))
            of_data, of_noise = energies.split([len(x), len(many)])
            return 2 * functional.softplus(of_data.repeat(draws) - of_noise).mean()

        return loss

    return make


def ed(energy: Any, rows: Tensor) -> Loss:
    """Energy discrepancy, stabiliser 1."""

    def loss(x: Tensor) -> Tensor:
        y = x + WIDE * torch.randn_like(x)
        others = y[:, None] + WIDE * torch.randn(len(x), DRAWS, x.shape[1])
        energies = energy(torch.cat([x, others.flatten(0, 1)]))
        gaps = energies[: len(x), None] - energies[len(x) :].view(len(x), DRAWS)
        # A column of zeros is the stabiliser, exp(0) = 1.
        return functional.pad(gaps, (0, 1)).logsumexp(1).mean() - math.log(DRAWS)

    return loss


def dsm(energy: Any, rows: Tensor) -> Loss:
    """Denoising."""

    def loss(x: Tensor) -> Tensor:
        z = torch.randn_like(x)
        _, s = _score(energy, x + NOISE * z)
        return (z + NOISE * s).square().mean()

    return loss


def dsm_vr(energy: Any, rows: Tensor) -> Loss:
    """Denoising with its control variate: both scores in one pass."""

    def loss(x: Tensor) -> Tensor:
        z = torch.randn_like(x)
        after, before = _score(energy, torch.cat([x + NOISE * z, x]))[1].chunk(2)
        return (0.5 * after.square() + (after - before) * z / NOISE).sum(1).mean()

    return loss


def _divergence(x: Tensor, field: Tensor) -> Tensor:
    """All coordinates in one batched backward pass; a loop over them and `torch.func.hessian` are slower."""
    basis = torch.eye(x.shape[1])[:, None].expand(-1, *x.shape)
    (columns,) = torch.autograd.grad(field, x, basis, create_graph=True, is_grads_batched=True)
    return columns.diagonal(dim1=0, dim2=2).sum(1)


def sm(energy: Any, rows: Tensor) -> Loss:
    """Score matching, exact trace."""

    def loss(x: Tensor) -> Tensor:
        x, s = _score(energy, x)
        return (0.5 * _squares(s) + _divergence(x, s)).mean()

    return loss


def diffusion_sm(energy: Any, rows: Tensor) -> Loss:
    """Score matching with Sigma = 1 / (1 + x^2), diagonal."""

    def loss(x: Tensor) -> Tensor:
        x, s = _score(energy, x)
        spread = 1 / (1 + x.square())
        return (0.5 * (spread * s.square()).sum(1) + _divergence(x, spread * s)).mean()

    return loss


def _sliced(energy: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, s = _score(energy, x)
    v = _rademacher(s)
    along = (s * v).sum(1)
    (product,) = torch.autograd.grad(along.sum(), x, create_graph=True)
    return s, along, (product * v).sum(1)


def ssm(energy: Any, rows: Tensor) -> Loss:
    """Sliced."""

    def loss(x: Tensor) -> Tensor:
        _, along, trace = _sliced(energy, x)
        return (trace + 0.5 * along.square()).mean()

    return loss


def ssm_vr(energy: Any, rows: Tensor) -> Loss:
    """Sliced, the square exact."""

    def loss(x: Tensor) -> Tensor:
        s, _, trace = _sliced(energy, x)
        return (trace + 0.5 * _squares(s)).mean()

    return loss


def fd_ssm(energy: Any, rows: Tensor) -> Loss:
    """Sliced, by differences."""

    def loss(x: Tensor) -> Tensor:
        v = NOISE * _rademacher(x)
        here, ahead, behind = (-energy(torch.cat([x, x + v, x - v]))).chunk(3)
        curvature = ((ahead - here) + (behind - here)).mean() / NOISE**2
        return curvature + (ahead - behind).square().mean() / (8 * NOISE**2)

    return loss


def _hidden(energy: Any, x: Tensor) -> tuple[list[tuple[Tensor, Tensor, Tensor]], Tensor]:
    """W, f' and f'' of SiLU in each hidden layer from the last to the first, and the weights of the output."""
    *hidden, last = [layer for layer in energy.network if isinstance(layer, torch.nn.Linear)]
    found = []
    for layer in hidden:
        u = layer(x)
        r = u.sigmoid()
        x, rest = u * r, 1 - r
        found.append((layer.weight, r * (1 + u * rest), r * rest * (2 + u * (1 - 2 * r))))
    return found[::-1], last.weight


def _with_confinement(energy: Any, x: Tensor, gradient: Tensor, curvature: Tensor) -> Tensor:
    a = energy.log_confinement.exp()
    return 0.5 * _squares(a * x + gradient).mean() - a * x.shape[1] - curvature.sum(1).mean()


def approx_bp(energy: Any, rows: Tensor) -> Loss:
    """The diagonal of the curvature backpropagated."""

    def loss(x: Tensor) -> Tensor:
        layers, g = _hidden(energy, x)
        h = torch.zeros_like(g)
        for weight, slope, bend in layers:
            h = (g * bend + h * slope.square()) @ weight.square()
            g = (g * slope) @ weight
        return _with_confinement(energy, x, g, h)

    return loss


def cp(energy: Any, rows: Tensor) -> Loss:
    """A random vector of that curvature, real and imaginary."""

    def loss(x: Tensor) -> Tensor:
        layers, g = _hidden(energy, x)
        real = imaginary = torch.zeros_like(g)
        for weight, slope, bend in layers:
            m = g * bend
            v = _rademacher(m)
            real = slope * real + (m.clamp(min=0) + FLOOR).sqrt() * v
            imaginary = slope * imaginary + ((-m).clamp(min=0) + FLOOR).sqrt() * v
            g, real, imaginary = (torch.cat([g * slope, real, imaginary]) @ weight).chunk(3)
        return _with_confinement(energy, x, g, real.square() - imaginary.square())

    return loss


def denoising_kl(network: Any, rows: Tensor) -> Loss:
    """The mean and spread of the clean point."""

    def loss(x: Tensor) -> Tensor:
        mean, log_std = network(x + NOISE * torch.randn_like(x)).chunk(2, 1)
        return (0.5 * ((x - mean) * (-log_std).exp()).square() + log_std).mean() + 0.5 * math.log(2 * math.pi)

    return loss


def d2sm(model: Any, rows: Tensor) -> Loss:
    """First and second order together, s2 = diag(alpha) + beta beta', on the same noise."""

    def loss(x: Tensor) -> Tensor:
        z, d, weight = torch.randn_like(x), x.shape[1], NOISE**-2
        y, s = _score(model.energy, x + NOISE * z)
        alpha, beta = model.alpha(y) + weight, model.beta(y).view(len(y), d, -1)
        u = torch.cat([beta, s[:, :, None], z[:, :, None]], 2)
        signs = torch.ones(u.shape[2])
        signs[-1] = -weight
        gram = u.transpose(1, 2) @ u * signs
        cross = (alpha * (u.square() @ signs)).sum(1)
        second = _squares(alpha) + 2 * cross + (gram * gram.transpose(1, 2)).sum((1, 2))
        first = 0.5 * weight * _squares(z + NOISE * s)
        return (second + 40 * weight * first).mean()

    return loss


def diagonal_d2sm_vr(model: Any, rows: Tensor) -> Loss:
    """First and second order together, diagonal, of reduced variance, on the same noise."""

    def loss(x: Tensor) -> Tensor:
        z, weight = torch.randn_like(x), NOISE**-2
        y, s = _score(model.energy, torch.cat([x + NOISE * z, x - NOISE * z, x]))
        plus, minus, here = (model.alpha(y) + s.square()).chunk(3)
        curvature = ((1 - z.square()) * (plus + minus - 2 * here)).sum(1)
        second = _squares(plus) + _squares(minus) + 2 * weight * curvature
        after, _, before = s.chunk(3)
        first = (NOISE * after).square() + 2 * NOISE * (after - before) * z
        return (second + 8 * weight * 0.5 * weight * first.sum(1)).mean()

    return loss
