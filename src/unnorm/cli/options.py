"""Options given as KIND.NAME=VALUE, and settings checked into sentences."""

import json
from typing import Any

from pydantic import ValidationError

from unnorm.errors import InputError, require
from unnorm.runs.settings import Named, Training


def parse_options(given: list[str], kinds: list[str]) -> dict[str, dict[str, Any]]:
    """`["objective.share=0.75"]` to `{"objective": {"share": 0.75}}`; values are read as JSON where they can be."""
    parsed: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    for text in given:
        name, equals, value = text.partition("=")
        kind, dot, option = name.partition(".")
        require(
            bool(equals and dot and option and kind in kinds),
            f"--set {text} is not understood; write it as {' or '.join(f'{k}.NAME=VALUE' for k in kinds)}",
        )
        try:
            parsed[kind][option] = json.loads(value)
        except json.JSONDecodeError:
            parsed[kind][option] = value
    return parsed


def named(name: str, options: dict[str, Any]) -> Named:
    """A catalogue name with its options."""
    return Named(name=name, options=options)


def default_objective(model: str) -> str:
    """A reference is tilted away from itself; anything else is learnt by conditional NCE with jumps."""
    return "tilt" if model == "tilted" else "cnce"


def training_settings(**given: Any) -> Training:
    """Training settings, or a sentence about the first one that is impossible."""
    try:
        return Training(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"--{first['loc'][0]} {first['input']}: {first['msg'].lower()}") from None
