# reprise_module(<name> [EXCEPTIONS] SOURCES <files...> [DEPS <modules and libraries...>] [TESTS <files...>])
#
# One static library per module, `reprise_<name>`, and one test program, `<name>_test`.
# Modules are built without exceptions; EXCEPTIONS is for those that wrap a library that throws.
function(reprise_module name)
  cmake_parse_arguments(PARSE_ARGV 1 M "EXCEPTIONS" "" "SOURCES;DEPS;TESTS")
  add_library(reprise_${name} STATIC ${M_SOURCES})
  target_include_directories(reprise_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/gen)
  target_link_libraries(reprise_${name} PUBLIC ${M_DEPS})
  if(NOT M_EXCEPTIONS)
    target_compile_options(reprise_${name} PRIVATE -fno-exceptions)
  endif()
  if(REPRISE_DEV AND M_TESTS)
    reprise_test(${name}_test SOURCES ${M_TESTS} DEPS reprise_${name})
  endif()
endfunction()

# reprise_test(<name> SOURCES <files...> DEPS <libraries...> [LABELS <labels...>])
function(reprise_test name)
  cmake_parse_arguments(PARSE_ARGV 1 T "" "" "SOURCES;DEPS;LABELS")
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_DEPS} GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT 600)
endfunction()

# reprise_fuzz(<name> SOURCES <files...> DEPS <libraries...>): a libFuzzer program. Its corpus lies in
# tests/corpus/<name>/ and is also run as an ordinary test in every other build (tests/replay_main.cc).
function(reprise_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 F "" "" "SOURCES;DEPS")
  add_executable(${name} ${F_SOURCES})
  target_link_libraries(${name} PRIVATE ${F_DEPS})
  if(REPRISE_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/replay_main.cc)
    add_test(NAME ${name}_corpus COMMAND ${name} ${PROJECT_SOURCE_DIR}/tests/corpus/${name})
  endif()
endfunction()
