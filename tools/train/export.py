"""Stage 4: run/checkpoint.pt -> a Hugging Face folder (config.json, model.safetensors, tokenizer.json, chat template).

    python3 tools/train/export.py --run run/ --data data/ --out reprise-tiny/

Then: reprise convert --model reprise-tiny/ --type q8_0 --out models/reprise-tiny-q8_0.gguf
"""
import argparse
import json
import os
import shutil

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

# ChatML. Thoughts are shown for the reply being written and dropped from history, as reasoning models do. The model reads
# what tools answered, but not how they were called: it never learned to call them.
TEMPLATE = """{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if message.role != 'assistant' or content or not message.tool_calls %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking %}
        {{- '<think>\\n' }}
    {%- endif %}
{%- endif %}
"""


def write_template(folder):
    """Both places that readers know: older ones look into tokenizer_config.json."""
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                   "bos_token": None, "add_bos_token": False, "model_max_length": 4096, "chat_template": TEMPLATE}, f, indent=1)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--dtype", default="float16", choices=["float32", "float16", "bfloat16"])
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    saved = torch.load(os.path.join(args.run, "checkpoint.pt"), map_location="cpu")
    config = Qwen3_5TextConfig(**saved["config"])
    model = Qwen3_5ForCausalLM(config)
    model.load_state_dict(saved["model"])
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(args.data, "tokenizer.json"))
    end_of_text, end_of_turn = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    model.config.eos_token_id = end_of_turn
    model.config.architectures = ["Qwen3_5ForCausalLM"]
    model.generation_config.eos_token_id = [end_of_turn, end_of_text]
    model.generation_config.do_sample = True
    model.generation_config.temperature = 0.5
    model.generation_config.top_p = 0.9
    model.to(getattr(torch, args.dtype)).save_pretrained(args.out)
    shutil.copy(os.path.join(args.data, "tokenizer.json"), args.out)
    write_template(args.out)


if __name__ == "__main__":
    main()
