# The CPU engine in the native module.
include(${CMAKE_CURRENT_LIST_DIR}/engine.cmake)
fae_add_cpu_engine(_C)
target_sources(_C PRIVATE csrc/bindings/cpu.cpp csrc/bindings/exact.cpp)
