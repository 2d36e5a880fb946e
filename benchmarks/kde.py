"""What a jump to anywhere costs: a CNCE step whose noise is a KDE of 10,000 rows against one with local noise."""

import unnorm as un
from benchmarks.harness import Bar, Report, Side, compare
from benchmarks.training import NOISE, ours

BANDWIDTH = 0.1
STEPS = 100


def _step(label: str, noise: un.noises.AbstractNoise | un.noises.AbstractNoiseFromData) -> Side:
    return ours(label, un.objectives.CNCE(noise), STEPS)


def run(*, repeats: int) -> list[Report]:
    """Global jumps alone, and the mix of three local moves to each jump."""
    mix = un.noises.Jumps(local=NOISE, bandwidth=BANDWIDTH, share=0.75)
    return [
        compare(
            f"CNCE step, {label} against local noise",
            _step("local", un.noises.Gaussian(NOISE)),
            _step(label, noise),
            repeats=repeats,
            bar=Bar(2.0, at_least=False),
        )
        for label, noise in (("global", un.noises.GlobalJumps(bandwidth=BANDWIDTH)), ("mixed", mix))
    ]
