# reprise_isa(<name> FLAGS <flags...>): compiles src/kernels/cpu/<name>/*.cc with its own flags.
# Nothing else in the tree is ever compiled with -m flags. Such objects must not define weak
# symbols: the linker could keep the copy that needs the newer CPU (tools/check_isa_objects.py).
function(reprise_isa name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "FLAGS")
  file(GLOB srcs CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cpu/${name}/*.cc)
  add_library(reprise_kernels_${name} OBJECT ${srcs})
  target_include_directories(reprise_kernels_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(reprise_kernels_${name} PRIVATE ${A_FLAGS} -fno-exceptions -fno-rtti ${REPRISE_HOT})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Its AVX-512 header (12.2) initialises "undefined" vectors with themselves, and warns.
    target_compile_options(reprise_kernels_${name} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  target_sources(reprise_kernels PRIVATE $<TARGET_OBJECTS:reprise_kernels_${name}>)
  set_property(GLOBAL APPEND PROPERTY REPRISE_ISA_OBJECTS reprise_kernels_${name})
endfunction()
