"""Objectives, each once; those of the catalogue on every space that they work on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from shape_parts import (
    BITS_CONTEXT,
    COINS,
    CONTEXT,
    CONTEXTS,
    DATA,
    FREE,
    GAUSSIAN,
    KEY,
    LABELLED,
    LABELLED_CONTEXT,
    NAMES,
    ROWS,
    Piece,
    built_model,
    classifier,
    deep,
    denoiser,
    dkef,
    held,
    low_rank,
    mixture,
    mlp,
    traced,
)

from unnorm import catalogue, energies, networks, noises, objectives, scores
from unnorm.objectives.implicit import spectral
from unnorm.spaces import Real


def walk_objective(objective: objectives.AbstractObjective, model: Any, rows: Any = DATA) -> None:
    rows = jax.tree.map(jnp.asarray, rows)
    batch = jax.tree.map(lambda leaf: leaf[:6], rows)
    state = held(objective).init(held(model), rows, key=KEY)
    loss, (after, _) = traced(lambda m, s, b, k: objective(m, s, b, key=k), model, state, batch, KEY)
    assert loss.shape == ()
    assert jax.tree.structure(after) == jax.tree.structure(state)


#: Options that make an objective small.
FEW = {
    "pcd": {"chains": 4, "moves": 1},
    "cd": {"moves": 1},
    "short-run": {"chains": 4, "moves": 1},
    "geyer": {"chains": 4, "moves": 1},
    "cnce-adapted": {"moves": 1},
}


def of_catalogue(entry: catalogue.Entry[Any]) -> None:
    """The objective of this entry on every space that it works on, teaching a model that suits it."""
    kinds = [kind for kind in catalogue.MODELS if entry.suits(kind)]
    contexts = (*CONTEXTS, LABELLED_CONTEXT) if entry.conditional else CONTEXTS
    for context, rows in zip(contexts, (DATA, COINS, NAMES, LABELLED), strict=False):
        if not entry.works(context.space):
            continue
        kind = next((k for k in kinds if k.name == "mlp"), kinds[0])
        options = catalogue.read_options(entry, FEW.get(entry.name, {}))
        objective = entry.build(options, replace(context, makes=kind.makes))
        walk_objective(objective, built_model(kind.name, context), rows)


def losses() -> Iterator[Piece]:
    for entry in catalogue.OBJECTIVES:
        yield f"objectives/{entry.name}", lambda entry=entry: of_catalogue(entry)

    def sliced() -> None:
        for slices in (objectives.GaussianSlices(), objectives.SphereSlices(), objectives.SphereSlices(2)):
            walk_objective(objectives.SSM(slices, 2), FREE)
            slices.fourth(2)
        walk_objective(objectives.SSMVR(), scores.FreeScore(mlp(2, 2)))
        walk_objective(objectives.SM(), scores.FreeScore(mlp(2, 2)))

    def discrepancies() -> None:
        walk_objective(objectives.EnergyDiscrepancy(noises.OrnsteinUhlenbeck(0.5), draws=2), FREE)
        kernel = objectives.Perturbation(lambda x, key: x, lambda y, key: y)
        walk_objective(objectives.EnergyDiscrepancy(kernel, draws=2), FREE)

    def references() -> None:
        for noise in ("unit", "span", "kde", "mixture"):
            entry = catalogue.find(catalogue.OBJECTIVES, "nce", "objective")
            walk_objective(entry.build(catalogue.read_options(entry, {"noise": noise, "components": 2}), CONTEXT), FREE)
        walk_objective(objectives.NCE(noises.Known(GAUSSIAN)), FREE)

    noise = noises.Gaussian(0.5)
    yield "objectives/slices", sliced
    yield "objectives/perturbations", discrepancies
    yield "objectives/references", references
    yield "objectives/MLE", lambda: walk_objective(objectives.MLE(), mixture())
    yield "objectives/DiffusionSM", lambda: walk_objective(objectives.DiffusionSM(lambda x: 1 + x**2), FREE)
    yield "objectives/DenoisingKL", lambda: walk_objective(objectives.DenoisingKL(noise), denoiser())
    for kind in (objectives.D2SM, objectives.D2SMVR, objectives.DiagonalD2SM, objectives.DiagonalD2SMVR):
        yield f"objectives/{kind.__name__}", lambda kind=kind: walk_objective(kind(noise), low_rank())
    yield (
        "objectives/JointSecondOrder",
        lambda: [walk_objective(objectives.JointSecondOrder(objectives.D2SM(noise), g), low_rank()) for g in (None, 1)],
    )

    def kernels() -> None:
        for loss in (
            objectives.SM(),
            objectives.SSM(),
            objectives.SSMVR(),
            objectives.DSM(noise),
            objectives.ApproximateBP(),
            objectives.CurvaturePropagation(),
        ):
            walk_objective(objectives.KernelFamily(loss), dkef())
            walk_objective(objectives.FittedKernelFamily(loss, ROWS[:30]), dkef())
        objectives.finalise(dkef(), objectives.SSM(), ROWS[:30], ROWS[30:], key=KEY)

    yield "objectives/KernelFamily", kernels
    gaussian = networks.gaussian_autoencoder(2, 2, width=4, key=KEY)
    implicit = networks.implicit_autoencoder(2, 2, width=4, key=KEY)
    wasserstein = networks.wasserstein_autoencoder(2, 2, width=4, key=KEY)
    plain = [networks.Autoencoder(m.encoder, m.decoder) for m in (implicit, wasserstein)]
    yield "objectives/ELBO", lambda: walk_objective(objectives.ELBO(), gaussian)
    yield "objectives/ImplicitVAE", lambda: walk_objective(objectives.ImplicitVAE(2), implicit)
    yield "objectives/WAE", lambda: walk_objective(objectives.WAE(), wasserstein)
    yield "objectives/KernelVAE", lambda: walk_objective(objectives.KernelVAE(draws=3), plain[0])
    yield "objectives/KernelWAE", lambda: walk_objective(objectives.KernelWAE(spectral), plain[1])
    # Three coordinates: the halves of a coupling differ.
    flow, three = energies.NICE(Real((3,)), width=4, depth=1, key=KEY), jnp.ones((6, 3))
    for kind in (objectives.FlowApproximateBP, objectives.FlowCurvaturePropagation):
        yield f"objectives/{kind.__name__}", lambda kind=kind: walk_objective(kind(), flow, three)
    yield (
        "objectives/WeightedSum",
        lambda: walk_objective(0.5 * objectives.SM() + objectives.DSM(noise) + 2 * objectives.SSM(), FREE),
    )

    def machines() -> None:
        walk_objective(objectives.MeanFieldPCD(chains=4, moves=1, sweeps=1), deep(), COINS.reshape(-1, 4)[:, :3])
        for name, context, rows in (("rbm", BITS_CONTEXT, COINS), ("gaussian-rbm", CONTEXT, DATA)):
            entry = catalogue.find(catalogue.OBJECTIVES, "pcd", "objective")
            made = replace(context, makes=catalogue.find(catalogue.MODELS, name, "model").makes)
            objective = entry.build(catalogue.read_options(entry, FEW["pcd"]), made)
            walk_objective(objective, built_model(name, context), rows)

    def over_levels() -> None:
        score = built_model("diffusion")
        for weighting in (
            objectives.Even(), objectives.LikelihoodWeighting(), objectives.FlowWeighting(),
            objectives.AnswerWeighting(),
        ):  # fmt: skip
            walk_objective(objectives.DSM(weighting=held(weighting), times=noises.LikelihoodTimes()), score)
        walk_objective(objectives.Dropping(objectives.DSM()), score)
        walk_objective(objectives.NoisyLabels(), classifier(), LABELLED)
        for process in (noises.Equation(lambda t, x: -x, lambda t, x: x, 2), noises.VariancePreserving()):
            walk_objective(objectives.LevelledSSM(process), score)
        uneven = energies.dequantiser(2, 0.5, width=4, depth=1, key=KEY)
        walk_objective(objectives.VariationalDequantisation(score, 2), uneven)

    yield "objectives/machines", machines
    yield "objectives/levels", over_levels
    levels = noises.VarianceExploding(0.1, 10)
    levelled = scores.levelled_energy(levels, 2, width=4, depth=1, key=KEY)
    yield (
        "objectives/AtLevel",
        lambda: walk_objective(objectives.DSM(levels) + objectives.AtLevel(objectives.SM(), 0.0), levelled),
    )

    def two_rates() -> None:
        weights = eqx.filter(wasserstein, eqx.is_inexact_array)
        rule = objectives.two_rates()
        traced(lambda w: rule.update(w, rule.init(w), w), weights)

    yield "objectives/two_rates", two_rates
