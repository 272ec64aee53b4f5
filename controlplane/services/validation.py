"""What exactly is wrong with a value that is no model, and where: pydantic's errors as faults."""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from controlplane.contract.rest.common import slug_of
from controlplane.services.errors import Fault, Invalid

Model = TypeVar("Model")
FAULTS_MAX = 20


def parsed(adapter: TypeAdapter[Model], value: object, *, tagged: bool = False) -> Model:
    """The model, or Invalid with a fault per mistake. `tagged`: locations begin with the kind."""
    try:
        # Models are made by either name in Python; what people send has one name for each thing.
        return adapter.validate_python(value, by_alias=True, by_name=False)
    except ValidationError as error:
        faults = tuple(
            Fault(pointer(each["loc"][tagged:]), _words(each), slug_of(each["type"], each.get("ctx")))
            for each in error.errors(include_url=False, include_input=False)[:FAULTS_MAX]
        )
        raise Invalid(faults[0].detail, slug=faults[0].slug, faults=faults) from None


def _words(error: ErrorDetails) -> str:
    """Pydantic's words do not name the field; our own do."""
    field = next((part for part in reversed(error["loc"]) if isinstance(part, str)), "")
    if error["type"] == "extra_forbidden":
        return f"there is no field {field} here"
    if error["type"] == "missing":
        return f"{field} is missing"
    if error["type"] in {"model_type", "dict_type"} and field:
        what = field if error["loc"][-1] == field else f"each of {field}"
        return f"{what} is one object, as in {{field: value}}, and no list, text or number"
    return error["msg"] if error["type"] == "muster" or not field else f"{field}: {error['msg']}"


def pointer(path: Sequence[int | str]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
