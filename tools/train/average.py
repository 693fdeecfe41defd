"""Averages the weights of two exported folders of one run: --share of the second, the rest of the first.

    python3 tools/train/average.py --first round1/ --second round2/ --share 0.8 --out reprise-tiny/

The second must have been trained from the first. A point between them keeps nearly all that the second learned and takes
back most of what it forgot: README.md has the figures. Text files are those of the second.
"""
import argparse
import os
import shutil

from safetensors.torch import load_file, save_file


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first", required=True)
    parser.add_argument("--second", required=True)
    parser.add_argument("--share", type=float, default=0.8)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    first, second = (load_file(os.path.join(folder, "model.safetensors")) for folder in (args.first, args.second))
    if first.keys() != second.keys():
        raise SystemExit("the folders hold different models")
    shutil.copytree(args.second, args.out, dirs_exist_ok=True)
    save_file({name: first[name].float().lerp(tensor.float(), args.share).to(tensor.dtype).contiguous()
               for name, tensor in second.items()}, os.path.join(args.out, "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main()
