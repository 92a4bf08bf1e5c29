"""Dotted paths into specs: finding, assigning, printing, and the wording of validation errors."""

import json
import re
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from clearformer.errors import SpecError, nearest


def find(part: Any, path: str) -> Any:
    """The value at a path, in a part."""
    data = plain(part)
    for name in path.split("."):
        routes = _routes(data, name, path)
        if len(routes) != 1:
            raise SpecError(f"{path}: '*' means {len(routes)} places; name one of them")
        for key in routes[0]:
            data = data[key]
            part = getattr(part, key) if isinstance(key, str) else part[key]
    return part


def plain(value: Any) -> Any:
    """A part, or anything that holds parts, as fresh dicts, lists and simple values."""
    if isinstance(value, BaseModel):
        return plain(dict(value))
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def assign(data: Any, path: str, value: Any) -> None:
    """Set every place that `path` means in the plain form of a part."""
    *names, last = path.split(".")
    places = [data]
    for name in names:
        places = [_follow(place, route) for place in places for route in _routes(place, name, path)]
        if any(place is None for place in places):
            raise SpecError(f"{path}: there is no {name} yet; assign the whole part instead")
    for place in places:
        for *holder, key in _routes(place, last, path):
            _follow(place, holder)[key] = plain(value)


def _follow(place: Any, route: list[Any]) -> Any:
    for key in route:
        place = place[key]
    return place


def _routes(place: Any, name: str, path: str) -> list[list[Any]]:
    """The keys that a name stands for from a place, once for each item that `*` means.

    A block's branches and a branch's layer are looked through: their names need not be said.
    """
    if isinstance(place, list):
        if name == "*":
            return [[number] for number in range(len(place))]
        if name.isdecimal() and int(name) < len(place):
            return [[int(name)]]
        known = [(isinstance(each, dict) and each.get("name")) or str(n) for n, each in enumerate(place)]
        if name in known:
            return [[known.index(name)]]
        raise SpecError(f"{path}: no item {name!r} here{nearest(name, known)}")
    if not isinstance(place, dict):
        raise SpecError(f"{path}: nothing to look up {name!r} in, this is {place!r}")
    if name == "*":
        raise SpecError(f"{path}: '*' means every item of a list, and this is a single part")
    if name in place:
        return [[name]]
    for inside in ("branches", "layer"):
        if inside in place:
            return [[inside, *route] for route in _routes(place[inside], name, path)]
    raise SpecError(f"{path}: no field {name!r} here{nearest(name, place)}")


def _plain_path(location: tuple[Any, ...], data: Any) -> tuple[str, Any]:
    """A pydantic location without its union tags, and the value found there."""
    words: list[str] = []
    for key in location:
        if isinstance(data, BaseModel):
            data = dict(data)
        if isinstance(data, dict) and key in data:
            words.append(str(key))
            data = data[key]
        elif isinstance(data, list | tuple) and isinstance(key, int) and key < len(data):
            data = dict(data[key]) if isinstance(data[key], BaseModel) else data[key]
            name = data.get("name") if isinstance(data, dict) else None
            words.append(name if isinstance(name, str) else str(key))
        elif not (isinstance(data, dict) and data.get("kind") == key):
            words.append(str(key))
            data = None
    return ".".join(words), data


def explain(error: ValidationError, owner: Any, data: Any) -> str:
    """One line per fault: where, what was given, what fits."""
    if isinstance(data, str | bytes):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as broken:
            return f"not valid JSON: {broken}"
    lines = []
    faults = error.errors()
    for fault in faults:
        if fault["type"] == "too_short" and len(faults) > 1:
            continue  # the items were given, and each has its own fault
        where, _ = _plain_path(fault["loc"], data)
        name = owner.__name__ if isinstance(owner, type) else "model"
        given, message = fault["input"], fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            known = _fields_at(owner, data, fault["loc"][:-1])
            message = f"unknown field{nearest(str(fault['loc'][-1]), known)}"
        elif fault["type"] == "missing":
            message = "this field is required"
        elif fault["type"] == "value_error":
            lines.append(_placed(where, message, name))
            continue
        elif fault["type"] == "union_tag_invalid":
            context = fault["ctx"]
            kinds = [word.strip("' ") for word in context["expected_tags"].split(",")]
            message = f"unknown kind {context['tag']!r}{nearest(context['tag'], kinds)}"
            lines.append(f"{where or name}: {message}")
            continue
        shown = repr(given) if isinstance(given, str | int | float | bool | None) else type(given).__name__
        lines.append(f"{where or name}: {message}, given {shown}")
    return "\n".join(lines)


def _placed(where: str, message: str, owner: str) -> str:
    """A validator's message after the path it speaks from; messages about a part further in begin with its path."""
    if re.match(r"[a-z_]+\.[a-z0-9]", message):
        return f"{where}.{message}" if where else message
    return f"{where or owner}: {message}"


def _fields_at(owner: Any, data: Any, location: tuple[Any, ...]) -> list[str]:
    """The fields that could have stood where an unknown one was found."""
    from clearformer import spec

    path, found = _plain_path(location, data)
    if not location and isinstance(owner, type):
        return list(owner.model_fields)  # type: ignore[attr-defined]
    if (part := _only_part(owner, location)) is not None:
        return list(part.model_fields)
    kind = found.get("kind") if isinstance(found, dict) else None
    for part in vars(spec).values():
        if isinstance(part, type) and issubclass(part, spec.Part):
            field = part.model_fields.get("kind")
            if field is not None and field.default == kind and kind is not None:
                return list(part.model_fields)
    last = path.rsplit(".", 1)[-1]
    by_place = {"stack": spec.Stack, "encoder": spec.Stack, "decoder": spec.Stack}
    if last in by_place:
        return list(by_place[last].model_fields)
    return list((spec.Residual if isinstance(found, dict) and "layer" in found else spec.Block).model_fields)


def _only_part(owner: Any, location: tuple[Any, ...]) -> type[BaseModel] | None:
    """The class that stands at a location, where the owner's fields leave no choice."""
    for key in location:
        if isinstance(key, int):
            continue  # an item of a tuple is of the class that the tuple was found to hold
        field = owner.model_fields.get(key) if isinstance(owner, type) and issubclass(owner, BaseModel) else None
        held = [] if field is None else _classes(field.annotation)
        if len(held) != 1:
            return None
        owner = held[0]
    return owner if isinstance(owner, type) else None


def _classes(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [each for inner in get_args(annotation) for each in _classes(inner)]


def tree(part: Any, indent: str = "") -> str:
    """An indented outline; runs of equal blocks are written once with their count."""
    lines = [f"{type(part).__name__}"]
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if name == "kind" or (value == field.default and not isinstance(value, BaseModel)):
            continue
        if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            first = 0
            for number, item in enumerate(value):
                if number + 1 < len(value) and value[number + 1] == item:
                    continue
                count = number - first + 1
                label = getattr(item, "name", name)
                times = f" {first}–{number}" if count > 1 else f" {number}" if name == "blocks" else ""
                lines.append(f"{indent}  {label}{times}: {tree(item, indent + '  ')}")
                first = number + 1
        elif isinstance(value, BaseModel):
            lines.append(f"{indent}  {name}: {tree(value, indent + '  ')}")
        elif name != "name":
            lines.append(f"{indent}  {name}: {value}")
    simple = [line.strip() for line in lines[1:]]
    if all(not isinstance(getattr(part, n), BaseModel | tuple) for n in type(part).model_fields):
        return f"{lines[0]}({', '.join(s.replace(': ', '=', 1) for s in simple)})"
    return "\n".join(lines)
