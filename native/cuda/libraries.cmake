# Finds what the kernels are linked with: CUBLASLT (the library's file) with CUBLASLT_INCLUDE (its header's folder), and
# for fused attention, optional, CUDNN with CUDNN_INCLUDE and CUDNN_FRONTEND (folders of cudnn.h and
# cudnn_frontend.h). FindCUDAToolkit does not know the libraries of pip wheels, which have a version in their name.
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
  missing("${NVCC} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, older than 12: ${TOOLKIT_REMEDY}")
endif()
string(REGEX MATCH "^[0-9]+" CUDA_MAJOR ${CMAKE_CUDA_COMPILER_VERSION})

# Header and library are taken from one place, since they must agree: pip's wheel, whose version is locked, goes first.
macro(find_part name header library wheel)
  find_path(${name}_INCLUDE ${header} PATH_SUFFIXES nvidia/${wheel}/include
    HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${KDVFS_SYSTEM}/include)
  cmake_path(GET ${name}_INCLUDE PARENT_PATH root)
  cmake_path(GET root PARENT_PATH above) # /usr/include/x86_64-linux-gnu
  find_library(${name} ${library} PATHS ${root} ${above} PATH_SUFFIXES lib64 lib lib/${CMAKE_LIBRARY_ARCHITECTURE}
    NO_DEFAULT_PATH)
endmacro()

# The version that a header defines part by part.
function(read_version out header prefix)
  file(STRINGS ${header} lines REGEX "#define ${prefix}")
  foreach(part IN LISTS ARGN)
    string(REGEX MATCH "${prefix}${part} ([0-9]+)" _ "${lines}")
    list(APPEND numbers "${CMAKE_MATCH_1}")
  endforeach()
  list(JOIN numbers "." version)
  set(${out} ${version} PARENT_SCOPE)
endfunction()

# The folders in the record: the library opens cublasLt and cuDNN there, and nowhere else first.
find_part(CUBLASLT cublasLt.h libcublasLt.so.${CUDA_MAJOR} cu${CUDA_MAJOR})
if(NOT CUBLASLT)
  set(remedy "install cuBLAS of CUDA ${CUDA_MAJOR} next to its nvcc")
  if(CUDA_MAJOR EQUAL 13)
    set(remedy "make cuda, or pip install -r envs/cuda.lock")
  endif()
  missing("nvcc ${CMAKE_CUDA_COMPILER_VERSION} is there (${NVCC}), but no cublasLt.h with libcublasLt.so.${CUDA_MAJOR} \
(looked in pip's wheels and beside nvcc): ${remedy}")
endif()
read_version(version ${CUBLASLT_INCLUDE}/cublas_api.h CUBLAS_VER_ MAJOR MINOR PATCH BUILD)
cmake_path(GET CUBLASLT PARENT_PATH CUBLASLT_DIR)
string(JSON TOOLS SET "${TOOLS}" cublaslt "{\"version\": \"${version}\", \"directory\": \"${CUBLASLT_DIR}\"}")

# cuDNN's C++ frontend is headers alone; its wheel unpacks to a folder `include` beside the packages
find_part(CUDNN cudnn_version.h libcudnn.so.9 cudnn)
find_path(CUDNN_FRONTEND cudnn_frontend.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${KDVFS_SYSTEM}/include)
set(of_cudnn null)
if(CUDNN AND CUDNN_FRONTEND)
  read_version(version ${CUDNN_INCLUDE}/cudnn_version.h CUDNN_ MAJOR MINOR PATCHLEVEL)
  read_version(frontend ${CUDNN_FRONTEND}/cudnn_frontend_version.h CUDNN_FRONTEND_
    MAJOR_VERSION MINOR_VERSION PATCH_VERSION)
  cmake_path(GET CUDNN PARENT_PATH CUDNN_DIR)
  set(of_cudnn "{\"version\": \"${version}\", \"frontend\": \"${frontend}\", \"directory\": \"${CUDNN_DIR}\"}")
endif()
string(JSON TOOLS SET "${TOOLS}" cudnn "${of_cudnn}")
list(JOIN CMAKE_CUDA_ARCHITECTURES "\", \"" architectures)
string(JSON TOOLS SET "${TOOLS}" architectures "[\"${architectures}\"]")
