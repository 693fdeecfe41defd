"""Makes the goldens of models that see: tiny random models with what Transformers computes.

usage: make_vision.py [NAME ...]     (needs torch, torchvision and transformers 5.23; writes tests/vision/NAME)

Each is a Hugging Face folder with BF16 weights, two pictures, and vision.safetensors: tokens I32 [T] (image_token_id in
the places of the pictures), vectors_0 and vectors_1 F32 of the tower, logits F32 [T, V] of one cold pass in fp32 with
eager attention (of every `stride`-th row, the last among them, where the file says a stride), and greedy I32 [n].
"""
import json
import os
import pathlib
import sys

# torchvision resizes bytes bilinearly in integers, as Pillow does, where torch says AVX2, and in floats elsewhere.
os.environ["ATEN_CPU_CAPABILITY"] = "avx2"

import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
from transformers.models.gemma4.image_processing_gemma4 import Gemma4ImageProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from make_models import draw  # noqa: E402
from make_picture_fixtures import generated  # noqa: E402

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/vision"
GREEDY = 12
QWEN_TEXT = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
    head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
    vocab_size=264, max_position_embeddings=4096, pad_token_id=0, bos_token_id=1, eos_token_id=257,
    tie_word_embeddings=False,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5,
                         mrope_section=[3, 3, 2], mrope_interleaved=True))
QWEN_VISION = dict(depth=2, hidden_size=48, intermediate_size=80, num_heads=2, patch_size=8, spatial_merge_size=2,
                   temporal_patch_size=2, out_hidden_size=32, num_position_embeddings=36)
QWEN3_TEXT = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    vocab_size=264, max_position_embeddings=4096, pad_token_id=0, bos_token_id=1, eos_token_id=257,
    tie_word_embeddings=False,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2], mrope_interleaved=True))
# The window is longer than a picture, and shorter than the text.
GEMMA3_TEXT = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
    vocab_size=264, max_position_embeddings=4096, pad_token_id=0, bos_token_id=1, eos_token_id=257, sliding_window=24,
    query_pre_attn_scalar=24, rope_theta=1000000.0, rope_local_base_freq=10000.0,
    layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"])
GEMMA3_VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, image_size=32,
                     patch_size=4, vision_use_head=False)
GEMMA4_TEXT = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
    global_head_dim=16, vocab_size=264, vocab_size_per_layer_input=264, max_position_embeddings=4096, pad_token_id=0,
    bos_token_id=1, eos_token_id=257, sliding_window=24, final_logit_softcapping=4.0, enable_moe_block=False,
    layer_types=["sliding_attention", "full_attention"] * 2, rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=100.0),
        full_attention=dict(rope_type="proportional", rope_theta=1000.0, partial_rotary_factor=0.25)))
GEMMA4_VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=2, head_dim=16, patch_size=4, pooling_kernel_size=3,
                     position_embedding_size=210, rms_norm_eps=1e-6)


QWEN = dict(
    processor=lambda: Qwen2VLImageProcessor(
        patch_size=8, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.4, 0.5, 0.6],
        size={"shortest_edge": 256, "longest_edge": 4096}),
    counts=lambda pictures: [int(t * h * w) // 4 for t, h, w in pictures["image_grid_thw"]],
    vectors=lambda model, pictures: model.get_image_features(pictures["pixel_values"], pictures["image_grid_thw"]),
    kinds="mm_token_type_ids", pad=258, around=(259, 260), end="<|im_end|>",
    special=["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"],
    turn="<|im_start|>{{ message.role + '\n' }}", reply="<|im_start|>{{ 'assistant\n' }}",
    picture="<|vision_start|><|image_pad|><|vision_end|>")


def qwen3_vl(name, text):
    return dict(
        QWEN, config=name + "Config", model=name + "ForConditionalGeneration",
        parameters=dict(text_config=text, vision_config=dict(QWEN_VISION, depth=3, hidden_size=24, intermediate_size=40,
                                                            deepstack_visual_indexes=[0, 1]),
                        image_token_id=258, vision_start_token_id=259, vision_end_token_id=260, video_token_id=261,
                        tie_word_embeddings=False),
        vectors=deep_vectors)


def deep_vectors(model, pictures):
    seen = model.get_image_features(pictures["pixel_values"], pictures["image_grid_thw"])
    return [torch.cat(parts, dim=-1) for parts in zip(seen.pooler_output, *seen.deepstack_features)]


def gemma4(text, vision):
    return dict(
        config="Gemma4Config", model="Gemma4ForConditionalGeneration",
        parameters=dict(text_config=dict(GEMMA4_TEXT, **text), vision_config=dict(GEMMA4_VISION, **vision),
                        audio_config=None, boi_token_id=258, eoi_token_id=259, image_token_id=260, video_token_id=261,
                        audio_token_id=262),
        processor=lambda: Gemma4ImageProcessor(patch_size=4, max_soft_tokens=70, pooling_kernel_size=3),
        counts=lambda pictures: [int(n) for n in pictures.pop("num_soft_tokens_per_image")],
        vectors=lambda model, pictures: model.get_image_features(pictures["pixel_values"],
                                                                 pictures["image_position_ids"]),
        kinds="mm_token_type_ids", pad=260, around=(258, 259), end="<turn|>", stride=5,
        special=["<|turn>", "<turn|>", "<|image>", "<image|>", "<|image|>"],
        turn="<|turn>{{ message.role + '\\n' }}", reply="<|turn>{{ 'model\\n' }}", picture="{{- '<|image|>' -}}")


# Name -> what it is. `special`: what the vocabulary has behind the bytes. `pad`: what stands for a picture's tokens,
# `around`: what stands before and behind them.
MODELS = {
    "qwen3_5": dict(
        config="Qwen3_5Config", model="Qwen3_5ForConditionalGeneration",
        parameters=dict(text_config=QWEN_TEXT, vision_config=QWEN_VISION, image_token_id=258,
                        vision_start_token_id=259, vision_end_token_id=260, video_token_id=261,
                        tie_word_embeddings=False),
        **QWEN),
    "qwen3_vl": qwen3_vl("Qwen3VL", QWEN3_TEXT),
    "qwen3_vl_moe": qwen3_vl("Qwen3VLMoe", dict(
        QWEN3_TEXT, moe_intermediate_size=24, num_experts=8, num_experts_per_tok=2, decoder_sparse_step=1)),
    "gemma3": dict(
        config="Gemma3Config", model="Gemma3ForConditionalGeneration",
        parameters=dict(text_config=GEMMA3_TEXT, vision_config=GEMMA3_VISION, mm_tokens_per_image=16,
                        boi_token_index=258, eoi_token_index=259, image_token_index=260),
        processor=lambda: Gemma3ImageProcessor(
            size={"height": 32, "width": 32}, image_mean=[0.5] * 3, image_std=[0.4, 0.5, 0.6], do_pan_and_scan=False),
        counts=lambda pictures: [16] * len(pictures["pixel_values"]),
        vectors=lambda model, pictures: model.get_image_features(pictures["pixel_values"]),
        kinds="token_type_ids", pad=260, around=(258, 259), end="<end_of_turn>",
        special=["<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"],
        turn="<start_of_turn>{{ message.role + '\n' }}", reply="<start_of_turn>{{ 'model\n' }}",
        picture="{{ '<start_of_image>' }}"),
    # As the large ones are, whose pictures are seen whole by layers with a window.
    "gemma4": gemma4(dict(use_bidirectional_attention="vision", attention_k_eq_v=True, num_global_key_value_heads=1,
                          hidden_size_per_layer_input=0), dict(standardize=True)),
    # As the small ones are.
    "gemma4_small": gemma4(dict(hidden_size_per_layer_input=12, num_kv_shared_layers=2), dict(use_clipped_linears=True)),
}

# Bytes, then what the template writes.
TEMPLATE = """{%- for message in messages -%}
TURN
{%- if message.content is string -%}{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}PICTURE{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
END{{ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}REPLY{%- endif -%}
"""


def save_text(folder, spec):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(spec["special"])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = TEMPLATE
    for name in ("turn", "picture", "end", "reply"):
        template = template.replace(name.upper(), spec[name])
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": spec["end"], "chat_template": template}) + "\n")


def run(model, spec, tokens, pictures):
    ids = torch.tensor([tokens])
    kinds = {spec["kinds"]: (ids == spec["pad"]).int()}
    return model(input_ids=ids, use_cache=False, **kinds, **pictures).logits[0]


def add_mtp(folder):
    """A block that predicts further tokens, with any weights: what it guesses changes no answer."""
    path = folder / "model.safetensors"
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    dim, hidden = text["hidden_size"], text["intermediate_size"]
    heads, kv_heads, head_dim = text["num_attention_heads"], text["num_key_value_heads"], text["head_dim"]
    shapes = {"fc": (dim, 2 * dim), "pre_fc_norm_embedding": (dim,), "pre_fc_norm_hidden": (dim,), "norm": (dim,)}
    shapes.update({"layers.0." + name: shape for name, shape in {
        "input_layernorm": (dim,), "post_attention_layernorm": (dim,), "self_attn.q_norm": (head_dim,),
        "self_attn.k_norm": (head_dim,), "self_attn.q_proj": (2 * heads * head_dim, dim),
        "self_attn.k_proj": (kv_heads * head_dim, dim), "self_attn.v_proj": (kv_heads * head_dim, dim),
        "self_attn.o_proj": (dim, heads * head_dim), "mlp.gate_proj": (hidden, dim), "mlp.up_proj": (hidden, dim),
        "mlp.down_proj": (dim, hidden)}.items()})
    generator = torch.Generator().manual_seed(43)
    tensors = load_file(path)
    for name, shape in shapes.items():
        scale = 0.3 if len(shape) == 1 else 1.5 / shape[-1] ** 0.5
        tensors[f"mtp.{name}.weight"] = (torch.randn(shape, generator=generator) * scale).bfloat16()
    save_file(tensors, path, metadata={"format": "pt"})
    text["mtp_num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def turn_experts(path):
    """As they are published: Transformers turns them when it reads them, not when it writes them."""
    tensors = load_file(path)
    for name in tensors:
        if "mlp.experts." in name:
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


def make(name):
    spec = MODELS[name]
    pad, (start, end) = spec["pad"], spec["around"]
    torch.manual_seed(sum(name.encode()))
    config = getattr(transformers, spec["config"])(**spec["parameters"])
    config._attn_implementation = "eager"
    model = getattr(transformers, spec["model"])(config).float().eval()
    folder = TARGET / name
    folder.mkdir(parents=True, exist_ok=True)
    processor = spec["processor"]()
    images = [Image.fromarray(generated(90, 50, 3, 1)), Image.fromarray(generated(37, 70, 5, 2))]
    for i, image in enumerate(images):
        image.save(folder / f"picture_{i}.png")
    with torch.no_grad():
        counted = {name: values.clone() for name, values in model.named_buffers() if not values.is_floating_point()}
        draw(model)
        for buffer, values in model.named_buffers():
            if buffer in counted:
                values.copy_(counted[buffer])
            if buffer.endswith(("put_min", "put_max")):
                values.fill_((-1.75 if buffer.endswith("min") else 1.5) * (2 if "output" in buffer else 1))
            if buffer.endswith("std_scale"):
                values.copy_((0.5 + values).to(torch.bfloat16))
        pictures = dict(processor(images=images, return_tensors="pt"))
        pictures.pop("num_crops", None)
        counts = spec["counts"](pictures)
        text = torch.randint(3, 140, (30,)).tolist()
        tokens = (text[:9] + [start] + [pad] * counts[0] + [end] + text[9:14] + [start] + [pad] * counts[1] + [end] +
                  text[14:])
        logits = run(model, spec, tokens, pictures)
        greedy = []
        for _ in range(GREEDY):
            greedy.append(int(run(model, spec, tokens + greedy, pictures)[-1].argmax()))
        stride = spec.get("stride", 1)
        made = {"tokens": torch.tensor(tokens, dtype=torch.int32), "stride": torch.tensor([stride], dtype=torch.int32),
                "logits": logits[(len(tokens) - 1) % stride::stride].contiguous(),
                "greedy": torch.tensor(greedy, dtype=torch.int32)}
        vectors = spec["vectors"](model.model, pictures)
        vectors = getattr(vectors, "pooler_output", vectors)
        for i, one in enumerate(vectors):
            made[f"vectors_{i}"] = one.contiguous()
        plain = run(model, spec, [t if t != pad else 3 for t in tokens], {})
        print(f"{name}: {len(tokens)} tokens, pictures of {counts}, spread of logits {float(logits.std()):.3f}, "
              f"of vectors {float(made['vectors_0'].std()):.3f}, without pictures {float((plain - logits).abs().max()):.3f} "
              f"away, {len(set(greedy))} different tokens of {GREEDY}")
    save_file(made, folder / "vision.safetensors")
    model.to(torch.bfloat16).save_pretrained(folder)
    if name == "qwen3_5":
        add_mtp(folder)
    if name == "qwen3_vl_moe":
        turn_experts(folder / "model.safetensors")
    processor.save_pretrained(folder)
    save_text(folder, spec)
    (folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or MODELS:
        make(chosen)
