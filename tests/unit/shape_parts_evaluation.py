"""Training, evaluation and tasks, each function once."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from shape_parts import (
    DATA,
    FREE,
    GAUSSIAN,
    KEY,
    PICTURES,
    ROWS,
    WIDE,
    Piece,
    built_model,
    deep,
    held,
    mixture,
    traced,
)

import unnorm as un
from unnorm import energies, evaluation, networks, noises, objectives, scores, tasks
from unnorm.evaluation import efficiency
from unnorm.evaluation import features as feature_nets


def training() -> Iterator[Piece]:
    def fit() -> None:
        model = built_model("mlp")
        un.fit(model, objectives.CNCE(noises.Jumps(0.1, 0.1)), ROWS, valid=ROWS, steps=2, key=KEY, progress=False)

    def repeats() -> None:
        data = jnp.stack([DATA, DATA])
        un.training.fit_repeats(GAUSSIAN, objectives.DSM(noises.Gaussian(0.5)), data, steps=2, key=KEY)

    def best_model() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            model, objective = energies.tilt(GAUSSIAN, width=4, depth=1, key=KEY), objectives.DSM(noises.Gaussian(0.5))
            options: dict[str, Any] = {"steps": 2, "optimiser": optax.adamw(1e-3), "checkpoint": path}
            un.fit(model, objective, ROWS, key=KEY, progress=False, **options)
            held(un.training.best_model(model, path))

    yield "training/fit", fit
    yield "training/best_model", best_model
    yield (
        "training/trainable",
        lambda: un.training.trainable(scores.levelled_energy(noises.Gaussian(1.0), 2, key=KEY)),
    )
    yield "training/fit_repeats", repeats

    def optimisers() -> None:
        weights = eqx.filter(networks.Conv(2, 3, key=KEY), eqx.is_inexact_array)
        for rule in (un.training.adam(), un.training.muon()):
            traced(lambda w, rule=rule: rule.update(w, rule.init(w), w), weights)

    yield "training/optimisers", optimisers
    yield "training/constant", lambda: traced(un.training.constant, jnp.zeros(()))


def judgements() -> Iterator[Piece]:
    x, y = np.random.default_rng(1).normal(size=(2, 24, 2))
    draws = np.random.default_rng(2).normal(size=(8, 2))
    decoder = networks.GaussianDecoder(lambda z: z)
    short: dict[str, Any] = {"levels": 4, "leapfrogs": 1}
    islands: dict[str, Any] = {"islands": 8, "particles": 16, "moves": 1, "leapfrogs": 1}

    def likelihood() -> None:
        log_z = un.log_partition(FREE, base=GAUSSIAN, draws=4000, key=KEY)
        un.log_likelihood(FREE, ROWS, log_z)
        un.log_likelihood(FREE, DATA, log_z)

    def efficiencies() -> None:
        # On the line: in the plane half of a Gaussian's packed factor plays no part, and no covariance would exist.
        line = energies.standard_gaussian(1)
        points = line.samples(640, key=KEY)
        efficiency.likelihood_covariance(line, points)
        efficiency.cnce_covariance(line, noises.Gaussian(0.5), points, inner=2, key=KEY)
        efficiency.nce_covariance(energies.Shifted(line), energies.standard_gaussian(1, 2), points)
        found = efficiency.score_matching_efficiency(line, points)
        found.sm(), found.ssm(objectives.GaussianSlices())

    def of_levels() -> None:
        score = scores.LevelledFunction(lambda t, x: -x, noises.VariancePreserving())
        evaluation.flow_entropy(score, ROWS, levels=2, key=KEY)
        evaluation.score_divergence(score, score, ROWS, levels=2, key=KEY)

    def features() -> None:
        pictures, labels = np.random.default_rng(3).normal(size=(60, 5, 6, 1)), np.arange(60) % 3
        with pytest.MonkeyPatch.context() as patch:
            # Fixed, for figures that can be compared; two steps have all shapes that 400 have.
            patch.setattr(feature_nets, "STEPS", 2)
            found = evaluation.picture_features(pictures, labels, classes=3)
        traced(held(found.net), jnp.zeros((5, 6, 1)))
        evaluation.feature_figures(found, pictures, pictures, key=KEY)
        evaluation.inception_score(np.eye(3))

    def layered() -> None:
        machine, few = deep(), {"levels": 4, "key": KEY}
        evaluation.layered_ais(machine, chains=4, **few)
        evaluation.layered_bracket(machine, np.zeros((8, 7)), chains=4, **few)
        evaluation.layered_smc(machine, islands=8, particles=16, **few)
        evaluation.unnormalised_evidence(machine, np.zeros((2, 3)), chains=4, **few)

    def likelihoods() -> None:
        score = scores.LevelledFunction(lambda t, x: -x, noises.VariancePreserving())
        evaluation.likelihood_bound(score, ROWS[:3], levels=2, slices=True, key=KEY)
        found = evaluation.flow_log_likelihood(score, ROWS[:3], tolerance=0.1, key=KEY)
        evaluation.bits_per_dimension(found, 2, 256)

    def pictures() -> None:
        one, other = jnp.asarray(PICTURES[0]), jnp.asarray(PICTURES[1])
        traced(lambda x, y: (evaluation.psnr(x, y), evaluation.ssim(x, y, window=3)), one, other)
        evaluation.nearest(PICTURES[:3], PICTURES[3:])
        evaluation.frechet(x, y, resamples=20, key=KEY)

    pieces: dict[str, Callable[[], Any]] = {
        "layers": layered,
        "likelihoods": likelihoods,
        "pictures": pictures,
        "flow_entropy": of_levels,
        "picture_features": features,
        "log_partition": likelihood,
        "importance": lambda: evaluation.importance(FREE, GAUSSIAN, draws=100, key=KEY),
        "expectation": lambda: evaluation.expectation(FREE, lambda x: x[0], GAUSSIAN, draws=100, key=KEY),
        "expectations": lambda: evaluation.expectations(FREE, lambda x: x, GAUSSIAN, draws=100, key=KEY),
        "defensive": lambda: evaluation.defensive(mixture(), ROWS),
        "ais": lambda: evaluation.ais(FREE, GAUSSIAN, chains=16, **short, key=KEY),
        "bracket": lambda: evaluation.bracket(FREE, GAUSSIAN, draws, chains=16, **short, key=KEY),
        "reverse_ais": lambda: evaluation.reverse_ais(FREE, GAUSSIAN, draws, **short, key=KEY),
        "bridge": lambda: evaluation.bridge(FREE, GAUSSIAN, draws, key=KEY),
        "smc": lambda: evaluation.smc(FREE, GAUSSIAN, **islands, key=KEY),
        "tempered_population": lambda: evaluation.tempered_population(FREE, GAUSSIAN, **islands, key=KEY).draws(3),
        "thermodynamic": lambda: evaluation.thermodynamic(FREE, GAUSSIAN, chains=16, levels=4, moves=2, key=KEY),
        "evidence": lambda: evaluation.evidence(decoder, GAUSSIAN, DATA[0], chains=16, **short, key=KEY),
        "evidences": lambda: evaluation.evidences(decoder, GAUSSIAN, DATA[:2], chains=16, **short, key=KEY),
        "mean_evidence": lambda: evaluation.mean_evidence(decoder, GAUSSIAN, DATA[:2], chains=16, **short, key=KEY),
        "mmd": lambda: evaluation.mmd(x, y),
        "mmd_test": lambda: evaluation.mmd_test(x, y, permutations=19, key=KEY),
        "median_bandwidth": lambda: evaluation.median_bandwidth(x),
        "energy_distance": lambda: evaluation.energy_distance(x, y),
        "energy_test": lambda: evaluation.energy_test(x, y, permutations=19, key=KEY),
        "classifier_test": lambda: evaluation.classifier_test(x, y, width=4, steps=2, batch=4, key=KEY),
        "precision_recall": lambda: evaluation.precision_recall(x, y, groups=4, key=KEY),
        "marginals": lambda: evaluation.marginals(x, y, x, groups=np.arange(len(x) + len(y)), repeats=3).worst,
        "sliced_wasserstein": lambda: evaluation.sliced_wasserstein(x, y, frames=8, key=KEY),
        "efficiency": efficiencies,
    }
    for name, piece in pieces.items():
        yield f"evaluation/{name}", piece


def works() -> Iterator[Piece]:
    def flow() -> None:
        score = scores.levelled_score(noises.VariancePreserving(), 2, width=4, depth=1, key=KEY)
        options: dict[str, Any] = {"steps": 2, "dequantiser_steps": 2, "width": 4, "progress": False, "key": KEY}
        found = tasks.score_flow(score, np.round(ROWS), step=1.0, **options)
        found.bound(np.round(ROWS[:3]), levels=2, key=KEY)
        found.log_likelihood(np.round(ROWS[:3]), tolerance=0.1, key=KEY)

    yield "tasks/denoise", lambda: tasks.denoise(WIDE, 1.0, ROWS[:3], directions=1, iterations=2, key=KEY)
    spins = tasks.flipped_posterior(energies.Ising(energies.lattice((2, 3)), 0.0, 1.0), np.eye(2, 3), 0.2)
    for name, restored in (
        ("graph_cut", lambda: tasks.graph_cut(spins)),
        ("icm", lambda: tasks.icm(spins)),
        ("anneal", lambda: tasks.anneal(spins, 3, chains=2, key=KEY)),
        ("marginal_modes", lambda: tasks.marginal_modes(spins, chains=2, sweeps=2, warmup=1, key=KEY).picture),
    ):
        yield f"tasks/{name}", restored
    yield "tasks/clean_density", lambda: tasks.clean_density(WIDE, 1.0, [-9.0, -9.0], [9.0, 9.0], points=16)
    yield "tasks/score_flow", flow
