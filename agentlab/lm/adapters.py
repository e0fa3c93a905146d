"""How minds talk to a model: instructions, labelled inputs, and one output that is the whole reply.

``DocumentAdapter`` asks for one JSON document of a given schema. An endpoint that takes a schema is
sent it and the prompt does not repeat it; elsewhere it stands in the prompt. The reply is read
strictly: a fence around it is taken off, but nothing is repaired, since a repaired reply would hide
that the model did not do what it was asked. ``TextAdapter`` asks for plain text, so that tokens can
be shown as they come.

dspy's own adapters wrap every output in a field of its own and send two messages to say so; with a
model that reads some hundred tokens a second that is most of the waiting.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agentlab.base.documents import Json
from agentlab.base.strict_json import read_json
from agentlab.base.surrogates import spelled
from agentlab.errors import JsonError
from agentlab.lm.serde import load_dspy
from agentlab.lm.settings import NOBODY, Persona
from agentlab.lm.thinking import UNSEEN

dspy: Any = load_dspy()

ParseError: Any = dspy.utils.exceptions.AdapterParseError
"""What dspy raises for a reply that came and cannot be read."""

_FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})[ \t]*(?:json[c5]?(?![^\s{\[\"]))?", re.IGNORECASE)


class TextAdapter(dspy.Adapter):  # type: ignore[misc]
    """Instructions as the system message, labelled inputs as the user's, the reply as it is.

    Parameters
    ----------
    persona : Persona
        Stands before the instructions, and before the inputs.
    """

    def __init__(self, persona: Persona = NOBODY) -> None:
        super().__init__()
        self.persona = persona

    def format(
        self, signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the messages, in text that can be sent."""
        messages: list[dict[str, Any]] = spelled(super().format(signature, demos, inputs))
        return messages

    def format_field_structure(self, signature: Any) -> str:
        """Return how the reply must look."""
        return "Reply with the text alone."

    def format_system_message(self, signature: Any) -> str:
        """Return instructions, inputs, form of the reply."""
        lines = [f"- {name}: {_said(field)}" for name, field in signature.input_fields.items()]
        given = "You are given:\n" + "\n".join(lines)
        instructions = str(signature.instructions)
        parts = (self.persona.system, instructions, given, self.format_field_structure(signature))
        return "\n\n".join(part.strip() for part in parts if part.strip())

    def format_user_message_content(
        self, signature: Any, inputs: dict[str, Any], prefix: str = "", suffix: str = "",
        main_request: bool = False,
    ) -> str:  # fmt: skip
        """Return the inputs, each under its name."""
        prefix = self.persona.user.strip() if main_request and not prefix else prefix
        parts = [f"## {name}\n{inputs[name]}" for name in signature.input_fields if name in inputs]
        return "\n\n".join([prefix, *parts, suffix]).strip()

    def format_assistant_message_content(
        self, signature: Any, outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        """Return the reply of a demonstration."""
        [name] = signature.output_fields
        value = outputs.get(name, missing_field_message)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        """Return the reply as the one output."""
        [name] = signature.output_fields
        return {name: completion}


class PlainAdapter(TextAdapter):
    """Sends one input as the user's message, nothing around it.

    Parameters
    ----------
    system : str
        The system message; empty: none is sent.
    """

    def __init__(self, system: str = "") -> None:
        super().__init__()
        self.system = system

    def format(
        self, signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the messages."""
        [name] = signature.input_fields
        told = [{"role": "system", "content": self.system}] if self.system else []
        messages: list[dict[str, Any]] = spelled([*told, {"role": "user", "content": inputs[name]}])
        return messages


class DocumentAdapter(TextAdapter):
    """Asks for one JSON document of a schema.

    Parameters
    ----------
    schema : dict
        JSON Schema of the reply.
    name : str
        What the document is called ("plan").
    persona : Persona
        See ``TextAdapter``.
    """

    def __init__(self, schema: dict[str, Any], name: str, persona: Persona = NOBODY) -> None:
        super().__init__(persona)
        self.schema, self.name = schema, name
        self._sent = False

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Send the schema where the endpoint takes one, and ask."""
        self._sent = bool(lm.supports_response_schema)
        if self._sent:
            lm_kwargs["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": self.name,
                    "schema": spelled(self.schema),
                    "strict": True,
                },
            }
        elif "response_format" in lm.supported_params:
            lm_kwargs["response_format"] = {"type": "json_object"}
        answers: list[dict[str, Any]] = super().__call__(lm, lm_kwargs, signature, demos, inputs)
        return answers

    def format_field_structure(self, signature: Any) -> str:
        """Return how the reply must look, with the schema where it is not sent beside."""
        text = f"Reply with one JSON document, the {self.name}, and nothing else."
        if self._sent:
            return text
        return f"{text} It must fit this JSON Schema:\n{json.dumps(self.schema)}"

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        """Return the document.

        Raises
        ------
        dspy.AdapterParseError
            The reply is no JSON document.
        """
        [name] = signature.output_fields
        try:
            return {name: document(completion)}
        except JsonError as e:
            raise ParseError(
                adapter_name=type(self).__name__,
                signature=signature,
                lm_response=completion,
                message=f"the reply is no JSON document: {e}",
            ) from e


def unfenced(completion: str) -> str:
    """Return a reply without the one code fence around the whole of it, if there is one.

    What is not seen around it (a byte order mark, characters of no width) is taken off, too.
    """
    text = completion.strip(UNSEEN)
    opening = _FENCE.match(text)
    marks = opening["marks"] if opening else ""
    if opening is None or not text.endswith(marks) or len(text) < 2 * len(marks):
        return text
    inside = text[opening.end() : -len(marks)].strip(UNSEEN)
    return text if inside.endswith(marks[0]) else inside


def document(text: str) -> Json:
    """Return the JSON document of a reply.

    Raises
    ------
    JsonError
        It is none.
    """
    return read_json(unfenced(text))


def parse_problem(error: Exception) -> str:
    """Return what is wrong with a reply, in a line, without the reply."""
    text = str(getattr(error, "message", error)).partition("\n\n")[0]
    return " ".join(text.split())[:300]


def _said(field: Any) -> str:
    extra = field.json_schema_extra or {}
    return str(extra.get("desc", "")).strip() or "an input"


def signature(name: str, instructions: str, inputs: dict[str, str], output: str) -> Any:
    """Return a dspy signature of text inputs and one output.

    Parameters
    ----------
    name : str
    instructions : str
    inputs : dict
        Name to what it is.
    output : str
        Name of the output.
    """
    fields: dict[str, Any] = {n: (str, dspy.InputField(desc=d)) for n, d in inputs.items()}
    fields[output] = (Any, dspy.OutputField())
    return dspy.make_signature(fields, instructions.strip(), name)
