"""Validates recorded answers against OpenAI's published schemas."""
import json

import jsonschema

import harness
import recorder

SCHEMAS = harness.schemas()
WHOLE = {"/v1/chat/completions": "CreateChatCompletionResponse", "/v1/completions": "CreateCompletionResponse",
         "/v1/models": "ListModelsResponse", "/v1/responses": "Response"}
CHUNK = {"/v1/chat/completions": "CreateChatCompletionStreamResponse", "/v1/completions": "CreateCompletionChunk"}


def validate(name, value):
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMAS["$defs"]}).validate(value)


def name_of(path):
    """The schema of a whole answer."""
    if path.startswith("/v1/models/"):
        return "Model"
    if path.startswith("/v1/responses/"):
        return "ResponseItemList" if path.endswith("/input_items") else "Response"
    return WHOLE[path]


def validate_events(events):
    """Of /v1/responses: each has its number and its name twice; the last says how it ended."""
    for index, (name, text) in enumerate(events):
        event = json.loads(text)
        assert (event["type"], event["sequence_number"]) == (name, index), text
        validate("ResponseStreamEvent", event)
    assert events[-1][0] in ("response.completed", "response.incomplete", "response.failed"), events[-1][0]
    return len(events)


def validate_answer(path, status, content_type, body):
    """Returns how many JSON documents were validated."""
    if status >= 400:
        validate("ErrorResponse", json.loads(body))
        return 1
    if not content_type.startswith("text/event-stream"):
        validate(name_of(path), json.loads(body))
        return 1
    if path == "/v1/responses":
        return validate_events(recorder.events(body))
    data = [text for _, text in recorder.events(body)]
    assert data[-1] == "[DONE]", data[-1]
    for text in data[:-1]:
        validate(CHUNK[path], json.loads(text))
    return len(data) - 1


def validate_all(answers):
    return sum(validate_answer(path, *answer) for method, path, *answer in answers
               if method != "DELETE" and not path.endswith("/input_tokens"))
