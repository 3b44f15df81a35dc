# The CPU engine: one body compiled once per instruction set, chosen at run time (cpu/dispatch.cpp).
set(FAE_CPU_DIR ${CMAKE_CURRENT_LIST_DIR})
# Always optimised, though less where tests wait for the compiler: an unoptimised unit would emit
# functions that are meant to vanish. Sums keep their order and products are not fused behind the
# source's back, so that variants agree; no link-time optimisation, which would compile the units once
# more, together.
set(FAE_CPU_OPTIMISED -O3)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What has to be unrolled or inlined says so. These passes of -O3 take a third of its time and
  # leave a third of its code (avx2: 38 s and 1.0 MB with them, 26 s and 0.7 MB without), and what
  # -O3 inlines beyond -O2 a fifth of the rest (three targets 72 s and 2.2 MB, 53 s and 1.9 MB),
  # sweeps being as quick. With -O2 itself n~300 takes 7 % longer with AVX2.
  list(APPEND FAE_CPU_OPTIMISED -fno-split-paths -fno-tree-loop-distribution -fno-loop-interchange
       -fno-loop-unroll-and-jam -fno-version-loops-for-strides)
  list(APPEND FAE_CPU_OPTIMISED --param=max-completely-peel-times=4
       --param=max-completely-peeled-insns=64)
  list(APPEND FAE_CPU_OPTIMISED --param=max-inline-insns-single=40 --param=max-inline-insns-auto=10)
endif()
set(FAE_CPU_OPTIONS ${FAE_CPU_OPTIMISED} -ffp-contract=off -fno-lto -Wno-psabi)
if(FASTATTNERASE_CPU_TARGETS OR FASTATTNERASE_SANITIZE)
  list(APPEND FAE_CPU_OPTIONS -O1)
endif()
set(FAE_CPU_TARGET_OPTIONS ${FAE_CPU_OPTIONS})
if(FASTATTNERASE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Arrays of vectors live in registers. Watched as memory they take many minutes to compile; what the
  # targets read and write through pointers is watched all the same.
  list(APPEND FAE_CPU_TARGET_OPTIONS -g1 -fno-sanitize-address-use-after-scope --param=asan-stack=0)
endif()
set(FAE_CPU_SOURCES ${FAE_CPU_DIR}/engine.cpp ${FAE_CPU_DIR}/threads.cpp ${FAE_CPU_DIR}/dispatch.cpp)
# What takes contributions as they stand is compiled once, for any machine.
set(FAE_EXACT_SOURCES ${FAE_CPU_DIR}/exact/envelope.cpp ${FAE_CPU_DIR}/exact/greedy.cpp
    ${FAE_CPU_DIR}/exact/shapley.cpp ${FAE_CPU_DIR}/exact/sufficient.cpp)
set_source_files_properties(${FAE_EXACT_SOURCES} PROPERTIES COMPILE_OPTIONS "${FAE_CPU_OPTIONS}")
list(APPEND FAE_CPU_SOURCES ${FAE_EXACT_SOURCES})
set(FAE_CPU_DEFINITIONS)

# Compiles the body for a target, with what its instruction set wants beside the common options.
# Where FASTATTNERASE_CPU_TARGETS is set, tests build the targets that it lists alone.
macro(fae_add_target name)
  if(NOT FASTATTNERASE_CPU_TARGETS OR "${name}" IN_LIST FASTATTNERASE_CPU_TARGETS)
    set(source ${FAE_CPU_DIR}/targets/${name}.cpp)
    list(APPEND FAE_CPU_SOURCES ${source})
    string(TOUPPER FAE_HAS_${name} FAE_HAS)
    list(APPEND FAE_CPU_DEFINITIONS ${FAE_HAS})
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${FAE_CPU_TARGET_OPTIONS};${ARGN}")
  endif()
endmacro()

set(FAE_PROCESSOR "${CMAKE_SYSTEM_PROCESSOR}")
if(APPLE AND CMAKE_OSX_ARCHITECTURES)
  set(FAE_PROCESSOR "${CMAKE_OSX_ARCHITECTURES}")  # of several at once neither, plain alone
endif()
if(FAE_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(FAE_AVX2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt)
  set(FAE_AVX512 ${FAE_AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's own intrinsics start from undefined vectors, which it then warns about.
    list(APPEND FAE_AVX512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  fae_add_target(avx2 ${FAE_AVX2})
  fae_add_target(avx512 ${FAE_AVX512})
elseif(FAE_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  fae_add_target(neon)  # every such processor has it
endif()
fae_add_target(plain)
# For tests: the lanes of AVX-512 on any machine, with the fused multiply-add of the others.
if(FASTATTNERASE_CPU_TARGETS)
  fae_add_target(wide ${FAE_AVX2})
endif()

# Adds the engine to a target, the native module or a native test.
function(fae_add_cpu_engine target)
  target_sources(${target} PRIVATE ${FAE_CPU_SOURCES})
  target_link_libraries(${target} PRIVATE Threads::Threads)
  target_compile_definitions(${target} PRIVATE ${FAE_CPU_DEFINITIONS})
endfunction()

