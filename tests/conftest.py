"""What every test shares."""

import gc

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def programs_are_let_go():
    """Forget compiled programs when a file of tests is done.

    Each holds mappings of memory of which a process may have some 65,000; a worker that kept those of all files would
    crash inside the compiler.
    """
    yield
    jax.clear_caches()
    gc.collect()
