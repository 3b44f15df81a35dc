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

# Finds which GPUs to compile for: FAE_CUDA_CODE, a list as 80;90, ascending.
function(fae_find_cuda_code)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE known
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9]+" known "${known}")
  set(what "FASTATTNERASE_CUDA_ARCHITECTURES: given '${FASTATTNERASE_CUDA_ARCHITECTURES}'")
  string(TOLOWER "${FASTATTNERASE_CUDA_ARCHITECTURES}" given)
  if(given STREQUAL "" OR given STREQUAL "native")
    # The driver's own tool: CMake's "native" would have to compile and run a program.
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE status)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${found}")
    if(status EQUAL 0 AND found)
      set(given ${found})
    elseif(given STREQUAL "native")
      message(FATAL_ERROR "${what}, needed a GPU that nvidia-smi finds, 'all' or a list as 80;90")
    else()
      set(given all)
    endif()
  endif()
  if(given STREQUAL "all")
    set(given 80 86 89 90 100 120)
    foreach(code ${given})
      if(NOT code IN_LIST known)
        message(STATUS "No code for GPUs of ${code}: nvcc ${CMAKE_CUDA_COMPILER_VERSION} does not know them.")
        list(REMOVE_ITEM given ${code})
      endif()
    endforeach()
  endif()
  string(REGEX REPLACE "[ ,;]+" ";" given "${given}")
  set(codes)
  foreach(one ${given})
    string(REGEX REPLACE "^(sm_|compute_)?([0-9]+)\\.?([0-9])$" "\\2\\3" code "${one}")
    if(NOT code MATCHES "^[0-9]+$" OR code LESS 80)
      message(FATAL_ERROR "${what}, needed all, native, or compute capabilities of at least 8.0, as 80;90")
    elseif(NOT code IN_LIST known)
      list(JOIN known ", " known)
      message(FATAL_ERROR "${what}, needed what nvcc ${CMAKE_CUDA_COMPILER_VERSION} knows: ${known}")
    endif()
    list(APPEND codes ${code})
  endforeach()
  list(REMOVE_DUPLICATES codes)
  list(SORT codes COMPARE NATURAL)
  set(FAE_CUDA_CODE ${codes} PARENT_SCOPE)
endfunction()

if(FAE_CUDA_WANTED)
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # the options are written below
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
    message(FATAL_ERROR "nvcc: given CUDA ${CMAKE_CUDA_COMPILER_VERSION}, needed 12.4 or newer; "
                        "FASTATTNERASE_CUDA=OFF builds without the CUDA kernels")
  endif()
  fae_find_cuda_code()
  # Nothing in the kernels asks for one kind of GPU, so that one front-end pass, for the oldest, serves
  # all: each gets machine code of its own from it, and what is newer than all compiles its PTX when it
  # loads it. The front end for 10.0 and newer gives code that spills (CUDA 13.0).
  list(GET FAE_CUDA_CODE 0 FAE_OLDEST)
  list(TRANSFORM FAE_CUDA_CODE PREPEND "sm_" OUTPUT_VARIABLE FAE_CUDA_HELD)
  list(APPEND FAE_CUDA_HELD compute_${FAE_OLDEST})
  list(JOIN FAE_CUDA_HELD "," FAE_CUDA_HELD)
  message(STATUS "CUDA kernels: ${FAE_CUDA_HELD}")
  target_sources(_C PRIVATE ${FAE_CUDA_KERNELS} ${FAE_CUDA_DIR}/device.cu ${FAE_CUDA_HOST})
  target_include_directories(_C PRIVATE ${FAE_CUDA_DIR})
  target_compile_definitions(_C PRIVATE FAE_WITH_CUDA FAE_CUDA_CODE="${FAE_CUDA_HELD}")
  # The standard as a plain flag: CMake knows it for few pairs of versions.
  # Products and sums are rounded apart, as on the host: exact ties stay exact.
  target_compile_options(_C PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -fmad=false --expt-relaxed-constexpr
                                    --expt-extended-lambda -Xcompiler=-fvisibility=hidden --threads=0
                                    -gencode=arch=compute_${FAE_OLDEST},code=[${FAE_CUDA_HELD}]>)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.5)
    target_compile_options(_C PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--split-compile=0>)
  endif()
  set_target_properties(_C PROPERTIES
      CUDA_ARCHITECTURES OFF CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden)
endif()

if(FASTATTNERASE_EMULATOR)
  include(${FAE_CUDA_DIR}/emulator/emulator.cmake)
endif()
