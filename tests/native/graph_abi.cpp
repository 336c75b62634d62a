#include <cuda.h>
#include "driver.hpp"
namespace d = kdvfs::driver;
#define SAME(ours, o, theirs, t) static_assert(offsetof(ours, o) == offsetof(theirs, t), #o)
static_assert(sizeof(d::KernelParams)==sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
SAME(d::KernelParams, grid, CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
SAME(d::KernelParams, block, CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
SAME(d::KernelParams, shared_byte, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
SAME(d::KernelParams, kernel_params, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
SAME(d::KernelParams, extra, CUDA_KERNEL_NODE_PARAMS_v2, extra);
SAME(d::KernelParams, kern, CUDA_KERNEL_NODE_PARAMS_v2, kern);
SAME(d::KernelParams, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx);
static_assert(sizeof(d::MemsetParams)==sizeof(CUDA_MEMSET_NODE_PARAMS));
SAME(d::MemsetParams, element_size, CUDA_MEMSET_NODE_PARAMS, elementSize);
SAME(d::MemsetParams, height, CUDA_MEMSET_NODE_PARAMS, height);
static_assert(sizeof(d::CopyParams)==sizeof(CUDA_MEMCPY3D));
SAME(d::CopyParams, source.memory_type, CUDA_MEMCPY3D, srcMemoryType);
SAME(d::CopyParams, source.device, CUDA_MEMCPY3D, srcDevice);
SAME(d::CopyParams, source.height, CUDA_MEMCPY3D, srcHeight);
SAME(d::CopyParams, target.memory_type, CUDA_MEMCPY3D, dstMemoryType);
SAME(d::CopyParams, target.device, CUDA_MEMCPY3D, dstDevice);
SAME(d::CopyParams, width_byte, CUDA_MEMCPY3D, WidthInBytes);
SAME(d::CopyParams, depth, CUDA_MEMCPY3D, Depth);
static_assert(sizeof(d::EdgeData)==sizeof(CUgraphEdgeData)); SAME(d::EdgeData, type, CUgraphEdgeData, type);
static_assert(sizeof(d::AttributeValue)==sizeof(CUlaunchAttributeValue));
SAME(d::AttributeValue, cluster, CUlaunchAttributeValue, clusterDim);
static_assert(sizeof(d::Uuid)==sizeof(CUuuid));
static_assert(d::kernel_node==(int)CU_GRAPH_NODE_TYPE_KERNEL && d::memcpy_node==(int)CU_GRAPH_NODE_TYPE_MEMCPY && d::memset_node==(int)CU_GRAPH_NODE_TYPE_MEMSET && d::host_node==(int)CU_GRAPH_NODE_TYPE_HOST && d::empty_node==(int)CU_GRAPH_NODE_TYPE_EMPTY);
static_assert(d::cooperative==(int)CU_LAUNCH_ATTRIBUTE_COOPERATIVE && d::cluster_dimension==(int)CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && d::priority==(int)CU_LAUNCH_ATTRIBUTE_PRIORITY);
static_assert(d::multiprocessors==(int)CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT && d::capability_major==(int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR && d::capability_minor==(int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR && d::l2_byte==(int)CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(d::programmatic_edge==(unsigned)CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && d::not_ready==(int)CUDA_ERROR_NOT_READY && d::out_of_memory==(int)CUDA_ERROR_OUT_OF_MEMORY);
int main(){ return 0; }
