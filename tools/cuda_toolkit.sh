#!/bin/sh
# Puts CUDA's compiler into the folder that is named: wheels of one pinned version, no GPU, driver or
# root needed. Does nothing when they are there. A machine with a toolkit of its own does not need it.
set -eu

folder=${1:?usage: cuda_toolkit.sh FOLDER}
version=13.0
root="$folder/nvidia/cu13"
[ -x "$root/bin/nvcc" ] && [ -e "$root/lib64" ] && [ -x "$root/bin/cuobjdump" ] && exit 0

echo "installing CUDA $version's compiler into $folder"
mkdir -p "$folder"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps --target "$folder" \
  "nvidia-cuda-nvcc==$version.*" "nvidia-nvvm==$version.*" "nvidia-cuda-crt==$version.*" \
  "nvidia-cuda-runtime==$version.*" "nvidia-cuda-cccl==$version.*" \
  "nvidia-cuda-cuobjdump==13.2.*" "nvidia-cuda-nvdisasm==13.2.*"
# CMake looks for lib64, and for a shared runtime although the static one is linked.
ln -sfn lib "$root/lib64"
ln -sfn "$(basename "$(ls "$root"/lib/libcudart.so.* | head -n 1)")" "$root/lib/libcudart.so"
"$root/bin/nvcc" --version | tail -n 2
