"""Options given as KIND.NAME=VALUE, and settings checked into sentences."""

import json
from typing import Any

from pydantic import ValidationError

from unnorm.catalogue import MODELS, OBJECTIVES, find, first_for, require_works
from unnorm.errors import InputError, require
from unnorm.runs import Prepared
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


def parse_given(given: str | None) -> dict[str, float | str]:
    """`"a=1,label=cat"` to `{"a": 1.0, "label": "cat"}`."""
    found: dict[str, float | str] = {}
    for text in [] if given is None else given.split(","):
        name, equals, value = (part.strip() for part in text.rpartition("="))
        require(bool(equals and name and value), f"--given {given} is not understood; write it as NAME=VALUE")
        require(name not in found, f"--given names {name!r} twice; give each condition one value")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    return found


def named(name: str, options: dict[str, Any]) -> Named:
    """A catalogue name with its options."""
    return Named(name=name, options=options)


def chosen_names(prepared: Prepared, model: str | None, objective: str | None) -> tuple[str, str]:
    """The model and the objective that are named, or else those that suit the data: the first of the catalogue."""
    space, condition = prepared.space, prepared.schema.condition
    made = first_for(MODELS, space, condition) if model is None else find(MODELS, model, "model")
    if objective is None:
        # An impossible model is refused for what it is, and not for want of an objective.
        require_works(MODELS, made, space, condition, "model")
        return made.name, made.objective or first_for(OBJECTIVES, space, condition, made).name
    return made.name, objective


def training_settings(**given: Any) -> Training:
    """Training settings, or a sentence about the first one that is impossible."""
    try:
        return Training(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"--{first['loc'][0]} {first['input']}: {first['msg'].lower()}") from None
