"""How whole loops are compiled: `equinox.filter_jit`, with the settings under which they run fastest."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
from jax.core import Tracer

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")

#: XLA's default for processors hands small products of matrices to a library that runs each on one core. Without it
#: they are split over the cores, and a training step of a small network takes two thirds of the time.
_OPTION = "xla_cpu_experimental_ynn_fusion_type"
_PROCESSOR_OPTIONS = {_OPTION: ""}
#: A forward pass of convolutions is another matter: handed to the library, it takes two thirds of the time.
_CONVOLUTION_OPTIONS = {
    _OPTION: "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_ELTWISE,LIBRARY_FUSION_TYPE_REDUCE,"
    "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"
}


@lru_cache
def compiler_options(convolves: bool = False) -> dict[str, str]:
    """What to tell XLA on this machine: nothing, unless it runs on processors and knows the option.

    The option belongs to some releases of XLA only; where it is unknown there is nothing to switch off.

    >>> set(compiler_options()) <= {"xla_cpu_experimental_ynn_fusion_type"}
    True
    """
    if jax.default_backend() != "cpu":
        return {}
    options = dict(_CONVOLUTION_OPTIONS if convolves else _PROCESSOR_OPTIONS)
    try:
        jax.jit(lambda x: x).lower(0.0).compile(compiler_options=dict(options))
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" in str(error):
            return {}
        raise
    return options


def compiled(function: Callable[Inputs, Output], *, convolves: bool = False) -> Callable[Inputs, Output]:
    """`equinox.filter_jit` for the outermost loops; `convolves`: what is in them is forward passes of convolutions.

    The options are asked for at the first call, not at import, which would start JAX. Options are a whole program's:
    while another is being traced, the function becomes an ordinary part of it.

    >>> compiled(lambda x, y: x + y)(1, 2)
    3
    """
    part = eqx.filter_jit(function)

    @lru_cache
    def program() -> Any:
        # Equinox hands these on to `jax.jit`; its annotations do not say so.
        settings: dict[str, Any] = {"compiler_options": compiler_options(convolves)}
        return eqx.filter_jit(function, **settings)

    @wraps(function)
    def call(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Output:
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs)))
        return (part if traced else program())(*args, **kwargs)

    return call
