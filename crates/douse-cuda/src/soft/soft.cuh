// The CUDA C++ that kernels use beyond C++ itself, for the host's compiler: what stands before a module's text so that softgpu can run it.
//
// softgpu runs a block's threads one after the other, each on a stack of its own where it has to wait for others. What a thread asks for is
// in `SoftRuntime`; what a module is, in `SoftModule`. Both must be as crates/softgpu/src/module.rs has them.

#define __device__
#define __global__
#define __constant__
#define __cudart_builtin__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __restrict__
#define __grid_constant__
#define __cluster_dims__(...)
// One block of a module runs at a time, so that what it shares can be static. Together in a section, for softgpu to poison it before each.
#define __shared__ static __attribute__((section("soft_shared")))
#define DYNAMIC_SHARED(name) unsigned char *name = static_cast<unsigned char *>(soft_module.dynamic)

struct uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct __align__(16) uint4 { unsigned x, y, z, w; };

struct SoftIndices { uint3 thread, block, threads, blocks; };

struct SoftRuntime {
  // Takes the next thread of the block; false: there is none.
  bool (*next)();
  // Waits for the block.
  void (*barrier)();
  // Gives `bytes` (64 at most) to the lanes of `mask`, waits for theirs, and returns all: a lane each 64 bytes.
  const unsigned char *(*exchange)(unsigned mask, const void *value, unsigned bytes);
  void (*set_condition)(unsigned long long condition, unsigned value);
  // Lets other threads go on, while this one looks for something that they make.
  void (*pause)();
};

struct SoftKernel {
  const char *name;
  // Runs threads until there is none left. Parameters as cuLaunchKernel takes them.
  void (*run)(void **parameters);
  // Of each parameter its size, and 0x100 for a pointer.
  const unsigned short *parameters;
  unsigned count;
};

struct SoftModule {
  unsigned version;
  unsigned count;
  const SoftKernel *kernels;
  SoftIndices *indices;
  unsigned char *shared, *shared_end;
  // Set by softgpu.
  const SoftRuntime *runtime;
  void *dynamic;
};

extern "C" __attribute__((visibility("default"))) SoftModule soft_module;
__attribute__((visibility("hidden"))) extern SoftIndices soft_indices;

#define threadIdx soft_indices.thread
#define blockIdx soft_indices.block
#define blockDim soft_indices.threads
#define gridDim soft_indices.blocks

// ---- Threads of a block and a warp -----------------------------------------------------------------------------------------

inline void __syncthreads() { soft_module.runtime->barrier(); }
inline unsigned soft_lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31;
}
// What every lane of a warp gave.
template <class T> struct SoftLanes {
  const unsigned char *start;
  T operator[](unsigned lane) const { return *reinterpret_cast<const T *>(start + 64 * (lane & 31)); }
};
template <class T> inline SoftLanes<T> soft_exchange(unsigned mask, const T &value) {
  static_assert(sizeof(T) <= 64, "an exchange of 64 bytes at most");
  return SoftLanes<T>{soft_module.runtime->exchange(mask, &value, sizeof(T))};
}
inline void __syncwarp(unsigned mask = 0xffffffffu) { soft_module.runtime->exchange(mask, nullptr, 0); }
// `width` lanes at a time shuffle among themselves.
template <class T> inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  unsigned lane = soft_lane();
  return soft_exchange(mask, value)[(lane & ~(width - 1)) | ((unsigned)from & (width - 1))];
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
  unsigned lane = soft_lane(), from = lane ^ (unsigned)with;
  auto all = soft_exchange(mask, value);
  return from > (lane | (width - 1)) ? value : all[from];
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  unsigned lane = soft_lane();
  auto all = soft_exchange(mask, value);
  return (lane & (width - 1)) < by ? value : all[lane - by];
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  unsigned lane = soft_lane();
  auto all = soft_exchange(mask, value);
  return (lane & (width - 1)) + by >= (unsigned)width ? value : all[lane + by];
}
inline unsigned __ballot_sync(unsigned mask, int set) {
  auto all = soft_exchange(mask, set);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && all[lane]) bits |= 1u << lane;
  return bits;
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T value) {
  auto all = soft_exchange(mask, value);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && all[lane] == value) bits |= 1u << lane;
  return bits;
}
inline int __any_sync(unsigned mask, int set) { return __ballot_sync(mask, set) != 0; }
inline int __all_sync(unsigned mask, int set) { return __ballot_sync(mask, set) == mask; }
inline int __syncthreads_or(int set) {
  __shared__ int any;
  if (soft_lane() == 0 && threadIdx.x == 0) any = 0;
  __syncthreads();
  if (set) any = 1;
  __syncthreads();
  int all = any;
  __syncthreads();
  return all;
}

// Threads run one at a time: nothing comes between.
template <class T> inline T atomicCAS(T *p, T expected, T value) { T old = *p; if (old == expected) *p = value; return old; }
template <class T> inline T atomicAdd(T *p, T value) { T old = *p; *p = old + value; return old; }
template <class T> inline T atomicMax(T *p, T value) { T old = *p; if (value > old) *p = value; return old; }
template <class T> inline T atomicMin(T *p, T value) { T old = *p; if (value < old) *p = value; return old; }
template <class T> inline T atomicOr(T *p, T value) { T old = *p; *p = old | value; return old; }
template <class T> inline T atomicExch(T *p, T value) { T old = *p; *p = value; return old; }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// A symbol of the module: kernels declare it once more.
extern "C" void cudaGraphSetConditional(unsigned long long condition, unsigned value) {
  soft_module.runtime->set_condition(condition, value);
}

// ---- Bits and conversions --------------------------------------------------------------------------------------------------

template <class To, class From> inline To soft_bits(From x) {
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
inline unsigned __float_as_uint(float x) { return soft_bits<unsigned>(x); }
inline int __float_as_int(float x) { return soft_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return soft_bits<float>(x); }
inline float __int_as_float(int x) { return soft_bits<float>(x); }
inline double __longlong_as_double(long long x) { return soft_bits<double>(x); }
inline long long __double_as_longlong(double x) { return soft_bits<long long>(x); }
// Cut towards zero; what does not fit becomes the nearest that does.
inline long long __double2ll_rz(double x) {
  return x >= 9223372036854775808.0 ? 0x7fffffffffffffffll : x < -9223372036854775808.0 ? -0x7fffffffffffffffll - 1 : (long long)x;
}
inline long long __float2ll_rz(float x) { return __double2ll_rz(x); }
inline unsigned long long __double2ull_rz(double x) {
  return x >= 18446744073709551616.0 ? ~0ull : !(x > 0.0) ? 0ull : (unsigned long long)x;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
inline int __ffs(int x) { return __builtin_ffs(x); }

// ---- Mathematics -------------------------------------------------------------------------------------------------------------

#define SOFT_MATH1(NAME)                    \
  extern "C" double NAME(double);           \
  extern "C" float NAME##f(float);          \
  inline float NAME(float x) { return NAME##f(x); }
#define SOFT_MATH2(NAME)                    \
  extern "C" double NAME(double, double);   \
  extern "C" float NAME##f(float, float);   \
  inline float NAME(float x, float y) { return NAME##f(x, y); }
SOFT_MATH1(fabs) SOFT_MATH1(sqrt) SOFT_MATH1(exp) SOFT_MATH1(exp2) SOFT_MATH1(expm1) SOFT_MATH1(log) SOFT_MATH1(log2)
SOFT_MATH1(log10) SOFT_MATH1(log1p) SOFT_MATH1(sin) SOFT_MATH1(cos) SOFT_MATH1(tan) SOFT_MATH1(asin) SOFT_MATH1(acos)
SOFT_MATH1(atan) SOFT_MATH1(sinh) SOFT_MATH1(cosh) SOFT_MATH1(tanh) SOFT_MATH1(asinh) SOFT_MATH1(acosh) SOFT_MATH1(atanh)
SOFT_MATH1(erf) SOFT_MATH1(erfc) SOFT_MATH1(floor) SOFT_MATH1(ceil) SOFT_MATH1(rint) SOFT_MATH1(trunc) SOFT_MATH1(tgamma)
SOFT_MATH1(lgamma) SOFT_MATH1(j0) SOFT_MATH1(j1) SOFT_MATH1(y0) SOFT_MATH1(y1)
SOFT_MATH2(fmod) SOFT_MATH2(pow) SOFT_MATH2(atan2) SOFT_MATH2(hypot) SOFT_MATH2(copysign) SOFT_MATH2(nextafter)
SOFT_MATH2(fmin) SOFT_MATH2(fmax)
extern "C" double frexp(double, int *);
extern "C" float frexpf(float, int *);
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
inline bool signbit(double x) { return __builtin_signbit(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }

// Where erfc is q, 0 < q <= 1: Newton's method on log(erfc), which is concave, so that it comes from the right and stays there.
inline double erfcx(double x) {
  if (x > 25.0) {
    double z = 1.0 / (x * x);
    return 0.5641895835477563 / x * (1.0 + z * (-0.5 + z * (0.75 + z * (-1.875 + z * 6.5625))));
  }
  double square = x * x, rest = fma(x, x, -square);
  return x < -26.7 ? __builtin_inf() : exp(square) * erfc(x) * (1.0 + rest);
}
inline double soft_erfc_inverse(double q) {
  double y = 0.0;
  for (int i = 0; i < 100; ++i) {
    double scaled = erfcx(y), step = (log(scaled) - y * y - log(q)) * scaled / 1.1283791670955126;
    y += step;
    if (i > 0 && fabs(step) <= 1e-16 * y) break;
  }
  return y;
}
inline double erfinv(double x) {
  if (!(fabs(x) <= 1.0)) return __builtin_nan("");
  if (fabs(x) == 1.0) return x * __builtin_inf();
  if (fabs(x) >= 0.5) return copysign(soft_erfc_inverse(1.0 - fabs(x)), x);
  double y = 0.8862269254527580 * x;
  for (int i = 0; i < 8; ++i) y -= (erf(y) - x) * exp(y * y) / 1.1283791670955126;
  return y;
}
inline double normcdfinv(double p) {
  if (p <= 0.25) return p == 0.0 ? -__builtin_inf() : -1.4142135623730951 * soft_erfc_inverse(2.0 * p);
  return 1.4142135623730951 * erfinv(2.0 * p - 1.0);
}

// ---- Tensor cores --------------------------------------------------------------------------------------------------------------

inline float soft_float16(unsigned bits) {
  unsigned magnitude = (bits & 0x7fff) << 13;
  float scaled = __uint_as_float(magnitude) * 5.192296858534828e33f;  // 2^112
  unsigned value = (bits & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000u : __float_as_uint(scaled);
  return __uint_as_float(value | (bits & 0x8000) << 16);
}
inline float soft_bfloat16(unsigned bits) { return __uint_as_float(bits << 16); }

// 16 x 8 += 16 x 16 times 16 x 8, in the layout of mma.sync.m16n8k16: a lane has rows `group` and `group + 8` of the left operand and column
// `group` of the right one, of each two elements at 2 * quad and at 2 * quad + 8.
struct SoftFragments { float a[8], b[4]; };
template <float (*ELEMENT)(unsigned)> inline void soft_mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  SoftFragments mine;
  for (int i = 0; i < 4; ++i) {
    mine.a[2 * i] = ELEMENT(a[i] & 0xffff);
    mine.a[2 * i + 1] = ELEMENT(a[i] >> 16);
  }
  for (int i = 0; i < 2; ++i) {
    mine.b[2 * i] = ELEMENT(b[i] & 0xffff);
    mine.b[2 * i + 1] = ELEMENT(b[i] >> 16);
  }
  auto all = soft_exchange(0xffffffffu, mine);
  const unsigned char *lanes = all.start;
  unsigned lane = soft_lane(), group = lane / 4, quad = lane % 4;
  for (unsigned e = 0; e < 4; ++e) {
    unsigned lower = e / 2, column = 2 * quad + e % 2;
    float sum = c[e];
    for (unsigned q = 0; q < 4; ++q) {
      const SoftFragments &left = *reinterpret_cast<const SoftFragments *>(lanes + 64 * (4 * group + q));
      const SoftFragments &right = *reinterpret_cast<const SoftFragments *>(lanes + 64 * (4 * column + q));
      // a: (group, k), (group + 8, k), (group, k + 8), (group + 8, k + 8), two elements each.
      for (unsigned h = 0; h < 2; ++h)
        for (unsigned i = 0; i < 2; ++i) sum += left.a[4 * h + 2 * lower + i] * right.b[2 * h + i];
    }
    c[e] = sum;
  }
}
inline void host_mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { soft_mma<soft_float16>(c, a, b); }
inline void host_mma_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { soft_mma<soft_bfloat16>(c, a, b); }

// The same of 16 x 8 times 8 x 8 in TF32, whose low 13 bits do not count: a lane has, of each of its rows and of its column, the elements at `quad` and
// at quad + 4.
struct SoftTf32 { float a[4], b[2]; };
inline float soft_tf32(unsigned bits) { return __uint_as_float(bits & 0xffffe000u); }
inline void host_mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  SoftTf32 mine;
  for (int i = 0; i < 4; ++i) mine.a[i] = soft_tf32(a[i]);
  for (int i = 0; i < 2; ++i) mine.b[i] = soft_tf32(b[i]);
  auto all = soft_exchange(0xffffffffu, mine);
  unsigned lane = soft_lane(), group = lane / 4, quad = lane % 4;
  for (unsigned e = 0; e < 4; ++e) {
    float sum = c[e];
    for (unsigned h = 0; h < 2; ++h)
      for (unsigned q = 0; q < 4; ++q) sum += all[4 * group + q].a[2 * h + e / 2] * all[4 * (2 * quad + e % 2) + q].b[h];
    c[e] = sum;
  }
}
// To nearest, halves away from zero.
inline unsigned host_round_to_tf32(float x) {
  unsigned bits = __float_as_uint(x);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

// ldmatrix.x4: the addresses of eight lanes are the rows of a matrix. A lane gets the two elements at 2 * quad of row `group`, transposed
// those of column `group`.
inline void host_load_matrices(unsigned (&r)[4], const void *row, bool transposed) {
  auto rows = soft_exchange(0xffffffffu, static_cast<const unsigned short *>(row));
  unsigned lane = soft_lane(), group = lane / 4, quad = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    unsigned short low, high;
    if (transposed) {
      low = rows[8 * i + 2 * quad][group];
      high = rows[8 * i + 2 * quad + 1][group];
    } else {
      low = rows[8 * i + group][2 * quad];
      high = rows[8 * i + group][2 * quad + 1];
    }
    r[i] = low | (unsigned)high << 16;
  }
  // Nobody writes the rows before all have read.
  __syncwarp();
}

// ---- Hopper: warpgroups, barriers, the copy engine --------------------------------------------------------------------------------

// Places in shared memory as descriptors hold them: from the start of the dynamic one.
inline unsigned host_shared_place(const void *p) {
  return (unsigned)(static_cast<const unsigned char *>(p) - static_cast<const unsigned char *>(soft_module.dynamic));
}
// The 128-byte swizzle: chunks of 16 bytes change places within a line of 128 by the line's number.
inline unsigned soft_swizzled(unsigned place) { return place ^ (place >> 7 & 7) << 4; }
template <float (*ELEMENT)(unsigned)> inline float soft_shared_element(unsigned place) {
  unsigned short bits;
  __builtin_memcpy(&bits, static_cast<const unsigned char *>(soft_module.dynamic) + soft_swizzled(place), 2);
  return ELEMENT(bits);
}
// An element of an operand as its descriptor says: `row` along the 64 rows or the columns of the product, `k` of 16 along the depth.
template <float (*ELEMENT)(unsigned)> inline float soft_operand(unsigned long long descriptor, bool turned, unsigned row, unsigned k) {
  unsigned start = (unsigned)(descriptor & 0x3fff) << 4, apart = (unsigned)(descriptor >> 16 & 0x3fff) << 4, eight = (unsigned)(descriptor >> 32 & 0x3fff) << 4;
  return soft_shared_element<ELEMENT>(turned ? start + row / 64 * apart + k / 8 * eight + k % 8 * 128 + row % 64 * 2
                                             : start + row / 8 * eight + row % 8 * 128 + k * 2);
}
// What a thread has of 64 x (8 COUNT): in each eight columns, two neighbours in row `group` of its warp's 16, and two in row `group + 8`.
template <float (*ELEMENT)(unsigned), int COUNT, class Left>
inline void soft_warpgroup(float (&c)[COUNT][4], bool add, unsigned long long b, bool turned, Left left) {
  unsigned lane = soft_lane();
  for (unsigned e = 0; e < 4; ++e) {
    float x[16];
    for (unsigned k = 0; k < 16; ++k) x[k] = left(lane / 4 + e / 2 * 8, k);
    for (unsigned j = 0; j < COUNT; ++j) {
      float sum = add ? c[j][e] : 0.0f;
      for (unsigned k = 0; k < 16; ++k) sum += x[k] * soft_operand<ELEMENT>(b, turned, 8 * j + 2 * (lane % 4) + e % 2, k);
      c[j][e] = sum;
    }
  }
}
template <float (*ELEMENT)(unsigned), int COUNT>
inline void host_multiply(float (&c)[COUNT][4], unsigned long long a, unsigned long long b, bool add, bool turned) {
  unsigned first = threadIdx.x / 32 % 4 * 16;
  soft_warpgroup<ELEMENT>(c, add, b, turned, [=](unsigned row, unsigned k) { return soft_operand<ELEMENT>(a, false, first + row, k); });
}
// The same with the left operand in registers, as `mma` takes it, and the right one turned.
template <float (*ELEMENT)(unsigned), int COUNT>
inline void host_multiply_held(float (&c)[COUNT][4], const unsigned (&a)[4], unsigned long long b) {
  struct Held { unsigned word[4]; } mine = {{a[0], a[1], a[2], a[3]}};
  auto all = soft_exchange(0xffffffffu, mine);
  const unsigned char *lanes = all.start;
  soft_warpgroup<ELEMENT>(c, true, b, true, [=](unsigned row, unsigned k) {
    const Held &held = *reinterpret_cast<const Held *>(lanes + 64 * (row % 8 * 4 + k % 8 / 2));
    return ELEMENT(held.word[row / 8 + k / 8 * 2] >> (k % 2 * 16) & 0xffff);
  });
  // Nobody gives anything else before all have read.
  __syncwarp();
}

#define SOFT_MULTIPLY(NAME, ELEMENT)                                                                                              \
  template <int COUNT>                                                                                                          \
  void host_multiply_##NAME(float (&c)[COUNT][4], unsigned long long a, unsigned long long b, bool add, bool turned) {          \
    host_multiply<ELEMENT>(c, a, b, add, turned);                                                                               \
  }                                                                                                                             \
  template <int COUNT> void host_multiply_held_##NAME(float (&c)[COUNT][4], const unsigned (&a)[4], unsigned long long b) {     \
    host_multiply_held<ELEMENT>(c, a, b);                                                                                       \
  }
SOFT_MULTIPLY(f16, soft_float16)
SOFT_MULTIPLY(bf16, soft_bfloat16)

// `rest`: twice the bytes that are still to come, plus the phase.
struct SoftBarrier { short pending, arrivals; int rest; };
inline void soft_end_phase(SoftBarrier *barrier) {
  if (barrier->pending != 0 || barrier->rest >> 1 != 0) return;
  barrier->pending = barrier->arrivals;
  barrier->rest ^= 1;
}
inline void host_init_barrier(void *p, int arrivals) { *static_cast<SoftBarrier *>(p) = {(short)arrivals, (short)arrivals, 0}; }
inline void host_arrive(void *p, int bytes) {
  auto barrier = static_cast<SoftBarrier *>(p);
  barrier->rest += 2 * bytes;
  --barrier->pending;
  soft_end_phase(barrier);
}
inline void host_await_phase(void *p, int parity) {
  while ((static_cast<volatile SoftBarrier *>(p)->rest & 1) == parity) soft_module.runtime->pause();
}

struct SoftTensorMap {
  const unsigned char *start;
  unsigned long long sizes[5], strides[4];
  unsigned tile[5], rank, width;
};
// Brings the tile from the coordinates `at` on; what lies outside is zero.
inline void host_copy_tile(void *to, const void *map_, void *barrier_, const int (&at)[5]) {
  auto map = static_cast<const SoftTensorMap *>(map_);
  unsigned count = 1, first = host_shared_place(to), i[5];
  for (unsigned d = 0; d < map->rank; ++d) count *= map->tile[d];
  for (unsigned n = 0; n < count; ++n) {
    unsigned rest = n;
    const unsigned char *from = map->start;
    bool there = true;
    for (unsigned d = 0; d < map->rank; ++d) {
      i[d] = rest % map->tile[d];
      rest /= map->tile[d];
      long long place = (long long)at[d] + i[d];
      there = there && place >= 0 && (unsigned long long)place < map->sizes[d];
      from += place * (long long)(d == 0 ? map->width : map->strides[d - 1]);
    }
    unsigned char *place = static_cast<unsigned char *>(soft_module.dynamic) + soft_swizzled(first + n * map->width);
    if (there) __builtin_memcpy(place, from, map->width);
    else __builtin_memset(place, 0, map->width);
  }
  auto barrier = static_cast<SoftBarrier *>(barrier_);
  barrier->rest -= 2 * (int)(count * map->width);
  soft_end_phase(barrier);
}

// ---- The module's table ----------------------------------------------------------------------------------------------------

template <class T> struct SoftParameter { static const unsigned short value = sizeof(T); };
template <class T> struct SoftParameter<T *> { static const unsigned short value = sizeof(T *) | 0x100; };
template <int... I> struct SoftNumbers {};
template <class... P> struct SoftSignature {
  static constexpr unsigned short parameters[sizeof...(P) + 1] = {SoftParameter<P>::value..., 0};
  template <void (*KERNEL)(P...), int... I> static void call(void **p, SoftNumbers<I...>) {
    while (soft_module.runtime->next()) KERNEL(*static_cast<P *>(p[I])...);
  }
  template <void (*KERNEL)(P...)> static void run(void **p) { call<KERNEL>(p, SoftNumbers<__integer_pack(sizeof...(P))...>()); }
};
template <class... P> SoftSignature<P...> soft_signature(void (*)(P...));
#define SOFT_KERNEL(NAME)                                                                                     \
  {#NAME, decltype(soft_signature(NAME))::run<NAME>, decltype(soft_signature(NAME))::parameters,              \
   sizeof decltype(soft_signature(NAME))::parameters / sizeof(unsigned short) - 1},
#define SOFT_MODULE(...)                                                                                          \
  __attribute__((weak, visibility("hidden"))) extern unsigned char __start_soft_shared[], __stop_soft_shared[];   \
  static const SoftKernel soft_kernels[] = {__VA_ARGS__};                                                         \
  SoftIndices soft_indices;                                                                                       \
  SoftModule soft_module = {2, sizeof soft_kernels / sizeof *soft_kernels, soft_kernels, &soft_indices,           \
                            __start_soft_shared, __stop_soft_shared, nullptr, nullptr};
