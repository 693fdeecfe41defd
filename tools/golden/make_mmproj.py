"""Writes the tower of a tiny model that sees as llama.cpp's converter does, with llama.cpp's own writer.

usage: make_mmproj.py [NAME ...]     (needs gguf and numpy; reads and writes tests/vision/NAME)

tests/vision/NAME/mmproj.gguf has the tensors of model.safetensors under llama.cpp's names: the convolution over two
frames as two tensors, matrices in BF16 as they are, vectors, patches and positions in F32.
"""
import json
import pathlib
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/vision"
NAMES = {"patch_embed.proj.bias": "v.patch_embd.bias", "pos_embed.weight": "v.position_embd.weight",
         "merger.norm": "v.post_ln", "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2"}
LAYER = {"norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up",
         "mlp.linear_fc2": "ffn_down"}


def tensors(path):
    """name -> uint16 of BF16"""
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    for name, entry in json.loads(data[8:8 + size]).items():
        if name.startswith("model.visual."):
            assert entry["dtype"] == "BF16"
            begin, end = (8 + size + at for at in entry["data_offsets"])
            yield name[len("model.visual."):], np.frombuffer(data[begin:end], np.uint16).reshape(entry["shape"])


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    stem, kind = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    _, number, rest = stem.split(".", 2)
    return f"v.blk.{number}.{LAYER[rest]}.{kind}"


def write(folder):
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    rules = json.loads((folder / "preprocessor_config.json").read_text())
    writer = GGUFWriter(folder / "mmproj.gguf", "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "qwen3vl_merger")
    writer.add_bool("clip.use_gelu", True)
    side = int(vision["num_position_embeddings"] ** 0.5)
    for key, value in (("projection_dim", vision["out_hidden_size"]), ("image_size", side * vision["patch_size"]),
                       ("patch_size", vision["patch_size"]), ("embedding_length", vision["hidden_size"]),
                       ("feed_forward_length", vision["intermediate_size"]), ("block_count", vision["depth"]),
                       ("attention.head_count", vision["num_heads"]), ("spatial_merge_size", vision["spatial_merge_size"]),
                       ("image_min_pixels", rules["size"]["shortest_edge"]),
                       ("image_max_pixels", rules["size"]["longest_edge"])):
        writer.add_uint32("clip.vision." + key, value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", rules["image_mean"])
    writer.add_array("clip.vision.image_std", rules["image_std"])
    writer.add_array("clip.vision.is_deepstack_layers", [False] * vision["depth"])
    for name, bits in tensors(folder / "model.safetensors"):
        if name == "patch_embed.proj.weight":
            for frame, suffix in enumerate(("", ".1")):
                writer.add_tensor("v.patch_embd.weight" + suffix, widened(np.ascontiguousarray(bits[:, :, frame])))
        elif bits.ndim == 2 and name != "pos_embed.weight":
            writer.add_tensor(gguf_name(name), bits.view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(gguf_name(name), widened(bits))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(folder / "mmproj.gguf")


if __name__ == "__main__":
    for model in sys.argv[1:] or ["qwen3_5"]:
        write(TARGET / model)
