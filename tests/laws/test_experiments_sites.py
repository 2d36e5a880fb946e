"""Experiments on zeros and ones: figures that are known."""

import math

import jax.numpy as jnp
import numpy as np
from known_figures import figure_of, learns

from unnorm.data.debd import BinaryTable
from unnorm.energies import Ising, SiteMixture, every_point, lattice, uniform
from unnorm.estimate import Estimate
from unnorm.experiments import bits, ed_discrete, ising_denoise
from unnorm.spaces import Binary

RNG = np.random.default_rng(0)


@figure_of("bits")
def test_known_models_have_their_likelihood_and_their_gap(monkeypatch):
    """Coins of 0.8 on rows that are so: the likelihood is minus the entropy; the uniform law is behind by the rest."""
    space = Binary((4,))
    rows = (RNG.random((4000, 4)) < 0.8).astype(np.float32)
    table = BinaryTable(rows[:2000], rows[2000:3000], rows[3000:])
    coins = SiteMixture(space, jnp.zeros(1), jnp.log(jnp.broadcast_to(jnp.array([0.2, 0.8]), (1, 4, 2))))
    found = {"coins": bits._judged(coins, None, table, 0), "fair": bits._judged(uniform(space), None, table, 0)}
    share = float(table.test.mean())
    known = 4 * (share * math.log(0.8) + (1 - share) * math.log(0.2))
    assert abs(bits.likelihood(found["coins"]).value - known) < 1e-4
    gap = bits.gap(found["coins"], found["fair"])
    assert abs(gap.value - known - 4 * math.log(2)) < 1e-4 and gap.value > 10 * gap.stderr
    # The error of log Z is in that of the gap, of either model.
    worse = {**found["fair"], "log_z": Estimate(0.0, 0.5, "guess").to_dict()}
    assert bits.gap(found["coins"], worse).stderr > 0.5 > bits.gap(found["coins"], found["fair"]).stderr
    # A network that stays silent leaves ours where its reference is.
    monkeypatch.setattr(bits, "best_site_mixture", lambda *_, **__: coins)
    monkeypatch.setattr(bits, "fit", lambda model, *_, **__: learns(model)())
    both = bits._products(space, table, True, 0)
    assert abs(bits.gap(both[bits.OURS], both[bits.PRODUCTS]).value) < 1e-4


def test_what_is_said_of_tables_can_fail():
    def of(level: float) -> dict:
        return {"rows": (level + 0.1 * RNG.normal(size=300)).tolist(), "log_z": Estimate(0.0, 0.0, "exact").to_dict()}

    levels = dict(zip(bits.METHODS, (-9.0, -6.1, -6.1, -6.1, -6.0), strict=True))
    good = {name: {m: of(v + tree + 6.5) for m, v in levels.items()} for name, tree in bits.TABLES.items()}
    good["nltcs"] = {m: of(v) for m, v in levels.items()}
    assert all(claim.holds for claim in bits._claims(good))
    worse = {**good, "nltcs": {**good["nltcs"], bits.OURS: of(-6.2)}}
    assert [claim.holds for claim in bits._claims(worse)].count(False) == 4


@figure_of("ed-discrete")
def test_spins_that_are_known_have_no_error(monkeypatch):
    rng = np.random.default_rng(3)
    sites = lattice((ed_discrete.SIDE, ed_discrete.SIDE))
    field = 0.3 * rng.normal(size=(ed_discrete.SIDE, ed_discrete.SIDE))
    coupling = 0.8 * rng.normal(size=len(sites.edges))
    for shift in (0.0, 0.1):
        monkeypatch.setattr(ed_discrete, "fit", learns(Ising(sites, field, coupling + shift)))
        found = ed_discrete._spins(ed_discrete.CHAINS, 3, 1)
        assert abs(found["error"] - shift) < 1e-5 and (found["nats"] > 1e-3) == (shift > 0)


@figure_of("ed-discrete")
def test_codes_of_the_plane_go_there_and_back():
    cells = np.stack(np.meshgrid(np.arange(64), np.arange(64), indexing="ij"), -1).reshape(-1, 2)
    codes = ed_discrete.gray((cells + 0.5) / 64, 0.0, 1.0)
    # Neighbours differ in one bit.
    assert np.all(np.abs(codes[64:] - codes[:-64]).sum(1) == 1)
    number = codes.astype(int) @ (1 << np.arange(11, -1, -1))
    law = np.zeros(4096)
    law[number] = np.arange(4096)
    assert np.array_equal(ed_discrete.as_image(law), np.arange(4096).reshape(64, 64))
    assert np.array_equal(every_point(Binary((12,)))[number], codes)


@figure_of("ising-denoise")
def test_small_pictures_are_enumerated_and_a_tenth_of_large_ones_is_wrong():
    shares = [ising_denoise.wrong(ising_denoise.flipped(ising_denoise.CLEAN, 0, k)) for k in range(20)]
    assert abs(np.mean(shares) - 10) < 4.5 * 100 * math.sqrt(0.09 / (20 * 64**2))
    # Every third of the small ones against all 512 energies; modes miss some of them.
    gaps = ising_denoise._enumerated(3)
    assert max(map(abs, gaps[ising_denoise.CUT])) < 1e-5 < 0.1 < max(gaps[ising_denoise.ICM])
    assert min(map(min, gaps.values())) > -1e-5
    # Bishop's field is 4.2, and the prior's own is none.
    field = np.asarray(ising_denoise.posterior(ising_denoise.BISHOP, ising_denoise.CLEAN).field)
    assert np.allclose(field, 4.2 * (2 * ising_denoise.CLEAN - 1), atol=1e-5)


@figure_of("ising-denoise")
def test_the_second_drawing_has_the_pseudo_likelihood_of_a_logistic_regression():
    """Of every pixel on its neighbours: at the maximum the residuals and what they are multiplied by go to nothing."""
    picture, (field, coupling) = np.pad(2 * ising_denoise.OTHER - 1, 1), ising_denoise.learnt()
    around = picture[:-2, 1:-1] + picture[2:, 1:-1] + picture[1:-1, :-2] + picture[1:-1, 2:]

    def scores(a: float, b: float) -> np.ndarray:
        left = ising_denoise.OTHER - 1 / (1 + np.exp(-(a + b * around)))
        return np.array([left.sum(), (left * around).sum()])

    assert np.abs(scores(field, coupling)).max() < 0.2 and np.abs(scores(field, 1.1 * coupling)).max() > 5


def test_what_is_said_of_restored_pictures_can_fail():
    def piece(icm: float, cut: float, modes: float, above: float) -> dict:
        methods = (ising_denoise.ICM, ising_denoise.ANNEALED, ising_denoise.CUT, ising_denoise.MODES)
        share = dict(zip(methods, (icm, cut, cut, modes), strict=True))
        height = dict(zip(methods, (above, 0.0, 0.0), strict=False))
        return {"noisy": 10.0, **{prior: {"wrong": share, "above": height} for prior in ising_denoise.PRIORS}}

    def held(*figures: float, cut: float = 0.0) -> list[bool]:
        pieces = [piece(*(figure + shift for figure in figures)) for shift in (0.0, 1e-4)]
        small = {ising_denoise.ICM: [0.0, 1.0], ising_denoise.CUT: [cut]}
        return [claim.holds for claim in ising_denoise._claims(pieces, small)]

    assert held(5.0, 3.0, 2.0, 9.0)[:3] == [True] * 3 and held(5.0, 3.0, 2.0, 9.0)[3:6] == [True] * 3
    assert held(5.0, 3.0, 2.0, -9.0).count(False) == 1 + 2 * 3 and held(5.0, 3.0, 2.0, 9.0, cut=0.1).count(False) == 1
    assert held(1.0, 6.0, 7.0, 9.0).count(False) == 3 * 3
