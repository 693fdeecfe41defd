"""Random JSON schemas with instances, valid and not, judged by `jsonschema`: always the same ones for a seed.

The schemas combine what constraints promise: types, enum, const, properties, required, additionalProperties,
patternProperties, items, prefixItems, counts, lengths, patterns, formats, bounds, multipleOf, anyOf, oneOf, allOf, not,
if, dependencies, references with recursion.
"""
import copy
import random

import jsonschema

NAMES = ["id", "name", "city", "a b", "größe", "x-y", "kind", "v"]
TEXTS = ["", "a", "ab", "abc", "x1", "zz9", "Ünï", "line\nbreak", "quo\"te", "back\\slash", "2024-02-29", "10.0.0.1", "abcdefgh"]
PATTERNS = ["^[a-z]+$", "^x\\d+$", "b", "^.{2,3}$", "^(ab|zz)\\d?$", "[0-9]$"]


def scalar(rng):
    kind = rng.randrange(6)
    if kind == 0:
        schema = {"type": "integer"}
        if rng.random() < .7:
            schema["minimum"] = rng.randint(-20, 5)
        if rng.random() < .7:
            schema["maximum"] = rng.randint(6, 300)
        if rng.random() < .3:
            schema["multipleOf"] = rng.choice([2, 3, 7])
        return schema
    if kind == 1:
        schema = {"type": "number"}
        if rng.random() < .7:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = rng.choice([-3, 0, 0.5, 2.25])
        if rng.random() < .7:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = rng.choice([3, 10.5, 99])
        return schema
    if kind == 2:
        schema = {"type": "string"}
        if rng.random() < .5:
            schema["minLength"] = rng.randint(0, 2)
        if rng.random() < .7:
            schema["maxLength"] = rng.randint(2, 9)
        return schema
    if kind == 3:
        return rng.choice([{"type": "string", "pattern": rng.choice(PATTERNS), "maxLength": 8},
                           {"type": "string", "format": rng.choice(["date", "ipv4"])}])
    if kind == 4:
        return {"enum": rng.sample([1, 2.5, "a", "abc", None, True, [1], {"id": 1}], rng.randint(1, 4))}
    return rng.choice([{"type": "boolean"}, {"type": "null"}, {"const": rng.choice(TEXTS + [7, -1])},
                       {"type": ["integer", "null"], "maximum": 50}])


def array(rng, depth):
    schema = {"type": "array", "maxItems": rng.randint(2, 4)}
    if rng.random() < .3:
        schema["prefixItems"] = [value(rng, depth - 1) for _ in range(rng.randint(1, 2))]
    schema["items"] = value(rng, depth - 1)
    if rng.random() < .4:
        schema["minItems"] = rng.randint(0, 2)
    if rng.random() < .15:
        schema["contains"] = {"type": rng.choice(["integer", "string"])}
    return schema


def properties(rng, depth, count):
    return {name: value(rng, depth - 1) for name in rng.sample(NAMES, count)}


def record(rng, depth):
    schema = {"type": "object", "properties": properties(rng, depth, rng.randint(1, 4))}
    names = list(schema["properties"])
    schema["required"] = rng.sample(names, rng.randint(0, len(names)))
    choice = rng.random()
    if choice < .6:
        schema["additionalProperties"] = False
    elif choice < .7:
        schema["additionalProperties"] = scalar(rng)
    if rng.random() < .1:
        schema["patternProperties"] = {"^x": scalar(rng)}
    if rng.random() < .1 and len(names) > 1:
        schema["dependentRequired"] = {names[0]: [names[1]]}
    if rng.random() < .1:
        schema["minProperties"] = 1
    return schema


def combined(rng, depth):
    kind = rng.randrange(5)
    parts = [value(rng, depth - 1) for _ in range(2)]
    if kind == 0:
        return {"anyOf": parts}
    if kind == 1:
        return {"oneOf": [scalar(rng), scalar(rng)]}
    if kind == 2:
        return {"allOf": [record(rng, 1), {"properties": {"id": scalar(rng)}}]}
    if kind == 3:
        return {"not": {"enum": [1, "a", None]}, **scalar(rng)}
    names = rng.sample(NAMES, 2)
    return {"type": "object", "properties": {names[0]: {"enum": [1, 2]}, names[1]: scalar(rng)}, "required": [names[0]],
            "if": {"properties": {names[0]: {"const": 1}}}, "then": {"required": [names[1]]}, "maxProperties": 3}


def value(rng, depth):
    if depth <= 0:
        return scalar(rng)
    return rng.choice([scalar, lambda r: array(r, depth), lambda r: record(r, depth), lambda r: record(r, depth),
                       lambda r: combined(r, depth)])(rng)


def schemas(count, seed):
    for i in range(count):
        rng = random.Random(f"{seed} {i}")
        schema = record(rng, 3) if i % 3 else value(rng, 3)
        if i % 10 == 0:
            node = record(rng, 2)
            node["properties"]["next"] = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
            schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
        yield schema


class Instances:
    """Values that may fulfil a schema, or nearly."""

    def __init__(self, root, rng):
        self.root, self.rng = root, rng

    def anything(self):
        return self.rng.choice([None, True, False, 0, 1, -7, 42, 2.5, 0.125, *TEXTS, [], [1, "a"], {}, {"id": 1}, {"x1": "b"}])

    def of(self, schema, depth=0):
        rng = self.rng
        if not isinstance(schema, dict) or rng.random() < .03 or depth > 6:
            return self.anything()
        if "$ref" in schema:
            return self.of(self.root["$defs"]["node"], depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return copy.deepcopy(rng.choice(schema["enum"]))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self.of(rng.choice(schema[key]), depth + 1)
        if "allOf" in schema:
            made = [self.of(part, depth + 1) for part in schema["allOf"]]
            return {k: v for part in made if isinstance(part, dict) for k, v in part.items()}
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = rng.choice(kind)
        if kind == "object" or "properties" in schema:
            return self.record(schema, depth)
        if kind == "array":
            prefix = schema.get("prefixItems", [])
            count = rng.randint(schema.get("minItems", 0), schema.get("maxItems", 3))
            return [self.of(prefix[i] if i < len(prefix) else schema.get("items"), depth + 1) for i in range(count)]
        if kind == "string":
            if schema.get("format") == "date":
                return rng.choice(["2024-02-29", "1999-12-31", "2023-02-29"])
            if schema.get("format") == "ipv4":
                return rng.choice(["10.0.0.1", "255.255.255.255", "256.1.1.1"])
            return rng.choice(TEXTS)
        if kind == "integer":
            return rng.randint(schema.get("minimum", -30) - 1, schema.get("maximum", 40) + 1)
        if kind == "number":
            return rng.choice([0.5, 2.25, -3, 3, 7.125, 10.5, 98, 0, 0.25, 1e-06])
        return {"boolean": rng.random() < .5, "null": None}.get(kind, self.anything())

    def record(self, schema, depth):
        made = {}
        for name, inner in schema.get("properties", {}).items():
            if name in schema.get("required", []) or self.rng.random() < .6:
                made[name] = self.of(inner, depth + 1)
        if self.rng.random() < .1 and made:
            made.pop(self.rng.choice(list(made)))
        if self.rng.random() < .15:
            made[self.rng.choice(["x1", "more", "id"])] = self.anything()
        return made


def validator(schema):
    kind = jsonschema.Draft202012Validator
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def has_whole_float(instance):
    """1.0 is an integer to JSON Schema, and is not written here as one."""
    if isinstance(instance, float):
        return instance.is_integer()
    items = instance.values() if isinstance(instance, dict) else instance if isinstance(instance, list) else ()
    return any(has_whole_float(item) for item in items)


def sample(count, seed, instances=12):
    """(schema, [(instance, valid)])"""
    for i, schema in enumerate(schemas(count, seed)):
        judge = validator(schema)
        made = Instances(schema, random.Random(f"instances {seed} {i}"))
        tests = []
        for _ in range(instances):
            instance = made.of(schema)
            if not has_whole_float(instance):
                tests.append((instance, judge.is_valid(instance)))
        yield schema, tests
