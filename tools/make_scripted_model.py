"""Writes a model that says what a script says: for tests that must know the reply, tool calls above all.

  make_scripted_model.py FOLDER [CONTEXT]

The model is a real one (a llama of one layer: config.json, model.safetensors, tokenizer.json and template), but its
weights are made, not trained: attention and MLP add nothing, so the logits depend on the last token only, and the
output projection gives every token one successor with a wide margin. Each script is a chain of ordinary tokens that
occur nowhere else; the chat template ends the prompt with the token that begins the chain it wants. The margin is about 40
nats, so any temperature up to 2 says the same, and a logit_bias of 100 can force another token.

Chains: SAY without tools; CALL when the request has tools, TWICE when the last
message asks for it, SHELL when one of the tools is exec_command (Codex has it); ANSWER after a tool's result; THINK
with enable_thinking.
"""
import json
import pathlib
import random
import struct
import sys

WIDTH = 128
SAY = ["Hello", " there", ", little", " parrot", " friend"]
CALL = ["Let me", " look", ".\n", "<tool", "_call>", "\n{\"name\": ", "\"get_weather\"", ", \"arguments\": ",
        "{\"city\": ", "\"Par", "is\"", "}}\n</tool", "_cal", "l>"]
ANSWER = ["It is", " sunny", " in Paris", " today."]
TWICE = ["<tool_c", "all>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}", "</tool_ca", "ll>\n<tool_",
         "call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}", "</tool_call>"]
SHELL = ["<to", "ol_call>{\"name\": \"exec_command\", \"arguments\": {\"cmd\": \"expr 6 \\\\* 7\"}}</too", "l_call>"]
THINK = ["Two plus", " two", "\n</thi", "nk>", "\n\nIt makes", " four"]
STARTS = ["<|say|>", "<|call|>", "<|twice|>", "<|answer|>", "<|shell|>", "<think>"]  # the token before each chain
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|say|>", "<|call|>", "<|twice|>", "<|answer|>",
           "<|shell|>"]
TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\nCall a tool with <tool_call>...</tool_call>:\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": ' + call.function.name | tojson + ', "arguments": ' + call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking %}{{- '<think>' }}
{%- elif messages[-1].role == 'tool' %}{{- '<|answer|>' }}
{%- elif tools and '"exec_command"' in tools | tojson %}{{- '<|shell|>' }}
{%- elif tools and 'twice' in messages[-1].content %}{{- '<|twice|>' }}
{%- elif tools %}{{- '<|call|>' }}
{%- else %}{{- '<|say|>' }}{%- endif %}
{%- endif %}
"""


def byte_alphabet():
    """GPT-2's printable character for every byte."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    return [chr(b) if b in plain else chr(256 + sum(c not in plain for c in range(b))) for b in range(256)]


def tokenizer_json(added, pieces):
    alphabet = byte_alphabet()
    words = alphabet + ["".join(alphabet[b] for b in text.encode()) for text in pieces]
    ids = list(range(256)) + [256 + len(added) + i for i in range(len(pieces))]

    def entry(index, text):
        return {"id": 256 + index, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": text in SPECIAL}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [entry(i, text) for i, text in enumerate(added)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                  "vocab": dict(zip(words, ids)), "merges": []}}


def bf16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def tensors(vocab, successors):
    """Name -> (shape, bytes). Embeddings are random signs: long and nearly orthogonal."""
    rng = random.Random(1)
    signs = [[rng.choice((-1.0, 1.0)) for _ in range(WIDTH)] for _ in range(vocab)]
    head = [[0.0] * WIDTH for _ in range(vocab)]
    for token in range(vocab):
        row = head[successors[token]]
        for i in range(WIDTH):
            row[i] += 0.5 * signs[token][i]
    zeros = bytes(2 * WIDTH * WIDTH)
    ones = bf16([1.0] * WIDTH)
    layer = "model.layers.0."
    out = {"model.embed_tokens.weight": ([vocab, WIDTH], b"".join(map(bf16, signs))),
           "lm_head.weight": ([vocab, WIDTH], b"".join(map(bf16, head))),
           "model.norm.weight": ([WIDTH], ones),
           layer + "input_layernorm.weight": ([WIDTH], ones),
           layer + "post_attention_layernorm.weight": ([WIDTH], ones)}
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                 "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        out[f"{layer}{name}.weight"] = ([WIDTH, WIDTH], zeros)
    return out


def write_safetensors(path, named):
    header, offset = {}, 0
    for name, (shape, data) in named.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in named.values()))


def main():
    folder = pathlib.Path(sys.argv[1])
    context = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    folder.mkdir(parents=True, exist_ok=True)
    chains = dict(zip(STARTS, (SAY, CALL, TWICE, ANSWER, SHELL, THINK)))
    added = SPECIAL + ["<think>"]
    pieces = [text for chain in chains.values() for text in chain]
    texts = added + pieces
    assert len(set(texts)) == len(texts), "a token may stand in one chain only"
    ids = {text: 256 + i for i, text in enumerate(texts)}
    end = ids["<|im_end|>"]
    successors = list(range(256 + len(texts)))  # all others repeat themselves until max_tokens
    for start, chain in chains.items():
        for text, following in zip([start] + chain, chain + ["<|im_end|>"]):
            successors[ids[text]] = ids[following]
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "head_dim": 64,
              "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1, "intermediate_size": WIDTH,
              "hidden_act": "silu", "max_position_embeddings": context, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "vocab_size": 256 + len(texts), "eos_token_id": end,
              "bos_token_id": None, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(added, pieces), ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    write_safetensors(folder / "model.safetensors", tensors(256 + len(texts), successors))


if __name__ == "__main__":
    main()
