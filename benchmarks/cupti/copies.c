/* Counts what a program's CUDA driver did from its first graph launch on: copies on the device by direction, memsets, and the host's
 * calls of the driver by name.
 *
 * A library that the driver loads into a process by itself (CUDA_INJECTION64_PATH names it) and that asks CUPTI, the profiling interface of
 * CUDA. At the process's end it writes the counts as JSON to the file that COPIES_JSON names. benchmarks/copies.py compiles it.
 *
 * Copies inside a graph are counted one by one, copies by kernels are not copies. Deliberately absent: the names of kernels, times.
 */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 20, ALIGNMENT = 8, DIRECTIONS = 16, NAMES = 1024 };

static CUpti_SubscriberHandle subscriber;
/* CUPTI's clock when the first graph was launched; 0 before. */
static uint64_t first_launch;
static uint64_t graph_launches;
/* By CUpti_ActivityMemcpyKind. */
static uint64_t copies[DIRECTIONS];
static uint64_t memsets, dropped;
/* By the number of the driver's function. */
static uint64_t calls[NAMES];
static const char *names[NAMES];

static void check(CUptiResult result, const char *call) {
  if (result == CUPTI_SUCCESS) return;
  const char *text = "unknown";
  cuptiGetResultString(result, &text);
  fprintf(stderr, "%s: %s\n", call, text);
  exit(70);
}
#define CHECK(call) check(call, #call)

static void CUPTIAPI buffer_requested(uint8_t **buffer, size_t *size, size_t *most) {
  *size = BUFFER;
  *most = 0;
  if (posix_memalign((void **)buffer, ALIGNMENT, BUFFER) != 0) *size = 0;
}

/* The first fields of every version of these records, which CUPTI keeps when it adds others. */
static void count(const CUpti_Activity *record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const CUpti_ActivityMemcpy6 *copy = (const CUpti_ActivityMemcpy6 *)record;
      if (first_launch != 0 && copy->start >= first_launch && copy->copyKind < DIRECTIONS) copies[copy->copyKind]++;
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const CUpti_ActivityMemset4 *set = (const CUpti_ActivityMemset4 *)record;
      if (first_launch != 0 && set->start >= first_launch) memsets++;
      break;
    }
    default: break;
  }
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)size;
  CUpti_Activity *record = NULL;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) count(record);
  size_t lost = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS) dropped += lost;
  free(buffer);
}

static void CUPTIAPI called(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *what) {
  (void)unused;
  const CUpti_CallbackData *data = what;
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || data->callbackSite != CUPTI_API_ENTER || id >= NAMES) return;
  if (strncmp(data->functionName, "cuGraphLaunch", strlen("cuGraphLaunch")) == 0) {
    if (first_launch == 0) CHECK(cuptiGetTimestamp(&first_launch));
    graph_launches++;
  }
  if (first_launch == 0) return;
  calls[id]++;
  names[id] = data->functionName;
}

static void write_counts(void) {
  CHECK(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  const char *path = getenv("COPIES_JSON");
  FILE *file = path == NULL ? NULL : fopen(path, "w");
  if (file == NULL) {
    fprintf(stderr, "COPIES_JSON names no file that can be written\n");
    return;
  }
  fprintf(file, "{\"graph_launches\": %llu, \"dropped\": %llu, \"memsets\": %llu, ", (unsigned long long)graph_launches,
          (unsigned long long)dropped, (unsigned long long)memsets);
  fprintf(file, "\"host_to_device\": %llu, \"device_to_host\": %llu, \"device_to_device\": %llu, ",
          (unsigned long long)copies[CUPTI_ACTIVITY_MEMCPY_KIND_HTOD], (unsigned long long)copies[CUPTI_ACTIVITY_MEMCPY_KIND_DTOH],
          (unsigned long long)copies[CUPTI_ACTIVITY_MEMCPY_KIND_DTOD]);
  uint64_t others = 0;
  for (int kind = 0; kind < DIRECTIONS; kind++) {
    if (kind != CUPTI_ACTIVITY_MEMCPY_KIND_HTOD && kind != CUPTI_ACTIVITY_MEMCPY_KIND_DTOH && kind != CUPTI_ACTIVITY_MEMCPY_KIND_DTOD)
      others += copies[kind];
  }
  fprintf(file, "\"other_copies\": %llu, \"calls\": {", (unsigned long long)others);
  const char *between = "";
  for (int id = 0; id < NAMES; id++) {
    if (calls[id] == 0) continue;
    fprintf(file, "%s\"%s\": %llu", between, names[id], (unsigned long long)calls[id]);
    between = ", ";
  }
  fprintf(file, "}}\n");
  fclose(file);
}

/* The driver calls this when it has loaded the library. */
int InitializeInjection(void) {
  CHECK(cuptiSubscribe(&subscriber, (CUpti_CallbackFunc)called, NULL));
  CHECK(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
  CHECK(cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed));
  CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
  CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
  atexit(write_counts);
  return 1;
}
