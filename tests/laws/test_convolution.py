"""Convolutions out of three bilinear maps have all derivatives of JAX's own, in every mode, mapped and in loops."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.networks import Conv, convolution, convolve

#: Image, kernel, stride, dilation, padding. Odd and even sizes, rows no output sees, zeros beyond the kernel.
CASES = {
    "three by three": ((6, 5), (3, 3), 1, 1, "SAME"),
    "halved, even": ((6, 8), (3, 3), 2, 1, "SAME"),
    "halved, odd, as PyTorch pads": ((7, 6), (3, 3), 2, 1, ((1, 1), (1, 1))),
    "even kernel, a stride of three": ((8, 7), (4, 2), (3, 2), 1, "VALID"),
    "spread": ((7, 6), (3, 2), 1, (2, 3), "SAME"),
    "spread and halved": ((9, 8), (2, 3), 2, 2, "SAME"),
    "one pixel, halved": ((5, 4), (1, 1), 2, 1, "VALID"),
    "far outside": ((4, 5), (2, 3), 1, 1, ((3, 0), (1, 4))),
}
INPUTS, OUTPUTS, POINTS = 2, 3, 3
SPOILT = "three by three"


def lax_convolve(x, kernel, *, stride, dilation, padding):
    """The peer."""
    stride, dilation = ((v, v) if isinstance(v, int) else v for v in (stride, dilation))
    order = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x[None], kernel, stride, padding, rhs_dilation=dilation, dimension_numbers=order
    )[0]


def arrays(name, kernels=()):
    image, kernel, *_ = CASES[name]
    rng = np.random.default_rng(0)
    return rng.normal(size=(POINTS, *image, INPUTS)), rng.normal(size=(*kernels, *kernel, INPUTS, OUTPUTS)) / 3


def of(convolution, name):
    """The convolution of one point in this case."""
    _, _, stride, dilation, padding = CASES[name]
    return lambda x, w: convolution(x, w, stride=stride, dilation=dilation, padding=padding)


def derivatives(f):
    """All that objectives ask for, of E(x, w) = sum tanh(x * w) and of its score, at one point."""

    def energy(x, w):
        return jnp.sum(jnp.tanh(f(jnp.sin(x), w)))

    slope = jax.grad(energy)

    def along(x, w):
        return jax.jvp(lambda u: slope(u, w), (x,), (jnp.cos(x),))[1]

    def both(x, w):
        return jax.jvp(energy, (x, w), (jnp.cos(x), jnp.cos(w)))[1]

    return {
        "value": f,
        "along": lambda x, w: jax.jvp(f, (x, w), (jnp.cos(x), jnp.cos(w)))[1],
        "in the image": slope,
        "in the kernel": jax.grad(energy, 1),
        "in the kernel, of the squared gradient in the image": jax.grad(lambda x, w: jnp.sum(slope(x, w) ** 2), 1),
        "Hessian times a vector": along,
        "in the kernel, of a Hessian product": jax.grad(lambda x, w: jnp.sum(along(x, w) ** 2), 1),
        "Hessian times a vector in both": jax.grad(both, (0, 1)),
        "curvature along a vector, in the kernel": lambda x, w: jax.jvp(
            lambda v: jax.grad(energy, 1)(x, v), (w,), (jnp.cos(w),)
        )[1],
    }


def at_points(f):
    """The mean over points, mapped at the boundary, and what a kernel's gradient is of that."""

    def loss(w, xs):
        return jnp.mean(jax.vmap(lambda x: jnp.sum(jnp.tanh(f(jnp.sin(x), w))))(xs))

    def score_loss(w, xs):
        score = jax.grad(lambda x: jnp.sum(jnp.tanh(f(jnp.sin(x), w))))
        return jnp.mean(jax.vmap(lambda x: jnp.sum(score(x) ** 2) + jnp.vdot(x, jax.jvp(score, (x,), (x,))[1]))(xs))

    return jax.value_and_grad(loss), jax.value_and_grad(score_loss)


def everything(f, steps=2):
    """One function of points and a kernel: each derivative, mapped or not, and gradient descent in a loop."""

    def compute(xs, w):
        found = {}
        for name, derivative in derivatives(f).items():
            found[name] = derivative(xs[0], w)
            found[f"{name}, mapped"] = jax.vmap(derivative, (0, None))(xs, w)
        for name, gradient in zip(("a loss", "a loss of scores"), at_points(f), strict=True):
            found[f"{name}, mapped within"] = gradient(w, xs)

            def step(w, _, gradient=gradient):
                value, slope = gradient(w, xs)
                return w - 0.01 * slope, value

            found[f"{name}, in a loop"] = jax.lax.scan(step, w, length=steps)
        return found

    return jax.jit(compute)


def differences(found, wanted):
    """Of each result the largest difference as a share of the largest entry."""
    return {
        name: max(
            float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
            for a, b in zip(jax.tree.leaves(found[name]), jax.tree.leaves(wanted[name]), strict=True)
        )
        for name in wanted
    }


@pytest.mark.parametrize("name", CASES)
def test_every_derivative_is_that_of_the_plain_convolution(name):
    with jax.enable_x64(True):
        points, w = arrays(name)
        found, wanted = (everything(of(f, name))(points, w) for f in (convolve, lax_convolve))
        # Sums of some hundred products, and of those again, in double precision.
        assert max(differences(found, wanted).values()) < 1e-12


def unlike_the_plain_one(monkeypatch, part, wrong):
    """Which results change where a part of the maps is replaced by something wrong."""
    with jax.enable_x64(True):
        points, w = arrays(SPOILT)
        wanted = everything(of(lax_convolve, SPOILT))(points, w)
        with monkeypatch.context() as patch:
            patch.setattr(convolution, part, wrong)
            jax.clear_caches()
            found = everything(of(convolve, SPOILT))(points, w)
        jax.clear_caches()
    return {name for name, share in differences(found, wanted).items() if not share < 1e-3}


def test_a_kernel_that_is_not_turned_is_seen(monkeypatch):
    """In all that needs the gradient in the image, and in nothing else."""
    unlike = unlike_the_plain_one(monkeypatch, "_turned", lambda w: w.swapaxes(2, 3))
    assert {"in the image", "Hessian times a vector", "a loss of scores, in a loop"} <= unlike
    assert not {"value", "along", "in the kernel", "a loss, in a loop"} & unlike


def test_mapped_kernels_are_those_of_separate_calls():
    """One image under many kernels, each image under a kernel of its own, and both, in any order."""

    def results(f):
        def energy(x, w):
            return jnp.sum(jnp.tanh(f(x, w)))

        both = jax.grad(lambda x, w: jnp.sum(jax.grad(energy)(x, w) ** 2), (0, 1))
        third = jax.vmap(jax.vmap(both, (0, None)), (None, 0))
        return {
            "kernels": lambda xs, ws: jax.vmap(both, (None, 0))(xs[0], ws),
            "kernels, last axis": lambda xs, ws: jax.vmap(both, (None, 4), 1)(xs[0], jnp.moveaxis(ws, 0, 4)),
            "pairs": jax.vmap(both),
            "pairs, other axes": lambda xs, ws: jax.vmap(both, (2, 1))(jnp.moveaxis(xs, 0, 2), jnp.moveaxis(ws, 0, 1)),
            "all": third,
            "pairs of all": lambda xs, ws: jax.vmap(third)(jnp.stack([xs, 2 * xs]), jnp.stack([ws, 3 * ws])),
            "Jacobian in the image": lambda xs, ws: jax.jacfwd(jax.grad(energy))(xs[0], ws[0]),
            "Jacobian in the kernel": lambda xs, ws: jax.jacrev(jax.grad(energy, 1), 1)(xs[0], ws[0]),
            "mixed": lambda xs, ws: jax.jacfwd(jax.grad(energy, 1), 0)(xs[0], ws[0]),
            "loss of pairs": lambda xs, ws: jax.grad(lambda w: jnp.sum(jax.vmap(both)(xs, w)[0] ** 2))(ws),
        }

    with jax.enable_x64(True):
        name = "halved, odd, as PyTorch pads"
        points, kernels = arrays(name, kernels=(POINTS,))
        found, wanted = (
            jax.jit(lambda xs, ws, r=results(of(f, name)): {k: g(xs, ws) for k, g in r.items()})(points, kernels)
            for f in (convolve, lax_convolve)
        )
        assert max(differences(found, wanted).values()) < 1e-12


@pytest.mark.parametrize("name", ["three by three", "spread and halved"])
def test_single_precision_is_off_by_rounding_only(name):
    """A sum of n products is off by at most n u / (1 - n u) times the sum of their sizes (Higham 2002, 3.5)."""
    points, w = (np.asarray(a, np.float32) for a in arrays(name))
    single = of(convolve, name)
    g = np.random.default_rng(1).normal(size=(POINTS, *jax.eval_shape(single, points[0], w).shape)).astype(np.float32)

    def three(f):
        def maps(xs, w, g):
            y, back = jax.vjp(lambda xs, w: jax.vmap(lambda x: f(x, w))(xs), xs, w)
            return (y, *back(g))

        return jax.jit(maps)

    found = three(single)(points, w, g)
    with jax.enable_x64(True):
        plain, double = three(of(lax_convolve, name)), [a.astype(np.float64) for a in (points, w, g)]
        wanted, sizes = plain(*double), plain(*(np.abs(a) for a in double))
    pixels = w[..., 0, 0].size
    for a, b, size, terms in zip(
        found, wanted, sizes, (pixels * INPUTS, pixels * OUTPUTS, g[..., 0].size), strict=True
    ):
        assert a.dtype == jnp.float32
        off = terms * 2.0**-24 / (1 - terms * 2.0**-24)
        assert np.all(np.abs(a - np.asarray(b)) <= off * np.asarray(size))
        # And not by none: the bound is of the right order.
        assert np.any(np.abs(a - np.asarray(b)) > 1e-3 * off * np.asarray(size))


# ------------------------------------------------------------------------------------------------- what is compiled


def energy_of(f):
    """A small convolutional energy with a halving and a spread layer, of one image, by the convolution f."""

    def energy(kernels, x):
        for kernel, stride, dilation in zip(kernels, (1, 2, 1), (1, 1, 2), strict=True):
            x = jnp.tanh(f(x, kernel, stride=stride, dilation=dilation, padding="SAME"))
        return jnp.sum(x)

    return energy


def training(f):
    """Gradient descent on a loss that holds a score, its square and its derivative along a vector."""
    energy = energy_of(f)

    def loss(kernels, xs):
        def at(x):
            slope, curved = jax.jvp(lambda u: jax.grad(energy, 1)(kernels, u), (x,), (jnp.cos(x),))
            return jnp.sum(slope**2) + jnp.vdot(jnp.cos(x), curved)

        return jnp.mean(jax.vmap(at)(xs))

    def train(kernels, xs):
        def step(kernels, _):
            value, slopes = jax.value_and_grad(loss)(kernels, xs)
            return jax.tree.map(lambda w, s: w - 1e-3 * s, kernels, slopes), value

        return jax.lax.scan(step, kernels, length=3)

    return train


def network():
    kernels = [Conv(a, b, key=jax.random.key(0)).kernel for a, b in ((1, 4), (4, 6), (6, 5))]
    return kernels, jnp.ones((5, 8, 8, 1))


def equations(jaxpr):
    """Those of a program, of its loops and of what it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def convolutions(f):
    """How often each kind stands in the training loop, and how often once for each model."""
    every = list(equations(jax.make_jaxpr(training(f))(*network()).jaxpr))
    # The loop over steps is the only one.
    assert sum(e.primitive.name in ("scan", "while") for e in every) == 1
    found = [e for e in every if e.primitive.name.startswith("conv") and "element_type" not in e.primitive.name]
    return Counter(e.primitive.name for e in found), sum(e.invars[0].aval.shape[0] > 1 for e in found)


def test_in_a_loop_there_are_the_three_maps_and_no_other_convolution():
    """As many as JAX has of its own, each once for all points; a kernel for each point is once for each model."""
    ours, many = convolutions(convolve)
    plain, _ = convolutions(lax_convolve)
    assert set(ours) == {"convolution", "convolution_in_image", "convolution_in_kernel"}
    assert many == 0
    assert set(plain) == {"conv_general_dilated"} and plain.total() == ours.total()
    own = jax.make_jaxpr(jax.vmap(lambda x, w: convolve(x, w)))(jnp.ones((5, 4, 4, 1)), jnp.ones((5, 3, 3, 1, 2)))
    assert [e.invars[0].aval.shape[0] for e in equations(own.jaxpr) if e.primitive.name == "convolution"] == [5]


def labels(f):
    """How the axes of the compiled program's convolutions are ordered, as programs of users are compiled."""
    short = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        text = jax.jit(training(f)).lower(*network()).compile().as_text()
    finally:
        jax.config.update("jax_disable_most_optimizations", short)
    lines = [line for line in text.splitlines() if "dim_labels=" in line]
    return {line.split("dim_labels=")[1].split(",")[0].split("}")[0].strip() for line in lines}, lines


def test_compiled_convolutions_have_the_order_of_the_fast_routine():
    """Images N H W C, kernels H W I O, and neither is turned round by the convolution; JAX's own have other orders."""
    ours, lines = labels(convolve)
    assert ours == {"b01f_01io->b01f"}
    assert not any("rhs_reversal" in line for line in lines)
    assert labels(lax_convolve)[0] - ours
