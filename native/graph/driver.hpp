// What is used of the CUDA driver API, opened when it is needed.
//
// The declarations are our own, so that no toolkit is needed to build: names, numbers and layouts are those of cuda.h,
// against which tests/native/test_graph_extension.py compares them where a toolkit is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kdvfs::driver {

using Result = int;  // CUresult
inline constexpr Result success = 0, out_of_memory = 2, not_ready = 600;

using Device = int;
using Pointer = unsigned long long;  // CUdeviceptr
using Context = struct CUctx_st *;
using Module = struct CUmod_st *;
using Function = struct CUfunc_st *;
using Kernel = struct CUkern_st *;
using Stream = struct CUstream_st *;
using Event = struct CUevent_st *;
using Graph = struct CUgraph_st *;
using Node = struct CUgraphNode_st *;
using Exec = struct CUgraphExec_st *;

enum NodeType : int { kernel_node = 0, memcpy_node = 1, memset_node = 2, host_node = 3, empty_node = 5 };
enum Attribute : int { cooperative = 2, cluster_dimension = 4, priority = 8 };
enum DeviceAttribute : int { multiprocessors = 16, capability_major = 75, capability_minor = 76, l2_byte = 38 };
inline constexpr unsigned programmatic_edge = 1;

struct KernelParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  Function func;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_byte;
  void **kernel_params;
  void **extra;
  Kernel kern;
  Context context;
};

// in `extra`: ends the list; a block of all parameters; its size
inline void *const extra_end = nullptr;
inline void *const extra_buffer = reinterpret_cast<void *>(1);
inline void *const extra_size = reinterpret_cast<void *>(2);

struct MemsetParams {  // CUDA_MEMSET_NODE_PARAMS
  Pointer dst;
  std::size_t pitch;
  unsigned value;
  unsigned element_size;
  std::size_t width;
  std::size_t height;
};

struct CopyEnd {  // one side of CUDA_MEMCPY3D
  std::size_t x_byte, y, z, lod;
  int memory_type;  // 1 host, 2 device, 3 array, 4 unified
  void *host;
  Pointer device;
  void *array;
  void *reserved;
  std::size_t pitch, height;
};

struct CopyParams {  // CUDA_MEMCPY3D
  CopyEnd source, target;
  std::size_t width_byte, height, depth;
};

struct EdgeData {  // CUgraphEdgeData
  unsigned char from_port, to_port, type, reserved[5];
};

union AttributeValue {  // CUlaunchAttributeValue
  char pad[64];
  int cooperative;
  int priority;
  struct {
    unsigned x, y, z;
  } cluster;
};

struct Uuid {
  unsigned char bytes[16];
};

// Every function that is called: its type, our name of it, the driver's.
#define KDVFS_DRIVER_FUNCTIONS(X)                                                                               \
  X(init, "cuInit", (unsigned))                                                                                 \
  X(version, "cuDriverGetVersion", (int *))                                                                     \
  X(error_name, "cuGetErrorName", (Result, const char **))                                                      \
  X(error_text, "cuGetErrorString", (Result, const char **))                                                    \
  X(device_get, "cuDeviceGet", (Device *, int))                                                                 \
  X(device_name, "cuDeviceGetName", (char *, int, Device))                                                      \
  X(device_uuid, "cuDeviceGetUuid_v2", (Uuid *, Device))                                                        \
  X(device_attribute, "cuDeviceGetAttribute", (int *, int, Device))                                             \
  X(device_memory, "cuDeviceTotalMem_v2", (std::size_t *, Device))                                              \
  X(context_current, "cuCtxGetCurrent", (Context *))                                                            \
  X(context_set, "cuCtxSetCurrent", (Context))                                                                  \
  X(context_device, "cuCtxGetDevice", (Device *))                                                               \
  X(context_synchronize, "cuCtxSynchronize", ())                                                                \
  X(primary_context, "cuDevicePrimaryCtxRetain", (Context *, Device))                                           \
  X(memory_info, "cuMemGetInfo_v2", (std::size_t *, std::size_t *))                                             \
  X(allocate, "cuMemAlloc_v2", (Pointer *, std::size_t))                                                        \
  X(free, "cuMemFree_v2", (Pointer))                                                                            \
  X(copy, "cuMemcpyAsync", (Pointer, Pointer, std::size_t, Stream))                                             \
  X(download, "cuMemcpyDtoH_v2", (void *, Pointer, std::size_t))                                                \
  X(module_load, "cuModuleLoadData", (Module *, const void *))                                                  \
  X(module_function, "cuModuleGetFunction", (Function *, Module, const char *))                                 \
  X(launch_kernel, "cuLaunchKernel",                                                                            \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void **, void **)) \
  X(stream_synchronize, "cuStreamSynchronize", (Stream))                                                        \
  X(event_create, "cuEventCreate", (Event *, unsigned))                                                         \
  X(event_record, "cuEventRecord", (Event, Stream))                                                             \
  X(event_query, "cuEventQuery", (Event))                                                                       \
  X(event_synchronize, "cuEventSynchronize", (Event))                                                           \
  X(event_elapsed, "cuEventElapsedTime", (float *, Event, Event))                                               \
  X(event_destroy, "cuEventDestroy_v2", (Event))                                                                \
  X(function_name, "cuFuncGetName", (const char **, Function))                                                  \
  X(kernel_name, "cuKernelGetName", (const char **, Kernel))                                                    \
  X(function_parameter, "cuFuncGetParamInfo", (Function, std::size_t, std::size_t *, std::size_t *))            \
  X(kernel_parameter, "cuKernelGetParamInfo", (Kernel, std::size_t, std::size_t *, std::size_t *))              \
  X(graph_create, "cuGraphCreate", (Graph *, unsigned))                                                         \
  X(graph_destroy, "cuGraphDestroy", (Graph))                                                                   \
  X(graph_nodes, "cuGraphGetNodes", (Graph, Node *, std::size_t *))                                             \
  X(graph_edges, "cuGraphGetEdges_v2", (Graph, Node *, Node *, EdgeData *, std::size_t *))                      \
  X(graph_add_edges, "cuGraphAddDependencies_v2",                                                               \
    (Graph, const Node *, const Node *, const EdgeData *, std::size_t))                                         \
  X(node_type, "cuGraphNodeGetType", (Node, int *))                                                             \
  X(kernel_get, "cuGraphKernelNodeGetParams_v2", (Node, KernelParams *))                                        \
  X(kernel_add, "cuGraphAddKernelNode_v2", (Node *, Graph, const Node *, std::size_t, const KernelParams *))    \
  X(kernel_attribute, "cuGraphKernelNodeGetAttribute", (Node, int, AttributeValue *))                           \
  X(kernel_copy_attributes, "cuGraphKernelNodeCopyAttributes", (Node, Node))                                    \
  X(memset_get, "cuGraphMemsetNodeGetParams", (Node, MemsetParams *))                                           \
  X(memset_add, "cuGraphAddMemsetNode",                                                                         \
    (Node *, Graph, const Node *, std::size_t, const MemsetParams *, Context))                                  \
  X(copy_get, "cuGraphMemcpyNodeGetParams", (Node, CopyParams *))                                               \
  X(copy_add, "cuGraphAddMemcpyNode",                                                                           \
    (Node *, Graph, const Node *, std::size_t, const CopyParams *, Context))                                    \
  X(empty_add, "cuGraphAddEmptyNode", (Node *, Graph, const Node *, std::size_t))                               \
  X(instantiate, "cuGraphInstantiateWithFlags", (Exec *, Graph, unsigned long long))                            \
  X(exec_launch, "cuGraphLaunch", (Exec, Stream))                                                               \
  X(exec_destroy, "cuGraphExecDestroy", (Exec))

struct Functions {
#define KDVFS_MEMBER(name, symbol, parameters) Result(*name) parameters = nullptr;
  KDVFS_DRIVER_FUNCTIONS(KDVFS_MEMBER)
#undef KDVFS_MEMBER
};

// The driver's functions, found in the shared library `file` (libcuda.so.1), which stays open. Throws DeviceError: no
// driver here, or one without a function that CUDA 12.3 and later have.
const Functions &open(const std::string &file);

// Throws CudaError (OutOfMemory where that is what it says): `what` failed, in the driver's words.
void check(const Functions &call, Result result, const std::string &what);

}  // namespace kdvfs::driver
