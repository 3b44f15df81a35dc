target_sources(_C PRIVATE csrc/bindings/cpu.cpp)
target_link_libraries(_C PRIVATE Threads::Threads)
