"""A training step of every objective against the same loss in eager PyTorch and, where they have it, torchebm, ebmkit.

Network, batch, data and optimiser are those of `benchmarks.training` (a perceptron, or factors beside the network,
where the loss needs them: see `benchmarks.setting`); PyTorch's Adam is the fused one. Before anything is timed each
peer gets our weights and must compute our loss, and our derivative of it along the weights, on the same batch: exactly,
or on average over draws of the noise, within five standard errors.

The bar is 1, and 1.4 for losses that differentiate a derivative of the network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import unnorm as un
from benchmarks import setting
from benchmarks.harness import Bar, Report, Side, compare, say, skipped, torch_is_missing
from benchmarks.setting import DRAWS, FLOOR, MOVES, REPLAY, RESTART, STEP_SIZE, WIDE, geyer
from benchmarks.training import BATCH, BLOCKS, DIMENSION, NOISE, RATE, ROWS, WIDTH, data, ours

DOUBLE = 1.4
#: Draws over which a loss with noise is compared, and one without; how many standard errors apart is too far.
CHECKS, EXACT, TOO_FAR = 24, 2, 5.0
#: What counts as a difference where the standard errors say 0, relative to the sizes of both.
ROUNDING = 1e-4


@dataclass(frozen=True)
class Case:
    """One objective; `name` is that of the PyTorch loss, `model` makes ours."""

    name: str
    title: str
    objective: un.objectives.AbstractObjective
    bar: float = 1.0
    model: Callable[[], Any] = setting.resnet
    #: Steps in one timed call, ours and theirs (which have no cost per call, so that fewer tell as much).
    steps: tuple[int, int] = (50, 10)
    #: Draws of the noise over which the sides are compared.
    checks: int = CHECKS


def _cases() -> tuple[Case, ...]:
    local, walk, o = un.noises.Gaussian(NOISE), un.samplers.Langevin(STEP_SIZE), un.objectives
    persistent = {"chains": BATCH, "moves": MOVES, "restart": RESTART, "restart_scale": 1.0}
    anchored = o.Geyer(walk, geyer.chains, geyer.moves, geyer.every, geyer.least, geyer.burn_in)
    # Divided evenly over a whole number of anchors.
    whole, few, fewest = (2 * geyer.every, geyer.every), (20, 5), (10, 3)
    return (
        Case("cd", f"CD-{MOVES}", o.CD(walk, MOVES), steps=few),
        Case("pcd", f"persistent CD-{MOVES}", o.PCD(walk, **persistent), steps=few),
        Case("replay", f"persistent CD-{MOVES}, {REPLAY} chains kept", o.PCD(walk, buffer=REPLAY, **persistent),
             steps=few),
        Case("short-run", f"short runs of {MOVES}", o.ShortRun(walk, MOVES, BATCH), steps=few),
        Case("geyer", "MCMC maximum likelihood", anchored, steps=whole),
        Case("nce", "NCE", o.NCE(un.noises.UnitGaussian())),
        Case("cnce", "CNCE, 1 draw", o.CNCE(local)),
        Case("cnce-4", "CNCE, 4 draws", o.CNCE(local, draws=4)),
        Case("ed", f"energy discrepancy, {DRAWS} draws", o.EnergyDiscrepancy(un.noises.Gaussian(WIDE), DRAWS),
             steps=few),
        Case("sm", f"exact score matching, {DIMENSION} dimensions", o.SM(), DOUBLE, steps=fewest, checks=EXACT),
        Case("ssm", "SSM", o.SSM(), DOUBLE),
        Case("ssm-vr", "SSM-VR", o.SSMVR(), DOUBLE),
        Case("fd-ssm", "FD-SSM", o.FDSSM(NOISE)),
        Case("dsm", "DSM", o.DSM(local), DOUBLE),
        Case("dsm-vr", "DSM-VR", o.DSMVR(local), DOUBLE),
        Case("diffusion-sm", "diffusion score matching", o.DiffusionSM(_diffusion), DOUBLE, steps=fewest,
             checks=EXACT),
        Case("cp", "curvature propagation", o.CurvaturePropagation(FLOOR), DOUBLE, setting.perceptron),
        Case("approx-bp", "approximate backpropagation", o.ApproximateBP(), 1.0, setting.perceptron,
             checks=EXACT),
        Case("denoising-kl", "denoising KL", o.DenoisingKL(local), 1.0, setting.denoiser),
        Case("d2sm", "second order, low rank", o.JointSecondOrder(o.D2SM(local)), DOUBLE, setting.low_rank),
        Case("diagonal-d2sm-vr", "second order VR, diagonal", o.JointSecondOrder(o.DiagonalD2SMVR(local)), DOUBLE,
             setting.diagonal),
    )  # fmt: skip


def _diffusion(x: jax.Array) -> jax.Array:
    return (1 + x**2) ** -0.5


def _twin(given: Any) -> Any:
    """The same model in PyTorch, with our weights."""
    from torch import nn

    from benchmarks import peers

    def perceptron(ours: Any) -> nn.Module:
        shapes = [layer.weight.shape for layer in ours.layers]
        layers = [part for o, i in shapes for part in (nn.Linear(i, o), nn.SiLU())][:-1]
        return peers.take_arrays(nn.Sequential(*layers), ours)

    if isinstance(given, un.energies.NeuralEnergy):
        residual = isinstance(given.network, un.networks.ResNet)
        blank = peers.resnet(DIMENSION, WIDTH, BLOCKS) if residual else peers.mlp(DIMENSION, WIDTH, setting.DEPTH)
        return peers.take_weights(blank, given)
    if isinstance(given, un.scores.GaussianDenoiser):
        return perceptron(given.network)
    beta = perceptron(given.beta) if isinstance(given, un.scores.LowRankSecondOrder) else None
    first: Any = given.score
    return peers.SecondOrder(_twin(first.energy), perceptron(given.alpha), beta)


def _lively(model: Any) -> Any:
    """With weights so large that the network matters: untrained, most losses hardly see it."""
    return jax.tree.map(lambda leaf: 2 * leaf + 0.01 if eqx.is_inexact_array(leaf) else leaf, model)


def _our_draws(case: Case) -> np.ndarray:
    """Loss and derivative along the weights on the first batch, one row per draw of the noise."""
    rows, model = jnp.asarray(data()), _lively(case.model())
    weights, skeleton = eqx.partition(model, eqx.is_inexact_array)

    def loss_of(weights, rows, key):
        begin, go = jax.random.split(key)
        state = case.objective.init(model, rows, key=begin)
        return case.objective(eqx.combine(weights, skeleton), state, rows[:BATCH], key=go)[0]

    @jax.jit
    def one(weights, rows, key):
        loss, gradient = jax.value_and_grad(loss_of)(weights, rows, key)
        along = jax.tree.map(lambda w, g: jnp.vdot(w, g), weights, gradient)
        return jnp.stack([loss, sum(jax.tree.leaves(along))])

    return np.stack([one(weights, rows, key) for key in jax.random.split(jax.random.key(0), case.checks)])


def _their_draws(make: Any, model: Any, count: int) -> np.ndarray:
    import torch

    rows = torch.from_numpy(data())
    torch.manual_seed(0)
    seen = []
    for _ in range(count):
        loss, _ = make(model, rows)
        model.zero_grad()
        value = loss(rows[:BATCH])
        value.backward()
        along = sum(float((p.detach() * p.grad).sum()) for p in model.parameters() if p.grad is not None)
        seen.append((float(value.detach()), along))
    model.zero_grad()
    return np.array(seen)


def _agree(label: str, ours: np.ndarray, theirs: np.ndarray) -> Report:
    """How far apart the two sides' means are, in standard errors; too far is an error."""
    means, errors = zip(*[(x.mean(0), x.std(0, ddof=1) / len(x) ** 0.5) for x in (ours, theirs)], strict=True)
    slack = TOO_FAR * np.hypot(*errors) + ROUNDING * np.maximum(*np.abs(means))
    apart = np.abs(means[0] - means[1])
    if not np.all(apart <= slack):
        raise AssertionError(f"{label} computes {means[1]}, not {means[0]} (loss, derivative); {slack} was allowed")
    names = ("loss", "derivative")
    return {
        name: {"ours": float(means[0][i]), "theirs": float(means[1][i]), "standard_error": float(np.hypot(*errors)[i])}
        for i, name in enumerate(names)
    }


def _training(label: str, make: Any, model: Any, steps: int) -> tuple[Side, ...]:
    """Steps of Adam on batches of reshuffled rows."""
    import torch

    from benchmarks.peers import per_thread_count

    rows = torch.from_numpy(data())
    loss, own = make(model, rows)
    optimiser = torch.optim.Adam([*model.parameters(), *own], lr=RATE, fused=True)

    def batches():
        while True:
            order = torch.randperm(ROWS)
            for place in range(ROWS // BATCH):
                yield rows[order[place * BATCH : (place + 1) * BATCH]]

    stream = batches()

    def call() -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            loss(next(stream)).backward()
            optimiser.step()

    return per_thread_count(call, steps, label)


def _eager() -> dict[str, Any]:
    from benchmarks import losses

    plain = {
        "cd": losses.cd, "pcd": losses.pcd, "replay": losses.replay, "short-run": losses.short_run,
        "geyer": losses.geyer_mcmc, "nce": losses.nce, "cnce": losses.cnce(1), "cnce-4": losses.cnce(4),
        "ed": losses.ed, "sm": losses.sm, "ssm": losses.ssm, "ssm-vr": losses.ssm_vr, "fd-ssm": losses.fd_ssm,
        "dsm": losses.dsm, "dsm-vr": losses.dsm_vr, "diffusion-sm": losses.diffusion_sm, "cp": losses.cp,
        "approx-bp": losses.approx_bp, "denoising-kl": losses.denoising_kl, "d2sm": losses.d2sm,
        "diagonal-d2sm-vr": losses.diagonal_d2sm_vr,
    }  # fmt: skip
    return {name: lambda model, rows, loss=loss: (loss(model, rows), []) for name, loss in plain.items()}


def _one(case: Case, makers: dict[str, Any], repeats: int) -> Report:
    expected = _our_draws(case)
    sides, checks = [], {}
    for label, make in makers.items():
        found = _their_draws(make, _twin(_lively(case.model())), case.checks)
        checks[label] = _agree(f"{case.title}: {label}", expected, found)
        sides.extend(_training(label, make, _twin(case.model()), case.steps[1]))
    mine = ours("unnorm", case.objective, case.steps[0], case.model())
    report = compare(f"{case.title}, a step", mine, *sides, repeats=repeats, bar=Bar(case.bar))
    return report | {"checked": checks}


def run(*, repeats: int, only: tuple[str, ...] = ()) -> list[Report]:
    """All of them, or the named ones."""
    without = torch_is_missing()
    if without:
        return [skipped("objectives", without)]
    from benchmarks.rivals import PACKAGES, missing, rivals

    left_out = [skipped(f"objectives of {package}", why) for package in PACKAGES if (why := missing(package))]
    eager, others = _eager(), rivals()
    results = []
    for case in _cases():
        if only and case.name not in only:
            continue
        makers = {"PyTorch": eager[case.name]}
        makers |= {package: table[case.name] for package, table in others.items() if case.name in table}
        results.append(_one(case, makers, repeats))
    say(f"{len(results)} objectives")
    return [*left_out, *results]
