# The test module _emu: the kernels' sources compiled by the host compiler. They are copied so that
# one build may compile them in both ways.
set(FAE_EMULATED_SOURCES)
foreach(FAE_SOURCE ${FAE_CUDA_KERNELS})
  get_filename_component(FAE_NAME ${FAE_SOURCE} NAME_WE)
  set(FAE_COPY ${CMAKE_CURRENT_BINARY_DIR}/emulated/${FAE_NAME}.cpp)
  file(WRITE ${FAE_COPY}.in "#include \"${FAE_SOURCE}\"\n")
  configure_file(${FAE_COPY}.in ${FAE_COPY} COPYONLY)
  list(APPEND FAE_EMULATED_SOURCES ${FAE_COPY})
endforeach()
pybind11_add_module(_emu MODULE NO_EXTRAS
    ${FAE_EMULATED_SOURCES} ${FAE_CUDA_HOST} ${FAE_CUDA_DIR}/emulator/emulator.cpp
    ${FAE_CUDA_DIR}/emulator/device.cpp ${FAE_CUDA_DIR}/emulator/module.cpp)
target_include_directories(_emu PRIVATE
    ${FAE_CUDA_DIR} ${FAE_CUDA_DIR}/../../csrc/include ${FAE_CUDA_DIR}/../../csrc)
# Optimised enough to be quick to compile and to run, with the checks of the standard library.
target_compile_options(_emu PRIVATE -O1 -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off)
