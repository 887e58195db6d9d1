"""Validation errors in one line: what, where, and what would be right."""

from pydantic import BaseModel, ValidationError

from outrider.errors import InputError, suggestion


def explain(error: ValidationError, model: type[BaseModel], kind: str = "key") -> str:
    """Put the first fault of a pydantic error into a line.

    Args:
        error: what pydantic raised.
        model: what was validated; tells the names that are allowed where the fault is.
        kind: what a name is called.
    """
    fault = error.errors(include_url=False)[0]
    name = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        last = str(fault["loc"][-1])
        known = _names_beside(model, tuple(map(str, fault["loc"])))
        return f"unknown {kind} '{name}'.{suggestion(last, known)} Known: {', '.join(known) or 'none'}."
    if fault["type"] == "missing":
        field = model.model_fields.get(name)
        return f"{kind} '{name}' is missing{f': {field.description}' if field and field.description else ''}"
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # says itself what is wrong and where
        return f"{kind} {name}: {cause}"
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "tuple_type":
        message = "must be a list in brackets, such as [1, 2]"
    if not name:
        return message
    return f"{kind} {name} = {fault['input']!r}: {message[:1].lower()}{message[1:]}"


def _names_beside(model: type[BaseModel], place: tuple[str, ...]) -> list[str]:
    """Return the names that are allowed in the table in which `place` lies."""
    for part in place[:-1]:
        inner = model.model_fields[part].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return sorted(model.model_fields)


def place(error: BaseException | None) -> tuple[str, ...]:
    """Return where the first fault of a validation lies, by keys and indices; inside a drafter's part too.

    Args:
        error: an error whose cause is pydantic's, or that.
    """
    if not isinstance(error, ValidationError):
        return place(error.__cause__) if isinstance(error, InputError) else ()
    fault = error.errors(include_url=False)[0]
    keys = tuple(map(str, fault["loc"]))
    inner = place(fault.get("ctx", {}).get("error"))
    return (*keys, "options", *inner) if inner else keys
