"""Options of a component, read from its source: a config can be checked before anything heavy is imported."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import difflib
import importlib
import importlib.util
import inspect
import pathlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from memory.errors import UserError

_PLAIN_NAMES: Mapping[str, Any] = {
    **vars(builtins),
    **{name: getattr(typing, name) for name in typing.__all__},
    **{name: getattr(collections.abc, name) for name in collections.abc.__all__},
    "Path": pathlib.Path,
}
"""What most annotations are written with; others are looked up in the component's own module."""


class TargetError(UserError):
    """A dotted path leads to nothing that can be called."""


@dataclass(frozen=True, slots=True)
class Option:
    """One parameter of a component: annotation and default as source text (no default: required)."""

    name: str
    annotation: str | None
    default: str | None
    module: str


@dataclass(frozen=True, slots=True)
class Signature:
    """What a component accepts by keyword; ``open_ended`` when it takes ``**kwargs`` as well."""

    options: Mapping[str, Option] = field(default_factory=dict)
    open_ended: bool = False


@cache
def read_signature(target: str) -> Signature:
    """Signature of the class or function at the dotted path ``target``, without importing its module.

    Falls back on the imported object when the source defines no such name. No such module or name:
    `TargetError`.
    """
    module, _, name = target.rpartition(".")
    tree = _parse(module) if module else None
    definition = _find(tree, name) if tree is not None else None
    if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return _from_function(definition, module)
    if isinstance(definition, ast.ClassDef):
        return _from_class(definition, module)
    if isinstance(definition, str):
        return read_signature(definition)
    return _from_object(target)


def annotation_type(option: Option) -> Any:
    """The type an option is annotated with; `typing.Any` without annotation.

    Imports the component's module only for a name that neither plain Python nor an alias in the module
    explains. A name that exists for type checkers alone gives `typing.Any`: no config value can be of
    such a type.
    """
    if option.annotation is None:
        return Any
    try:
        return eval(option.annotation, {**_PLAIN_NAMES, **_aliases(option.module)})
    except NameError:
        namespace = vars(importlib.import_module(option.module))
    try:
        return eval(option.annotation, {**_PLAIN_NAMES, **namespace})
    except NameError:
        return Any


@cache
def _aliases(module: str) -> Mapping[str, Any]:
    """Types that a module's top level names with plain Python: ``Pool = Literal["scored", "all"]``."""
    found: dict[str, Any] = {}
    for node in getattr(_parse(module), "body", ()):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            try:
                value = eval(ast.unparse(node.value), {**_PLAIN_NAMES, **found})
            except (NameError, TypeError):
                continue
            found |= {target.id: value for target in node.targets if isinstance(target, ast.Name)}
    return found


def import_target(target: str) -> Any:
    """The object at a dotted path. `TargetError` when there is none; an ImportError inside it passes."""
    module, _, name = target.rpartition(".")
    if not module or not _exists(module):
        raise TargetError(f"no module {module or target!r} can be imported")
    found = importlib.import_module(module)
    if not hasattr(found, name):
        own = [n for n, value in vars(found).items() if getattr(value, "__module__", "") == module]
        near = difflib.get_close_matches(name, own, n=1)
        hint = f"; did you mean {module}.{near[0]}" if near else ""
        raise TargetError(f"module {module!r} has no {name!r}{hint}")
    return getattr(found, name)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False


@cache
def _parse(module: str) -> ast.Module | None:
    if not _exists(module):
        raise TargetError(f"no module {module!r} can be imported")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))


def _find(tree: ast.Module, name: str) -> ast.stmt | str | None:
    """The definition of ``name`` in a module, or the dotted path it is imported from."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return f"{node.module}.{alias.name}"
    return None


def _from_function(definition: ast.FunctionDef | ast.AsyncFunctionDef, module: str) -> Signature:
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    pairs = [
        (argument, arguments.defaults[i - first_default] if i >= first_default else None)
        for i, argument in enumerate(positional)
    ]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    options = [
        Option(a.arg, _text(a.annotation), _text(default), module) for a, default in pairs if a.arg != "self"
    ]
    return Signature({option.name: option for option in options}, arguments.kwarg is not None)


def _from_class(definition: ast.ClassDef, module: str) -> Signature:
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return _from_function(node, module)
    inherited = _from_bases(definition, module)
    if not any("dataclass" in ast.unparse(decorator) for decorator in definition.decorator_list):
        return inherited
    own = {option.name: option for option in _dataclass_fields(definition.body, module)}
    return Signature({**inherited.options, **own})


def _from_bases(definition: ast.ClassDef, module: str) -> Signature:
    for base in definition.bases:
        name = ast.unparse(base).partition("[")[0]
        if name in ("Protocol", "Generic", "object", "ABC"):
            continue
        return read_signature(f"{module}.{name}")
    return Signature()


def _dataclass_fields(body: Sequence[ast.stmt], module: str) -> Iterable[Option]:
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            annotation = ast.unparse(node.annotation)
            if not annotation.startswith("ClassVar"):
                yield Option(node.target.id, annotation, _text(_field_default(node.value)), module)


def _field_default(value: ast.expr | None) -> ast.expr | None:
    if not (isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field")):
        return value
    defaults = [k.value for k in value.keywords if k.arg in ("default", "default_factory")]
    return defaults[0] if defaults else None


def _from_object(target: str) -> Signature:
    found = import_target(target)
    if not callable(found):
        raise TargetError(f"{target} is {type(found).__name__}, which cannot be called")
    parameters = inspect.signature(found).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    options = {p.name: _from_parameter(p, found.__module__) for p in named}
    return Signature(options, any(p.kind is p.VAR_KEYWORD for p in parameters))


def _from_parameter(parameter: inspect.Parameter, module: str) -> Option:
    empty, annotation, default = parameter.empty, parameter.annotation, parameter.default
    return Option(
        parameter.name,
        None if annotation is empty else inspect.formatannotation(annotation).strip("'"),
        None if default is empty else repr(default),
        module,
    )


def _text(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)
