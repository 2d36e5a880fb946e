"""What the samplers refuse, in one sentence each: from Python as an `InputError`, from the command line with code 2."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runner import refused, unnorm, write_csv

import unnorm as un
from unnorm.energies import FunctionEnergy, standard_gaussian
from unnorm.samplers import (
    HMC,
    MALA,
    NUTS,
    SGLD,
    DenoisingGibbs,
    Gibbs,
    Langevin,
    Ozaki,
    ParallelTempering,
    SumOverRows,
    TemperedSMC,
)
from unnorm.scores import FunctionScore
from unnorm.spaces import Binary, Categorical, Graph, Mixed, Real

LINE = standard_gaussian(2)
COINS = FunctionEnergy(lambda x: jnp.sum(x), Binary((2,)))
VECTOR = FunctionEnergy(lambda x: x**2, Real((2,)))
GRAPHS = FunctionEnergy(lambda x: jnp.sum(x), Graph(3))
DICE = FunctionEnergy(lambda x: jnp.sum(x), Categorical((2,), 6))
COUNT = FunctionEnergy(lambda x: jnp.sum(x > 0), Real((2,)))
BROKEN = FunctionEnergy(lambda x: jnp.sum(jnp.log(x)), Real((2,)))
KEY = jax.random.key(0)


def draw(target, sampler, **options):
    return un.sample(target, sampler, **{"chains": 4, "steps": 4, "key": KEY, "progress": False, **options})


SENTENCES = {
    "a discrete space": (
        lambda: draw(COINS, HMC()),
        "HMC follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there",
    ),
    "a discrete space for tempering by gradients": (
        lambda: draw(COINS, ParallelTempering(moves=HMC())),
        "HMC follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there",
    ),
    "graphs for tempering": (
        lambda: draw(GRAPHS, ParallelTempering()),
        "ParallelTempering follows gradients, and Graph(n=3, directed=False) has none; no sampler walks that space yet",
    ),
    "moves that are none": (
        lambda: ParallelTempering(moves="gibbs"),
        "replicas move by a sampler such as samplers.Gibbs(), not a str",
    ),
    "a discrete space for SMC by gradients": (
        lambda: TemperedSMC(LINE, sampler=HMC())(COINS, key=KEY),
        "HMC follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there",
    ),
    "graphs for SMC": (
        lambda: TemperedSMC(LINE)(GRAPHS, key=KEY),
        "SMC has no moves of its own on Graph(n=3, directed=False); pass sampler=",
    ),
    "NUTS on categories": (
        lambda: draw(DICE, NUTS()),
        "NUTS follows gradients, and Categorical(shape=(2,), categories=6) has none; use samplers.Gibbs there",
    ),
    "Langevin on categories": (
        lambda: draw(DICE, Langevin(0.1)),
        "Langevin follows gradients, and Categorical(shape=(2,), categories=6) has none; use samplers.Gibbs there",
    ),
    "Gibbs on graphs": (
        lambda: draw(GRAPHS, Gibbs()),
        "Gibbs redraws sites that have values to choose from, and those of Graph(n=3, directed=False) have none; no "
        "sampler walks that space yet",
    ),
    "an energy that is a vector": (
        lambda: draw(VECTOR, NUTS()),
        "an energy returns one number per point, but this one returned shape (2,)",
    ),
    "an energy that is a vector for SMC": (
        lambda: TemperedSMC(LINE)(VECTOR, key=KEY),
        "an energy returns one number per point, but this one returned shape (2,)",
    ),
    "nan at the start": (
        lambda: draw(BROKEN, MALA(), start=-jnp.ones((4, 2))),
        "the energy is not finite at 4 of 4 starting points; pass start= with points inside the target",
    ),
    "a start that is nan": (
        lambda: draw(LINE, MALA(), start=jnp.full((4, 2), jnp.nan)),
        "the energy is not finite at 4 of 4 starting points; pass start= with points inside the target",
    ),
    "a base elsewhere": (
        lambda: TemperedSMC(standard_gaussian(3))(LINE, key=KEY),
        "the base is on Real(shape=(3,)) and the target on Real(shape=(2,))",
    ),
    "no chains": (lambda: draw(LINE, MALA(), chains=0), "at least one chain is needed, not 0"),
    "no islands": (
        lambda: TemperedSMC(LINE, islands=0),
        "SMC needs at least 8 islands (for the error) of 16 particles, not 0 of 256",
    ),
    "a share of 1": (
        lambda: TemperedSMC(LINE, share=1.0),
        "the share of effective particles must lie between 0 and 1, not 1.0",
    ),
    "no moves": (lambda: TemperedSMC(LINE, moves=0), "SMC needs at least 1 move for each level, not 0"),
    "no leapfrogs": (lambda: TemperedSMC(LINE, leapfrogs=0), "SMC needs at least one leapfrog step, not 0"),
    "a step of 0": (lambda: NUTS(0.0), "the step size of NUTS must be positive, not 0.0"),
    "a step of 0 for HMC": (lambda: HMC(0.0), "the step size of HMC must be positive, not 0.0"),
    "a step of 0 for Langevin": (lambda: Langevin.halved(0.0), "the step size of Langevin must be positive, not 0.0"),
    "a step of 0 for SGLD": (lambda: SGLD(0.0, 4), "the step size of SGLD must be positive, not 0.0"),
    "a step of nan": (lambda: Langevin(float("nan")), "the step size of Langevin must be positive, not nan"),
    "no rows a step": (lambda: SGLD(0.1, 0), "SGLD needs at least one row per step, not 0"),
    "steps that grow": (
        lambda: SGLD(0.1, 4, decay=-1.0),
        "the steps of SGLD fall with a power between 0 and 1, not -1.0",
    ),
    "no delay": (lambda: SGLD(0.1, 4, delay=0.0), "the delay of SGLD must be positive, not 0.0"),
    "no rows": (
        lambda: SumOverRows(LINE, lambda x, row: jnp.sum(x), jnp.zeros((0, 2))),
        "a sum over rows needs at least one row",
    ),
    "SGLD on what is no sum": (
        lambda: draw(LINE, SGLD(0.1, 4)),
        "SGLD needs a sum over rows (samplers.SumOverRows), not GaussianDensity; use samplers.Langevin there",
    ),
    "SGLD on a discrete space": (
        lambda: draw(SumOverRows(COINS, lambda x, row: jnp.sum(x), jnp.zeros((3, 2))), SGLD(0.1, 4)),
        "SGLD follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there",
    ),
}


NOT_A_KEY = "the key must be one random key of JAX such as jax.random.key(0), not "
NOT_POINTS = "start must be an array of real numbers with one point for each chain, not "
NO_GRADIENT = "which have no gradient; return floating-point numbers"
SENTENCES |= {
    "a function as target": (
        lambda: draw(lambda x: jnp.sum(x**2), NUTS()),
        "chains need an energy or a score, not a function; a function of one point becomes one by "
        "energies.FunctionEnergy(function, space)",
    ),
    "a class as sampler": (
        lambda: draw(LINE, NUTS),
        "the sampler is the class NUTS; pass NUTS(...) with its options",
    ),
    "a name as sampler": (
        lambda: draw(LINE, "nuts"),
        "chains need a sampler such as samplers.NUTS(), not 'nuts'",
    ),
    "a population as sampler": (
        lambda: draw(LINE, TemperedSMC(LINE)),
        "TemperedSMC moves a population and runs no chains; call it as samplers.TemperedSMC(base)(target, key=key)",
    ),
    "a number as key": (lambda: draw(LINE, NUTS(), key=0), NOT_A_KEY + "0"),
    "two keys": (
        lambda: draw(LINE, NUTS(), key=jax.random.split(KEY)),
        NOT_A_KEY + "an array of key<fry> and shape (2,)",
    ),
    "a start that is a number": (
        lambda: draw(LINE, MALA(), start=1.0),
        "4 chains need 4 starting points, not the single number 1.0",
    ),
    "a start that is text": (lambda: draw(LINE, MALA(), start="zero"), NOT_POINTS + "'zero'"),
    "a ragged start": (lambda: draw(LINE, MALA(), start=[[0.0, 1.0], [2.0]]), NOT_POINTS + "a list"),
    "a complex start": (
        lambda: draw(LINE, MALA(), start=np.ones((4, 2), np.complex64)),
        NOT_POINTS + "an array of complex64 and shape (4, 2)",
    ),
    "an energy of whole numbers": (
        lambda: draw(COUNT, MALA()),
        f"the energy returned numbers of type int32, {NO_GRADIENT}",
    ),
    "a start that is nan for a score": (
        lambda: draw(FunctionScore(lambda t, x: -x), DenoisingGibbs(1.0), start=jnp.full((4, 2), jnp.nan)),
        "the score is not finite at 4 of 4 starting points; pass start= with points inside the target",
    ),
    "a score of another shape": (
        lambda: draw(FunctionScore(lambda t, x: x[0]), DenoisingGibbs(1.0), start=jnp.ones((4, 2))),
        "a score has the shape of its point, (2,), but this one returned ()",
    ),
    "too many transitions": (
        lambda: draw(LINE, Langevin(0.1), steps=1000, thin=3_000_000),
        "1000 steps of 3000000 transitions each are more than the 2147483647 that a run can count; use fewer, and go "
        "on from the last draws with start=",
    ),
    "too long a warm-up": (
        lambda: draw(LINE, Langevin(0.1), warmup=2**31),
        "warmup must be at most 2147483647, not 2147483648",
    ),
    "a part of a transition": (lambda: draw(LINE, Langevin(0.1), thin=1.5), "thin must be a whole number, not 1.5"),
    "a part of a step": (lambda: draw(LINE, Langevin(0.1), steps=2.5), "steps must be a whole number, not 2.5"),
    "chains as text": (lambda: draw(LINE, Langevin(0.1), chains="4"), "chains must be a whole number, not '4'"),
    "a warm-up that is true": (lambda: draw(LINE, NUTS(), warmup=True), "warmup must be a whole number, not True"),
    "a warm-up of -1": (lambda: draw(LINE, Langevin(0.1), warmup=-1), "warmup must be 0 or more, not -1"),
    "a warm-up of 7": (
        lambda: draw(LINE, NUTS(), warmup=7),
        "NUTS needs at least 20 warm-up steps to tune itself, or none (warmup=0) to run as given, not 7",
    ),
    "an infinite step": (lambda: Langevin(float("inf")), "the step size of Langevin must be finite, not inf"),
    "a step that is text": (lambda: MALA("small"), "the step size of MALA must be a number, not 'small'"),
    "a step that is None": (lambda: Ozaki(None), "the step size of Ozaki must be a number, not None"),
    "a negative mass": (lambda: HMC(0.1, [1.0, -1.0]), "the inverse mass of HMC must be positive, not -1.0"),
    "a mass of another size": (
        lambda: draw(LINE, HMC(0.1, jnp.ones(3)), warmup=0),
        "the inverse mass must have shape (2,) for this target, not (3,)",
    ),
    "a mass of another size for warm-up": (
        lambda: draw(LINE, NUTS(0.1, 2.0)),
        "the inverse mass must have shape (2,) for this target, not ()",
    ),
    "always accepted": (
        lambda: HMC(target_acceptance=1.0),
        "the target acceptance of HMC must lie between 0 and 1, not 1.0",
    ),
    "never accepted": (
        lambda: MALA(target_acceptance=0),
        "the target acceptance of MALA must lie between 0 and 1, not 0",
    ),
    "an acceptance that is text": (
        lambda: NUTS(target_acceptance="high"),
        "the target acceptance of NUTS must lie between 0 and 1, not 'high'",
    ),
    "no doublings": (
        lambda: NUTS(max_doublings=0),
        "NUTS needs at least one doubling of its trajectory, not 0",
    ),
    "a part of a leapfrog step": (
        lambda: HMC(leapfrogs=2.5),
        "HMC needs at least one leapfrog step, and a whole number, not 2.5",
    ),
    "a part of a site": (lambda: Gibbs(0.5), "Gibbs needs at least one site per step, and a whole number, not 0.5"),
}


ADVISED = {"NUTS": NUTS(max_doublings=2), "Gibbs": Gibbs()}


@pytest.mark.parametrize("space", [Real((2,)), Binary((2,)), Categorical((2,), 3), Graph(3), Mixed((Real((1,)),))])
def test_the_advised_sampler_works_there(space):
    """No circle: whoever refuses a space names a sampler that does not, or says that none walks it."""
    target = FunctionEnergy(lambda x: 0.5 * jnp.sum(x**2), space)
    for sampler in (
        NUTS(),
        HMC(),
        MALA(),
        Langevin(0.1),
        Ozaki(0.1),
        Gibbs(),
        ParallelTempering(),
        DenoisingGibbs(1.0),
    ):
        try:
            sampler.check(target)
        except un.InputError as error:
            said = str(error)
            if said.endswith("no sampler walks that space yet"):
                assert not isinstance(space, Real | Binary | Categorical)
                continue
            (advised,) = (walk for name, walk in ADVISED.items() if said.endswith(f"use samplers.{name} there"))
            assert draw(target, advised, warmup=0).draws.shape == (4, 4, 2)


@pytest.mark.parametrize("case", SENTENCES)
def test_one_sentence(case):
    call, sentence = SENTENCES[case]
    with pytest.raises(un.InputError) as error:
        call()
    assert str(error.value) == sentence


def test_what_is_nearly_refused_is_taken():
    """Negative control: numpy's whole numbers, a key of the older kind, and whole numbers to begin at."""
    chains, steps, thin, warmup = np.int64(4), np.int32(3), np.int8(2), np.int64(5)
    options = {"chains": chains, "steps": steps, "thin": thin, "warmup": warmup, "start": [[0, 1]] * 4}
    assert draw(LINE, Langevin(0.1), key=jax.random.PRNGKey(0), **options).draws.shape == (4, 3, 2)
    begin = {"steps": 2, "start": np.ones((4, 2))}
    assert draw(FunctionScore(lambda t, x: -0.5 * x), DenoisingGibbs(1.0), **begin).draws.shape == (4, 2, 2)


def test_a_folder_below_a_file_or_for_another_mass_is_not_begun(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("precious")
    with pytest.raises(
        un.InputError, match=r"draws cannot be made: .*notes\.txt is a file; name a new folder"
    ) as error:
        draw(LINE, Langevin(0.1), to=file / "some" / "draws")
    assert "\n" not in str(error.value) and file.read_text() == "precious"
    with pytest.raises(un.InputError, match="the inverse mass must have shape"):
        draw(LINE, HMC(0.1, jnp.ones(3)), warmup=0, to=tmp_path / "draws")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# ------------------------------------------------------------------------------------------------ the command line


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A Gaussian fitted to 400 rows in odd units."""
    folder = tmp_path_factory.mktemp("refusals")
    values = np.random.default_rng(0).normal(size=(400, 2)) * [100.0, 0.05] + [1000.0, 5.0]
    table = write_csv(folder / "rows.csv", values)
    options = ("--model", "gaussian", "--steps", 300, "--rate", 0.05, "--no-report", "--quiet")
    result = unnorm("fit", table, *options, "--out", folder / "run")
    assert result.code == 0, result.err
    return folder / "run"


@pytest.mark.thorough
def test_the_command_refuses_in_one_sentence(run, tmp_path):
    def sampled(*options):
        return unnorm("sample", run, "-n", 10, *options)

    assert refused(sampled("--sampler", "hmc", "--set", "sampler.step_size=0"), "step_size", "greater than 0")
    assert refused(sampled("--sampler", "smc", "--set", "sampler.islands=0"), "islands", "greater than or equal to 8")
    assert refused(sampled("--sampler", "smcc"), "there is no sampler called 'smcc'; did you mean smc?")
    assert refused(sampled("--sampler", "smc", "-o", tmp_path / "folder"), "has all its draws at once", "draws.csv")
    assert not (tmp_path / "folder").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    assert refused(sampled("-o", tmp_path / "mine"), "holds notes.txt", "an empty folder")
    assert unnorm("sample", run, "-n", 0).code == 2


@pytest.mark.thorough
def test_a_folder_is_filled_resumed_and_refused_for_other_seeds(run, tmp_path):
    def sampled(*options):
        return unnorm("sample", run, "-n", 3000, "--sampler", "mala", "--quiet", *options)

    folder, file = tmp_path / "draws", tmp_path / "draws.npy"
    assert sampled("-o", folder).code == 0
    assert sampled("-o", file).code == 0
    table = np.load(folder / "table.npy", mmap_mode="r")
    assert np.array_equal(table, np.load(file)) and table.shape == (3000, 2)
    # In the data's own units.
    assert np.allclose(table.mean(0), [1000.0, 5.0], atol=[40, 0.02])
    before = (folder / "draws.npy").read_bytes()
    assert sampled("-o", folder).code == 0 and (folder / "draws.npy").read_bytes() == before
    assert refused(sampled("-o", folder, "--seed", 1), "holds draws with another", "start and another key")


@pytest.mark.thorough
def test_smc_draws_from_a_run(run, tmp_path):
    options = ("--sampler", "smc", "--set", "sampler.islands=8", "--set", "sampler.particles=64", "--quiet")
    result = unnorm("sample", run, "-n", 500, *options, "-o", tmp_path / "smc.npy")
    assert result.code == 0, result.err
    draws = np.load(tmp_path / "smc.npy")
    # 500 draws of 8 islands: means within five standard errors of as many independent ones, widths within a fifth.
    assert np.all(np.abs(draws.mean(0) - [1000.0, 5.0]) < 5 * np.array([100.0, 0.05]) * np.sqrt(1 / 400 + 2 / 500))
    assert np.all(np.abs(draws.std(0) / [100.0, 0.05] - 1) < 0.2)
