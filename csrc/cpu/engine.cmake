# The CPU engine: one body compiled once per instruction set, chosen at run time (cpu/dispatch.cpp).
set(FAE_CPU_DIR ${CMAKE_CURRENT_LIST_DIR})
# Always optimised: an unoptimised unit would emit functions that are meant to vanish. Sums keep
# their order and products are not fused behind the source's back, so that variants agree; no
# link-time optimisation, which would compile the units once more, together.
set(FAE_CPU_OPTIONS -O3 -ffp-contract=off -fno-lto -Wno-psabi)
set(FAE_CPU_SOURCES ${FAE_CPU_DIR}/engine.cpp ${FAE_CPU_DIR}/threads.cpp ${FAE_CPU_DIR}/dispatch.cpp)

# Compiles the body for a target, with what its instruction set wants beside the common options.
macro(fae_add_target name)
  list(APPEND FAE_CPU_SOURCES ${FAE_CPU_DIR}/targets/${name}.cpp)
  set_source_files_properties(${FAE_CPU_DIR}/targets/${name}.cpp PROPERTIES COMPILE_OPTIONS
                                                                            "${FAE_CPU_OPTIONS};${ARGN}")
endmacro()

fae_add_target(plain)
set(FAE_PROCESSOR "${CMAKE_SYSTEM_PROCESSOR}")
if(APPLE AND CMAKE_OSX_ARCHITECTURES)
  set(FAE_PROCESSOR "${CMAKE_OSX_ARCHITECTURES}")  # of several at once neither, plain alone
endif()
if(FAE_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(FAE_CPU_DEFINITIONS FAE_CPU_X86)
  set(FAE_AVX2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt)
  set(FAE_AVX512 ${FAE_AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's own intrinsics start from undefined vectors, which it then warns about.
    list(APPEND FAE_AVX512 -Wno-uninitialized -Wno-maybe-uninitialized)
    if(FASTATTNERASE_SANITIZE)
      # Arrays of vectors live in registers. Watched as memory they take minutes to compile; what the
      # unit reads and writes through pointers is watched all the same.
      list(APPEND FAE_AVX512 -g1 -fno-sanitize=undefined -fno-sanitize-address-use-after-scope
           --param=asan-stack=0)
    endif()
  endif()
  fae_add_target(avx2 ${FAE_AVX2})
  fae_add_target(avx512 ${FAE_AVX512})
elseif(FAE_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(FAE_CPU_DEFINITIONS FAE_CPU_ARM)
  fae_add_target(neon)  # every such processor has it
endif()

# Adds the engine to a target, the native module or a native test.
function(fae_add_cpu_engine target)
  target_sources(${target} PRIVATE ${FAE_CPU_SOURCES})
  target_link_libraries(${target} PRIVATE Threads::Threads)
  target_compile_definitions(${target} PRIVATE ${FAE_CPU_DEFINITIONS})
endfunction()

