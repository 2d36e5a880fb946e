"""What is done with a model, each method once: objectives, samplers, generators, training, evaluation and data."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow
import pyarrow.parquet
from shape_parts import (
    CONTEXT,
    DATA,
    FREE,
    GAUSSIAN,
    KEY,
    ROWS,
    SPACE,
    WIDE,
    Piece,
    X,
    built_model,
    denoiser,
    dkef,
    held,
    low_rank,
    mixture,
    mlp,
    traced,
    walk_energy,
)

import unnorm as un
from unnorm import catalogue, energies, evaluation, networks, noises, objectives, runs, samplers, scores, tasks
from unnorm.data import PROBLEMS
from unnorm.evaluation import efficiency
from unnorm.objectives.implicit import spectral
from unnorm.runs.stages import Stages, learn
from unnorm.spaces import Binary, Categorical, Graph, Mixed, Real

# ------------------------------------------------------------------------------------------------- objectives


def walk_objective(objective: objectives.AbstractObjective, model: Any, rows: jax.Array = DATA) -> None:
    state = held(objective).init(held(model), rows, key=KEY)
    loss, (after, _) = traced(lambda m, s, b, k: objective(m, s, b, key=k), model, state, rows[:6], KEY)
    assert loss.shape == ()
    assert jax.tree.structure(after) == jax.tree.structure(state)


#: Options that make an objective small.
FEW = {
    "pcd": {"chains": 4, "moves": 1},
    "cd": {"moves": 1},
    "short-run": {"chains": 4, "moves": 1},
    "geyer": {"chains": 4, "moves": 1},
}


def losses() -> Iterator[Piece]:
    def from_catalogue(entry: Any) -> None:
        model = built_model("tilted" if energies.Tilted in entry.learns else "mlp")
        walk_objective(entry.build(catalogue.read_options(entry, FEW.get(entry.name, {})), CONTEXT), model)

    for entry in catalogue.OBJECTIVES:
        yield f"objectives/{entry.name}", lambda entry=entry: from_catalogue(entry)

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


# ------------------------------------------------------------------------------------------------- samplers


def walk_sampler(sampler: samplers.AbstractSampler, target: Any, x: jax.Array = X) -> None:
    held(sampler).check(target)

    def step(target: Any, x: jax.Array) -> jax.Array:
        return sampler.position(sampler.step(target, sampler.init(target, x), key=KEY)[0])

    assert traced(step, target, x).shape == x.shape
    if isinstance(sampler, samplers.AbstractAdaptiveSampler):
        traced(lambda t, x: sampler.warm_up(t, x, steps=20, key=KEY)[1], target, x)


def walks() -> Iterator[Piece]:
    def from_catalogue(entry: Any) -> None:
        small = {"islands": 8, "particles": 16, "moves": 1, "leapfrogs": 1} if entry.name == "smc" else {}
        sampler = entry.build(catalogue.read_options(entry, small), CONTEXT)
        if isinstance(sampler, samplers.TemperedSMC):
            found = sampler(FREE, key=KEY)
            found.mean(lambda x: x[:, 0])
            found.resampled(5)
            assert found.log_z.stderr > 0
        elif isinstance(sampler, samplers.ImportanceResampling):
            found = sampler(energies.tilt(GAUSSIAN, width=4, depth=1, key=KEY), 5, key=KEY)
            assert found.draws.shape == (5, 2) and not found.warnings
        else:
            walk_sampler(sampler, FREE)

    for entry in catalogue.SAMPLERS:
        yield f"samplers/{entry.name}", lambda entry=entry: from_catalogue(entry)

    def denoising() -> None:
        target, learned = samplers.learned_posterior(denoiser(), 0.5)
        for covariance in (
            samplers.FullCovariance(),
            samplers.DiagonalCovariance(2),
            samplers.IsotropicCovariance(0.2),
            learned,
        ):
            walk_sampler(samplers.DenoisingGibbs(0.5, covariance), target)
        walk_sampler(samplers.DenoisingGibbs(0.5), WIDE)
        samplers.isotropic_covariance(WIDE, 1.0, ROWS, key=KEY)

    def rows() -> None:
        target = samplers.SumOverRows(FREE, lambda x, row: 0.5 * jnp.sum((row - x) ** 2), ROWS)
        walk_sampler(samplers.SGLD(0.1, 3), target)
        walk_energy(target)

    binary = energies.FunctionEnergy(lambda x: jnp.sum(x), Binary((3,)))
    slow = (samplers.Langevin(0.1), samplers.Ozaki(0.1), samplers.Ozaki(0.1, 2))
    yield "samplers/Gibbs", lambda: walk_sampler(samplers.Gibbs(2), binary, jnp.zeros(3))
    yield "samplers/DenoisingGibbs", denoising
    yield "samplers/Ozaki", lambda: (walk_sampler(samplers.Ozaki(0.1), FREE), walk_sampler(samplers.Ozaki(1, 2), FREE))
    yield (
        "samplers/scores",
        lambda: [walk_sampler(w, s.at(0)) for w in slow for s in (scores.FromScore(FREE), low_rank())],
    )
    yield "samplers/SGLD", rows
    yield "samplers/halved", lambda: walk_sampler(samplers.Langevin.halved(0.1), FREE)

    def sample() -> None:
        trace = un.sample(FREE, samplers.MALA(), chains=4, steps=3, warmup=20, key=KEY, progress=False)
        assert trace.draws.shape == (4, 3, 2)
        with tempfile.TemporaryDirectory() as folder:
            start, walk = np.zeros((4, 2)), samplers.Langevin(0.1)
            un.sample(FREE, walk, chains=4, steps=3, start=start, to=Path(folder) / "x", key=KEY, progress=False)
        evaluation.summarise(np.random.default_rng(0).normal(size=(4, 20, 2)))

    yield "samplers/sample", sample


# ------------------------------------------------------------------------------------------------- generators


def generators() -> Iterator[Piece]:
    kinds = un.generators
    noise = noises.VarianceExploding(0.1, 10.0)
    score = scores.LevelledFunction(lambda t, x: -x / (1 + noise.variance(t)), noise)
    langevin, gibbs = kinds.LangevinCorrector(steps=2), kinds.GibbsTransition(steps=2)

    def walk(transition: un.generators.AbstractTransition) -> None:
        def go(x: jax.Array) -> jax.Array:
            state = held(transition).init(score, 0.5, x)
            return transition.position(transition.step(score, 0.5, jnp.asarray(0.4), state, key=KEY)[0])

        traced(go, X)

    def generate() -> None:
        for finish in (kinds.Stay(), kinds.PosteriorMean(), kinds.PosteriorDraw()):
            traced(lambda x, finish=finish: held(finish)(score, 0.1, x, key=KEY), X)
        both, levels = kinds.Then(gibbs, langevin), np.linspace(1, 0, 3)
        kinds.generate(score, both, levels=levels, n=3, shape=(2,), key=KEY)

    yield "generators/LangevinCorrector", lambda: walk(langevin)
    yield "generators/GibbsTransition", lambda: walk(gibbs)
    yield "generators/Then", lambda: walk(kinds.Then(gibbs, langevin))
    for solver in (
        kinds.EulerMaruyama(), kinds.ReverseDiffusion(), kinds.ReverseFlow(), kinds.Ancestral(0.5), kinds.DDIM(0.5),
        kinds.ExponentialIntegrator(), kinds.FlowEuler(), kinds.Heun(0.2), kinds.DPMSolver(3), kinds.UniPC(3),
        kinds.SignalToNoise(together=False), kinds.AdaptiveFlow(0.1), kinds.Repeated(langevin, 2),
        kinds.Replacing(langevin, kinds.Known(X, jnp.array([True, False]))),
    ):  # fmt: skip
        yield f"generators/{type(solver).__name__}", lambda solver=solver: walk(solver)
    wells = scores.LevelledEnergyFunction(lambda t, x: jnp.sum(x**2), noise, Real((2,)))

    def composed() -> None:
        both = held(scores.EnergyProduct((wells, held(scores.EnergyMixture((wells, wells), (0.5, 0.5)))), (1.0, -0.5)))
        mended = held(kinds.MetropolisCorrector())
        traced(lambda x: mended.move(both, 0.5, jnp.asarray(0.4), x, key=KEY)[0], X)
        told = scores.levelled_energy(noise, 2, condition=Categorical((), 3), width=4, depth=1, key=KEY)
        traced(held(scores.GivenEnergy(told, jnp.asarray(1))), 0.5, X)
        traced(held(scores.ScoreProduct((both, wells), (1.0, 1.0))), jnp.asarray(0.5), X)
        traced(held(both.at(0.5)), X)

    def flows() -> None:
        codes = kinds.encode(score, X[None], tolerance=0.1)
        kinds.decode(score, codes.points, tolerance=0.1)
        traced(lambda x: kinds.flowed(score, 0.5, 0.4, x, 0.1), X)
        traced(lambda x: kinds.slerp(x, x, 0.5), X)
        levels = np.linspace(1, 0, 3)
        kinds.mixed_walks(score, langevin, levels=levels, n=1, shape=(2,), key=KEY)
        known = kinds.Known(X, jnp.array([True, False]))
        traced(lambda x: held(kinds.Restored(kinds.Stay(), known))(score, 0.1, x, key=KEY), X)
        kinds.impute(score, X, [True, False], levels=levels, n=2, key=KEY)

    yield "generators/MetropolisCorrector", composed
    yield "generators/flows", flows
    path = diffrax.UnsafeBrownianPath(shape=(2,), key=KEY)
    yield "generators/flow_term", lambda: traced(lambda x: kinds.flow_term(score).vf(0.5, x, None), X)
    yield "generators/reverse_terms", lambda: traced(lambda x: kinds.reverse_terms(score, path).vf(0.5, x, None), X)
    yield "generators/generate", generate


# ------------------------------------------------------------------------------------------------- everything else


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
        found = evaluation.picture_features(pictures, labels, classes=3)
        traced(held(found.net), jnp.zeros((5, 6, 1)))
        evaluation.feature_figures(found, pictures, pictures, key=KEY)
        evaluation.inception_score(np.eye(3))

    pieces: dict[str, Callable[[], Any]] = {
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


def data() -> Iterator[Piece]:
    def load(name: str) -> None:
        problem = un.data.load(name, n_train=4, n_valid=4, n_test=4)
        assert problem.truth is not None
        x = jnp.asarray(problem.train[0])
        traced(problem.truth, x)

    for name in PROBLEMS:
        yield f"data/{name}", lambda name=name: load(name)

    def tables() -> None:
        un.data.split(ROWS, seed=0, groups=np.arange(len(ROWS)))
        standardiser = un.data.Standardiser.fit(ROWS)
        standardiser.to_raw(standardiser.to_unit(ROWS))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            np.savetxt(path, ROWS, delimiter=",", header="a,b", comments="")
            un.data.read_table(path)

    def fitted() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            np.savetxt(path, ROWS, delimiter=",", header="a,b", comments="")
            prepared = runs.prepare(str(path), 0)
            model = runs.Named(name="tilted", options={"reference": "gaussian", "width": 4, "depth": 1})
            settings = runs.settings_of(prepared, model, runs.Named(name="tilt"), runs.Training(steps=2, batch=4), 0)
            run = runs.Run.create(Path(folder) / "run", settings, prepared)
            learn(run, Stages(2, show=False), resume=False, checkpoint_seconds=1e9, begun=False)
            found = un.load(run.path)
            new = {"a": [0.5, 2.0], "b": [1.0, -1.0]}
            assert found.log_prob(new).shape == found.outliers(new, progress=False).shape == (2,)
            assert found.sample(3, progress=False).shape == (3, 2)
            assert str(found) and found._repr_html_()

    def sources() -> None:
        un.data.Blocks(ROWS, block_rows=8).block(1, seed=0)
        assert un.data.InMemory(ROWS).rows == len(ROWS)
        with tempfile.TemporaryDirectory() as folder:
            frame = pyarrow.table({"a": ROWS[:, 0], "b": ROWS[:, 1]})
            pyarrow.parquet.write_table(frame, Path(folder) / "rows.parquet")
            assert un.data.ParquetRows(Path(folder) / "rows.parquet")[2:5].shape == (3, 2)
        picture = jnp.zeros((4, 4, 1))
        changes = (un.data.Flip(), un.data.Shift(1), un.data.Dequantise(0.1), un.data.DropLabel(3))
        row = un.spaces.Conditioned(picture, jnp.asarray(1))
        traced(lambda key: un.data.InTurn(changes)(row, key=key), KEY)

    yield "data/tables", tables
    yield "data/sources", sources
    yield "data/fitted", fitted

    def spaces() -> None:
        space = Mixed((Binary((2,)), Categorical((2,), 3), Graph(3), Graph(3, directed=True), SPACE))
        points = space.start(5, KEY)
        traced(lambda key: space.start(5, key), KEY)
        both = un.spaces.WithCondition(SPACE, Categorical((), 3))
        assert un.spaces.AnyNumbers().cast(both.cast(both.start(5, KEY), "starting"), "starting").x.shape == (5, 2)
        assert space.cast(points, "starting")[1].shape == (5, 2) and space.accepts(space.struct()) and space.size == 15

    yield "data/spaces", spaces
