# reprise_module(<name> [EXCEPTIONS] [HOT | COLD] [PUBLISHED] SOURCES <files...> [DEPS <libraries...>] [TESTS <files...>])
#
# One static library per module, `reprise_<name>`, and one test program, `<name>_test`.
# Modules are built without exceptions; EXCEPTIONS is for those that wrap a library that throws.
# HOT and COLD: see build_time.cmake.
function(reprise_module name)
  cmake_parse_arguments(PARSE_ARGV 1 M "EXCEPTIONS;HOT;COLD;PUBLISHED" "" "SOURCES;DEPS;TESTS")
  add_library(reprise_${name} STATIC ${M_SOURCES})
  target_include_directories(reprise_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/gen)
  target_link_libraries(reprise_${name} PUBLIC ${M_DEPS})
  set(options "")
  if(NOT M_EXCEPTIONS)
    list(APPEND options -fno-exceptions)
  endif()
  if(M_HOT)
    list(APPEND options ${REPRISE_HOT})
  elseif(M_COLD)
    list(APPEND options ${REPRISE_COLD})
  endif()
  target_compile_options(reprise_${name} PRIVATE ${options})
  reprise_precompile(reprise_${name} LIBRARY ${options})
  if(REPRISE_DEV AND M_TESTS)
    set(published "")
    if(M_PUBLISHED)
      set(published PUBLISHED)
    endif()
    reprise_test(${name}_test ${published} SOURCES ${M_TESTS} DEPS reprise_${name})
  endif()
endfunction()

# Half cores that a test keeps busy: `make test` runs two for each core. Tests that wait for the most part have one
# (tests/CMakeLists.txt).
set(REPRISE_BUSY PROCESSORS 2)

# reprise_test(<name> [PUBLISHED] SOURCES <files...> DEPS <libraries...> [LABELS <labels...>])
# PUBLISHED: tests with that word in their name need data that is published elsewhere and is not part of the
# tree. They run as <name>_published, which ctest shows as skipped where the data is missing.
function(reprise_test name)
  cmake_parse_arguments(PARSE_ARGV 1 T "PUBLISHED" "" "SOURCES;DEPS;LABELS")
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${REPRISE_COLD})
  reprise_precompile(${name} TEST ${REPRISE_COLD})
  set(filter "")
  if(T_PUBLISHED)
    set(filter --gtest_filter=-*Published*)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${filter} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  # Its own folder for files: tests of two trees may run at once.
  set(folder ${PROJECT_BINARY_DIR}/tmp/${name}/)
  file(MAKE_DIRECTORY ${folder})
  set_tests_properties(${name} PROPERTIES ${REPRISE_BUSY} LABELS "${T_LABELS}" TIMEOUT 600
    ENVIRONMENT TEST_TMPDIR=${folder})
  if(T_PUBLISHED)
    add_test(NAME ${name}_published COMMAND ${name} --gtest_filter=*Published* WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_published PROPERTIES ${REPRISE_BUSY} LABELS "${T_LABELS}" TIMEOUT 600
      SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests")
  endif()
endfunction()

# reprise_fuzz(<name> SOURCES <files...> DEPS <libraries...>): a libFuzzer program. Its corpus lies in
# tests/corpus/<name>/ and is also run as an ordinary test in every other build (tests/replay_main.cc).
function(reprise_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 F "" "" "SOURCES;DEPS")
  add_executable(${name} ${F_SOURCES})
  target_link_libraries(${name} PRIVATE ${F_DEPS})
  target_compile_options(${name} PRIVATE ${REPRISE_COLD})
  if(REPRISE_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_compile_definitions(${name} PRIVATE REPRISE_LIBFUZZER)
  else()
    if(NOT TARGET reprise_replay)
      add_library(reprise_replay STATIC ${PROJECT_SOURCE_DIR}/tests/replay_main.cc)
    endif()
    target_link_libraries(${name} PRIVATE reprise_replay)
    add_test(NAME ${name}_corpus COMMAND ${name} ${PROJECT_SOURCE_DIR}/tests/corpus/${name})
    set_tests_properties(${name}_corpus PROPERTIES ${REPRISE_BUSY})
  endif()
endfunction()
