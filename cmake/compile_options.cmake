# Flags of the whole tree. Instruction-set flags are not here: see isa.cmake.

# They are for the C++ compiler; nvcc has flags of its own (cuda.cmake).
macro(reprise_flags)
  foreach(flag ${ARGN})
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${flag}>)
  endforeach()
endmacro()

# One answer on every CPU: a * b + c is an fma only where the source says fma.
reprise_flags(-ffp-contract=off -fno-math-errno)
reprise_flags(-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  reprise_flags(-Wno-restrict)  # GCC bug 105651: false alarms for "text" + std::string
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  reprise_flags(-Wthread-safety)
endif()
if(REPRISE_DEV)
  reprise_flags(-Werror)
endif()

# Hardening: the server reads hostile bytes.
reprise_flags(-fstack-protector-strong)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT REPRISE_SANITIZE)
  add_compile_definitions(_FORTIFY_SOURCE=2)
endif()
add_link_options(LINKER:-z,relro,-z,now)

if(REPRISE_SANITIZE)
  reprise_flags(-fsanitize=${REPRISE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${REPRISE_SANITIZE})
  if(REPRISE_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    reprise_flags(-Wno-tsan)  # fences in Asio, which this sanitizer cannot see
  endif()
  if(REPRISE_SANITIZE MATCHES "undefined")
    reprise_flags(-fno-sanitize-recover=all)
  endif()
endif()
