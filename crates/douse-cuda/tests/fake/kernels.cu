// Kernels for tests. All work in one thread: blocks of a test's launches may have more.

struct ErrorFlag { int code, message; long long value, size; };
extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned value);

#define FIRST if (threadIdx.x != 0) return

// Adds 1 to a float.
extern "C" __global__ void count(float *state) {
  FIRST;
  state[0] += 1.0f;
}

// The same, unless the flag is raised.
extern "C" __global__ void count_guarded(float *state, const ErrorFlag *flag) {
  FIRST;
  if (!flag->code) state[0] += 1.0f;
}

// out[i] = x[i] + y[0]
extern "C" __global__ void add(const float *x, const float *y, float *out, long long n) {
  FIRST;
  for (long long i = 0; i < n; ++i) out[i] = x[i] + y[0];
}

// Raises message 0 unless x[0] is positive.
extern "C" __global__ void check(const float *x, ErrorFlag *flag) {
  FIRST;
  if (!(x[0] > 0.0f) && !flag->code) *flag = ErrorFlag{2, 0, 0, 0};
}

// Raises an index out of range if x[0] is 7 or more.
extern "C" __global__ void range(const float *x, ErrorFlag *flag) {
  FIRST;
  if (x[0] >= 7.0f && !flag->code) *flag = ErrorFlag{1, 0, (long long)x[0], 7};
}

// Writes to what is no memory where x[0] is negative.
extern "C" __global__ void stray(const float *x) {
  FIRST;
  if (x[0] < 0.0f) *(volatile int *)16 = 1;
}

// out[0], out[1] = seed, call
extern "C" __global__ void draw(float *out, const unsigned long long *random) {
  FIRST;
  out[0] = (float)random[0];
  out[1] = (float)random[1];
}

// out[0] = x[0] < y[0]
extern "C" __global__ void less(const float *x, const float *y, unsigned char *out) {
  FIRST;
  out[0] = x[0] < y[0];
}

// Sets a condition to a predicate, or to false where the flag is raised.
extern "C" __global__ void condition(const unsigned char *predicate, unsigned long long condition, const ErrorFlag *flag) {
  FIRST;
  cudaGraphSetConditional(condition, predicate[0] && !flag->code);
}

// Copies bytes.
extern "C" __global__ void copy(unsigned char *to, const unsigned char *from, long long bytes) {
  FIRST;
  for (long long i = 0; i < bytes; ++i) to[i] = from[i];
}

// Copies bytes, unless the flag is raised.
extern "C" __global__ void guarded_copy(unsigned char *to, const unsigned char *from, long long bytes, const ErrorFlag *flag) {
  FIRST;
  if (!flag->code) for (long long i = 0; i < bytes; ++i) to[i] = from[i];
}

struct Control { ErrorFlag flag; unsigned tickets; };
struct Told { ErrorFlag flag; volatile unsigned done; };

// Copies bytes, and tells the host when they are there.
extern "C" __global__ void finish(unsigned char *to, const unsigned char *from, long long bytes, Control *control, Told *told) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  for (long long i = 0; i < bytes; ++i) to[i] = from[i];
  told->flag = control->flag;
  *control = Control{};
  told->done = 1;
}

// Copies strided elements.
extern "C" __global__ void rearrange(unsigned char *to, const unsigned char *from, long long bytes, long long n0, long long n1, long long n2,
                                     long long n3, long long t0, long long t1, long long t2, long long t3, long long f0, long long f1,
                                     long long f2, long long f3) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  for (long long i = 0; i < n0 * n1 * n2 * n3; ++i) {
    long long a = i / n3 / n2 / n1, b = i / n3 / n2 % n1, c = i / n3 % n2, d = i % n3;
    for (long long k = 0; k < bytes; ++k) {
      to[(a * t0 + b * t1 + c * t2 + d * t3) * bytes + k] = from[(a * f0 + b * f1 + c * f2 + d * f3) * bytes + k];
    }
  }
}

// out[thread] = x[the lane beside it], through shared memory and back, by a block of 64.
extern "C" __global__ void neighbours(const int *x, int *out) {
  __shared__ int shared[64];
  int t = threadIdx.x;
  shared[t] = x[t];
  __syncthreads();
  out[t] = __shfl_xor_sync(0xffffffffu, shared[63 - t], 1);
}

// Barriers that half of the threads do not reach.
extern "C" __global__ void apart(int *out) {
  if (threadIdx.x % 2 == 0) __syncthreads();
  else __syncwarp();
  out[0] = 1;
}

// Writes to out[i].
extern "C" __global__ void write_at(int *out, long long i) {
  FIRST;
  out[i] = 1;
}

// Shared memory that nothing was written to.
extern "C" __global__ void forgetful(int *out) {
  __shared__ int shared[4];
  FIRST;
  out[0] = shared[0];
  shared[0] = 7;
}

// out[0] = x / y
extern "C" __global__ void divide(int *out, long long x, long long y) {
  FIRST;
  out[0] = (int)(x / y);
}
