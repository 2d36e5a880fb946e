"""How fast unnorm is, measured against what a user would otherwise write: `python -m benchmarks`."""
