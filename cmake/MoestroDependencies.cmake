# Everything that is not ours, found in one place. Nothing is downloaded at configure time.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED CONFIG)
find_package(Threads REQUIRED)

if(MOESTRO_WITH_ONEDNN)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  # The package's own CMake config asks for OpenCL headers, so find the two files it consists of.
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  find_path(DNNL_INCLUDE_DIR dnnl.hpp PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
  add_library(moestro_dnnl INTERFACE)
  target_link_libraries(moestro_dnnl INTERFACE ${DNNL_LIBRARY} OpenMP::OpenMP_CXX)
endif()

if(MOESTRO_WITH_TORCH)
  if(NOT Torch_DIR)
    file(GLOB torch_dirs ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
    list(APPEND CMAKE_PREFIX_PATH ${torch_dirs})
  endif()
  find_package(Torch REQUIRED)
  # The wheel brings headers of libraries we use in other versions (fmt, oneDNN): search its folder
  # after the system's. Only the linking half of its targets is taken, since they would put it first.
  add_library(moestro_torch INTERFACE)
  target_link_libraries(moestro_torch INTERFACE
    $<LINK_ONLY:torch> $<LINK_ONLY:torch_cpu> $<LINK_ONLY:c10>)
  # libtorch exports parts of the oneDNN it contains, of another version than ours: loaded first, they
  # would replace those of libdnnl, whose products then fail. So libdnnl precedes it in every program.
  target_link_options(moestro_torch INTERFACE
    "SHELL:-Wl,--push-state,--no-as-needed ${DNNL_LIBRARY} -Wl,--pop-state")
  foreach(folder ${TORCH_INCLUDE_DIRS})
    target_compile_options(moestro_torch INTERFACE "SHELL:-idirafter ${folder}")
  endforeach()
endif()

if(MOESTRO_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_library(RAPIDCHECK_LIBRARY rapidcheck REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
if(MOESTRO_BUILD_BENCH)
  find_package(benchmark REQUIRED)
endif()
