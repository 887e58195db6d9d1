"""A small validator of JSON schemas: as much of them as the published one uses, and an error at anything else."""

from typing import Any

KNOWN = {"type", "properties", "required", "additionalProperties", "items", "$ref", "anyOf", "const", "enum"}
KNOWN |= {"prefixItems", "minItems", "maxItems", "default", "title", "description", "$defs", "$schema", "$id"}
TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool}


def faults(value: Any, schema: Any, root: Any, where: str = "") -> list[str]:
    """What is wrong with a value."""
    if schema is True:
        return []
    unknown = set(schema) - KNOWN
    assert not unknown, f"the schema uses {unknown}"
    if "$ref" in schema:
        return faults(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, where)
    if "anyOf" in schema:
        tried = [faults(value, one, root, where) for one in schema["anyOf"]]
        return [] if any(not one for one in tried) else [f"{where}: none of anyOf: {tried}"]
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    kind = schema.get("type")
    if kind in ("number", "integer"):
        good = isinstance(value, (int, float) if kind == "number" else int) and not isinstance(value, bool)
    else:
        good = kind is None or isinstance(value, TYPES[kind])
    if not good:
        return [*found, f"{where}: {value!r} is no {kind}"]
    if isinstance(value, dict):
        found += [f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        own, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, one in value.items():
            if name in own:
                found += faults(one, own[name], root, f"{where}.{name}")
            elif more is False:
                found.append(f"{where}: {name} is not known")
            else:
                found += faults(one, more, root, f"{where}.{name}")
    if isinstance(value, list):
        for at, one in enumerate(value):
            found += faults(one, schema.get("items", True), root, f"{where}[{at}]")
    return found
