"""What a function takes and gives: one pydantic model of its parameters, one adapter of its result.

Both are built when the tool is made, and the function is never called for it. A call is sent as
JSON and kept so; ``Signature.arguments`` makes of it the objects that the function is written for,
each time anew, so nothing that the function does to them is seen by anybody.

A field of the model has a name of its own and the parameter's for an alias, since pydantic keeps
many names for itself (``schema``, ``copy``, ``model_x``, ``_x``). Defaults are the function's own
business: what was not sent is not passed. They are only shown in the schema.
"""

from __future__ import annotations

import copy
import json
import re
import types
import typing
import warnings
from collections import abc
from collections.abc import Mapping
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any, ForwardRef, NamedTuple, Union, get_args, get_origin

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from agentlab.base.documents import Json, canonical
from agentlab.base.fields import plain
from agentlab.base.refusals import problems
from agentlab.base.schemas import schema_problem
from agentlab.errors import ConfigError, JsonError, raised, told
from agentlab.tools.result import as_json

NOTHING: Any = object()
"""Stands where there is no default, or no annotation."""

_SECRET = re.compile(r"(?i)(key|token|secret|passwords?|passwd|pwd|credentials?)s?$")
_SHOWN = 300
"""Characters of one problem with the arguments."""


class Parameter(NamedTuple):
    """One parameter of a function."""

    name: str
    hint: Any
    """Resolved; ``NOTHING`` where there is none."""
    default: Any = NOTHING
    description: str = ""


class Signature:
    """What a function takes and gives.

    Parameters
    ----------
    name : str
        The function's, for errors.
    parameters : sequence of Parameter
    gives : Any
        The return annotation, resolved.
    free : bool
        Take names and types that the parameters do not say: another schema says them.

    Raises
    ------
    ConfigError
        Pydantic has no schema for an annotation.
    """

    def __init__(
        self, name: str, parameters: tuple[Parameter, ...], gives: Any = NOTHING, free: bool = False
    ) -> None:
        self.name, self.parameters, self.gives, self.free = name, parameters, gives, free
        self._build()

    def _build(self) -> None:
        fields: dict[str, Any] = {}
        self._filled = set()
        for i, parameter in enumerate(self.parameters):
            fields[f"p{i}"] = self._checked(parameter)
            if isinstance(parameter.default, FieldInfo) and not parameter.default.is_required():
                self._filled.add(parameter.name)
        self.model = _model(fields, extra="allow" if self.free else "forbid")
        self.adapter = _adapter(self.gives)

    def _checked(self, parameter: Parameter) -> Any:
        """Return the field of a parameter, of which pydantic can make a schema."""
        try:
            hint = Any if parameter.hint is NOTHING else modern(parameter.hint, {})
            field = _field(parameter, hint)
            _model({"p": field}).model_json_schema(schema_generator=_Schemas)
            return field
        except Exception as e:
            if self.free:
                return _field(parameter, Any)
            raise self._refused(parameter, e) from e

    def _refused(self, parameter: Parameter, error: Exception) -> ConfigError:
        detail = " ".join(str(error).partition("\n")[0].split())
        return ConfigError(
            f"{self.name}, parameter {parameter.name!r}: an arbitrary type, "
            f"{told(repr(parameter.hint), 200)}, for which there is no JSON: annotate it with what "
            "can be sent (str, int, list[...], a dataclass or pydantic model, ...), or bind it "
            f"beforehand with functools.partial ({told(detail, 200)})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Keep what it is built from; pydantic's own objects are made anew."""
        return {k: getattr(self, k) for k in ("name", "parameters", "gives", "free")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._build()

    def __deepcopy__(self, memo: object) -> Signature:
        return self

    def arm_key(self) -> str:
        """Return what tells it from others."""
        return canonical([self.name, self.schema(), self.returns()])

    # ---- schemas -----------------------------------------------------------------------------

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments.

        Raises
        ------
        ConfigError
            An annotation brings a schema of its own that is none.
        """
        made = self.model.model_json_schema(schema_generator=_Schemas)
        properties = made.get("properties", {})
        for parameter in self.parameters:
            shown = _shown(parameter)
            properties[parameter.name].pop("default", None)
            if shown is not NOTHING:
                properties[parameter.name]["default"] = shown
        schema = {
            "type": "object", "properties": properties, "required": made.get("required", []),
            "additionalProperties": self.free,
        }  # fmt: skip
        if "$defs" in made:
            schema["$defs"] = made["$defs"]
        problem = schema_problem(schema)
        if problem is not None:
            raise ConfigError(f"{self.name}: the schema of its parameters: {problem}")
        return schema

    def returns(self) -> dict[str, Any]:
        """Return the JSON Schema of the result; ``{}`` where the annotation says nothing."""
        if self.adapter is None:
            return {}
        schema = _schema_of(self.adapter)
        schema.pop("title", None)
        return {} if schema_problem(schema) else schema

    # ---- calls -------------------------------------------------------------------------------

    def arguments(self, sent: Mapping[str, Json]) -> dict[str, Any]:
        """Return what the function is to be called with; what was sent is left alone.

        Raises
        ------
        ValidationError
            It cannot be made of this; so may anything that an annotation's own code raises.
        """
        validator = self.model.__pydantic_validator__
        try:
            made = validator.validate_json(json.dumps(sent, default=plain))
        except ValidationError as e:
            if e.errors(include_url=False, include_context=False)[0]["type"] != "json_invalid":
                raise
            made = validator.validate_python(copy.deepcopy(dict(sent)))  # what only Rust refuses
        values = made.__dict__
        given = {
            p.name: values[f"p{i}"]
            for i, p in enumerate(self.parameters)
            if p.name in sent or p.name in self._filled
        }
        return given | (made.__pydantic_extra__ or {})

    def problem(self, sent: Mapping[str, Json]) -> str | None:
        """Return why the arguments cannot be made of this, in one line, or None."""
        try:
            self.arguments(sent)
        except BaseException as e:  # the annotations' own code may raise anything
            if isinstance(e, KeyboardInterrupt):
                raise
            return self.explained(e, sent)
        return None

    def explained(self, error: BaseException, sent: Mapping[str, Json]) -> str:
        """Return what ``arguments`` raised in one line that names the parameter."""
        if isinstance(error, ValidationError):
            return "; ".join(told(text, _SHOWN) for text in problems(error, self.model)[:3])
        return f"{self._blamed(error, sent)}{told(raised(error), _SHOWN)}"

    def _blamed(self, error: BaseException, sent: Mapping[str, Json]) -> str:
        """Return the parameter that raises the same alone, with a colon behind it."""
        for name, value in sent.items() if len(sent) > 1 else ():
            try:
                self.arguments({name: value})
            except BaseException as e:
                if type(e) is type(error):
                    return f"{told(name, 100)}: "
        return "".join(f"{told(name, 100)}: " for name in sent if len(sent) == 1)


def _model(fields: dict[str, Any], extra: Any = "forbid") -> type[BaseModel]:
    config = ConfigDict(extra=extra, protected_namespaces=())
    made: type[BaseModel] = create_model("arguments", __config__=config, **fields)
    return made


def _field(parameter: Parameter, hint: Any) -> Any:
    """Return what ``create_model`` makes a field of."""
    name, default, more = parameter.name, parameter.default, dict[str, Any]()
    if isinstance(default, FieldInfo):
        hint = Annotated[hint, default]
    elif default is not NOTHING:
        hint = _or_none(hint) if default is None else hint
        more["default"] = None  # never used: what was not sent is not passed
    if parameter.description and not _described(hint):
        more["description"] = parameter.description
    return hint, Field(alias=name, validation_alias=name, serialization_alias=name, **more)


class _Schemas(GenerateJsonSchema):
    """Schemas without titles made of names, and without keywords that say nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        pass

    def list_schema(self, schema: Any) -> dict[str, Any]:
        made = super().list_schema(schema)
        return {k: v for k, v in made.items() if (k, v) != ("items", {})}

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        made = super().dict_schema(schema)
        return {k: v for k, v in made.items() if (k, v) != ("additionalProperties", True)}


def _schema_of(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    return adapter.json_schema(schema_generator=_Schemas, mode="serialization")


def _adapter(gives: Any) -> TypeAdapter[Any] | None:
    """Return what serialises by a return annotation; None: it says nothing that can be used."""
    while get_origin(gives) in (abc.Awaitable, abc.Coroutine):
        gives = get_args(gives)[-1]
    if gives is NOTHING or gives is Any:
        return None
    with warnings.catch_warnings():  # of what means something for a parameter alone
        warnings.simplefilter("ignore")
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(modern(gives, {}, loose=True))
            _schema_of(adapter)
        except Exception:
            return None
    return adapter


def _shown(parameter: Parameter) -> Json:
    """Return a default as JSON, as it would be sent; ``NOTHING`` where it has no such form."""
    default = parameter.default
    if isinstance(default, FieldInfo):
        default = NOTHING if default.default is PydanticUndefined else default.default
    secret = isinstance(default, str) and _SECRET.search(parameter.name)
    if default is NOTHING or secret or hasattr(default, "get_secret_value"):
        return NOTHING
    try:
        return as_json(default, None if parameter.hint is NOTHING else _adapter(parameter.hint))
    except JsonError:
        return NOTHING


def _described(hint: Any) -> bool:
    return any(getattr(m, "description", None) for m in getattr(hint, "__metadata__", ()))


def _or_none(hint: Any) -> Any:
    """Return an annotation that takes None, too: a default of None says so."""
    if get_origin(hint) is Annotated:
        return Annotated[(_or_none(get_args(hint)[0]), *hint.__metadata__)]
    fits = hint in (Any, object, None, type(None)) or type(None) in get_args(hint)
    return hint if fits else Union[hint, None]  # noqa: UP007 - of what | may not know


def modern(hint: Any, known: dict[Any, Any], loose: bool = False) -> Any:
    """Return an annotation in a form that pydantic takes, and checks at once.

    ``typing.TypedDict`` is refused by it before Python 3.12, and an iterable is checked item by
    item while the function reads it.

    Parameters
    ----------
    hint : Any
    known : dict
        What was put in the place of what, so far.
    loose : bool
        A ``TypedDict`` may hold more than it says.
    """
    inner = partial(modern, known=known, loose=loose)
    if typing_extensions.is_typeddict(hint) and (loose or type(hint).__module__ == "typing"):
        return known.get(hint) or _typed_dict(hint, known, loose)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(inner(args[0]), *hint.__metadata__)]
    if origin in _LAZY:
        return list[inner(args[0])]  # type: ignore[misc]
    if hint in _LAZY or hint in (typing.Iterable, typing.Iterator):
        return list
    if not args or origin in (typing.Literal, abc.Callable):
        return hint
    made = tuple(map(inner, args))
    if made == args:
        return hint
    if origin is types.UnionType:
        return reduce(or_, made)
    return hint.copy_with(made) if hasattr(hint, "copy_with") else origin[made]


_LAZY = (abc.Iterable, abc.Iterator, abc.Generator)


def _typed_dict(hint: Any, known: dict[Any, Any], loose: bool) -> Any:
    make: Any = typing_extensions.TypedDict
    twin = make(hint.__name__, {})
    known[hint] = twin
    fields = typing_extensions.get_type_hints(hint, include_extras=True)
    twin.__annotations__ = {k: modern(v, known, loose) for k, v in fields.items()}
    twin.__required_keys__, twin.__optional_keys__ = hint.__required_keys__, hint.__optional_keys__
    twin.__module__, twin.__doc__ = hint.__module__, hint.__doc__
    config = getattr(hint, "__pydantic_config__", ConfigDict(extra="allow") if loose else None)
    if config is not None:
        twin.__pydantic_config__ = config
    return twin


def resolved(annotation: Any, names: Mapping[str, Any], globals_: dict[str, Any]) -> Any:
    """Return an annotation with every name in it looked up, also where it is text.

    Raises
    ------
    Exception
        Whatever looking it up raises: a name that is not there, no annotation at all.
    """

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    found = typing.get_type_hints(holder, globals_, dict(names), include_extras=True)["it"]
    if isinstance(found, ForwardRef):
        raise NameError(f"name {found.__forward_arg__!r} is not defined")
    return found
