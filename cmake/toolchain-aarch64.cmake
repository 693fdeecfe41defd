# Cross build for aarch64 Linux with Debian's g++-aarch64-linux-gnu; tests run through qemu-user.
# docs/aarch64.md has the commands.
#
#   REPRISE_AARCH64_ROOT   folder with the arm64 packages the build needs (libfmt-dev, libgtest-dev, ...)
#                          unpacked as <root>/usr/...; also read from the environment. Not needed where
#                          they are installed as foreign-architecture packages.
#   REPRISE_AARCH64_CPU    CPU that qemu shows to the tests. The default has dotprod, i8mm and bf16, and
#                          no SVE: features are a set, and that set exists in the field.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(REPRISE_AARCH64_ROOT "$ENV{REPRISE_AARCH64_ROOT}" CACHE PATH "Unpacked arm64 packages")
set(REPRISE_AARCH64_CPU "max,sve=off,pauth=off" CACHE STRING "CPU model that qemu shows to tests")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES REPRISE_AARCH64_ROOT)

set(CMAKE_FIND_ROOT_PATH ${REPRISE_AARCH64_ROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64;-cpu;${REPRISE_AARCH64_CPU};-L;/usr/aarch64-linux-gnu)

if(REPRISE_AARCH64_ROOT)
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
  set(lib_dir ${REPRISE_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu)
  # Some libraries (zlib) lie in lib/ and not in usr/lib/; some headers in a folder of the architecture.
  set(base_lib_dir ${REPRISE_AARCH64_ROOT}/lib/aarch64-linux-gnu)
  set(CMAKE_CXX_FLAGS_INIT "-isystem ${REPRISE_AARCH64_ROOT}/usr/include/aarch64-linux-gnu")
  set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${lib_dir}:${base_lib_dir}")
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -E LD_LIBRARY_PATH=${lib_dir}:${base_lib_dir})
  set(ENV{PKG_CONFIG_LIBDIR} ${lib_dir}/pkgconfig:${REPRISE_AARCH64_ROOT}/usr/share/pkgconfig)
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${REPRISE_AARCH64_ROOT})
endif()
