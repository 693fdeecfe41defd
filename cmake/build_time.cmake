# What keeps a build from nothing short. Off beside ccache, which makes builds short in its own way and cannot share
# what was compiled with precompiled headers.
#
# 1. Most of a small file's compile time is reading the standard library. Files with the same options read it once:
#    reprise_precompile(<target> LIBRARY|TEST [options...]), with the options that the target adds to those of the tree.
# 2. The compiler's time goes where it pays. Loops over weights have -O3 (isa.cmake, HOT modules), what runs once a
#    request -O1 (COLD modules), tests too, the rest -O2. The bits of an answer do not depend on it.
if(REPRISE_CCACHE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(short_build_default OFF)
else()
  set(short_build_default ON)
endif()
option(REPRISE_SHORT_BUILD "Precompiled headers, optimisation where it pays" ${short_build_default})

if(REPRISE_SHORT_BUILD)
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
  # GCC 12 forgets in precompiled headers which lines of the library it must not warn about after optimising.
  add_compile_options(-Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
                      -Wno-error=invalid-pch -Wno-error=maybe-uninitialized)
  set(REPRISE_HOT $<$<CONFIG:Release>:-O3>)
  set(REPRISE_COLD $<$<CONFIG:Release>:-O1>)
else()
  set(REPRISE_HOT "")
  set(REPRISE_COLD "")
endif()

function(reprise_precompile target kind)
  if(NOT REPRISE_SHORT_BUILD)
    return()
  endif()
  string(MAKE_C_IDENTIFIER "precompiled_${kind}_${ARGN}" owner)
  if(NOT TARGET ${owner})
    set(source ${PROJECT_BINARY_DIR}/gen/${owner}.cc)
    set(headers <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstdio>
                <cstring> <deque> <filesystem> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span>
                <string> <string_view> <thread> <unordered_map> <utility> <vector>)
    if(kind STREQUAL "TEST")
      file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
      add_executable(${owner} ${source})
      target_link_libraries(${owner} PRIVATE GTest::gtest)
      list(APPEND headers <gtest/gtest.h>)
    else()
      file(CONFIGURE OUTPUT ${source} CONTENT "\n")
      add_library(${owner} OBJECT ${source})
    endif()
    target_compile_options(${owner} PRIVATE ${ARGN})
    target_precompile_headers(${owner} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
