"""Makes the goldens of models that see: tiny random models with what Transformers computes.

usage: make_vision.py [NAME ...]     (needs torch, torchvision and transformers 5.23; writes tests/vision/NAME)

Each is a Hugging Face folder with BF16 weights, two pictures, and vision.safetensors: tokens I32 [T] (image_token_id in
the places of the pictures), vectors_0 and vectors_1 F32 of the tower, logits F32 [T, V] of one cold pass in fp32 with
eager attention, and greedy I32 [n].
"""
import json
import pathlib
import sys

import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from make_models import draw  # noqa: E402
from make_picture_fixtures import generated  # noqa: E402

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/vision"
GREEDY = 12
PAD, START, END = 258, 259, 260
TEXT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
            head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
            linear_value_head_dim=8, vocab_size=264, max_position_embeddings=4096, pad_token_id=0, bos_token_id=1,
            eos_token_id=257, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5,
                                 mrope_section=[3, 3, 2], mrope_interleaved=True))
VISION = dict(depth=2, hidden_size=48, intermediate_size=80, num_heads=2, patch_size=8, spatial_merge_size=2,
              temporal_patch_size=2, out_hidden_size=32, num_position_embeddings=36)
RULES = dict(patch_size=8, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.4, 0.5, 0.6],
             size={"shortest_edge": 256, "longest_edge": 4096})
MODELS = {"qwen3_5": ("Qwen3_5Config", "Qwen3_5ForConditionalGeneration")}


# Bytes, then what the template writes.
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"]
TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role + '\n' }}
{%- if message.content is string -%}{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
<|im_end|>{{ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>{{ 'assistant\n' }}{%- endif -%}
"""


def save_text(folder):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}) + "\n")


def run(model, tokens, pictures):
    ids = torch.tensor([tokens])
    return model(input_ids=ids, mm_token_type_ids=(ids == PAD).int(), use_cache=False, **pictures).logits[0]


def make(name):
    config_class, model_class = (getattr(transformers, n) for n in MODELS[name])
    torch.manual_seed(sum(name.encode()))
    config = config_class(text_config=TEXT, vision_config=VISION, image_token_id=PAD, vision_start_token_id=START,
                          vision_end_token_id=END, video_token_id=261, tie_word_embeddings=False)
    config._attn_implementation = "eager"
    model = model_class(config).float().eval()
    folder = TARGET / name
    folder.mkdir(parents=True, exist_ok=True)
    processor = Qwen2VLImageProcessor(**RULES)
    images = [Image.fromarray(generated(90, 50, 3, 1)), Image.fromarray(generated(37, 70, 5, 2))]
    for i, image in enumerate(images):
        image.save(folder / f"picture_{i}.png")
    with torch.no_grad():
        draw(model)
        pictures = dict(processor(images=images, return_tensors="pt"))
        counts = [int(t * h * w) // 4 for t, h, w in pictures["image_grid_thw"]]
        text = torch.randint(3, 140, (30,)).tolist()
        tokens = (text[:9] + [START] + [PAD] * counts[0] + [END] + text[9:14] + [START] + [PAD] * counts[1] + [END] +
                  text[14:])
        logits = run(model, tokens, pictures)
        greedy = []
        for _ in range(GREEDY):
            greedy.append(int(run(model, tokens + greedy, pictures)[-1].argmax()))
        made = {"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits.contiguous(),
                "greedy": torch.tensor(greedy, dtype=torch.int32)}
        vectors = model.model.get_image_features(pictures["pixel_values"], pictures["image_grid_thw"])
        vectors = getattr(vectors, "pooler_output", vectors)
        for i, one in enumerate(vectors):
            made[f"vectors_{i}"] = one.contiguous()
        plain = run(model, [t if t != PAD else 3 for t in tokens], {})
        print(f"{name}: {len(tokens)} tokens, pictures of {counts}, spread of logits {float(logits.std()):.3f}, "
              f"of vectors {float(made['vectors_0'].std()):.3f}, without pictures {float((plain - logits).abs().max()):.3f} "
              f"away, {len(set(greedy))} different tokens of {GREEDY}")
    save_file(made, folder / "vision.safetensors")
    model.to(torch.bfloat16).save_pretrained(folder)
    processor.save_pretrained(folder)
    save_text(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or MODELS:
        make(chosen)
