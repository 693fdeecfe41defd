"""Takes the schemas of the answers that the server gives out of OpenAI's published API description.

  extract_openai_schemas.py openai-openapi.json     writes tests/data/openai_schemas.json

The description (github.com/openai/openai-openapi, MIT licence) is OpenAPI 3; the result is JSON Schema with what the
roots refer to and no prose. `nullable` becomes a null type, and enums of nullable members get their null.
"""
import copy
import json
import pathlib
import sys

OUT = pathlib.Path(__file__).parent.parent / "tests/data/openai_schemas.json"
ROOTS = ["CreateChatCompletionResponse", "CreateChatCompletionStreamResponse", "CreateCompletionResponse",
         "ListModelsResponse", "Model", "ErrorResponse", "Response", "ResponseStreamEvent", "ResponseItemList"]
# Unions of which this server gives out, and is told, only some.
MEMBERS = {
    "OutputItem": ["OutputMessage", "FunctionToolCall", "ReasoningItem"],
    "ItemResource": ["InputMessageResource", "OutputMessage", "FunctionToolCallResource",
                     "FunctionToolCallOutputResource", "ReasoningItem"],
    "InputItem": ["EasyInputMessage"],
    "Tool": ["FunctionTool", "NamespaceToolParam"],
    "Annotation": [],
    "ResponseStreamEvent": [
        f"Response{name}Event" for name in (
            "Created", "InProgress", "Completed", "Incomplete", "Failed", "OutputItemAdded", "OutputItemDone",
            "ContentPartAdded", "ContentPartDone", "TextDelta", "TextDone", "ReasoningTextDelta", "ReasoningTextDone",
            "FunctionCallArgumentsDelta", "FunctionCallArgumentsDone")],
}
PROSE = {"description", "title", "example", "examples", "deprecated", "default", "externalDocs", "discriminator"}
PREFIX = "#/components/schemas/"


def clean(schema, named=False):
    """`named`: the keys are names of members, not keywords."""
    if isinstance(schema, list):
        return [clean(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if not named and (key in PROSE or key.startswith("x-") or key == "nullable"):
            continue
        if key == "$ref":
            out[key] = value.replace(PREFIX, "#/$defs/")
        elif not named and key in ("const", "enum", "required", "type"):
            out[key] = value
        else:
            out[key] = clean(value, named=not named and key == "properties")
    if not named and schema.get("nullable"):
        if isinstance(out.get("type"), str):
            out["type"] = [out["type"], "null"]
        if "enum" in out and None not in out["enum"]:
            out["enum"] = out["enum"] + [None]
        if any(key in out for key in ("$ref", "allOf", "anyOf", "oneOf")):
            out = {"anyOf": [out, {"type": "null"}]}
    return out


def references(schema):
    if isinstance(schema, list):
        for item in schema:
            yield from references(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.rsplit("/", 1)[1]
            else:
                yield from references(value)


def main():
    schemas = json.loads(pathlib.Path(sys.argv[1]).read_text())["components"]["schemas"]
    found, wanted = {}, list(ROOTS)
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found[name] = clean(schemas[name])
        if name in MEMBERS:
            found[name] = {"anyOf": [{"$ref": "#/$defs/" + member} for member in MEMBERS[name]] or [{}]}
        wanted += references(found[name])
    # The chunks of streamed completions have the schema of the whole, where only the last one has a reason to end.
    chunk = found["CreateCompletionChunk"] = copy.deepcopy(found["CreateCompletionResponse"])
    reason = chunk["properties"]["choices"]["items"]["properties"]["finish_reason"]
    reason.update(type=["string", "null"], enum=reason["enum"] + [None])
    document = {"$comment": "From github.com/openai/openai-openapi, Copyright (c) OpenAI, MIT licence; "
                            "by tools/extract_openai_schemas.py",
                "$defs": dict(sorted(found.items()))}
    OUT.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
