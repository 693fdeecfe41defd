"""Renders chat templates with Python's jinja2, the oracle of src/text/template.

  render_templates.py golden                     writes tests/data/templates/golden.json: every template in
                                                 that folder with every conversation there, and every snippet
  render_templates.py digests DIR                writes tests/data/templates/digests.json: the same for the
                                                 templates of published models in DIR, as digests only
  render_templates.py render DIR OUT.json        the renders themselves, to look at differences

The environment is that of Hugging Face Transformers (utils/chat_template_utils.py): immutable sandbox,
trim_blocks, lstrip_blocks, loop controls, generation blocks, tojson with ensure_ascii=False,
raise_exception, strftime_now (here with a clock that stands still). Needs jinja2 3.1.6.
"""
import datetime
import functools
import json
import pathlib
import sys
import zlib

import jinja2
import jinja2.ext
import jinja2.sandbox

DATA = pathlib.Path(__file__).parent.parent / "tests/data/templates"
NOW = datetime.datetime(2025, 1, 2, 3, 4, 5)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
EQUIPPED = ["user_only", "system_multi", "assistant_last", "tool_roundtrip", "tool_agent", "thinking_field",
            "thinking_inline", "thinking_off", "empty_content", "unicode", "user_twice", "names", "documents",
            "system_middle"]


class GenerationTag(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads  # not in Transformers, but in llama.cpp and its templates
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


@functools.lru_cache(maxsize=8)
def compiled(env, source):
    return env.from_string(source)


def render(env, source, context):
    """{"ok": text} or {"error": what}."""
    try:
        return {"ok": compiled(env, source).render(**context)}
    except Exception as error:  # whatever a template manages to raise
        return {"error": f"{type(error).__name__}: {error}"}


def conversations():
    """The conversations of the data folder, with the tools they name."""
    tools = json.loads((DATA / "tools.json").read_text())
    out = json.loads((DATA / "conversations.json").read_text())
    # Some templates are of use only with tools, or with variables of their own.
    for name in EQUIPPED:
        more = dict(out[name].get("variables", {}), functions="[search]", datetime="2025-01-02")
        out[name + "_equipped"] = dict(out[name], tools=["search"], variables=more)
    for spec in out.values():
        if "tools" in spec:
            spec["tools"] = [tools[name] for name in spec["tools"]]
    return out


def variables(spec):
    """What apply_chat_template would pass for a conversation."""
    return dict(TOKENS, messages=spec["messages"], tools=spec.get("tools"), documents=spec.get("documents"),
                add_generation_prompt=spec.get("add_generation_prompt", True), **spec.get("variables", {}))


def render_all(folder):
    env = environment()
    specs = conversations()
    return {path.name: {name: render(env, path.read_text(), variables(spec)) for name, spec in specs.items()}
            for path in sorted(pathlib.Path(folder).glob("*.jinja"))}


def render_snippets():
    env = environment()
    snippets = json.loads((DATA / "snippets.json").read_text())
    out = []
    for snippet in snippets["templates"]:
        source, context = snippet if isinstance(snippet, list) else (snippet, {})
        out.append(dict(template=source, context=context,
                        **render(env, source, dict(snippets["context"], **context))))
    return {"context": snippets["context"], "renders": out}


def digest(result):
    """Length and CRC-32 of the text; errors are all alike."""
    if "error" in result:
        return "error"
    data = result["ok"].encode()
    return f"{len(data)}:{zlib.crc32(data):08x}"


def write(path, value, **style):
    path.write_text(json.dumps(value, ensure_ascii=False, **style) + "\n")


def main(arguments):
    if arguments == ["golden"]:
        write(DATA / "golden.json", {"conversations": conversations(), "templates": render_all(DATA),
                                     "snippets": render_snippets()}, indent=0)
    elif len(arguments) == 2 and arguments[0] == "digests":
        write(DATA / "digests.json", {template: {name: digest(result) for name, result in renders.items()}
                                      for template, renders in render_all(arguments[1]).items()}, indent=0)
    elif len(arguments) == 3 and arguments[0] == "render":
        write(pathlib.Path(arguments[2]), render_all(arguments[1]), indent=0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
