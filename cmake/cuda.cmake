# The CUDA backend: nvcc as a second compiler, for src/kernels/cuda/**/*.cu alone. The compiler comes
# from tools/cuda_toolkit.sh (make cuda) or from the machine's own toolkit. The runtime is linked in;
# the driver is looked for when the program runs, so the binary starts without one.
if(NOT REPRISE_CUDA)
  return()
endif()
set(REPRISE_CUDA_ARCHITECTURES "90a-real" CACHE STRING
    "GPU architectures to compile for, with ; between (tools/cuda_architectures.sh all)")
set(toolkit ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13)
if(NOT CMAKE_CUDA_COMPILER AND EXISTS ${toolkit}/bin/nvcc)
  set(CMAKE_CUDA_COMPILER ${toolkit}/bin/nvcc CACHE FILEPATH "nvcc")
  set(CUDAToolkit_ROOT ${toolkit} CACHE PATH "CUDA toolkit")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${REPRISE_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)

# As on the CPU: no contraction, IEEE division and square root, denormals kept (nvcc's defaults).
set(REPRISE_CUDA_FLAGS --fmad=false --expt-relaxed-constexpr -Xcompiler=-ffp-contract=off)
