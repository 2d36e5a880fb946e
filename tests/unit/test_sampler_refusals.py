"""What the samplers refuse, in one sentence each: from Python as an `InputError`, from the command line with code 2."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runner import refused, unnorm, write_csv

import unnorm as un
from unnorm.energies import FunctionEnergy, standard_gaussian
from unnorm.samplers import HMC, MALA, NUTS, SGLD, Langevin, ParallelTempering, SumOverRows, TemperedSMC
from unnorm.spaces import Binary, Real

LINE = standard_gaussian(2)
COINS = FunctionEnergy(lambda x: jnp.sum(x), Binary((2,)))
VECTOR = FunctionEnergy(lambda x: x**2, Real((2,)))
BROKEN = FunctionEnergy(lambda x: jnp.sum(jnp.log(x)), Real((2,)))
KEY = jax.random.key(0)


def draw(target, sampler, **options):
    return un.sample(target, sampler, **{"chains": 4, "steps": 4, "key": KEY, "progress": False, **options})


SENTENCES = {
    "a discrete space": (
        lambda: draw(COINS, HMC()),
        "HMC follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there",
    ),
    "a discrete space for tempering": (
        lambda: draw(COINS, ParallelTempering()),
        "ParallelTempering follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there",
    ),
    "a discrete space for SMC": (
        lambda: TemperedSMC(LINE)(COINS, key=KEY),
        "SMC follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there",
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
        "SGLD needs a sum over rows (samplers.SumOverRows), not Gaussian; use samplers.Langevin there",
    ),
    "SGLD on a discrete space": (
        lambda: draw(SumOverRows(COINS, lambda x, row: jnp.sum(x), jnp.zeros((3, 2))), SGLD(0.1, 4)),
        "SGLD follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_one_sentence(case):
    call, sentence = SENTENCES[case]
    with pytest.raises(un.InputError) as error:
        call()
    assert str(error.value) == sentence


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
