"""cnce-table1 judges a model by a log Z of its own, which must see mass where there are no rows.

Half of a normalised mixture lies four standard deviations from the rows. Its log Z is 0; what the rows show of it has
log 1/2. (Six standard deviations away nothing walks from one to the other, and this log Z would not see it either.)
"""

import jax
import numpy as np
import pytest

from unnorm.data import load
from unnorm.energies import FunctionEnergy, fit_gaussian, gaussian_mixture
from unnorm.evaluation import importance
from unnorm.evaluation.likelihoods.likelihood import energies
from unnorm.experiments.cnce_table1 import own_nll


@pytest.mark.thorough
def test_mass_away_from_the_rows_is_counted():
    problem = load("gaussian")
    centre, spread = np.mean(problem.train, axis=0), float(np.std(problem.train))
    means = np.stack([centre, centre + np.array([4.0, 0.0]) * spread])
    mixture = gaussian_mixture(np.array([0.5, 0.5]), means, 0.5 * spread)
    # As a bare function, so that its log Z is not known from its class.
    model = FunctionEnergy(lambda x: mixture(x), mixture.space)
    found = own_nll(model, problem, seed=0)
    # The same rows on both sides, so that the difference is log Z, whose error is at most one over this root.
    error = found.diagnostics["effective_samples"] ** -0.5
    assert error < 0.02
    assert abs(found.value - np.mean(energies(model, problem.test))) < 4 * error
    # Control: a base of the rows alone misses the other half.
    blind = importance(model, fit_gaussian(problem.train), draws=4000, key=jax.random.key(0))
    assert abs(blind.value - np.log(0.5)) < 4 * blind.stderr
    assert abs(blind.value) > 20 * blind.stderr
