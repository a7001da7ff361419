/* A CUDA driver for tests, on a machine without a GPU. Memory is the host's; copies are checked against what was allocated; a handful
 * of kernels, known by name, run; every call that makes or frees something is written to a log.
 *
 * Compiled once a test, with what it is to be:
 *   LOG          file of the log, a line a call
 *   VERSION      of CUDA, as cuDriverGetVersion gives it
 *   CAPABILITY   of its one device: 90
 *   MEMORY       bytes of its one device
 *   FAIL, AT, STATUS   the AT-th call of FAIL (a function of this file) returns STATUS
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>

#ifndef VERSION
#define VERSION 13000
#endif
#ifndef CAPABILITY
#define CAPABILITY 90
#endif
#ifndef MEMORY
#define MEMORY (1ull << 30)
#endif
#ifndef FAIL
#define FAIL none
#define AT 0
#define STATUS 0
#endif

#define TEXT(x) #x
#define NAME(x) TEXT(x)

typedef int Status;
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_IMAGE = 200, WRONG_CONTEXT = 201, NOT_FOUND = 500 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t in_use;
static int failures;

static void note(const char *format, uint64_t a, uint64_t b) {
#ifdef LOG
  FILE *file = fopen(LOG, "a");
  if (file) {
    fprintf(file, format, (unsigned long long)a, (unsigned long long)b);
    fputc('\n', file);
    fclose(file);
  }
#endif
}

/* Whether this call is the one that fails. */
static int fails(const char *name) {
  return strcmp(name, NAME(FAIL)) == 0 && ++failures == AT;
}
#define BEGIN if (fails(__func__)) return STATUS

/* What is allocated. */
struct Block { uint64_t start, len; struct Block *next; };
static struct Block *blocks;

static int inside(uint64_t start, uint64_t len) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (struct Block *b = blocks; b; b = b->next)
    found |= start >= b->start && start + len <= b->start + b->len;
  pthread_mutex_unlock(&lock);
  return found;
}

/* The current context, a thread each. */
static __thread int depth;
#define NEEDS_CONTEXT if (depth == 0) return WRONG_CONTEXT

Status cuInit(unsigned flags) { BEGIN; return flags ? INVALID : OK; }
Status cuDriverGetVersion(int *version) { *version = VERSION; return OK; }
Status cuGetErrorName(Status status, const char **text) {
  *text = status == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : status == 999 ? 0 : "CUDA_ERROR_OF_A_TEST";
  return *text ? OK : INVALID;
}
Status cuGetErrorString(Status status, const char **text) {
  *text = status == NO_MEMORY ? "out of memory" : "an error of a test";
  return OK;
}
Status cuDeviceGetCount(int *count) { BEGIN; *count = 1; return OK; }
Status cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : OK; }
Status cuDeviceGetName(char *name, int len, int device) { strncpy(name, "Test GPU", len); return OK; }
Status cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? CAPABILITY / 10 : attribute == 76 ? CAPABILITY % 10 : 1024;
  return OK;
}
Status cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = MEMORY; return OK; }
Status cuDevicePrimaryCtxRetain(void **context, int device) { BEGIN; *context = (void *)1; note("retain", 0, 0); return OK; }
Status cuDevicePrimaryCtxRelease_v2(int device) { note("release", 0, 0); return OK; }
Status cuCtxGetCurrent(void **context) { *context = depth ? (void *)1 : 0; return OK; }
Status cuCtxPushCurrent_v2(void *context) { if (context != (void *)1) return WRONG_CONTEXT; depth++; return OK; }
Status cuCtxPopCurrent_v2(void **context) { NEEDS_CONTEXT; depth--; *context = (void *)1; return OK; }
Status cuCtxSynchronize(void) { NEEDS_CONTEXT; return OK; }

Status cuMemGetInfo_v2(size_t *available, size_t *total) {
  NEEDS_CONTEXT;
  *total = MEMORY;
  *available = MEMORY - in_use;
  return OK;
}
Status cuMemAlloc_v2(uint64_t *address, size_t len) {
  NEEDS_CONTEXT; BEGIN;
  if (len == 0) return INVALID;
  if (in_use + len > MEMORY) return NO_MEMORY;
  struct Block *block = malloc(sizeof *block);
  void *memory = aligned_alloc(256, (len + 255) / 256 * 256);
  /* Not zero: what is used before it is written shows. */
  memset(memory, 0xa5, len);
  pthread_mutex_lock(&lock);
  *block = (struct Block){(uint64_t)memory, len, blocks};
  blocks = block;
  in_use += len;
  pthread_mutex_unlock(&lock);
  *address = block->start;
  note("alloc %llu", len, 0);
  return OK;
}
Status cuMemFree_v2(uint64_t address) {
  NEEDS_CONTEXT;
  Status status = INVALID;
  pthread_mutex_lock(&lock);
  for (struct Block **b = &blocks; *b; b = &(*b)->next) {
    if ((*b)->start != address) continue;
    struct Block *gone = *b;
    *b = gone->next;
    in_use -= gone->len;
    memset((void *)address, 0xdd, gone->len);
    free((void *)address);
    note("free %llu", gone->len, 0);
    free(gone);
    status = OK;
    break;
  }
  pthread_mutex_unlock(&lock);
  return status;
}
Status cuMemHostAlloc(void **memory, size_t len, unsigned flags) {
  NEEDS_CONTEXT; BEGIN;
  *memory = malloc(len);
  note("pin", 0, 0);
  return OK;
}
Status cuMemFreeHost(void *memory) { NEEDS_CONTEXT; free(memory); note("unpin", 0, 0); return OK; }
Status cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream) {
  NEEDS_CONTEXT; BEGIN;
  if (!inside(to, len)) return INVALID;
  memcpy((void *)to, from, len);
  note("upload %llu", len, 0);
  return OK;
}
Status cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, void *stream) {
  NEEDS_CONTEXT; BEGIN;
  if (!inside(from, len)) return INVALID;
  memcpy(to, (void *)from, len);
  note("download %llu", len, 0);
  return OK;
}
Status cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t len, void *stream) {
  NEEDS_CONTEXT; BEGIN;
  if (!inside(to, len) || !inside(from, len)) return INVALID;
  memmove((void *)to, (void *)from, len);
  return OK;
}
Status cuMemsetD8Async(uint64_t to, uint8_t value, size_t len, void *stream) {
  NEEDS_CONTEXT; BEGIN;
  if (!inside(to, len)) return INVALID;
  memset((void *)to, value, len);
  return OK;
}
Status cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
  if (!inside(address, 1)) return INVALID;
  *(int *)value = 0;
  return OK;
}

static uint64_t handles = 16;
static Status handle(void **out) {
  pthread_mutex_lock(&lock);
  *out = (void *)handles++;
  pthread_mutex_unlock(&lock);
  return OK;
}
Status cuStreamCreate(void **stream, unsigned flags) { NEEDS_CONTEXT; BEGIN; note("stream", 0, 0); return handle(stream); }
Status cuStreamDestroy_v2(void *stream) { NEEDS_CONTEXT; note("unstream", 0, 0); return OK; }
Status cuStreamSynchronize(void *stream) { NEEDS_CONTEXT; BEGIN; note("synchronize", 0, 0); return OK; }
Status cuStreamQuery(void *stream) { NEEDS_CONTEXT; return OK; }
Status cuStreamWaitEvent(void *stream, void *event, unsigned flags) { NEEDS_CONTEXT; return OK; }
Status cuEventCreate(void **event, unsigned flags) { NEEDS_CONTEXT; note("event", 0, 0); return handle(event); }
Status cuEventDestroy_v2(void *event) { NEEDS_CONTEXT; note("unevent", 0, 0); return OK; }
Status cuEventRecord(void *event, void *stream) { NEEDS_CONTEXT; return OK; }
Status cuEventQuery(void *event) { NEEDS_CONTEXT; return OK; }
Status cuEventSynchronize(void *event) { NEEDS_CONTEXT; return OK; }
Status cuEventElapsedTime(float *time, void *a, void *b) { *time = 1.5f; return OK; }

/* Modules are texts that begin with "code". */
Status cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *options, void **values) {
  NEEDS_CONTEXT; BEGIN;
  if (strncmp(image, "code", 4)) {
    strcpy(values[0], "no code of a test");
    return NO_IMAGE;
  }
  note("module", 0, 0);
  return handle(module);
}
Status cuModuleUnload(void *module) { NEEDS_CONTEXT; note("unmodule", 0, 0); return OK; }

/* count: state[0] += 1, floats */
static void count(void **p) { (**(float ***)p)[0] += 1; }
/* add: out[i] = x[i] + y[0] for the n that follows the three pointers */
static void add(void **p) {
  float *x = *(float **)p[0], *y = *(float **)p[1], *out = *(float **)p[2];
  int64_t n = *(int64_t *)p[3];
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[0];
}
struct Flag { int code, message; long long value, size; };
/* check: raises message 0 unless x[0] is positive */
static void check(void **p) {
  struct Flag *flag = *(struct Flag **)p[1];
  if (!((*(float **)p[0])[0] > 0) && !flag->code) *flag = (struct Flag){2, 0, 0, 0};
}
/* range: raises an index out of range if x[0] is 7 or more */
static void range(void **p) {
  struct Flag *flag = *(struct Flag **)p[1];
  float x = (*(float **)p[0])[0];
  if (x >= 7 && !flag->code) *flag = (struct Flag){1, 0, (long long)x, 7};
}
/* draw: out[0], out[1] = seed, call, as floats */
static void draw(void **p) {
  uint64_t *random = *(uint64_t **)p[1];
  (*(float **)p[0])[0] = random[0];
  (*(float **)p[0])[1] = random[1];
}
/* count_guarded: count, unless the flag is raised */
static void count_guarded(void **p) {
  if (!(*(struct Flag **)p[1])->code) count(p);
}
/* condition: sets a condition to a predicate, or to false where the flag is raised */
static void condition(void **p) {
  **(int **)p[1] = **(unsigned char **)p[0] && !(*(struct Flag **)p[2])->code;
}
/* less: out[0] = state[0] < x[0], a bool */
static void less(void **p) {
  **(unsigned char **)p[2] = (*(float **)p[0])[0] < (*(float **)p[1])[0];
}
/* guarded_copy: to, from, bytes, unless the flag is raised */
static void guarded_copy(void **p) {
  if (!(*(struct Flag **)p[3])->code) memcpy(*(void **)p[0], *(void **)p[1], *(int64_t *)p[2]);
}
static const struct Kernel { const char *name; void (*run)(void **); int parameters; } kernels[] = {
  {"count", count, 1}, {"add", add, 4}, {"check", check, 2}, {"range", range, 2}, {"draw", draw, 2},
  {"count_guarded", count_guarded, 2}, {"condition", condition, 3}, {"less", less, 3}, {"guarded_copy", guarded_copy, 4},
};
Status cuModuleGetFunction(void **function, void *module, const char *name) {
  NEEDS_CONTEXT;
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (!strcmp(kernels[i].name, name)) { *function = (void *)&kernels[i]; return OK; }
  return NOT_FOUND;
}
Status cuFuncGetAttribute(int *value, int attribute, void *function) { *value = 32; return OK; }
Status cuFuncSetAttribute(void *function, int attribute, int value) { return value > 232448 ? INVALID : OK; }
Status cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *f, int threads, size_t shared) { *blocks = 2; return OK; }
Status cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                      void *stream, void **parameters, void **extra) {
  NEEDS_CONTEXT; BEGIN;
  if (!gx || !gy || !gz || !bx) return INVALID;
  note("launch %llu x %llu", gx, bx);
  ((typeof(&kernels[0]))function)->run(parameters);
  return OK;
}

/* Graphs: chains of nodes, run in order. */
struct KernelParams { const struct Kernel *kernel; unsigned blocks[3], threads[3], shared; void **parameters; void *rest[3]; };
struct Side { size_t x, y, z, level; unsigned kind; void *host; uint64_t device; void *array, *reserved; size_t pitch, height; };
struct CopyParams { struct Side from, to; size_t width, height, depth; };
struct ConditionalParams { int node, reserved[3]; int *condition; unsigned kind, size; struct Graph **bodies; void *rest[27]; };
struct Node {
  enum { KERNEL, COPY, BRANCH, LOOP } kind;
  const struct Kernel *kernel;
  uint64_t values[16];
  struct CopyParams copy;
  int *condition;
  struct Graph *bodies[2];
  struct Node *next;
};
struct Graph { struct Node *first, **end, *last; int *conditions[16]; int count; };

static struct Graph *new_graph(void) {
  struct Graph *graph = calloc(1, sizeof *graph);
  graph->end = &graph->first;
  return graph;
}
static void free_graph(struct Graph *graph) {
  while (graph->first) {
    struct Node *node = graph->first;
    graph->first = node->next;
    for (int i = 0; i < 2; i++)
      if (node->bodies[i]) free_graph(node->bodies[i]);
    free(node);
  }
  for (int i = 0; i < graph->count; i++) free(graph->conditions[i]);
  free(graph);
}
/* Every node follows the one before it, as Douse's chains do. */
static struct Node *new_node(struct Graph *graph, struct Node *const *before, size_t n) {
  if (n > 1 || (n ? before[0] : 0) != graph->last) return 0;
  struct Node *node = calloc(1, sizeof *node);
  *graph->end = node;
  graph->end = &node->next;
  return graph->last = node;
}
static Status set_kernel(struct Node *node, const struct KernelParams *params) {
  if (!params->blocks[0] || !params->blocks[1] || !params->blocks[2] || !params->threads[0]) return INVALID;
  node->kernel = params->kernel;
  for (int i = 0; i < params->kernel->parameters; i++) node->values[i] = *(uint64_t *)params->parameters[i];
  return OK;
}
static Status set_copy(struct Node *node, const struct CopyParams *params) {
  const struct Side *from = &params->from, *to = &params->to;
  if (params->height != 1 || params->depth != 1 || !params->width) return INVALID;
  if (from->kind == 2 && !inside(from->device, params->width)) return INVALID;
  if (to->kind == 2 && !inside(to->device, params->width)) return INVALID;
  node->copy = *params;
  return OK;
}
Status cuGraphCreate(struct Graph **graph, unsigned flags) { NEEDS_CONTEXT; BEGIN; *graph = new_graph(); note("graph", 0, 0); return OK; }
Status cuGraphDestroy(struct Graph *graph) { NEEDS_CONTEXT; free_graph(graph); note("ungraph", 0, 0); return OK; }
Status cuGraphAddKernelNode_v2(struct Node **node, struct Graph *graph, struct Node *const *before, size_t n, const struct KernelParams *params) {
  NEEDS_CONTEXT; BEGIN;
  *node = new_node(graph, before, n);
  if (!*node) return INVALID;
  (*node)->kind = KERNEL;
  return set_kernel(*node, params);
}
Status cuGraphAddMemcpyNode(struct Node **node, struct Graph *graph, struct Node *const *before, size_t n, const struct CopyParams *params, void *context) {
  NEEDS_CONTEXT; BEGIN;
  *node = new_node(graph, before, n);
  if (!*node) return INVALID;
  (*node)->kind = COPY;
  return set_copy(*node, params);
}
Status cuGraphConditionalHandleCreate(int **condition, struct Graph *graph, void *context, unsigned first, unsigned flags) {
  NEEDS_CONTEXT; BEGIN;
  if (graph->count == 16) return NO_MEMORY;
  *condition = graph->conditions[graph->count++] = calloc(1, sizeof(int));
  return OK;
}
Status cuGraphAddNode_v2(struct Node **node, struct Graph *graph, struct Node *const *before, const void *edges, size_t n, struct ConditionalParams *params) {
  NEEDS_CONTEXT; BEGIN;
  *node = new_node(graph, before, n);
  if (!*node || params->node != 13 || params->kind > 1 || params->size < 1 || params->size > 2) return INVALID;
  (*node)->kind = params->kind == 0 ? BRANCH : LOOP;
  (*node)->condition = params->condition;
  for (unsigned i = 0; i < params->size; i++) (*node)->bodies[i] = new_graph();
  params->bodies = (*node)->bodies;
  return OK;
}
/* An instance is its graph: Douse keeps the graph for as long. */
Status cuGraphInstantiateWithFlags(struct Graph **exec, struct Graph *graph, uint64_t flags) { NEEDS_CONTEXT; BEGIN; *exec = graph; note("exec", 0, 0); return OK; }
Status cuGraphExecDestroy(struct Graph *exec) { NEEDS_CONTEXT; note("unexec", 0, 0); return OK; }
Status cuGraphUpload(struct Graph *exec, void *stream) { NEEDS_CONTEXT; BEGIN; return OK; }
Status cuGraphExecKernelNodeSetParams_v2(struct Graph *exec, struct Node *node, const struct KernelParams *params) { NEEDS_CONTEXT; BEGIN; note("patch", 0, 0); return set_kernel(node, params); }
Status cuGraphExecMemcpyNodeSetParams(struct Graph *exec, struct Node *node, const struct CopyParams *params, void *context) { NEEDS_CONTEXT; BEGIN; note("patch", 0, 0); return set_copy(node, params); }

static void run_graph(const struct Graph *graph) {
  for (const struct Node *node = graph->first; node; node = node->next) {
    void *parameters[16];
    switch (node->kind) {
    case KERNEL:
      for (int i = 0; i < 16; i++) parameters[i] = (void *)&node->values[i];
      node->kernel->run(parameters);
      break;
    case COPY:
      memmove(node->copy.to.kind == 1 ? node->copy.to.host : (void *)node->copy.to.device,
              node->copy.from.kind == 1 ? node->copy.from.host : (void *)node->copy.from.device, node->copy.width);
      break;
    case BRANCH:
      run_graph(node->bodies[*node->condition ? 0 : 1]);
      break;
    case LOOP:
      while (*node->condition) run_graph(node->bodies[0]);
    }
  }
}
Status cuGraphLaunch(struct Graph *exec, void *stream) {
  NEEDS_CONTEXT; BEGIN;
  note("replay", 0, 0);
  for (int i = 0; i < exec->count; i++) *exec->conditions[i] = 0;
  run_graph(exec);
  return OK;
}
