// Combining many values: what each operation accumulates in, how two accumulators join, and the same across a warp or a block.

// Lanes that share the work of one outer point.
struct ThreadLanes {
  static const int COUNT = 1;
  static DEVICE int lane() { return 0; }
  static DEVICE void sync() {}
};
struct WarpLanes {
  static const int COUNT = 32;
  static DEVICE int lane() { return threadIdx.x & 31; }
  static DEVICE void sync() { __syncwarp(); }
};
template <int LANES> struct PartLanes {
  static const int COUNT = LANES;
  static DEVICE int lane() { return threadIdx.x % LANES; }
  static DEVICE void sync() { __syncwarp(); }
};
template <int THREADS> struct BlockLanes {
  static const int COUNT = THREADS;
  static DEVICE int lane() { return threadIdx.x; }
  static DEVICE void sync() { __syncthreads(); }
};

// A warp is a lane of 32 points at once.
template <int WARPS> struct ColumnLanes {
  static const int COUNT = WARPS;
  static DEVICE int lane() { return threadIdx.x / 32; }
  static DEVICE void sync() { __syncthreads(); }
};

template <class T> DEVICE T shuffle_xor(T x, int mask) {
  union { T value; uint32 word[(sizeof(T) + 3) / 4]; } u;
#pragma unroll
  for (int i = 0; i < (int)((sizeof(T) + 3) / 4); ++i) u.word[i] = 0;
  u.value = x;
#pragma unroll
  for (int i = 0; i < (int)((sizeof(T) + 3) / 4); ++i) u.word[i] = __shfl_xor_sync(0xffffffffu, u.word[i], mask);
  return u.value;
}
template <class T> DEVICE T shuffle_from(T x, int lane) {
  union { T value; uint32 word[(sizeof(T) + 3) / 4]; } u;
#pragma unroll
  for (int i = 0; i < (int)((sizeof(T) + 3) / 4); ++i) u.word[i] = 0;
  u.value = x;
#pragma unroll
  for (int i = 0; i < (int)((sizeof(T) + 3) / 4); ++i) u.word[i] = __shfl_sync(0xffffffffu, u.word[i], lane);
  return u.value;
}

template <class T> struct Limits;
template <> struct Limits<float> { static DEVICE float lowest() { return -INFINITY_F; } static DEVICE float highest() { return INFINITY_F; } };
template <> struct Limits<double> { static DEVICE double lowest() { return -INFINITY_D; } static DEVICE double highest() { return INFINITY_D; } };
template <> struct Limits<bool> { static DEVICE bool lowest() { return false; } static DEVICE bool highest() { return true; } };
#define INT_LIMITS(T, LOW, HIGH) \
  template <> struct Limits<T> { static DEVICE T lowest() { return LOW; } static DEVICE T highest() { return HIGH; } };
INT_LIMITS(int8, -128, 127) INT_LIMITS(uint8, 0, 255) INT_LIMITS(int16, -32768, 32767) INT_LIMITS(uint16, 0, 65535)
INT_LIMITS(int32, (-2147483647 - 1), 2147483647) INT_LIMITS(uint32, 0u, 4294967295u)
INT_LIMITS(int64, (-9223372036854775807ll - 1), 9223372036854775807ll) INT_LIMITS(uint64, 0ull, 18446744073709551615ull)

// A sum kept as a number and what its roundings lost (Knuth's two-sum): many additions round once.
template <class T> struct ExactSum {
  T sum, rest;
  DEVICE void add(T x) {
    T total = sum + x, of_x = total - sum;
    rest += (sum - (total - of_x)) + (x - of_x);
    sum = total;
  }
  // Beyond the finite numbers the lost part means nothing.
  DEVICE T total() const { return isfinite(sum) && isfinite(rest) ? sum + rest : sum; }
};

// Each operation: its accumulator, the neutral one, one more value, two joined, and the result.
template <class T> struct PlainSum {
  typedef T Accumulator;
  static DEVICE T neutral() { return (T)0; }
  static DEVICE void take(T &a, T x) { a = op_add(a, x); }
  static DEVICE void join(T &a, T b) { a = op_add(a, b); }
  static DEVICE T result(T a) { return a; }
};
template <class T> struct FloatSum {
  typedef ExactSum<T> Accumulator;
  static DEVICE Accumulator neutral() { return Accumulator{(T)0, (T)0}; }
  static DEVICE void take(Accumulator &a, T x) { a.add(x); }
  // The same either way round: what an addition loses does not depend on the order of the two.
  static DEVICE void join(Accumulator &a, Accumulator b) {
    T rest = a.rest + b.rest;
    a.rest = (T)0;
    a.add(b.sum);
    a.rest += rest;
  }
  static DEVICE T result(Accumulator a) { return a.total(); }
};
template <class T> struct Sum : PlainSum<T> {};
template <> struct Sum<float> : FloatSum<float> {};
template <> struct Sum<double> : FloatSum<double> {};
#define COMBINE(NAME, NEUTRAL, JOIN)                               \
  template <class T> struct NAME {                                 \
    typedef T Accumulator;                                         \
    static DEVICE T neutral() { return NEUTRAL; }                  \
    static DEVICE void take(T &a, T x) { a = JOIN; }               \
    static DEVICE void join(T &a, T x) { a = JOIN; }               \
    static DEVICE T result(T a) { return a; }                      \
  };
COMBINE(Prod, (T)1, op_mul(a, x))
COMBINE(Min, Limits<T>::highest(), op_minimum(a, x))
COMBINE(Max, Limits<T>::lowest(), op_maximum(a, x))
#ifdef __CUDA_ARCH__
// One instruction each.
#define COMBINE_FLOAT(NAME, NEUTRAL, INSTRUCTION)                                              \
  template <> struct NAME<float> {                                                             \
    typedef float Accumulator;                                                                 \
    static DEVICE float neutral() { return NEUTRAL; }                                          \
    static DEVICE void take(float &a, float x) { asm(INSTRUCTION " %0, %1, %2;" : "=f"(a) : "f"(a), "f"(x)); } \
    static DEVICE void join(float &a, float x) { take(a, x); }                                 \
    static DEVICE float result(float a) { return a; }                                          \
  };
COMBINE_FLOAT(Min, INFINITY_F, "min.NaN.f32")
COMBINE_FLOAT(Max, -INFINITY_F, "max.NaN.f32")
#endif
COMBINE(And, true, a && x)
COMBINE(Or, false, a || x)
COMBINE(Xor, (T)0, (T)(a ^ x))
COMBINE(XorBool, false, a != x)
template <class T> struct LogAddExp {
  typedef double Accumulator;
  static DEVICE double neutral() { return -INFINITY_D; }
  static DEVICE void take(double &a, T x) { a = log_add_exp(a, (double)x); }
  static DEVICE void join(double &a, double b) { a = log_add_exp(a, b); }
  static DEVICE T result(double a) { return (T)a; }
};
// What scans of float32 sums run in: PyTorch's cumsum accumulates in float64.
template <class T> struct ScanSum : PlainSum<T> {};
template <> struct ScanSum<float> {
  typedef double Accumulator;
  static DEVICE double neutral() { return 0.0; }
  static DEVICE void take(double &a, float x) { a += (double)x; }
  static DEVICE void join(double &a, double b) { a += b; }
  static DEVICE float result(double a) { return (float)a; }
};

// An extreme and its position; -1: none yet. NaN before any number; of equals the first (in a scan: the last).
template <class T> struct Extreme { T value; int64 position; };
template <class T> DEVICE bool is_nan(T x) { return x != x; }
template <class T, bool MAX, bool LAST> struct ArgExtreme {
  typedef Extreme<T> Accumulator;
  static DEVICE Accumulator neutral() { return Accumulator{MAX ? Limits<T>::lowest() : Limits<T>::highest(), -1}; }
  // `b` stands after `a`, unless `LAST` is false: then positions tell.
  static DEVICE void join(Accumulator &a, Accumulator b) {
    if (b.position < 0) return;
    if (a.position < 0) { a = b; return; }
    bool a_nan = is_nan(a.value), b_nan = is_nan(b.value);
    bool equal = (a_nan && b_nan) || a.value == b.value;
    bool better = b_nan ? !a_nan : !a_nan && (MAX ? b.value > a.value : b.value < a.value);
    if (better || (equal && (LAST || b.position < a.position))) a = b;
  }
};

// Whether joining b to a gives the same bits as joining a to b.
template <class Op> struct Symmetric { static const bool value = false; };
#define SYMMETRIC(...) template <> struct Symmetric<__VA_ARGS__> { static const bool value = true; };
SYMMETRIC(PlainSum<float>) SYMMETRIC(PlainSum<double>) SYMMETRIC(Sum<float>) SYMMETRIC(Sum<double>) SYMMETRIC(Sum<int64>)
#ifdef __CUDA_ARCH__
SYMMETRIC(Min<float>) SYMMETRIC(Max<float>)
#endif

// All lanes get the combination of all lanes' accumulators, in one fixed order. A SITE of its own has shared memory of its own, and need
// not wait for what came before.
template <class Op, class Lanes> struct Across;
template <class Op> struct Across<Op, ThreadLanes> {
  typedef typename Op::Accumulator A;
  template <int SITE = -1> static DEVICE A reduce(A a) { return a; }
  static DEVICE A before(A a, A &total) { total = a; return Op::neutral(); }
};
template <class Op> struct Across<Op, WarpLanes> {
  typedef typename Op::Accumulator A;
  template <int SITE = -1, int LANES = 32> static DEVICE A reduce(A a) {
    // The lower lane's first, on both sides, so that every lane gets the same bits.
#pragma unroll
    for (int mask = 1; mask < LANES; mask *= 2) {
      A b = shuffle_xor(a, mask);
      if (!Symmetric<Op>::value && (threadIdx.x & mask) != 0) { A c = b; b = a; a = c; }
      Op::join(a, b);
    }
    return a;
  }
  // Inclusive.
  static DEVICE A scan(A a) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      A b = shuffle_from(a, lane >= step ? lane - step : lane);
      if (lane >= step) { Op::join(b, a); a = b; }
    }
    return a;
  }
  static DEVICE A last(A a) { return shuffle_from(a, 31); }
  // What the lanes before have together, and all of them.
  static DEVICE A before(A a, A &total) {
    const int lane = threadIdx.x & 31;
    a = scan(a);
    total = last(a);
    a = shuffle_from(a, lane > 0 ? lane - 1 : 0);
    return lane > 0 ? a : Op::neutral();
  }
};
template <class Op, int LANES> struct Across<Op, PartLanes<LANES> > {
  typedef typename Op::Accumulator A;
  template <int SITE = -1> static DEVICE A reduce(A a) { return Across<Op, WarpLanes>::template reduce<-1, LANES>(a); }
};
template <class Op, int THREADS> struct Across<Op, BlockLanes<THREADS> > {
  typedef typename Op::Accumulator A;
  static const int WARPS = THREADS / 32;
  template <int SITE> static DEVICE A *space() {
    __shared__ __align__(16) unsigned char bytes[WARPS * sizeof(A)];
    return reinterpret_cast<A *>(bytes);
  }
  template <int SITE = -1> static DEVICE A reduce(A a) {
    A *parts = space<SITE>();
    a = Across<Op, WarpLanes>::reduce(a);
    if (SITE < 0) __syncthreads();
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x / 32] = a;
    __syncthreads();
    if (WARPS > 8) return Across<Op, WarpLanes>::template reduce<-1, WARPS>(parts[threadIdx.x % WARPS]);
    a = parts[0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) Op::join(a, parts[w]);
    return a;
  }
  static DEVICE A scan(A a) {
    A *parts = space<-1>();
    a = Across<Op, WarpLanes>::scan(a);
    __syncthreads();
    if ((threadIdx.x & 31) == 31) parts[threadIdx.x / 32] = a;
    __syncthreads();
    int warp = threadIdx.x / 32;
    if (warp > 0) {
      A before = parts[0];
      for (int w = 1; w < warp; ++w) Op::join(before, parts[w]);
      Op::join(before, a);
      a = before;
    }
    return a;
  }
  static DEVICE A before(A a, A &total) {
    A *parts = space<-1>();
    const int warp = threadIdx.x / 32;
    A own;
    a = Across<Op, WarpLanes>::before(a, own);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) parts[warp] = own;
    __syncthreads();
    A others = Op::neutral();
    total = Op::neutral();
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      if (w == warp) others = total;
      Op::join(total, parts[w]);
    }
    Op::join(others, a);
    return others;
  }
};
template <class Op, int WARPS> struct Across<Op, ColumnLanes<WARPS> > {
  typedef typename Op::Accumulator A;
  template <int SITE = -1> static DEVICE A reduce(A a) {
    __shared__ __align__(16) unsigned char bytes[WARPS * 32 * sizeof(A)];
    A *parts = reinterpret_cast<A *>(bytes) + threadIdx.x % 32;
    __syncthreads();
    parts[threadIdx.x / 32 * 32] = a;
    __syncthreads();
    a = parts[0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) Op::join(a, parts[w * 32]);
    return a;
  }
  static DEVICE A before(A a, A &total) {
    __shared__ __align__(16) unsigned char bytes[WARPS * 32 * sizeof(A)];
    A *parts = reinterpret_cast<A *>(bytes) + threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    __syncthreads();
    parts[warp * 32] = a;
    __syncthreads();
    A others = Op::neutral();
    total = Op::neutral();
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      if (w == warp) others = total;
      Op::join(total, parts[w * 32]);
    }
    return others;
  }
};

// Changes that come to the same bits in any order.
template <class Op> struct Atomic;
template <> struct Atomic<PlainSum<int32> > { static DEVICE void update(int32 *p, int32 x) { atomicAdd((uint32 *)p, (uint32)x); } };
template <> struct Atomic<PlainSum<int64> > { static DEVICE void update(int64 *p, int64 x) { atomicAdd((uint64 *)p, (uint64)x); } };
#define ATOMIC_EXTREME(T) \
  template <> struct Atomic<Max<T> > { static DEVICE void update(T *p, T x) { if (x > *p) atomicMax(p, x); } };  \
  template <> struct Atomic<Min<T> > { static DEVICE void update(T *p, T x) { if (x < *p) atomicMin(p, x); } };
ATOMIC_EXTREME(int32) ATOMIC_EXTREME(int64)
// Floats of one sign are in the order of their bits, those below 0 turned around. NaN comes as the bits that win; once there, it stays. What is
// equal may still differ in its bits: of the two zeros, the maximum is 0 and the minimum -0 in every order.
#define ATOMIC_FLOAT(T, S, U, AS, NAN_BITS, SIGN)                                              \
  template <> struct Atomic<Max<T> > {                                                        \
    static DEVICE void update(T *p, T x) {                                                    \
      const T old = *p;                                                                       \
      if (old != old || x < old || AS(x) == AS(old)) return;                                  \
      const S bits = x != x ? (S)NAN_BITS : AS(x);                                            \
      if (bits >= 0) atomicMax((S *)p, bits); else atomicMin((U *)p, (U)bits);                \
    }                                                                                         \
  };                                                                                          \
  template <> struct Atomic<Min<T> > {                                                        \
    static DEVICE void update(T *p, T x) {                                                    \
      const T old = *p;                                                                       \
      if (old != old || x > old || AS(x) == AS(old)) return;                                  \
      const S bits = x != x ? (S)(NAN_BITS | SIGN) : AS(x);                                   \
      if (bits >= 0) atomicMin((S *)p, bits); else atomicMax((U *)p, (U)bits);                \
    }                                                                                         \
  };
ATOMIC_FLOAT(float, int32, uint32, __float_as_int, 0x7fffffff, 0x80000000)
ATOMIC_FLOAT(double, int64, uint64, __double_as_longlong, 0x7fffffffffffffffll, 0x8000000000000000ull)
template <class Op, class T> DEVICE void atomic_update(T *p, T x) { Atomic<Op>::update(p, x); }
