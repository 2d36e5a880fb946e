"""What models and results say of themselves: known text for small ones, and other numbers for other sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unnorm as un
from unnorm.estimate import OutcomeCode
from unnorm.words import lines, table

KEY = jax.random.key(0)
FLAT = un.energies.standard_gaussian(2)
MIXTURE = un.energies.gaussian_mixture([0.2, 0.3, 0.5], np.zeros((3, 2)), 1.0)


def quadratic(x):
    return jnp.sum(x**2)


def cases():
    """Models and their words; numbers by hand: 2 * 8 + 8 + 8 + 1 = 33, 3 logits, 3 * (2 + 4) of the components."""
    small, large = (un.energies.tilt(FLAT, width=width, depth=1, key=KEY) for width in (8, 9))
    deep = un.energies.ResNetEnergy(un.spaces.Real((2,)), width=4, blocks=2, key=KEY)
    blend = un.energies.Blend((FLAT, MIXTURE), jnp.zeros(2))
    mlp, real = "MLP 2-8-1 (33 learnt)", "Real((2,))"
    return {
        "tilted": (small, f"Tilted on {real}: GaussianDensity (fixed, 6 numbers), {mlp}"),
        "wider": (large, f"Tilted on {real}: GaussianDensity (fixed, 6 numbers), MLP 2-9-1 (37 learnt)"),
        "blend": (
            blend,
            f"Blend on {real}: GaussianDensity (6 learnt), GaussianMixture (21 learnt), logits (2 learnt)",
        ),
        "tilted blend": (
            un.energies.Tilted(blend, small.network),
            f"Tilted on {real}: Blend of 2 parts (fixed, 29 numbers), {mlp}",
        ),
        "sum": (FLAT + small, f"Sum on {real}: GaussianDensity (6 learnt), Tilted (33 learnt, 6 fixed)"),
        "residual": (deep, f"NeuralEnergy on {real}: ResNet of 2 blocks (97 learnt), log_confinement (1 learnt)"),
        "fixing": (FLAT.fixing({0: 1.0}), "Fixing on Real((1,)): GaussianDensity (6 learnt), values (fixed, 1 number)"),
        "function": (
            un.energies.FunctionEnergy(quadratic, un.spaces.Real((2,))),
            f"FunctionEnergy on {real}: no numbers",
        ),
        "many": (
            un.energies.NICE(un.spaces.Real((2,)), width=1, depth=1, couplings=5, key=KEY),
            f"NICE on {real}: 5 networks (20 learnt), log_scale (2 learnt)",
        ),
    }


@pytest.mark.parametrize("name", cases())
def test_a_model_says_its_parts_and_their_sizes(name):
    model, words = cases()[name]
    assert str(model) == words
    # Equinox's own form, with every field, is still there.
    assert repr(model).startswith(f"{type(model).__name__}(")


def test_numbers_in_words_are_counted_by_hand_too():
    model, words = cases()["tilted"]
    assert words.count(str(sum(leaf.size for leaf in jax.tree.leaves(model.network) if hasattr(leaf, "size")))) == 1


def test_a_fit_says_how_it_went():
    def fitted(steps):
        rows = FLAT.samples(64, key=KEY)
        model = un.energies.gaussian(np.ones(2), np.eye(2))
        objective = un.objectives.DSM(un.noises.Gaussian(0.3))
        return un.fit(model, objective, rows, steps=steps, batch=16, evaluations=2, key=KEY, progress=False)

    fit = fitted(4)
    first, *rest = str(fit).splitlines()
    assert first == "Fit of GaussianDensity on Real((2,)): mean (2 learnt), factor (4 learnt)"
    told = dict(line.strip().split("  ", 1) for line in rest)
    assert told["outcome"].strip().startswith(f"{OutcomeCode.COMPLETED.value} at step 4")
    assert told["loss"].strip() == f"{fit.history['loss'][-1]:.4g}"
    assert "completed at step 6" in str(fitted(6)) and "completed at step 6" not in str(fit)
    assert "<th>loss</th>" in fit._repr_html_()


def trace(divergences):
    draws = np.random.default_rng(0).normal(size=(4, 1000, 2))
    return un.samplers.Trace(draws, np.full(4, 0.8), divergences, un.samplers.HMC())


def test_a_trace_says_how_far_to_trust_it():
    text = str(trace(0))
    assert text.splitlines()[0] == "Trace of HMC: 4 chains of 1,000 draws"
    assert "0.80 on average" in text and f"{trace(0).diagnostics.worst_rhat:.3f} at most" in text
    assert "warning" not in text
    wrong = trace(3)
    assert "3 transitions diverged: the step is too large" in str(wrong) and "warning" in wrong._repr_html_()


def test_independent_draws_say_how_good_the_proposals_were():
    def resampled(effective):
        return un.samplers.Resampled(np.zeros((2000, 2)), 32_000, effective, 3)

    assert str(resampled(0.831)) == (
        "2,000 independent draws\n"
        "  points     of shape (2,)\n"
        "  effective  83.1% of 32,000 proposals\n"
        "  repeated   3 draws"
    )
    assert "warning" in str(resampled(0.05)) and "Only 5.0% of the proposals" in str(resampled(0.05))


def test_words_are_no_markup():
    facts = [("<b>", "a & b"), ("x", '"')]
    assert table("<i>", facts) == (
        "<table><caption>&lt;i&gt;</caption><tr><th>&lt;b&gt;</th><td>a &amp; b</td></tr>"
        "<tr><th>x</th><td>&quot;</td></tr></table>"
    )
    assert lines("<i>", facts) == '<i>\n  <b>  a & b\n  x    "'
