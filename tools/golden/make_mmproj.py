"""Writes the tower of a tiny model that sees as llama.cpp's converter does, with llama.cpp's own writer.

usage: make_mmproj.py [NAME ...]     (needs gguf and numpy; reads and writes tests/vision/NAME)

tests/vision/NAME/mmproj.gguf has the tensors of model.safetensors under llama.cpp's names: matrices in BF16 as they are,
vectors, patches and positions in F32; qwen3_5: the convolution over two frames as two tensors; gemma3: the norm plus one;
gemma4: pixels behind colours, and a tensor of a second, deaf tower.
"""
import json
import pathlib
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/vision"
QWEN = {"patch_embed.proj.bias": "v.patch_embd.bias", "pos_embed.weight": "v.position_embd.weight",
        "merger.norm": "v.post_ln", "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2", "norm1": "ln1",
        "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up",
        "mlp.linear_fc2": "ffn_down"}
SIGLIP = {"embeddings.patch_embedding": "v.patch_embd", "embeddings.position_embedding.weight": "v.position_embd.weight",
          "post_layernorm": "v.post_ln", "mm_soft_emb_norm.weight": "mm.soft_emb_norm.weight",
          "mm_input_projection_weight": "mm.input_projection.weight", "layer_norm1": "ln1", "layer_norm2": "ln2",
          "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
          "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
GEMMA4 = {"patch_embedder.position_embedding_table": "v.position_embd.weight", "std_bias": "v.std_bias",
          "std_scale": "v.std_scale", "embedding_projection": "mm.input_projection", "input_layernorm": "ln1",
          "post_attention_layernorm": "attn_post_norm", "pre_feedforward_layernorm": "ln2",
          "post_feedforward_layernorm": "ffn_post_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
          "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_out", "self_attn.q_norm": "attn_q_norm",
          "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
          "mlp.down_proj": "ffn_down"}


def tensors(path, prefixes):
    """name -> uint16 of BF16"""
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    for name, entry in json.loads(data[8:8 + size]).items():
        for prefix in prefixes:
            if name.startswith(prefix):
                assert entry["dtype"] == "BF16"
                begin, end = (8 + size + at for at in entry["data_offsets"])
                yield name[len(prefix):], np.frombuffer(data[begin:end], np.uint16).reshape(entry["shape"])


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def gguf_name(name, names):
    if name in names:
        return names[name]
    stem, kind = name.rsplit(".", 1)
    if stem in names:
        return f"{names[stem]}.{kind}"
    _, number, rest = stem.removeprefix("encoder.").split(".", 2)
    return f"v.blk.{number}.{names[rest]}.{kind}"


def begin(folder, projector, numbers, key="clip.projector_type"):
    rules = json.loads((folder / "preprocessor_config.json").read_text())
    writer = GGUFWriter(folder / "mmproj.gguf", "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string(key, projector)
    writer.add_bool("clip.use_gelu", True)
    for key, value in numbers.items():
        writer.add_uint32("clip.vision." + key, value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", rules["image_mean"])
    writer.add_array("clip.vision.image_std", rules["image_std"])
    return writer


def add(writer, name, bits, as_float):
    if bits.ndim == 2 and not as_float:
        writer.add_tensor(name, bits.view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(name, widened(bits))


def qwen(folder):
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    size = json.loads((folder / "preprocessor_config.json").read_text())["size"]
    writer = begin(folder, "qwen3vl_merger", {
        "projection_dim": vision["out_hidden_size"],
        "image_size": int(vision["num_position_embeddings"] ** 0.5) * vision["patch_size"],
        "patch_size": vision["patch_size"], "embedding_length": vision["hidden_size"],
        "feed_forward_length": vision["intermediate_size"], "block_count": vision["depth"],
        "attention.head_count": vision["num_heads"], "spatial_merge_size": vision["spatial_merge_size"],
        "image_min_pixels": size["shortest_edge"], "image_max_pixels": size["longest_edge"]})
    deep = vision.get("deepstack_visual_indexes", [])
    writer.add_array("clip.vision.is_deepstack_layers", [layer in deep for layer in range(vision["depth"])])
    for name, bits in tensors(folder / "model.safetensors", ["model.visual."]):
        if name == "patch_embed.proj.weight":
            for frame, suffix in enumerate(("", ".1")):
                writer.add_tensor("v.patch_embd.weight" + suffix, widened(np.ascontiguousarray(bits[:, :, frame])))
        elif name.startswith("deepstack_merger_list."):
            _, index, part, kind = name.split(".")
            add(writer, f"v.deepstack.{deep[int(index)]}.{part.removeprefix('linear_')}.{kind}", bits, False)
        else:
            add(writer, gguf_name(name, QWEN), bits, name == "pos_embed.weight")
    return writer


def gemma3(folder):
    config = json.loads((folder / "config.json").read_text())
    vision = config["vision_config"]
    side = int(config["mm_tokens_per_image"] ** 0.5)
    writer = begin(folder, "gemma3", {
        "projection_dim": config["text_config"]["hidden_size"], "image_size": vision["image_size"],
        "patch_size": vision["patch_size"], "embedding_length": vision["hidden_size"],
        "feed_forward_length": vision["intermediate_size"], "block_count": vision["num_hidden_layers"],
        "attention.head_count": vision["num_attention_heads"],
        "projector.scale_factor": vision["image_size"] // vision["patch_size"] // side})
    for name, bits in tensors(folder / "model.safetensors", ["vision_tower.", "multi_modal_projector."]):
        if name == "mm_soft_emb_norm.weight":
            writer.add_tensor(gguf_name(name, SIGLIP), widened(bits) + np.float32(1))
        else:
            add(writer, gguf_name(name, SIGLIP), bits, name.startswith("embeddings."))
    return writer


def gemma4(folder):
    config = json.loads((folder / "config.json").read_text())
    vision = config["vision_config"]
    writer = begin(folder, "gemma4v", {
        "projection_dim": config["text_config"]["hidden_size"], "image_size": 224, "patch_size": vision["patch_size"],
        "embedding_length": vision["hidden_size"], "feed_forward_length": vision["intermediate_size"],
        "block_count": vision["num_hidden_layers"], "attention.head_count": vision["num_attention_heads"]},
        "clip.vision.projector_type")
    for name, bits in tensors(folder / "model.safetensors", ["model.vision_tower.", "model.embed_vision."]):
        name = name.replace(".linear.weight", ".weight")
        if name == "patch_embedder.input_proj.weight":
            side = vision["patch_size"]
            pixels = widened(bits).reshape(len(bits), side, side, 3).transpose(0, 3, 1, 2)
            writer.add_tensor("v.patch_embd.weight", np.ascontiguousarray(pixels))
        else:
            add(writer, gguf_name(name, GEMMA4), bits.reshape(bits.shape or [1]), False)
    # A file that hears as well has more than this needs.
    writer.add_string("clip.audio.projector_type", "gemma4a")
    writer.add_tensor("a.pre_encode.out.weight", np.zeros([4], np.float32))
    return writer


if __name__ == "__main__":
    makers = {"qwen3_5": qwen, "qwen3_vl": qwen, "gemma3": gemma3, "gemma4": gemma4, "gemma4_small": gemma4}
    for model in sys.argv[1:] or makers:
        made = makers[model](TARGET / model)
        made.write_header_to_file()
        made.write_kv_data_to_file()
        made.write_tensors_to_file()
        made.close()
        print(TARGET / model / "mmproj.gguf")
