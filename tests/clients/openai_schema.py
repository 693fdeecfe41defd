"""Validates recorded answers against OpenAI's published schemas."""
import json

import jsonschema

import harness
import recorder

SCHEMAS = harness.schemas()
WHOLE = {"/v1/chat/completions": "CreateChatCompletionResponse", "/v1/completions": "CreateCompletionResponse",
         "/v1/models": "ListModelsResponse"}
CHUNK = {"/v1/chat/completions": "CreateChatCompletionStreamResponse", "/v1/completions": "CreateCompletionChunk"}


def validate(name, value):
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMAS["$defs"]}).validate(value)


def validate_answer(path, status, content_type, body):
    """Returns how many JSON documents were validated."""
    if status >= 400:
        validate("ErrorResponse", json.loads(body))
        return 1
    if not content_type.startswith("text/event-stream"):
        validate("Model" if path.startswith("/v1/models/") else WHOLE[path], json.loads(body))
        return 1
    data = [text for _, text in recorder.events(body)]
    assert data[-1] == "[DONE]", data[-1]
    for text in data[:-1]:
        validate(CHUNK[path], json.loads(text))
    return len(data) - 1


def validate_all(answers):
    return sum(validate_answer(path, *answer) for _, path, *answer in answers)
