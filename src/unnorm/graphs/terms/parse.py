"""Terms from a string, "edges, gwesp(0.5), nodematch(grade)", or one sentence about what is wrong with it."""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from unnorm.errors import InputError, require
from unnorm.graphs.terms import attributes, counts, directed, structure
from unnorm.graphs.terms.base import AbstractTerm
from unnorm.graphs.terms.offset import Offset

Covariates = Mapping[str, np.ndarray]

_PLAIN: dict[str, type[Any]] = {
    kind.word: kind
    for kind in (
        structure.Edges,
        structure.Triangle,
        structure.Isolates,
        directed.Mutual,
        directed.TTriple,
        directed.CTriple,
        directed.TwoPath,
        directed.Sender,
        directed.Receiver,
    )
}
_DECAYED: dict[str, type[Any]] = {
    kind.word: kind
    for kind in (structure.GWDegree, structure.GWESP, structure.GWDSP, directed.GWIDegree, directed.GWODegree)
}
_COUNTED: dict[str, type[Any]] = {
    kind.word: kind
    for kind in (
        structure.KStar,
        structure.Degree,
        directed.IStar,
        directed.OStar,
        directed.IDegree,
        directed.ODegree,
    )
}
_NAMED: dict[str, type[Any]] = {
    kind.word: kind
    for kind in (
        attributes.NodeCov,
        attributes.NodeICov,
        attributes.NodeOCov,
        attributes.NodeFactor,
        attributes.NodeMix,
    )
}
#: What each term takes, as it is written.
TERMS: dict[str, str] = {
    **dict.fromkeys(_PLAIN, ""),
    **dict.fromkeys(_DECAYED, "decay"),
    **{word: "d, ..." if "degree" in word else "k, ..." for word in _COUNTED},
    **dict.fromkeys(_NAMED, "name"),
    "nodematch": "name, each",
    "absdiff": "name, power",
    "edgecov": "name",
    "offset": "term, coefficient",
}
_OTHERS: dict[str, type[Any]] = {
    kind.word: kind for kind in (attributes.NodeMatch, attributes.AbsDiff, attributes.EdgeCov, Offset)
}
#: Other names under which people know them.
_ALSO = {
    "triangles": "triangle",
    "m2star": "twopath",
    "transitiveties": "ttriple",
    "edge": "edges",
    "mutuality": "mutual",
    "homophily": "nodematch",
    "diffhomophily": "nodematch",
    "nodeifactor": "nodefactor",
    "altkstar": "gwdegree",
}


def parse(terms: "str | AbstractTerm | Sequence[AbstractTerm | str]", covariates: Covariates | None = None):
    """The terms of a model.

    >>> parse("edges, gwesp(0.5)")
    [Edges(), GWESP(decay=0.5)]
    >>> parse("edges, triangl")
    Traceback (most recent call last):
    unnorm.errors.InputError: there is no term 'triangl'; did you mean triangle? The terms are: absdiff, ...
    """
    if isinstance(terms, AbstractTerm):
        return [terms]
    if isinstance(terms, str):
        parts: Sequence[AbstractTerm | str] = _split(terms)
    else:
        parts = list(terms)
    require(
        len(parts) > 0 and all(isinstance(part, AbstractTerm | str) for part in parts),
        'a model needs at least one term, as in "edges, triangle"',
    )
    return [part if isinstance(part, AbstractTerm) else _term(part, covariates or {}) for part in parts]


def _split(text: str) -> list[str]:
    """At commas and plus signs outside brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
        elif depth == 0 and (sign == "," or (sign == "+" and text[:at].strip()[-1:] not in "(,=")):
            parts.append(text[begin:at].strip())
            begin = at + 1
    require(depth == 0 and not quote, f"a bracket or a quotation mark is not closed in {text!r}")
    parts.append(text[begin:].strip())
    return [part for part in parts if part]


def _term(text: str, covariates: Covariates) -> AbstractTerm:
    found = re.fullmatch(r"\s*([A-Za-z_.]\w*)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if found is None:
        raise InputError(f"{text!r} is no term; write terms as edges, gwesp(0.5), nodematch(grade)")
    word = found[1].lower()
    word = _ALSO.get(word, word) if word not in TERMS else word
    if word not in TERMS:
        near = difflib.get_close_matches(word, [*TERMS, *_ALSO], n=1, cutoff=0.5)
        every = f"he terms are: {', '.join(sorted(TERMS))}"
        advice = f"did you mean {near[0]}? T{every}" if near else f"t{every}"
        raise InputError(f"there is no term {found[1]!r}; {advice}")
    given = _split(found[2] or "")
    for table, build in ((_PLAIN, _plain), (_DECAYED, _decayed), (_COUNTED, _counted), (_NAMED, _named)):
        if word in table:
            return build(table[word], word, given)
    if word == "offset":
        return _offset(given, covariates)
    if word == "edgecov":
        return _edgecov(given, covariates)
    return _nodematch(given) if word == "nodematch" else _absdiff(given)


def _usage(word: str) -> str:
    return f"{word}({TERMS[word]})" if TERMS[word] else word


def described() -> list[tuple[str, str]]:
    """Every term as it is written, and what it counts.

    >>> dict(described())["edges"]
    'The number of edges.'
    """
    found = []
    for word, kind in sorted({**_PLAIN, **_DECAYED, **_COUNTED, **_NAMED, **_OTHERS}.items()):
        where = {True: " Only with directions.", False: " Only without directions.", None: ""}
        directed = getattr(kind, "directed", None)
        told = (kind.__doc__ or "").strip().split("\n\n")[0]
        found.append((_usage(word), " ".join(told.split()) + where.get(directed, "")))
    return found


def _number(text: str, word: str) -> float:
    """What is after "decay =" or alone; also R's "fixed = TRUE" is understood elsewhere."""
    try:
        value = float(text.split("=")[-1].strip().lower())
    except ValueError:
        raise InputError(f"{text.strip()!r} is no number; write {_usage(word)}") from None
    require(not math.isnan(value), f"{text.strip()!r} is no number; write {_usage(word)}")
    return value


def _name(text: str) -> str:
    return text.strip().strip("'\"")


def _plain(kind: Callable[..., AbstractTerm], word: str, given: list[str]) -> AbstractTerm:
    require(not given, f"{word} takes nothing in brackets, not {', '.join(given)!r}")
    return kind()


def _decayed(kind: Callable[..., AbstractTerm], word: str, given: list[str]) -> AbstractTerm:
    said = [part.replace(" ", "").lower() for part in given]
    if any(part == "free" or part.startswith("fixed=f") for part in said):
        return counts.CURVED[word]()
    given = [part for part, plain in zip(given, said, strict=True) if not plain.startswith("fixed=t")]
    require(
        len(given) == 1,
        f"{word} takes one number, its decay, as in {word}(0.5); {word}(free) estimates it",
    )
    return kind(_number(given[0], word))


def _counted(kind: Callable[..., AbstractTerm], word: str, given: list[str]) -> AbstractTerm:
    require(len(given) >= 1, f"{word} takes whole numbers, as in {word}(2) or {word}(2, 3)")
    numbers = [_number(part, word) for part in given]
    require(all(x == int(x) for x in numbers), f"{word} takes whole numbers, not {', '.join(given)}")
    return kind(tuple(int(x) for x in numbers))


def _named(kind: Callable[..., AbstractTerm], word: str, given: list[str]) -> AbstractTerm:
    require(len(given) == 1, f"{word} takes the name of one vertex attribute, as in {word}(age)")
    return kind(_name(given[0]))


def _nodematch(given: list[str]) -> AbstractTerm:
    require(1 <= len(given) <= 2, "nodematch takes the name of a vertex attribute, as in nodematch(grade)")
    each = len(given) == 2
    if each:
        word = given[1].replace(" ", "").lower()
        require(
            word in ("each", "diff=true", "diff=t", "diff"),
            f"nodematch(name, each) counts each group apart; {given[1]!r} is not understood",
        )
    return attributes.NodeMatch(_name(given[0]), each)


def _absdiff(given: list[str]) -> AbstractTerm:
    require(1 <= len(given) <= 2, "absdiff takes the name of a vertex attribute, as in absdiff(age)")
    return attributes.AbsDiff(_name(given[0]), _number(given[1], "absdiff") if len(given) == 2 else 1.0)


def _edgecov(given: list[str], covariates: Covariates) -> AbstractTerm:
    require(len(given) == 1, "edgecov takes the name of one covariate of pairs, as in edgecov(distance)")
    name, known = _name(given[0]), ", ".join(sorted(covariates)) or "none"
    require(
        name in covariates,
        f"edgecov needs the covariate {name!r}; those given are: {known}; pass covariates={{{name!r}: matrix}}, or "
        f"--covariate {name}=FILE",
    )
    return attributes.EdgeCov(np.asarray(covariates[name], np.float64), name)


def _offset(given: list[str], covariates: Covariates) -> AbstractTerm:
    require(len(given) >= 2, "offset takes a term and its coefficient, as in offset(edges, -2)")
    return Offset(_term(given[0], covariates), tuple(_number(part, "offset") for part in given[1:]))
