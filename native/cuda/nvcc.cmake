# Finds nvcc (NVCC): $CUDACXX, else on PATH, in pip's wheel, in /usr/local/cuda. Names its host compiler ($CUDAHOSTCXX).
# A toolkit comes as a system installation, as a conda environment, or as pip wheels, which unpack to
# site-packages/nvidia/cu<major> and lack what a system has: lib64 and libraries without a version in their name.
set(TOOLKIT_REMEDY "install a CUDA toolkit (12 or 13) and put its nvcc on PATH, then make cuda, or \
pip install 'cuda-toolkit[nvcc,crt,nvvm,cudart,cccl,cublas]==13.0.*'")

set(KDVFS_SYSTEM /usr/local/cuda CACHE PATH "where a toolkit lies that nothing else names")
if(NOT "$ENV{CUDACXX}" STREQUAL "")
  set(looked_for "$CUDACXX = $ENV{CUDACXX}")
  find_program(NVCC "$ENV{CUDACXX}" NO_CMAKE_SYSTEM_PATH)
else()
  set(looked_for "looked in PATH, pip's wheels, ${KDVFS_SYSTEM}/bin")
  find_program(NVCC nvcc NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH NO_CMAKE_SYSTEM_PATH)
  find_program(NVCC nvcc PATHS ${KDVFS_SYSTEM}/bin PATH_SUFFIXES nvidia/cu13/bin NO_CMAKE_SYSTEM_PATH)
endif()
if(NOT NVCC)
  missing("no nvcc (${looked_for}): ${TOOLKIT_REMEDY}")
endif()
# wheels of 13.0 and 13.1 look for their runtime in lib64, and it lies in lib
file(REAL_PATH ${NVCC} nvcc)
cmake_path(GET nvcc PARENT_PATH nvcc)
cmake_path(REPLACE_FILENAME nvcc lib OUTPUT_VARIABLE lib)
if(EXISTS ${lib}/libcudart_static.a)
  set(CMAKE_CUDA_FLAGS_INIT "-L${lib}")
endif()
# host code goes to the C++ compiler, which is the second word of $CXX where the first is a launcher such as ccache
if("$ENV{CUDAHOSTCXX}" STREQUAL "")
  set(ENV{CUDAHOSTCXX} ${CMAKE_CXX_COMPILER})
  if("${CMAKE_CXX_COMPILER_ARG1}" MATCHES "^ *([^ -][^ ]*)")
    set(ENV{CUDAHOSTCXX} ${CMAKE_MATCH_1})
  endif()
endif()
