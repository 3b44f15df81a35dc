# The CPU engine: one body compiled once per instruction set, chosen at run time (cpu/dispatch.cpp).
set(FAE_CPU_DIR ${CMAKE_CURRENT_SOURCE_DIR}/csrc/cpu)
set(FAE_CPU_SOURCES ${FAE_CPU_DIR}/engine.cpp ${FAE_CPU_DIR}/threads.cpp ${FAE_CPU_DIR}/dispatch.cpp
                    ${FAE_CPU_DIR}/isa_baseline.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(FAE_CPU_X86 ON)
  list(APPEND FAE_CPU_SOURCES ${FAE_CPU_DIR}/isa_avx2.cpp ${FAE_CPU_DIR}/isa_avx512.cpp)
  set_source_files_properties(${FAE_CPU_DIR}/isa_avx2.cpp PROPERTIES COMPILE_OPTIONS
                              "-O3;-ffp-contract=off;-mavx2;-mfma;-mf16c;-mbmi;-mbmi2;-mlzcnt")
  set_source_files_properties(
    ${FAE_CPU_DIR}/isa_avx512.cpp PROPERTIES COMPILE_OPTIONS
    "-O3;-ffp-contract=off;-mavx2;-mfma;-mf16c;-mbmi;-mbmi2;-mlzcnt;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512"
  )
endif()
# Always optimised: an unoptimised unit would emit functions that are meant to vanish. Sums keep
# their order and products are not fused behind the source's back, so that variants agree.
set_source_files_properties(${FAE_CPU_DIR}/isa_baseline.cpp PROPERTIES COMPILE_OPTIONS
                                                                       "-O3;-ffp-contract=off")

# Adds the engine to a target, the native module or a native test.
function(fae_add_cpu_engine target)
  target_sources(${target} PRIVATE ${FAE_CPU_SOURCES})
  target_link_libraries(${target} PRIVATE Threads::Threads)
  if(FAE_CPU_X86)
    target_compile_definitions(${target} PRIVATE FAE_CPU_X86)
  endif()
endfunction()

fae_add_cpu_engine(_C)
target_sources(_C PRIVATE csrc/bindings/cpu.cpp)
