"""Energies of zeros and ones and of categories, each once, with what they say of their sites."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import networkx
import numpy as np
from shape_parts import (
    BITS,
    COINS,
    DATA,
    KEY,
    NAMES,
    SPACE,
    WORDS,
    Piece,
    X,
    deep,
    held,
    mlp,
    traced,
    walk_draws,
    walk_energy,
)  # fmt: skip

from unnorm import energies, evaluation, spaces


def walk_sites(energy: energies.AbstractEnergy) -> None:
    """All that an energy of sites says, by itself and through its sums and powers."""
    x = jnp.zeros(energy.space.struct().shape, energy.space.struct().dtype)
    traced(held(energy), x)
    for made in (energy, energies.Shifted(0.5 * energy + energy, 1.0)):
        traced(energies.every_site, made, x)
        traced(energies.site_logits, made, 0, x)
        traced(energies.site_logits, made, jnp.asarray(0), x)
        if (blocks := energies.blocks_of(made)) is not None:
            for block in range(len(blocks.sites)):
                traced(lambda x, b=block, of=blocks: of.logits(b, x), x)
    if energy.space.size > 1:
        rest = energy.fixing({0: 1})
        traced(held(rest), jnp.zeros(rest.space.shape, x.dtype))
    walk_draws(energy, x)
    if isinstance(energy, energies.AbstractRelaxed):
        k = energy.space.categories if isinstance(energy.space, spaces.Categorical) else 2
        traced(energy.relaxed, jnp.zeros((x.size, k)))


def discrete() -> Iterator[Piece]:
    grid = energies.lattice((2, 2), periodic=True)

    def lattices() -> None:
        for field, coupling in ((0.5, energies.critical_coupling()), (jnp.zeros((2, 2)), jnp.zeros(4))):
            ising = energies.Ising(grid, field, coupling)
            walk_sites(ising)
            traced(ising.statistics, jnp.zeros((2, 2)))
        walk_sites(energies.Potts(grid, 3, coupling=1.0))
        walk_sites(energies.Potts(grid, 3, jnp.zeros((2, 2, 3)), jnp.zeros(4)))
        walk_sites(energies.Ising(energies.site_graph(networkx.path_graph(3))))
        assert energies.SiteGraph((2,), np.array([[1, 0]])) == energies.site_graph(networkx.path_graph(2))

    def exactly() -> None:
        energies.torus_log_z((3, 3), 0.5), energies.torus_equal((3, 3), 0.5)
        energies.onsager_log_z(0.5), energies.onsager_equal(0.5), energies.yang_magnetisation(1.0)
        energies.strip((1, 2), 0.0, 1.0)

    def machines() -> None:
        walk_sites(energies.rbm(BITS, 3, key=KEY))
        walk_energy(energies.GaussianRBM(SPACE, jnp.zeros((2, 3)), X, jnp.zeros(3), X))
        machine = deep()
        walk_sites(machine)
        x = jnp.zeros(7)
        traced(lambda m: (m.odd(x), m.folded()(m.odd(x)), m.above(x[:3])(x[3:]), m.layers(x)), machine)

    def networks_of_pairs() -> None:
        for space in (BITS, WORDS):
            walk_sites(energies.markov_network(space))
            walk_sites(energies.markov_network(space, grid))
        found = energies.choose_pairs(BITS, COINS[:30], COINS[30:]).density
        assert isinstance(found, energies.MarkovNetwork)
        traced(found.strengths)
        energies.refit_markov_network(found, COINS, 0.1, penalty="l2", steps=3)
        energies.pair_couplings(found, jnp.asarray(COINS[:3]))

    def products() -> None:
        for space, rows in ((BITS, COINS), (WORDS, NAMES)):
            walk_sites(energies.uniform(space))
            walk_sites(energies.fit_sites(space, rows))
            walk_sites(energies.mlp_on_sites(space, width=4, depth=1, key=KEY))
        # So many held-out rows that a second component is soon found to be no better.
        others = np.random.default_rng(5).integers(0, 3, (400, 2, 2)).astype(np.int32)
        chosen = energies.choose_products(WORDS, NAMES[:30], others, key=KEY).density
        assert isinstance(chosen, energies.SiteMixture)
        walk_sites(chosen)
        traced(chosen.responsibilities, jnp.asarray(NAMES[0]))
        energies.refit_site_mixture(chosen, NAMES[:30])

    def enumerated() -> None:
        assert energies.count_points(BITS) == len(energies.every_point(BITS)) == 16
        coupled = energies.FunctionEnergy(lambda x: jnp.sum(x[0] * x[1]), BITS)
        walk_sites(coupled)
        energies.enumerated_log_z(coupled)
        law = evaluation.enumerated(coupled)
        law.mean(jnp.sum), law.entropy(), law.divergence(law), law.draws(2)
        graphs = spaces.Graph(3)
        assert energies.every_point(graphs).shape == (8, *graphs.struct().shape)
        evaluation.enumerated(energies.FunctionEnergy(lambda y: jnp.sum(y).astype(float), graphs))

    def families() -> None:
        walk_energy(energies.ExponentialFamily(SPACE, lambda x: jnp.stack([x[0], -(x[1] ** 2)]), [0.0, 1.0]))
        traced(lambda xs: jax.vmap(energies.NeuralEnergy(SPACE, mlp()))(xs), DATA)

    yield "models/lattices", lattices
    yield "models/exactly", exactly
    yield "models/machines", machines
    yield "models/networks of pairs", networks_of_pairs
    yield "models/products", products
    yield "models/enumerated", enumerated
    yield "models/ExponentialFamily", families
