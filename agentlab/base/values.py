"""Values: what every record of agentlab is made of.

A value is a frozen pydantic model. ``replace`` changes it: it validates the named fields only and
shares the rest, so a step of a run costs what it changes and not what it carries. ``put`` does the
same without validation, for what our own code has just made of valid parts; whatever comes from
outside (users, their nodes, edits, replies of models) goes through ``replace``. (``model_copy``
accepts a wrong type, and who reads it cannot tell whose it is, so nobody calls it.) Field names are
snake_case; on the wire they are camelCase, the spelling of the seeds' documents, and both are
accepted.

A vector or map that ``put`` is told to change in one place (``More``, ``At``, ``Gone``) leaves a
trail of those places, so that what changed between two values is found without looking through all
that they hold.

Documents, the JSON trees that worlds, beliefs, arguments and results are, are kept by reference
and never changed in place. ``digest`` is their identity across processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, dataclass_transform

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass
from pydantic_core import core_schema

from agentlab.base.arrived import seen
from agentlab.base.documents import digest
from agentlab.base.persistent import PersistentMap, PersistentVector
from agentlab.base.refusals import explain
from agentlab.base.trail import All, At, Gone, More, onward, since
from agentlab.errors import ConfigError, suggest

T = TypeVar("T")
V = TypeVar("V", bound="Value")

_new = object.__new__
_set_dict, _set_given, _set_extra, _set_private = (  # records are frozen: their slots are set
    BaseModel.__dict__[f"__{name}__"].__set__
    for name in ("dict", "pydantic_fields_set", "pydantic_extra", "pydantic_private")
)


def _record(cls: type[V], values: dict[str, Any], given: set[str]) -> V:
    """Return a record that has these values, which are valid."""
    new = _new(cls)
    _set_dict(new, values)
    _set_given(new, given)
    _set_extra(new, None)
    _set_private(new, None)
    return new


class _ByReference:
    """Check that a Python value is a dict and leave it be; JSON text is parsed as annotated."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.json_or_python_schema(
            json_schema=handler(source), python_schema=core_schema.is_instance_schema(dict)
        )


Document = Annotated[dict[str, Any], _ByReference()]
"""A JSON object kept by reference (validation does not copy it)."""


Count = Annotated[int, Field(ge=0, strict=True)]
"""A whole number of at least 0; no text, and neither true nor false, is taken for one."""

Amount = Annotated[float, Field(ge=0, strict=True)]
"""A number of at least 0."""


if TYPE_CHECKING:  # a constructor is typed by the fields of its record
    from pydantic._internal._model_construction import ModelMetaclass as _ByHand
else:

    class _ByHand(type(BaseModel)):
        """Makes records: what a caller got wrong is a ConfigError of one line.

        Data that are validated (files, replies) do not come through here: pydantic makes records
        of them without a call, and whoever reads them says where they came from.
        """

        def __call__(cls, *given: Any, **fields: Any) -> Any:
            if given:
                names = ", ".join(cls.model_fields)
                raise ConfigError(
                    f"{cls.__name__}: expected fields by name ({names}), got {seen(given[0])}"
                )
            try:
                return super().__call__(**fields)
            except ValidationError as e:
                raise ConfigError(f"{cls.__name__}: {explain(e, cls, wire=False)}") from None


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose fields are checked when it is made by hand, as a Value's are.

    For records that are called with positions, or that hold what is no data.
    """
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    made: Any = dataclass(frozen=True, config=config)(cls)
    init = made.__init__

    @wraps(init)
    def checked(self: Any, *given: Any, **fields: Any) -> None:
        try:
            init(self, *given, **fields)
        except ValidationError as e:
            raise ConfigError(f"{cls.__name__}: {explain(e, made, wire=False)}") from None

    made.__init__ = checked
    return made  # type: ignore[no-any-return]


class Value(BaseModel, metaclass=_ByHand):
    """Base of every record: frozen, closed to unknown fields, both spellings accepted."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        arbitrary_types_allowed=True,
        ser_json_inf_nan="constants",
    )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the named fields validated and changed, everything else shared.

        Parameters
        ----------
        **changes
            Field names (snake_case) and their new values.

        Raises
        ------
        ConfigError
            A value has the wrong type, or a name is no field of this record.
        """
        cls = type(self)
        for name, value in changes.items():
            changes[name] = validated(cls, name, value)
        new = self._with(changes, [(n, All) for n, v in changes.items() if type(v) in _GROWING])
        given = self.__pydantic_fields_set__
        if not given.issuperset(changes):
            _set_given(new, given | changes.keys())
        return new

    @classmethod
    def made(cls, **fields: Any) -> Self:
        """Return a record of fields that our own code made, without validation (see ``put``)."""
        return _record(cls, {**_unset(cls), **fields}, set(fields))

    def edited(self, **fields: Any) -> Self:
        """Return a copy with fields changed that a person names."""
        return self.replace(**fields)

    def put(self, **fields: Any) -> Self:
        """Return a copy with fields that our own code made and that are valid, everything shared.

        Nothing is validated: for values from outside there is ``replace``.

        Parameters
        ----------
        **fields
            Field names (snake_case) and their new values; ``More``, ``At`` or ``Gone``: the change
            of the vector or map that is there.
        """
        entry: list[tuple[str, Any]] = []
        for name, change in fields.items():
            kind = type(change)
            if kind in _MARKED:
                if kind in _GROWING:
                    entry.append((name, All))
                else:
                    fields[name] = change.on(self.__dict__[name])
                    entry.append((name, More if kind is More else change[0]))
        return self._with(fields, entry)

    def _with(self, fields: dict[str, Any], entry: list[tuple[str, Any]]) -> Self:
        """Return a copy with these fields, which are valid already; share everything else."""
        values = {**self.__dict__, **fields}
        if entry:
            trail = values.get("_trail")
            if trail is None:
                trail = self.__dict__["_trail"] = ([], 0)
            values["_trail"] = onward(trail, entry)
        values.pop("_digest", None)
        values.pop("_lm", None)
        return _record(type(self), values, self.__pydantic_fields_set__)

    def places(self, earlier: Value) -> dict[str, set[Any] | None] | None:
        """Return where vectors and maps were changed since an earlier value of this one.

        Returns
        -------
        dict or None
            Field to the keys (or indices) that were set or taken out, beside what was appended;
            a field without any: nobody knows where. None: this one does not follow the earlier.
        """
        trail, before = self.__dict__.get("_trail"), earlier.__dict__.get("_trail")
        entries = None if trail is None or before is None else since(trail, before)
        if entries is None:
            return None
        found: dict[str, set[Any] | None] = {}
        for name, place in (pair for entry in entries for pair in entry):
            known = found.setdefault(name, set())
            if place is All:
                found[name] = None
            elif known is not None and place is not More:
                known.add(place)
        return found

    def __getstate__(self) -> dict[Any, Any]:
        """Leave out what can be found again."""
        state = super().__getstate__()
        kept = {k: v for k, v in self.__dict__.items() if not k.startswith("_")}
        return {**state, "__dict__": kept}

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of the content: equal digests, equal records."""
        cached = self.__dict__.get("_digest")
        if cached is None:
            cached = self.__dict__["_digest"] = digest(self.to_json())
        return str(cached)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON data in the wire spelling."""
        return self.model_dump(mode="json")


_GROWING = frozenset({PersistentVector, PersistentMap})
_MARKED = _GROWING | {More, At, Gone}


@cache
def _unset(cls: type[Value]) -> dict[str, Any]:
    """Return the defaults of a class, in the order of its fields; they are immutable and shared."""
    return {n: f.get_default(call_default_factory=True) for n, f in cls.model_fields.items()}


@cache
def validator(cls: type[Value], name: str) -> Any:
    """Return the function that checks and converts a field; what does not fit is pydantic's error.

    Raises
    ------
    ConfigError
        There is no such field.
    """
    field = cls.model_fields.get(name)
    if field is None:
        raise ConfigError(
            f"{cls.__name__} has no field {name!r}; {suggest(name, list(cls.model_fields))}"
        )
    annotation: Any = field.annotation
    if field.metadata:
        annotation = Annotated[(annotation, *field.metadata)]
    return TypeAdapter(annotation, config=_adapter_config(annotation)).validator.validate_python


def validated(cls: type[Value], name: str, value: Any) -> Any:
    """Return ``value`` as the field ``name`` of ``cls`` would hold it.

    Raises
    ------
    ConfigError
        It cannot hold it, or there is no such field.
    """
    try:
        return validator(cls, name)(value)
    except ValidationError as e:
        told = explain(e, cls.model_fields[name].annotation, wire=False, within=name)
        raise ConfigError(f"{cls.__name__}: {told}") from None


def _adapter_config(annotation: Any) -> ConfigDict | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return None  # a model brings its own configuration; giving another is an error
    return ConfigDict(arbitrary_types_allowed=True)


def with_fields(record: V, fields: Mapping[str, Any], problem: type[Exception], what: str) -> V:
    """Return ``record`` with fields changed; what does not fit is one error that names the field.

    Parameters
    ----------
    record : Value
    fields : mapping
        Names and values from a person.
    problem : exception type
        What is raised, with one line of text.
    what : str
        Put before it: "the edit is refused".
    """
    for name, value in fields.items():
        try:
            record = record.edited(**{name: value})
        except ConfigError as e:
            raise problem(f"{what}: {e}") from e
    return record
