# moestro_library(name SOURCES a.cpp ... DEPS core ... [EXTERNAL_PUBLIC t ...] [EXTERNAL t ...])
#
# The only way to add a library: one folder, one target moestro::name, one namespace. DEPS are
# libraries of ours (tools/check_includes.py holds every #include against them and against the
# tiers); EXTERNAL are targets of others, seen by this library's sources only.
function(moestro_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;EXTERNAL;EXTERNAL_PUBLIC" ${ARGN})
  add_library(moestro_${name} STATIC ${ARG_SOURCES})
  add_library(moestro::${name} ALIAS moestro_${name})
  list(TRANSFORM ARG_DEPS PREPEND moestro::)
  target_link_libraries(moestro_${name}
    PUBLIC ${ARG_DEPS} fmt::fmt ${ARG_EXTERNAL_PUBLIC}
    PRIVATE moestro_options ${ARG_EXTERNAL})
  target_include_directories(moestro_${name} PUBLIC ${CMAKE_SOURCE_DIR})
endfunction()

# moestro_test(name SOURCES a_test.cpp ... DEPS core ... [LABELS quick|slow] [EXTERNAL t ...] [TIMEOUT s])
#
# One binary and one ctest entry per library.
function(moestro_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;EXTERNAL" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND moestro::)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  target_link_libraries(${name}_test PRIVATE moestro_options ${ARG_DEPS} ${ARG_EXTERNAL}
    GTest::gtest GTest::gmock GTest::gtest_main ${RAPIDCHECK_LIBRARY})
  target_compile_definitions(${name}_test PRIVATE
    MOESTRO_SOURCE_DIR="${CMAKE_SOURCE_DIR}" MOESTRO_BINARY_DIR="${CMAKE_BINARY_DIR}")
  # One ctest entry per binary: starting libtorch once per case would cost more than the cases.
  add_test(NAME ${name} COMMAND ${name}_test --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
