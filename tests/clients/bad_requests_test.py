"""Requests that are wrong, some four hundred of them: each gets the right status and the right error object, the server
lives, and the next request is answered as if nothing had been.

usage: bad_requests_test.py REPRISE

The table is built from what is wrong with a value (its type, its range, its shape) and the fields of the three APIs,
plus what can be wrong with JSON and with HTTP itself. A row: name, method, path, body (text), status, and the field
that the error must name.
"""
import http.client
import json
import socket
import sys

import harness

CHAT, TEXT, MESSAGES, COUNT = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens"
RESPONSES, OLLAMA, GENERATE, LLAMA = "/v1/responses", "/api/chat", "/api/generate", "/completion"
SAID = "Hello there, little parrot friend"
USER = '{"role": "user", "content": "Hi"}'
GOOD = {CHAT: f'"messages": [{USER}]', TEXT: '"prompt": "Hi"',
        MESSAGES: f'"model": "MODEL", "max_tokens": 4, "messages": [{USER}]',
        COUNT: f'"model": "MODEL", "messages": [{USER}]', RESPONSES: '"input": "Hi"',
        OLLAMA: f'"model": "MODEL", "messages": [{USER}]', GENERATE: '"model": "MODEL", "prompt": "Hi"',
        LLAMA: '"prompt": "Hi"'}
NO_NUMBER = ['"1"', "true", "[]", "{}", '"NaN"']
NO_STRING = ["1", "true", "[]", "{}"]
NO_BOOL = ["1", '"true"', "[]"]
NO_ARRAY = ["1", '"x"', "{}", "true"]
NO_OBJECT = ["1", '"x"', "[]", "true"]


def numbers(low, high, whole=False):
    below, above = low - 1, high + 1
    return NO_NUMBER + [str(below), str(above), "1e300", "-1e300"] + (["0.5", "1.5"] if whole else [])


def fields():
    """(path, field, bad values)."""
    for path in (CHAT, TEXT):
        yield path, "temperature", numbers(0, 2)
        yield path, "top_p", numbers(0, 1)
        yield path, "presence_penalty", numbers(-2, 2)
        yield path, "frequency_penalty", numbers(-2, 2)
        yield path, "n", numbers(1, 128, True)
        yield path, "max_tokens", NO_NUMBER + ["-2", "1.5"]
        yield path, "seed", NO_NUMBER + ["1.5"]
        yield path, "stream", NO_BOOL
        yield path, "stop", ["1", "true", "{}", "[1]", json.dumps(["x"] * 100)]
        yield path, "logit_bias", NO_OBJECT + ['{"x": 1}', '{"-1": 1}', '{"99999999": 1}', '{"5": 101}', '{"5": "x"}']
        yield path, "model", NO_STRING
        yield path, "ignore_eos", NO_BOOL
        yield path, "min_tokens", NO_NUMBER + ["-1"]
        yield path, "stream_options", NO_OBJECT + ['{"include_usage": true}']
    yield CHAT, "min_p", numbers(0, 1)
    yield CHAT, "top_k", NO_NUMBER + ["-2", "1.5"]
    yield CHAT, "repetition_penalty", NO_NUMBER + ["0", "-1"]
    yield CHAT, "max_completion_tokens", NO_NUMBER + ["-2"]
    yield CHAT, "logprobs", NO_BOOL
    yield CHAT, "top_logprobs", NO_NUMBER + ["-1", "21", "5"]
    yield CHAT, "tools", NO_ARRAY + ["[1]", "[{}]", '[{"type": "function"}]', '[{"type": "function", "function": {}}]']
    yield CHAT, "tool_choice", ['"required"', '"sometimes"', '{"type": "function", "function": {"name": "f"}}']
    yield CHAT, "response_format", ['{"type": "xml"}', '{"type": "json_schema"}']
    yield CHAT, "prompt_cache_key", NO_STRING
    yield CHAT, "cache_salt", NO_STRING
    yield CHAT, "cache_prefix", NO_BOOL
    yield CHAT, "min_cache_tokens", NO_NUMBER + ["-1"]
    yield CHAT, "prompt_cache_options", ["1", '{"ttl": "soon"}', '{"mode": "both"}']
    yield CHAT, "chat_template_kwargs", NO_OBJECT
    yield CHAT, "messages", ["null", *NO_ARRAY, "[]", "[1]", "[{}]", '[{"role": "user"}]',
                             '[{"role": "king", "content": "x"}]', '[{"role": 1, "content": "x"}]',
                             '[{"role": "user", "content": 1}]',
                             '[{"role": "user", "content": [1]}]', '[{"role": "user", "content": [{"type": "text"}]}]',
                             '[{"role": "user", "content": [{"type": "image_url"}]}]',
                             '[{"role": "assistant", "tool_calls": [{}]}]', '[{"role": "assistant", "tool_calls": 1}]']
    yield TEXT, "prompt", ["null", "1", "{}", "[]", "[-1]", "[99999999]", "[1.5]", '[1, "x"]', "[[]]"]
    yield TEXT, "logprobs", NO_NUMBER + ["-1", "6"]
    for path in (MESSAGES, COUNT):
        yield path, "model", ["null", *NO_STRING, '""']
        yield path, "messages", ["null", *NO_ARRAY, "[]", "[1]", '[{"role": "king", "content": "x"}]',
                                 '[{"role": "user"}]', '[{"role": "user", "content": [{}]}]',
                                 '[{"role": "user", "content": [{"type": "image"}]}]',
                                 '[{"role": "user", "content": [{"type": "tool_result"}]}]',
                                 '[{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}]']
        yield path, "system", ["1", "true", "{}", "[1]", '[{"type": "image"}]']
        yield path, "tools", NO_ARRAY + ["[1]", '[{"name": "f"}]', '[{"name": "", "input_schema": {}}]',
                                         '[{"type": "bash_20250124"}]']
        yield path, "tool_choice", ["1", '{"type": "any"}', '{"type": "tool", "name": "f"}', "{}"]
        yield path, "thinking", ["1", "{}", '{"type": "enabled", "budget_tokens": "x"}']
        yield path, "cache_control", ["1", "{}", '{"type": "ephemeral", "ttl": "2h"}']
    yield RESPONSES, "input", ["null", "1", "{}", "[]", "[1]", "[{}]", '[{"role": "king", "content": "x"}]',
                               '[{"role": "user", "content": [{"type": "input_file"}]}]',
                               '[{"type": "function_call", "call_id": "c", "name": "f"}]',
                               '[{"type": "function_call_output", "output": "x"}]', '[{"type": "mcp_call"}]']
    yield RESPONSES, "tools", NO_ARRAY + ["[1]", '[{"type": "function"}]', '[{"type": "custom"}]', '[{"type": "custom", "name": 5}]']
    yield RESPONSES, "instructions", NO_STRING
    yield RESPONSES, "previous_response_id", [*NO_STRING, '"resp_none"']
    yield RESPONSES, "max_output_tokens", NO_NUMBER + ["0", "1.5"]
    yield RESPONSES, "include", NO_ARRAY + ["[1]", '["all"]']
    yield RESPONSES, "metadata", NO_OBJECT + ['{"a": 1}']
    yield RESPONSES, "text", NO_OBJECT + ['{"format": {"type": "xml"}}']
    yield RESPONSES, "store", NO_BOOL
    yield RESPONSES, "stream", NO_BOOL
    yield RESPONSES, "temperature", numbers(0, 2)
    yield RESPONSES, "top_logprobs", NO_NUMBER + ["-1", "21"]
    for path in (OLLAMA, GENERATE):
        yield path, "options", NO_OBJECT + ['{"temperature": 3}', '{"num_predict": -3}']
        yield path, "think", ["1", '"much"', "[]"]
        yield path, "format", ['"xml"', "1", "[]"]
        yield path, "stream", NO_BOOL
    yield OLLAMA, "messages", ["1", "{}", "[1]", '[{"role": "king", "content": "x"}]',
                               '[{"role": "user", "content": "x", "images": ["aGk="]}]']
    yield GENERATE, "suffix", [*NO_STRING, '"x"']
    yield GENERATE, "context", ["[1]", "1"]
    yield LLAMA, "prompt", ["null", "1", "{}", "[]", "[-1]"]
    yield LLAMA, "n_predict", NO_NUMBER + ["-2"]
    yield LLAMA, "grammar", ["1", '"root ::= ("']
    yield LLAMA, "n_probs", ["1", '"x"']
    yield MESSAGES, "max_tokens", ["null", *NO_NUMBER, "-1", "1.5"]
    yield MESSAGES, "temperature", numbers(0, 2)
    yield MESSAGES, "top_p", numbers(0, 1)
    yield MESSAGES, "top_k", NO_NUMBER + ["-1", "1.5"]
    yield MESSAGES, "stop_sequences", NO_ARRAY + ["[1]", '[""]', json.dumps(["x"] * 100)]
    yield MESSAGES, "stream", NO_BOOL
    yield MESSAGES, "metadata", ["1", '{"user_id": 1}']


def bodies():
    for path, field, values in fields():
        rest = ", ".join(m for m in split_members(GOOD[path]) if not m.startswith(f'"{field}"'))
        for value in values:
            members = f'{rest}, "{field}": {value}' if rest else f'"{field}": {value}'
            yield f"{field}={value[:40]}", "POST", path, "{" + members + "}", 400, field


def split_members(text):
    document = json.loads("{" + text + "}")
    return [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]


def broken_json():
    for path in GOOD:
        for name, body in [("empty", ""), ("cut off", '{"messages": ['), ("no object", "[]"), ("a string", '"x"'),
                           ("trailing comma", '{"a": 1,}'), ("two documents", "{}{}"), ("NaN", '{"temperature": NaN}'),
                           ("infinite", '{"temperature": Infinity}'), ("single quotes", "{'a': 1}"),
                           ("duplicate key", '{"a": 1, "a": 2}'), ("too deep", "[" * 5000 + "]" * 5000),
                           ("control character", '{"a": "\n"}'), ("bad escape", '{"a": "\\x"}'),
                           ("lone surrogate", '{"a": "\\ud800"}')]:
            yield name, "POST", path, body, 400, None
    yield "no such model", "POST", CHAT, f'{{{GOOD[CHAT]}, "model": "none"}}', 404, "model"
    yield "no such model", "POST", TEXT, f'{{{GOOD[TEXT]}, "model": "none"}}', 404, "model"
    yield "no such model", "POST", MESSAGES, f'{{{GOOD[MESSAGES]}}}'.replace("MODEL", "none"), 404, "model"
    yield "too long", "POST", CHAT, json.dumps({"messages": [{"role": "user", "content": "x" * 9000}]}), 400, None
    yield "too long", "POST", TEXT, json.dumps({"prompt": "x" * 9000}), 400, None
    for path in ("/nothing", "/v1", "/v1/chat", "/v1/messages/x", "/v1/models/none", "/v2/chat/completions"):
        yield "no such path", "GET" if "models" in path else "POST", path, "{}", 404, None
    # More than a template may write: wrong now and later, so not 429.
    yield "too long for the template", "POST", CHAT, f'{{"messages": [{{"role": "user", "content": {LONG}}}]}}', 400, None
    yield ("too long for the template", "POST", COUNT,
           f'{{"model": "MODEL", "messages": [{{"role": "user", "content": {LONG}}}]}}', 400, None)
    for path in (CHAT, TEXT, MESSAGES, COUNT):
        yield "wrong method", "GET", path, "", 405, None
        yield "wrong method", "DELETE", path, "", 405, None
    for path in ("/health", "/v1/models", "/metrics"):
        yield "wrong method", "POST", path, "{}", 405, None


LONG = json.dumps("a" * (9 << 20))
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
# What HTTP itself can have wrong: raw bytes, and the statuses that are right for them.
RAW = [
    ("no HTTP", b"hello\r\n\r\n", {400}),
    ("version 3", b"GET / HTTP/3.0\r\n\r\n", {400, 505}),
    ("bad length", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", {400}),
    ("negative length", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", {400}),
    ("huge length", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", {413}),
    ("two lengths", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
                    b"Content-Length: 2\r\n\r\nx", {400}),
    ("length and chunks", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                          b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    ("bad chunk", CHUNKED + b"zz\r\n", {400}),
    ("chunk head without end", CHUNKED + b"5;" + b"a" * 20000, {431}),
    ("trailer without end", CHUNKED + b"2\r\n{}\r\n0\r\nA: " + b"a" * 20000, {431}),
    ("packed chunks", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", {501}),
    ("no host", b"GET /health HTTP/1.1\r\n\r\n", {400}),
    ("large body for nobody", b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n", {404}),
    ("long line", b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {400, 414, 431}),
    ("long header", b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 100000 + b"\r\n\r\n", {431}),
    ("many headers", b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 3000 + b"\r\n", {431}),
    ("bad escape in the path", b"GET /v1/models/%zz HTTP/1.1\r\nHost: x\r\n\r\n", {400, 404}),
    ("header without colon", b"GET /health HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", {400}),
]


def check_error(path, response, body, field):
    """Raises unless the body is an error of the API's shape that names the field."""
    document = json.loads(body)
    error = document["error"]
    if path.startswith("/api/"):
        assert field is None or error.startswith(field), document
        return
    assert error["message"] and error["type"], document
    if path.startswith("/v1/messages"):
        assert document["type"] == "error" and document["request_id"] == response.getheader("request-id"), document
        assert field is None or error["message"].count(field + " ") <= 1, document
        assert field is None or field in error["message"], document
    else:
        assert set(error) >= {"message", "type", "param", "code"}, document
        assert field is None or (error["param"] or "").startswith(field), document


def run_row(server, row):
    name, method, path, body, status, field = row
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body.replace("MODEL", server.name).encode(), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    assert response.status == status, (response.status, text[:300])
    check_error(path, response, text, field)
    connection.close()


def run_raw(server, row):
    name, data, statuses = row
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(data)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status in statuses, response.status
        assert json.loads(response.read())["error"]["message"]


def ask(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", CHAT, f"{{{GOOD[CHAT]}}}", {"Content-Type": "application/json"})
    reply = json.loads(connection.getresponse().read())
    connection.close()
    return reply["choices"][0]["message"]["content"]


def main():
    server = harness.Server(sys.argv[1])
    server.name = harness.model_id(server)
    failed = count = 0
    for check, rows in ((run_row, [*bodies(), *broken_json()]), (run_raw, RAW)):
        for row in rows:
            count += 1
            try:
                check(server, row)
                assert ask(server) == SAID, "the next request is not right"
            except Exception as error:  # all rows are to be seen
                failed += 1
                print(f"{row[0]} {row[2] if check is run_row else ''}: {type(error).__name__}: {error}")
    assert server.stop() == 0
    print(f"{count} bad requests, {failed} not answered as they should be")
    sys.exit(1 if failed or count < 300 else 0)


if __name__ == "__main__":
    main()
