"""Random texts under a schema's constraint validate with an independent validator.

    grammar_generation_test.py PROBE TOKENIZER... [--schemas FOLDER] [--schema-count N] [--count N] [--seed S] [--tools]

A model without any sense, random logits at temperatures from 0 to 2, picks among the allowed tokens of each
vocabulary; every text that ends must be JSON that `jsonschema` finds valid. Without a folder (MaskBench's
data) the schemas are those below and random ones. With --tools the schemas are those of tools, three in a
request, strict, and replies must call, in each format of calls in turn: the reply, read as the server reads it,
must be calls and nothing else, each of a tool there is, with arguments that are valid. `make generations` is the
long form of both.
"""
import argparse
import collections
import glob
import json
import os
import random
import subprocess
import sys

import jsonschema

import random_schemas

SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": -7, "maximum": 120, "multipleOf": 3},
                                      "b": {"type": "string", "minLength": 2, "maxLength": 5}},
     "required": ["a"], "additionalProperties": False},
    {"type": "array", "items": {"enum": ["x", 1, None, [2]]}, "minItems": 1, "maxItems": 4},
    {"oneOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 7}]},
    {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "maxProperties": 3,
     "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}}},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
     "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 2},
    {"type": "string", "pattern": "^[a-c]{2}-\\d+$", "maxLength": 9},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "ipv6"},
    {"not": {"anyOf": [{"type": "string"}, {"type": "array"}, {"minimum": 3}]}},
    {"type": "object", "properties": {"k": {"enum": [1, 2]}}, "required": ["k"], "maxProperties": 3,
     "if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["a"]}, "else": {"required": ["b"]}},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
        "v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
        "required": ["v", "next"], "additionalProperties": False}}},
    {"type": "array", "contains": {"const": 7}, "maxItems": 4},
    {"type": "object", "dependencies": {"a": ["b"]}, "maxProperties": 2,
     "properties": {"a": {"type": "null"}, "b": {"type": "null"}}},
]


# Formats of calls (src/text/output/formats.cc), of every kind of body.
FORMATS = ["hermes", "qwen-xml", "glm", "mistral", "deepseek", "kimi", "harmony", "minimax", "python-tag", "granite-list", "dsml", "seed"]


def schemas_of(folder, count, seed):
    files = sorted(glob.glob(os.path.join(folder, "*.json")))
    for file in random.Random(seed).sample(files, min(count, len(files))):
        with open(file, encoding="utf-8") as handle:
            yield os.path.basename(file), json.load(handle)["schema"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--schemas")
    parser.add_argument("--schema-count", type=int, default=40)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tools", action="store_true")
    options = parser.parse_args()
    if options.schemas:
        work = list(schemas_of(options.schemas, options.schema_count, options.seed))
    else:
        work = list(enumerate(SCHEMAS + list(random_schemas.schemas(options.schema_count, options.seed))))
    total = collections.Counter()
    for tokenizer in options.tokenizers:
        counts = (call if options.tools else generate)(options, tokenizer, work)
        print(f"{tokenizer}: {dict(counts)}", flush=True)
        total += counts
    print(f"{len(work)} schemas, {len(options.tokenizers)} vocabularies: {dict(total)}")
    if total["invalid"] or total["ended"] == 0 or total["dead end"]:
        sys.exit(1)


def ask(options, tokenizer, requests):
    lines = "".join(json.dumps(request | {"generate": options.count, "seed": options.seed + i,
                                          "temperatures": [(i + step) % 5 / 2 for step in range(5)]}) + "\n"
                    for i, request in enumerate(requests))
    done = subprocess.run([options.probe, tokenizer], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def fault(schema, text):
    """What is wrong with a text; None if nothing is. Fails where the validator cannot read the schema."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as broken:
        return broken
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return jsonschema.exceptions.best_match(kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(value))


def judge(counts, name, text, find_fault):
    """Counts a generation: `text` or, where it has none, how it failed."""
    counts["generations"] += 1
    if text is None:
        counts["cut off"] += 1
        return
    if text.startswith("FAILED"):
        counts["dead end"] += 1
        print(f"{name}: {text[:300]!r}")
        return
    counts["ended"] += 1
    try:
        error = find_fault()
    except Exception:  # the validator cannot read the schema
        counts["not judged"] += 1
        return
    if error is not None:
        counts["invalid"] += 1
        print(f"{name}: {text[:300]!r}: {str(error).splitlines()[0][:200]}")


def generate(options, tokenizer, work):
    counts = collections.Counter()
    answers = ask(options, tokenizer, [{"schema": schema} for _, schema in work])
    for (name, schema), answer in zip(work, answers, strict=True):
        if "error" in answer:
            counts["schemas refused"] += 1
            continue
        for text in answer["texts"]:
            judge(counts, name, text, lambda: fault(schema, text))
    return counts


def fault_of_calls(reply, tools):
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if not reply["calls"] or reply["content"].strip():
        return f"not calls alone: {reply['content']!r}"
    for one in reply["calls"]:
        if not one["complete"] or one["name"] not in schemas:
            return f"no whole call of a tool: {one}"
        error = fault(schemas[one["name"]], one["arguments"])
        if error is not None:
            return f"{one['name']}: {error}"
    return None


def call(options, tokenizer, work):
    """Schemas of objects, three tools to a request."""
    objects = [schema for _, schema in work if isinstance(schema, dict) and schema.get("type") == "object"]
    requests = []
    for i in range(0, len(objects), 3):
        tools = [{"type": "function", "function": {"name": f"tool_{at}", "strict": True, "parameters": schema}}
                 for at, schema in enumerate(objects[i:i + 3])]
        requests.append({"tools": tools, "format": FORMATS[len(requests) % len(FORMATS)]})
    counts = collections.Counter()
    for request, answer in zip(requests, ask(options, tokenizer, requests), strict=True):
        if "error" in answer:
            counts["requests refused"] += 1
            continue
        for reply in answer["replies"]:
            whole = isinstance(reply, dict)
            counts["calls"] += len(reply["calls"]) if whole else 0
            judge(counts, request["format"], reply["text"] if whole else reply, lambda: fault_of_calls(reply, request["tools"]))
    return counts


if __name__ == "__main__":
    main()
