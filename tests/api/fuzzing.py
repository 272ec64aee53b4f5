"""Cases for every operation of an OpenAPI document: what it allows, and what it does not, the same in each run."""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any
from unittest import SkipTest

import httpx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable, UnsatisfiedAssumption

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "5"))
"""Cases of each sort per operation; a search for trouble takes more: `FUZZ_EXAMPLES=500`."""
PATIENCE = 40
"""Tries after which no case is to be expected any more; where there is one, it comes within the first few."""
STEADY = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
"""The same cases each time. No shrinking: what is asked has been done by then, and is done again otherwise."""

Case = Any  # schemathesis types its cases by what the document says


def cases_of(operation: Any, check: Callable[[Case], None], seed_values: Mapping[str, str]) -> None:  # noqa: ANN401 - anything that JSON can be
    """Call `check` with cases that the operation's schema allows, then with cases that it forbids.

    Every other case names things that exist, by `seed_values` (path parameter: value), so that not all end at a 404.
    """
    from schemathesis import GenerationMode  # noqa: PLC0415 - a second, which only whoever runs this shall wait

    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @STEADY
        @given(case=_patiently(operation.as_strategy(generation_mode=mode)), is_real=st.booleans())
        def ask(case: Case, is_real: bool) -> None:
            if is_real:
                for name in case.path_parameters:
                    case.path_parameters[name] = seed_values.get(name, case.path_parameters[name])
            check(case)

        with suppress(Unsatisfiable, _NothingFound):  # nothing can be wrong where nothing can be said
            ask()


class _NothingFound(SkipTest):
    """None of the first tries made a case. A kind of skip, since hypothesis tries to repeat any other failure."""


def _patiently(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    """The same, given up after `PATIENCE` tries of which none made a case; hypothesis alone would try on for long."""
    rejected = made = 0

    @st.composite
    def tried(draw: st.DrawFn) -> Case:
        nonlocal rejected, made
        try:
            case = draw(cases)
        except UnsatisfiedAssumption:
            rejected += 1
            if rejected >= PATIENCE and not made:
                raise _NothingFound("nothing can be wrong") from None
            raise
        made += 1
        return case

    return tried()


def schema_of(url: str) -> Any:  # noqa: ANN401 - schemathesis types it by what the document says
    """The document that this listener serves."""
    import schemathesis  # noqa: PLC0415 - as above

    document = httpx.get(f"{url}/openapi.json", trust_env=False, timeout=60).json()  # made when first asked for
    for operation in (each for methods in document["paths"].values() for each in methods.values()):
        operation.pop("security", None)  # who asks is always known here; strangers are tests/api/test_auth.py's
    return schemathesis.openapi.from_dict(document)


def answer_checks() -> list[Any]:
    """What must hold of each answer: no fault, documented, in the form that is documented, and no nonsense taken."""
    from schemathesis.specs.openapi import checks  # noqa: PLC0415 - as above

    return [
        _no_fault,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.response_headers_conformance,
        _nothing_forbidden_taken,
    ]


def _nothing_forbidden_taken(context: Any, answer: Any, case: Case) -> None:  # noqa: ANN401 - a check, as above
    from schemathesis.specs.openapi import checks  # noqa: PLC0415 - as above

    if answer.status_code < 400:  # every refusal will do: 413 and 429 too
        checks.negative_data_rejection(context, answer, case)


def _no_fault(_context: object, answer: Any, case: Case) -> None:  # noqa: ANN401 - a check, as schemathesis calls it
    is_unready = answer.status_code == 503 and case.path.startswith("/readyz")  # no worker runs here
    assert answer.status_code < 500 or is_unready, answer.text


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=40),
    st.sampled_from(
        ["", "\x00", "\ud800", "..", "%2e%2e", "a" * 2_000, "-1", "1e3", "2Ti", "12h", "default", "/", "*"]
    ),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=8), st.integers(), max_size=3),
)


@st.composite
def spoilt(draw: st.DrawFn, sound: list[Any]) -> bytes:
    """JSON of one of these values with something else in one to three of its places, a part gone, or one more."""
    value = deepcopy(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(_places(value)))
        deed = draw(st.sampled_from(("replace", "replace", "remove", "add", "repeat")))
        if deed == "replace" or not isinstance(holder, (dict, list)):
            holder[key] = draw(JUNK)
        elif deed == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(st.text(max_size=12))] = draw(JUNK)
        else:
            holder.extend([deepcopy(holder[key])] * draw(st.integers(1, 3)))
    return json.dumps(value).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 - anything that JSON can be
    """Every (container, key) in it; the value itself stands in a list, so there is always one."""
    found: list[tuple[Any, Any]] = []
    stack: list[Any] = [value]
    while stack:
        each = stack.pop()
        keys = list(each) if isinstance(each, dict) else list(range(len(each))) if isinstance(each, list) else []
        found.extend((each, key) for key in keys)
        stack.extend(each[key] for key in keys)
    return found or [([value], 0)]


def label_of(method: str, path: str) -> str:
    """How schemathesis names an operation of a route."""
    return f"{method} {re.sub(r':[a-z]+}', '}', path)}"
