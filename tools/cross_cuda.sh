#!/bin/sh
# Builds programs with the CUDA backend for x86-64 on a machine of another architecture, without a GPU, to be carried
# to a machine that has one: `cross_cuda.sh FOLDER [TARGET...]`. What it needs is installed or lies in the folder
# afterwards; FOLDER/out has the programs, stripped, and the libraries they need (LD_LIBRARY_PATH=lib ./cuda_test).
# FLAGS: further ones for nvcc, for example -DREPRISE_RACECHECK.
set -eu

folder=${1:?usage: cross_cuda.sh FOLDER [TARGET...]}
shift
targets=${*:-reprise cuda_test law_test sample_test}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."

tools/setup.sh cuda
command -v x86_64-linux-gnu-g++ >/dev/null || apt-get install -y -qq --no-install-recommends g++-x86-64-linux-gnu >/dev/null
tools/cuda_toolkit.sh build/cuda-toolkit
[ -d "$folder/root" ] || tools/foreign_packages.sh amd64 "$folder/root"

# The compiler of this machine with the runtime library of that one.
toolkit="$folder/toolkit"
if [ ! -d "$toolkit" ]; then
  build/cuda-toolkit/venv/bin/pip download --quiet --no-deps --only-binary=:all: --platform manylinux2014_x86_64 \
    --platform manylinux_2_17_x86_64 --dest "$folder/wheels" "nvidia-cuda-runtime==13.0.*"
  for wheel in "$folder"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder/runtime"; done
  cp -r build/cuda-toolkit/nvidia/cu13 "$toolkit"
  rm -rf "$toolkit/lib" "$toolkit/lib64"
  cp -r "$folder/runtime/nvidia/cu13/lib" "$toolkit/lib"
  ln -s lib "$toolkit/lib64"
  ln -sf libcudart.so.13 "$toolkit/lib/libcudart.so"
fi

# nvcc's own front end knows neither the types nor the builtins of x86-64 here.
# Written once: everything that nvcc compiles depends on it.
[ -f "$folder/builtins.h" ] || echo '#define __builtin_ia32_pause() ((void)0)' >"$folder/builtins.h"
cat >"$folder/toolchain.cmake" <<CMAKE
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
set(CMAKE_CXX_COMPILER x86_64-linux-gnu-g++)
set(CMAKE_CUDA_HOST_COMPILER x86_64-linux-gnu-g++)
set(CMAKE_CUDA_COMPILER $toolkit/bin/nvcc)
set(CMAKE_CUDA_COMPILER_WORKS ON)
set(CUDAToolkit_ROOT $toolkit)
set(CMAKE_FIND_ROOT_PATH $folder/root)
set(CMAKE_PREFIX_PATH $folder/root/usr)
CMAKE
include="$folder/root/usr/include"
lib="$folder/root/usr/lib/x86_64-linux-gnu"
cmake -S . -B "$folder/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$folder/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DREPRISE_CUDA=ON -DREPRISE_SHORT_BUILD=OFF \
  -DCMAKE_CUDA_FLAGS="-U__SIZEOF_FLOAT80__ -D__float80=double -include $folder/builtins.h ${FLAGS:-}" \
  -DCMAKE_CXX_FLAGS="-isystem $include -isystem $include/x86_64-linux-gnu" \
  -DCMAKE_EXE_LINKER_FLAGS="-L$lib -Wl,-rpath-link,$lib:$folder/root/lib/x86_64-linux-gnu -Wl,--unresolved-symbols=ignore-in-shared-libs" \
  >"$folder/configure.log" 2>&1 || { tail -n 20 "$folder/configure.log"; exit 1; }
# shellcheck disable=SC2086
ninja -C "$folder/build" $targets

out="$folder/out"
mkdir -p "$out/lib"
for target in $targets; do
  program=$(find "$folder/build" -name "$target" -type f -perm -u+x | head -n 1)
  x86_64-linux-gnu-strip -o "$out/$target" "$program"
done
find "$folder/root" -name '*.so.*' | grep -E '/lib(fmt|pcre2-8|xxhash|zstd|zmq|sodium|pgm-5.3|norm|ssl|crypto|bsd|png16|jpeg|webp|z)\.so\.[0-9]+$' |
  while read -r library; do cp -L "$library" "$out/lib/"; done
ls -l "$out"
