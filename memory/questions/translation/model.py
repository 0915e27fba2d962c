"""A language model that translates a question into a structured query, and never answers it.

Any endpoint that speaks the chat protocol of OpenAI will do, such as a local server of llama.cpp or vLLM.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memory.errors import TranslationError
from memory.questions.asking import Questions
from memory.questions.errors import QuestionError
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.translation.query import FIELDS, QUESTIONS, parse_query
from memory.wording.words import moment

#: Environment variables of the address, the model and the key.
URL_VARIABLE, MODEL_VARIABLE, KEY_VARIABLE = "RECALL_LLM", "RECALL_LLM_MODEL", "RECALL_LLM_KEY"
#: Maximum labels, maps and areas in the instructions, and bytes of the longest reply.
MOST_NAMES, MOST_BYTES = 200, 1 << 20
#: The query of a question that no query answers.
_NONE = "none"


class Translation(NamedTuple):
    """A question as the model read it.

    Attributes:
        asked: the checked question.
        query: the structured query, for the person who asked.
        model: name of the model.
    """

    asked: ParsedQuestion
    query: dict[str, Any]
    model: str


@dataclass(frozen=True)
class Translator:
    """Client of a language model.

    Attributes:
        url: address of the endpoint, such as ``http://127.0.0.1:8080/v1``.
        model: name of the model.
        key: token for the endpoint; empty for none.
        timeout_s: longest wait in seconds.
    """

    url: str
    model: str = "default"
    key: str = field(default="", repr=False)
    timeout_s: float = 30.0

    @classmethod
    def of_environment(cls, url: str | None = None, model: str | None = None) -> Translator | None:
        """Return the translator of arguments or environment variables; ``None`` without an address."""
        address = url or os.environ.get(URL_VARIABLE)
        if not address:
            return None
        name = model or os.environ.get(MODEL_VARIABLE) or "default"
        return cls(address, name, os.environ.get(KEY_VARIABLE, ""))

    def translate(self, text: str, questions: Questions, now_ns: int) -> Translation:
        """Return a question in words as a structured query of the store.

        Only the question and the names of labels, maps and areas are sent, no memories.

        Args:
            text: as typed.
            questions: of the store.
            now_ns: the moment that words such as yesterday count from.

        Raises:
            QuestionError: the model has no query for it, or its query is invalid.
            TranslationError: the endpoint cannot be reached, or does not speak the protocol.
        """
        reply = self._complete(
            [
                {"role": "system", "content": _instructions(questions, now_ns)},
                {"role": "user", "content": text},
            ]
        )
        query = _object_in(reply)
        if query.get("question") == _NONE:
            raise QuestionError("text", f"The model {self.model} found no query for this question")
        try:
            asked = parse_query(query)
        except QuestionError as error:
            message = f"The query of the model {self.model} is invalid: {error}. It was: {json.dumps(query)}"
            raise QuestionError(error.part, message) from error
        return Translation(asked, query, self.model)

    def _complete(self, messages: Sequence[dict[str, str]]) -> str:
        """Return the text of the model's reply."""
        if not self.url.lower().startswith(("http://", "https://")):
            raise TranslationError(f"{self.url!r} is no http address, such as http://127.0.0.1:8080/v1")
        body = {
            "model": self.model,
            "messages": list(messages),
            "temperature": 0,
            "response_format": {"type": "json_object"},
        }
        headers = {"content-type": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        address = f"{self.url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                found = json.loads(response.read(MOST_BYTES))
            return str(found["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            raise TranslationError(f"{address} answered with status {error.code}") from error
        except (OSError, urllib.error.URLError) as error:
            raise TranslationError(
                f"{address} cannot be reached: {error}. Start it, or omit --llm"
            ) from error
        except (ValueError, LookupError, TypeError) as error:
            raise TranslationError(f"{address} does not speak the chat protocol of OpenAI") from error


def _object_in(text: str) -> dict[str, Any]:
    """Return the JSON object in a reply, which may be surrounded by other text."""
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise QuestionError("text", "The model replied without a query. Ask in other words")
    return found


def _instructions(questions: Questions, now_ns: int) -> str:
    """Return the instructions of the model: its task, the fields, and the names of the store."""
    store = questions.store
    counts = store.label_counts()
    labels = [label for label in sorted(counts, key=lambda label: -counts[label]) if label][:MOST_NAMES]
    return "\n".join(
        [
            "Translate the question about a robot's memory into one JSON object. Do not answer the question.",
            f'If no query fits, return {{"question": "{_NONE}"}}.',
            "Colour, owner, material, weight, reasons and the future are not stored.",
            "Questions:",
            *(f"- {name}: {text}" for name, text in QUESTIONS.items()),
            "Fields; leave out those that the question does not give:",
            *(f"- {name}: {text}" for name, text in FIELDS.items()),
            f"Labels: {', '.join(labels)}",
            f"Maps: {', '.join(store.maps()[:MOST_NAMES])}",
            f"Areas: {', '.join(area.name for area in store.areas()[:MOST_NAMES])}",
            f"Now: {moment(now_ns)}",
        ]
    )
