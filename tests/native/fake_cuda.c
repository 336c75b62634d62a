// A CUDA driver without a GPU, of which the extension `_graph` sees what it asks for: one graph of five nodes, read, and
// new graphs, whose nodes, edges and launches are counted and told by fake_told(). Memory is the host's.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { void *func; unsigned grid[3], block[3], shared; void **params, **extra; void *kern, *ctx; } Kernel;
typedef struct { uint64_t dst; size_t pitch; unsigned value, size; size_t width, height; } Memset;
typedef struct { size_t x, y, z, lod; int type; void *host; uint64_t device; void *array, *reserved; size_t pitch, height; } End;
typedef struct { End source, target; size_t width, height, depth; } Copy;
typedef struct { unsigned char from, to, type, reserved[5]; } Edge;
typedef struct { int type; Kernel kernel; Memset memset; Copy copy; int graph, attributes_of; } Node;

static int first = 7, pair[2] = {3, 4}, hangs;
static int64_t address = 0x7f0000001000;
static void *one_by_one[] = {&address, &first, pair};
static struct { int64_t address; int k, n; } block = {0x7f0000002000, 64, 128};
static size_t block_size = sizeof block;
static void *packed[] = {(void *)1, &block, (void *)2, &block_size, 0};
static Node nodes[4096];
static int count = 5, graphs, launches, edges, programmatic, destroyed;
static char told[256];

// nodes of the captured graph: kernel, memset, kernel (packed), empty, copy; the handle of node i is i + 1
static void make(void) {
  nodes[0] = (Node){.type = 0, .kernel = {.func = (void *)1, .grid = {4, 2, 1}, .block = {128, 1, 1}, .shared = 16, .params = one_by_one}};
  nodes[1] = (Node){.type = 2, .memset = {.dst = 0x7f0000002000, .size = 4, .width = 2, .height = 1}};
  nodes[2] = (Node){.type = 0, .kernel = {.kern = (void *)2, .grid = {132, 1, 1}, .block = {384, 1, 1}, .extra = packed}};
  nodes[3] = (Node){.type = 5};
  nodes[4] = (Node){.type = 1, .copy = {.source = {.type = 2, .device = 0x7f0000001000}, .target = {.type = 2, .device = 0x7f0000003000}, .width = 64, .height = 2, .depth = 1}};
}
static Node *at(void *handle) { return &nodes[(intptr_t)handle - 1]; }
static int add(void **made, void *graph, int type) {
  nodes[count] = (Node){.type = type, .graph = (int)(intptr_t)graph};
  *made = (void *)(intptr_t)++count;
  return 0;
}

const char *fake_told(void) {
  sprintf(told, "graphs %d edges %d programmatic %d launches %d destroyed %d", graphs, edges, programmatic, launches, destroyed);
  return told;
}
void fake_hang(int yes) { hangs = yes; }

int cuInit(unsigned f) { (void)f; make(); return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuGetErrorName(int e, const char **t) { *t = e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE"; return 0; }
int cuGetErrorString(int e, const char **t) { (void)e; *t = "as the fake was told"; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *t, int n, int d) { (void)d; snprintf(t, (size_t)n, "Fake GPU"); return 0; }
int cuDeviceGetUuid_v2(unsigned char *u, int d) { (void)d; for (int i = 0; i < 16; i++) u[i] = (unsigned char)i; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { (void)d; *v = a == 16 ? 2 : a == 75 ? 9 : a == 38 ? 1 << 20 : 0; return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { (void)d; *n = 1 << 30; return 0; }
int cuCtxGetCurrent(void **c) { *c = (void *)1; return 0; }
int cuCtxSetCurrent(void *c) { (void)c; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = (void *)1; return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = *t = 1 << 30; return 0; }
int cuMemAlloc_v2(uint64_t *p, size_t n) { if (n > (1u << 30)) return 2; *p = (uint64_t)(uintptr_t)malloc(n); return 0; }
int cuMemFree_v2(uint64_t p) { free((void *)(uintptr_t)p); return 0; }
int cuMemcpyAsync(uint64_t t, uint64_t s, size_t n, void *q) { (void)q; memmove((void *)(uintptr_t)t, (void *)(uintptr_t)s, n); return 0; }
int cuMemcpyDtoH_v2(void *t, uint64_t s, size_t n) { memcpy(t, (void *)(uintptr_t)s, n); return 0; }
int cuModuleLoadData(void **m, const void *text) { *m = (void *)text; return strstr(text, ".visible .entry kdvfs_hash") ? 0 : 1; }
int cuModuleGetFunction(void **f, void *m, const char *n) { (void)m; *f = (void *)(!strcmp(n, "kdvfs_hash") ? 1 : !strcmp(n, "kdvfs_time") ? 3 : 2); return 0; }
// the hash kernel: the sum of a chunk's words of 8 bytes
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, void *q, void **p, void **e) {
  (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)sh, (void)q, (void)e;
  if (f == (void *)3 && !*(uint64_t *)p[1]) **(uint64_t **)p[0] = 0;  // marks are forgotten
  if (f != (void *)1) return 0;
  const uint64_t *words = *(uint64_t **)p[0], words_of_8 = 2 * *(uint64_t *)p[1], chunk = 2 * *(uint64_t *)p[2];
  uint64_t *sums = *(uint64_t **)p[3];
  for (unsigned i = 0; i < gx; i++) {
    sums[i] = 0;
    for (uint64_t at = i * chunk; at < (i + 1) * chunk && at < words_of_8; at++) sums[i] += words[at];
  }
  return 0;
}
int cuStreamSynchronize(void *q) { (void)q; return 0; }
int cuEventCreate(void **e, unsigned f) { (void)f; *e = calloc(1, 8); return 0; }
int cuEventRecord(void *e, void *q) { (void)q; *(int *)e = launches; return 0; }
int cuEventQuery(void *e) { (void)e; return hangs ? 600 : 0; }
int cuEventSynchronize(void *e) { (void)e; return 0; }
int cuEventElapsedTime(float *ms, void *a, void *b) { *ms = (float)(*(int *)b - *(int *)a); return 0; }
int cuEventDestroy_v2(void *e) { free(e); return 0; }
int cuFuncGetName(const char **n, void *f) { (void)f; *n = "_Z3addPfi4pair"; return 0; }
int cuKernelGetName(const char **n, void *k) { (void)k; *n = "nvjet_sm90_tst_128x256"; return 0; }
int cuFuncGetParamInfo(void *f, size_t i, size_t *o, size_t *s) {
  (void)f; static const size_t offsets[] = {0, 8, 12}, sizes[] = {8, 4, 8};
  if (i > 2) return 1;
  *o = offsets[i]; *s = sizes[i]; return 0;
}
int cuKernelGetParamInfo(void *k, size_t i, size_t *o, size_t *s) { (void)k, (void)i, (void)o, (void)s; return 1; }
int cuGraphCreate(void **g, unsigned f) { (void)f; *g = (void *)(intptr_t)(100 + ++graphs); return 0; }
int cuGraphDestroy(void *g) { (void)g; return 0; }
int cuGraphGetNodes(void *g, void **n, size_t *c) { (void)g; for (size_t i = 0; n && i < *c; i++) n[i] = (void *)(i + 1); *c = 5; return 0; }
// kernel -> memset -> packed kernel -> empty -> copy; the third early
int cuGraphGetEdges_v2(void *g, void **f, void **t, Edge *d, size_t *c) {
  (void)g;
  for (size_t i = 0; f && i < *c; i++) { f[i] = (void *)(i + 1); t[i] = (void *)(i + 2); d[i] = (Edge){.type = i == 1}; }
  *c = 4; return 0;
}
int cuGraphAddDependencies_v2(void *g, void **f, void **t, Edge *d, size_t n) { (void)g, (void)f, (void)t; edges += (int)n; for (size_t i = 0; i < n; i++) programmatic += d[i].type; return 0; }
int cuGraphNodeGetType(void *n, int *t) { *t = at(n)->type; return 0; }
int cuGraphKernelNodeGetParams_v2(void *n, Kernel *k) { *k = at(n)->kernel; return 0; }
int cuGraphAddKernelNode_v2(void **m, void *g, void **d, size_t n, Kernel *k) { (void)d, (void)n, (void)k; return add(m, g, 0); }
int cuGraphKernelNodeGetAttribute(void *n, int a, void *v) { if (a == 4 && n == (void *)3) *(unsigned *)v = 2; return 0; }
int cuGraphKernelNodeCopyAttributes(void *t, void *s) { at(t)->attributes_of = (int)(intptr_t)s; return 0; }
int cuGraphMemsetNodeGetParams(void *n, Memset *m) { *m = at(n)->memset; return 0; }
int cuGraphAddMemsetNode(void **m, void *g, void **d, size_t n, Memset *p, void *c) { (void)d, (void)n, (void)p, (void)c; return add(m, g, 2); }
int cuGraphMemcpyNodeGetParams(void *n, Copy *m) { *m = at(n)->copy; return 0; }
int cuGraphAddMemcpyNode(void **m, void *g, void **d, size_t n, Copy *p, void *c) { (void)d, (void)n, (void)p, (void)c; return add(m, g, 1); }
int cuGraphAddEmptyNode(void **m, void *g, void **d, size_t n) { (void)d, (void)n; return add(m, g, 5); }
int cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long f) { (void)f; *e = g; return 0; }
int cuGraphLaunch(void *e, void *q) { (void)e, (void)q; launches++; return 0; }
int cuGraphExecDestroy(void *e) { (void)e; destroyed++; return 0; }
