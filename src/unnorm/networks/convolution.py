"""Convolutions that are fast inside a compiled loop, and so are their derivatives of every order.

Three bilinear maps of images x (N H W I), kernels w (H W I O) and outputs g (N H W O),

    C(x, w)    the convolution, zeros around the image,
    X(g, w)    the gradient in x of <g, C(x, w)>,
    W(x, g)    the gradient in w of <g, C(x, w)>,

are transposes of each other: <C(x, w), g> = <x, X(g, w)> = <w, W(x, g)>. To differentiate one of them, forwards or
backwards, is to call another, so mixtures of both to any order stay within the three.

The gradients that JAX makes of a convolution have axes in another order. In a loop XLA's backend for processors does
not bring them into the order that its fast routine takes: the gradient in the kernel is computed by plain loops, which
takes fifty times as long. So each of the three is computed as an ordinary convolution of arrays that were brought into
order before.

All arrays have one axis more, in front: that of several models, each with images and a kernel of its own.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require

#: Rows and columns, or one number for both.
Pair = int | tuple[int, int]
#: Zeros before and after the rows, and before and after the columns. "SAME": as many as make h / stride rows of h,
#: rounded up; "VALID": none.
Padding = Literal["SAME", "VALID"] | tuple[tuple[int, int], tuple[int, int]]


class _Axis(NamedTuple):
    """Along rows or columns: sizes of image, kernel and output, and how they go together."""

    image: int
    kernel: int
    output: int
    stride: int
    dilation: int
    before: int

    @property
    def span(self) -> int:
        """How many rows of the image the kernel covers."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """How many rows there are from the first that the kernel's top is put on to the last."""
        return (self.output - 1) * self.stride + 1

    @property
    def around(self) -> tuple[int, int]:
        """Zeros around the image; below 0 for rows at its end that no output sees."""
        return self.before, self.span + self.reach - 1 - self.image - self.before

    @property
    def around_output(self) -> tuple[int, int]:
        """Zeros around the output in the gradient in the image."""
        return self.span - 1 - self.before, self.image - self.reach + self.before


_Window = tuple[_Axis, _Axis]
_One = Callable[[Array, Array, _Window], Array]
_Sizes = Callable[[Any, Any, _Axis, _Axis], tuple[int, ...]]
#: An axis of an argument, and where in the result it is found again.
_Place = tuple[int, int]


# ------------------------------------------------------------------------------------------------ how they are computed


def _ordinary(
    x: Array, w: Array, padding: list[tuple[int, int]], *, strides: Any = None, spread: Any = None, dilation: Any = None
) -> Array:
    return jax.lax.conv_general_dilated(
        x, w, strides or (1, 1), padding, spread, dilation, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _in_order(*arrays: Array) -> Any:
    """The arrays as they are. Without the barrier XLA would let the convolution do the reordering, and be slow."""
    return jax.lax.optimization_barrier(arrays)


def _turned(w: Array) -> Array:
    """The kernel of the transpose: rows and columns backwards, inputs and outputs swapped."""
    return w[::-1, ::-1].swapaxes(2, 3)


def _forward(x: Array, w: Array, window: _Window) -> Array:
    strides, dilation = [a.stride for a in window], [a.dilation for a in window]
    return _ordinary(x, w, [a.around for a in window], strides=strides, dilation=dilation)


def _in_image(g: Array, w: Array, window: _Window) -> Array:
    (turned,) = _in_order(_turned(w))
    strides, dilation = [a.stride for a in window], [a.dilation for a in window]
    return _ordinary(g, turned, [a.around_output for a in window], spread=strides, dilation=dilation)


def _in_kernel(x: Array, g: Array, window: _Window) -> Array:
    # The sum is over images, which take the place of the inputs; the gradient takes that of the kernel.
    images, kernel = _in_order(x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3))
    strides, dilation = [a.stride for a in window], [a.dilation for a in window]
    found = _ordinary(images, kernel, [a.around for a in window], strides=dilation, dilation=strides)
    return _in_order(found)[0].transpose(1, 2, 0, 3)


# ------------------------------------------------------------------------------------------------ what JAX must know


def _mapped(primitive: Primitive, places: tuple[_Place, _Place], args: Any, dims: Any, *, window: _Window) -> Any:
    """The rule for `vmap`: many images under one kernel are more images, many kernels on one image more outputs.

    So an axis that one argument has is joined to that of its axes which the other lacks. One that both have is an axis
    of models.
    """
    if None not in dims:
        moved = [jnp.moveaxis(arg, dim, 0) for arg, dim in zip(args, dims, strict=True)]
        out = primitive.bind(*(a.reshape(-1, *a.shape[2:]) for a in moved), window=window)
        return out.reshape(*moved[0].shape[:2], *out.shape[1:]), 0
    which = dims.index(None) ^ 1
    axis, place = places[which]
    moved = jnp.moveaxis(args[which], dims[which], axis)
    sizes = moved.shape[axis : axis + 2]
    joined = moved.reshape(*moved.shape[:axis], -1, *moved.shape[axis + 2 :])
    out = primitive.bind(*(joined if i == which else arg for i, arg in enumerate(args)), window=window)
    return out.reshape(*out.shape[:place], *sizes, *out.shape[place + 1 :]), place


def _map(name: str, one: _One, sizes: _Sizes, first: _Place, second: _Place) -> Primitive:
    """The bilinear map as a primitive operation; `first` and `second` are the places that `_mapped` speaks of."""
    primitive = Primitive(name)

    def every(a: Array, b: Array, *, window: _Window) -> Array:
        # Kernels of many models in one convolution are slower than one model after another.
        if len(a) == 1:
            return one(a[0], b[0], window)[None]
        return jax.lax.map(lambda pair: one(pair[0], pair[1], window), (a, b))

    def typed(a: Any, b: Any, *, window: _Window) -> Any:
        return ShapedArray((*a.shape[:1], *sizes(a.shape, b.shape, *window)), a.dtype)

    primitive.def_impl(jax.jit(every, static_argnames="window"))
    primitive.def_abstract_eval(typed)
    mlir.register_lowering(primitive, mlir.lower_fun(every, multiple_results=False))
    batching.primitive_batchers[primitive] = partial(_mapped, primitive, (first, second))
    return primitive


_C = _map("convolution", _forward, lambda x, w, r, c: (x[1], r.output, c.output, w[4]), (1, 1), (4, 4))
_X = _map("convolution_in_image", _in_image, lambda g, w, r, c: (g[1], r.image, c.image, w[3]), (1, 1), (3, 4))
_W = _map("convolution_in_kernel", _in_kernel, lambda x, g, r, c: (r.kernel, c.kernel, x[4], g[4]), (4, 3), (4, 4))

# What is given to each: the cotangent of the result, and the argument that stays.
ad.defbilinear(_C, lambda y, x, w, **p: _X.bind(y, w, **p), lambda y, x, w, **p: _W.bind(x, y, **p))
ad.defbilinear(_X, lambda x, g, w, **p: _C.bind(x, w, **p), lambda x, g, w, **p: _W.bind(x, g, **p))
ad.defbilinear(_W, lambda w, x, g, **p: _X.bind(g, w, **p), lambda w, x, g, **p: _C.bind(x, w, **p))


# ------------------------------------------------------------------------------------------------ what is used


def _pair(name: str, value: Pair) -> tuple[int, int]:
    rows, columns = (value, value) if isinstance(value, int) else value
    require(rows >= 1 and columns >= 1, f"the {name} of a convolution must be at least 1, not {value}")
    return rows, columns


def _checked(padding: Padding) -> Padding:
    if isinstance(padding, str):
        require(padding in ("SAME", "VALID"), f'a padding is "SAME", "VALID" or numbers of zeros, not {padding!r}')
    else:
        require(min(map(min, padding)) >= 0, f"a padding must be 0 or more, not {padding}")
    return padding


def _axis(image: int, kernel: int, stride: int, dilation: int, padding: str | tuple[int, int]) -> _Axis:
    span = (kernel - 1) * dilation + 1
    if isinstance(padding, str):
        missing = max((math.ceil(image / stride) - 1) * stride + span - image, 0) if padding == "SAME" else 0
        padding = (missing // 2, missing - missing // 2)
    before, after = padding
    whole = image + before + after
    require(
        image >= 1 and whole >= span,
        f"a kernel that covers {span} rows or columns does not fit on {whole}, the padding counted; take a smaller "
        'kernel or padding="SAME"',
    )
    return _Axis(image, kernel, (whole - span) // stride + 1, stride, dilation, before)


def convolve(
    x: Float[Array, "h w inputs"],
    kernel: Float[Array, "kh kw inputs outputs"],
    *,
    stride: Pair = 1,
    dilation: Pair = 1,
    padding: Padding = "SAME",
) -> Float[Array, "p q outputs"]:
    """y_ij = sum_ab x_(s i + d a, s j + d b) w_ab for stride s and dilation d, with zeros around the image.

    What `jax.lax.conv_general_dilated` computes (a kernel is not flipped), differentiable to any order in both
    arguments. Under `vmap` points that share a kernel are one convolution of many images.

    >>> convolve(jnp.ones((4, 4, 1)), jnp.ones((3, 3, 1, 1)), stride=2)[..., 0].tolist()
    [[9.0, 6.0], [6.0, 4.0]]
    """
    require(
        x.ndim == 3,
        f"a convolution takes one image (rows, columns, channels), not shape {x.shape}; use jax.vmap for many",
    )
    require(kernel.ndim == 4, f"a kernel has rows, columns, inputs and outputs; this one has shape {kernel.shape}")
    require(x.shape[2] == kernel.shape[2], f"a kernel of {kernel.shape[2]} inputs cannot take {x.shape[2]} channels")
    padding = _checked(padding)
    pads = (padding, padding) if isinstance(padding, str) else padding
    sizes = zip(x.shape, kernel.shape, _pair("stride", stride), _pair("dilation", dilation), pads, strict=False)
    rows, columns = (_axis(*size) for size in sizes)
    dtype = jnp.result_type(x, kernel)
    return _C.bind(x[None, None].astype(dtype), kernel[None].astype(dtype), window=(rows, columns))[0, 0]


class Conv(eqx.Module):
    """x * w + b, the convolutional layer of one image (rows, columns, channels).

    Weights and biases begin uniform on ± scale / sqrt(rows x columns x inputs), as those of linear layers do (LeCun et
    al. 1998; the custom of PyTorch and Equinox with scale 1). With scale 0 the layer begins silent, as the last one of
    a residual block or of a score often should.

    >>> Conv(1, 8, size=3, stride=2, key=jax.random.key(0))(jnp.zeros((28, 28, 1))).shape
    (14, 14, 8)
    """

    kernel: Float[Array, "kh kw inputs outputs"]
    bias: Float[Array, " outputs"] | None
    stride: Pair = eqx.field(static=True)
    dilation: Pair = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        size: Pair = 3,
        stride: Pair = 1,
        dilation: Pair = 1,
        padding: Padding = "SAME",
        use_bias: bool = True,
        scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        """A kernel of `size` rows and columns, whose neighbours are `dilation` apart on the image."""
        require(inputs >= 1 and outputs >= 1, f"a convolution needs channels in and out, not {inputs} and {outputs}")
        require(scale >= 0, f"the scale of the first weights must be 0 or more, not {scale}")
        shape = (*_pair("size", size), inputs, outputs)
        bound = scale / math.sqrt(math.prod(shape[:3]))
        for_kernel, for_bias = jax.random.split(key)
        self.kernel = bound * jax.random.uniform(for_kernel, shape, minval=-1)
        self.bias = bound * jax.random.uniform(for_bias, (outputs,), minval=-1) if use_bias else None
        self.stride, self.dilation = _pair("stride", stride), _pair("dilation", dilation)
        self.padding = _checked(padding)

    def __call__(self, x: Float[Array, "h w inputs"]) -> Float[Array, "p q outputs"]:
        y = convolve(x, self.kernel, stride=self.stride, dilation=self.dilation, padding=self.padding)
        return y if self.bias is None else y + self.bias[None, None]
