# Compile options every target of ours shares.
add_library(moestro_options INTERFACE)
target_include_directories(moestro_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(moestro_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast -Wcast-qual -Wnon-virtual-dtor
  -Woverloaded-virtual
  -Wno-missing-field-initializers  # designated initialisers name what differs from the defaults
  -Wno-restrict                    # false alarms of g++ 12 on string concatenation
  $<$<BOOL:${MOESTRO_WERROR}>:-Werror>)
if(MOESTRO_SANITIZE STREQUAL "address")
  target_compile_options(moestro_options INTERFACE
    -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(moestro_options INTERFACE -fsanitize=address,undefined)
  target_compile_definitions(moestro_options INTERFACE MOESTRO_SANITIZED=1)
elseif(MOESTRO_SANITIZE STREQUAL "thread")
  target_compile_options(moestro_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(moestro_options INTERFACE -fsanitize=thread)
  target_compile_definitions(moestro_options INTERFACE MOESTRO_SANITIZED=1)
elseif(NOT MOESTRO_SANITIZE STREQUAL "")
  message(FATAL_ERROR "MOESTRO_SANITIZE is address, thread or empty, not ${MOESTRO_SANITIZE}")
endif()
if(MOESTRO_BUILD_FUZZERS)
  # Counts the branches that an input takes, in the libraries too: what libFuzzer steers by.
  target_compile_options(moestro_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
