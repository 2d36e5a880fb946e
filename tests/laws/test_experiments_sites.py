"""Experiments on zeros and ones: figures that are known."""

import math

import jax.numpy as jnp
import numpy as np
from known_figures import figure_of, learns

from unnorm.data.debd import BinaryTable
from unnorm.energies import Ising, SiteMixture, every_point, lattice, uniform
from unnorm.estimate import Estimate
from unnorm.experiments import bits, ed_discrete
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
