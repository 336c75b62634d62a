/* C reference of the kernels: what each one computes, in plain loops. An oracle for tests, never a performance
 * baseline. Functions allocate nothing, keep no state and check nothing: the caller has checked the arguments. */
#ifndef KDVFS_REF_H
#define KDVFS_REF_H

#include "kdvfs/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KDVFS_DECLARE_REFERENCE(op) void kdvfs_ref_##op(const kdvfs_##op *args);
KDVFS_OPERATIONS(KDVFS_DECLARE_REFERENCE)
#undef KDVFS_DECLARE_REFERENCE

#ifdef __cplusplus
}
#endif

#endif
