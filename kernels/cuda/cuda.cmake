# The CUDA kernels: into _C where wanted and an nvcc is there, and into the test module _emu by the
# host compiler.
set(FAE_CUDA_DIR ${CMAKE_CURRENT_LIST_DIR})
set(FAE_CUDA_KERNELS
    ${FAE_CUDA_DIR}/sweep_f32.cu ${FAE_CUDA_DIR}/sweep_f64.cu ${FAE_CUDA_DIR}/pooled.cu)
set(FAE_CUDA_HOST ${FAE_CUDA_DIR}/host.cpp ${FAE_CUDA_DIR}/bindings.cpp)

string(TOUPPER "${FASTATTNERASE_CUDA}" FAE_CUDA_WANTED)
if(FAE_CUDA_WANTED STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(FAE_CUDA_WANTED ON)
  else()
    message(STATUS "No CUDA compiler: building without the CUDA kernels.")
    set(FAE_CUDA_WANTED OFF)
  endif()
endif()

if(FAE_CUDA_WANTED)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Hopper's own code, and PTX that newer GPUs compile when they load it. Not 90a: none of its
    # instructions is used, and one front-end pass serves both.
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  enable_language(CUDA)
  target_sources(_C PRIVATE ${FAE_CUDA_KERNELS} ${FAE_CUDA_DIR}/device.cu ${FAE_CUDA_HOST})
  target_include_directories(_C PRIVATE ${FAE_CUDA_DIR})
  target_compile_definitions(_C PRIVATE FAE_WITH_CUDA)
  # The standard as a plain flag: CMake knows it for few pairs of versions.
  # Products and sums are rounded apart, as on the host: exact ties stay exact.
  target_compile_options(_C PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -fmad=false --expt-relaxed-constexpr
                                    --expt-extended-lambda -Xcompiler=-fvisibility=hidden>)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.5)
    target_compile_options(_C PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--split-compile=0>)
  endif()
  set_target_properties(_C PROPERTIES
      CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}" CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden)
endif()

if(FASTATTNERASE_EMULATOR)
  include(${FAE_CUDA_DIR}/emulator/emulator.cmake)
endif()
