"""Makes the vectors of texts that the tests compare with: what Transformers pools of the goldens' tokens.

usage: make_vectors.py                  (needs torch and transformers 5.23; writes tests/golden/vectors.safetensors)

For every golden that Transformers knows: NAME.mean and NAME.last, F32 [dim], the mean and the last of the last hidden states
(behind the final norm) of its tokens, in fp32, cold; and NAME.rank, F32 [2]: for the rows of the head that belong to tokens 7 and
11, taken as "yes" and "no", the softmax of that last state's products. Needs no weights of its own: they are the goldens'.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden"
YES, NO = 7, 11


def main():
    made, skipped = {}, []
    for folder in sorted(path.parent for path in TARGET.glob("*/config.json")):
        config = json.loads((folder / "config.json").read_text())
        # Nor does it round activations as products with quantised weights do. Where angles follow the length, it takes that
        # of the tokens, and a server that of its context.
        rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
        follows = rope.get("rope_type", rope.get("type")) == "dynamic" and not rope.get("alpha")
        if config["model_type"] not in transformers.CONFIG_MAPPING or "quantization_config" in config or follows:
            skipped.append(folder.name)
            continue
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        tokens = load_file(folder / "golden.safetensors")["tokens"].long()[None]
        with torch.no_grad():
            states = model.base_model(tokens, use_cache=False).last_hidden_state[0]
        head = model.get_output_embeddings().weight.detach()
        made[f"{folder.name}.mean"] = states.double().mean(dim=0).float()
        made[f"{folder.name}.last"] = states[-1].clone()
        made[f"{folder.name}.rank"] = torch.softmax(head[[YES, NO]] @ states[-1], dim=0)
    save_file(made, TARGET / "vectors.safetensors")
    print(f"{len(made)} vectors; Transformers does not know: {', '.join(skipped) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
