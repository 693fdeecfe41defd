"""Every field that the vendors' own clients can send is known to the server: honoured, harmless, a hint, or refused
by name for what it is. With --strict-fields none of them is answered as a field that nobody knows.

usage: fields_test.py REPRISE

The names come from the types of the installed clients, so a new field of theirs shows here first.
"""
import http.client
import json
import sys

import anthropic.types
import anthropic.types.beta
import ollama._types
import openai.types
import openai.types.chat.completion_create_params
import openai.types.completion_create_params
import openai.types.responses.input_token_count_params
import openai.types.responses.response_create_params

import harness

UNKNOWN = "is not a field of this endpoint"
USER = {"role": "user", "content": "Hi"}
IN_HEADERS = {"betas"}  # parameters of the client that are no part of the body


def names(kind):
    """The fields of a typed dictionary with those of its bases, or of a pydantic model."""
    if hasattr(kind, "model_fields"):
        return set(kind.model_fields)
    return set(kind.__annotations__) - IN_HEADERS


def endpoints(model):
    """(path, a good body, names of fields)"""
    chat = openai.types.chat.completion_create_params
    text = openai.types.completion_create_params
    responses = openai.types.responses.response_create_params
    counted = openai.types.responses.input_token_count_params
    message = {"model": model, "max_tokens": 4, "messages": [USER]}
    yield "/v1/chat/completions", {"messages": [USER]}, names(chat.CompletionCreateParamsBase)
    yield "/v1/completions", {"prompt": "Hi"}, names(text.CompletionCreateParamsBase)
    yield "/v1/responses", {"input": "Hi"}, names(responses.ResponseCreateParamsBase)
    yield "/v1/responses/input_tokens", {"input": "Hi"}, names(counted.InputTokenCountParams)
    yield "/v1/messages", message, (names(anthropic.types.message_create_params.MessageCreateParamsBase)
                                    | names(anthropic.types.beta.message_create_params.MessageCreateParamsBase))
    yield "/v1/messages/count_tokens", message, (
        names(anthropic.types.message_count_tokens_params.MessageCountTokensParams)
        | names(anthropic.types.beta.message_count_tokens_params.MessageCountTokensParams))
    yield "/api/chat", {"messages": [USER], "stream": False}, names(ollama._types.ChatRequest)
    yield "/api/generate", {"prompt": "Hi", "stream": False}, names(ollama._types.GenerateRequest)
    yield "/api/show", {"model": model}, names(ollama._types.ShowRequest)


def post(server, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def main():
    server = harness.Server(sys.argv[1], "--strict-fields")
    model = harness.model_id(server)
    asked, wrong = 0, []
    for path, body, fields in endpoints(model):
        status, text = post(server, path, body)
        assert status == 200, (path, status, text)
        status, text = post(server, path, {**body, "no_such_field": 1})
        assert status == 400 and f"no_such_field {UNKNOWN}" in text, (path, status, text)
        for name in sorted(fields):
            status, text = post(server, path, {**body, name: {"x": "of some other type, mostly"}})
            asked += 1
            if UNKNOWN in text or status not in (200, 400, 404):
                wrong.append((path, name, status, text))
    for options in ({name: 1} for name in sorted(names(ollama._types.Options))):
        status, text = post(server, "/api/chat", {"messages": [USER], "stream": False, "options": options})
        asked += 1
        if "is not an option" in text:
            wrong.append(("/api/chat", options, status, text))
    assert server.stop() == 0
    for one in wrong:
        print(*one)
    print(f"{asked} fields of the vendors' clients, {len(wrong)} unknown here")
    sys.exit(1 if wrong or asked < 150 else 0)


if __name__ == "__main__":
    main()
