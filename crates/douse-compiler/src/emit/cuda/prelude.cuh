// What kernels stand on: elements and how they convert, accesses to memory, reductions and scans of warps and blocks, random
// numbers, the error flag. Needs no header. Compile with --fmad=false: each operation rounds by itself, as eager PyTorch's do.

#define DEVICE __device__ __forceinline__
// The shared memory that a launch asks for. (softgpu, which runs the same text on the host, has its own.)
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(NAME) extern __shared__ __align__(1024) unsigned char NAME[]
#endif

typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

#define INFINITY_F __int_as_float(0x7f800000)
#define NAN_F __int_as_float(0x7fffffff)
#define INFINITY_D __longlong_as_double(0x7ff0000000000000ll)
#define NAN_D __longlong_as_double(0x7fffffffffffffffll)

// Elements in memory that are held as float (or bool) in registers.
struct float16 { uint16 bits; };
struct bfloat16 { uint16 bits; };
struct float8_e4m3fn { uint8 bits; };
struct float8_e5m2 { uint8 bits; };
struct float8_e4m3fnuz { uint8 bits; };
struct float8_e5m2fnuz { uint8 bits; };
struct boolean { uint8 bits; };

// ---- Conversions -------------------------------------------------------------------------------------------------------

DEVICE float to_float(float16 x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  uint32 magnitude = (uint32)(x.bits & 0x7fff) << 13;
  uint32 scaled = __float_as_uint(__uint_as_float(magnitude) * __uint_as_float((127u + 112u) << 23));
  uint32 value = (x.bits & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000u : scaled;
  return __uint_as_float(value | (uint32)(x.bits & 0x8000) << 16);
#endif
}

DEVICE float16 to_float16(float x) {
#ifdef __CUDA_ARCH__
  float16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  uint32 bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
  uint32 large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  uint32 small = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  uint32 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  uint32 value = magnitude >= 0x47800000u ? large : magnitude < 0x38800000u ? small : normal;
  return float16{(uint16)(value | ((bits >> 16) & 0x8000u))};
#endif
}

DEVICE float to_float(bfloat16 x) { return __uint_as_float((uint32)x.bits << 16); }

// NaN keeps its sign as on the CPU.
DEVICE bfloat16 to_bfloat16(float x) {
  uint32 bits = __float_as_uint(x);
#ifdef __CUDA_ARCH__
  // The conversion of a pair runs at the full rate.
  uint32 rounded;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(rounded) : "f"(0.0f), "f"(x));
#else
  uint32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
#endif
  return bfloat16{(uint16)(x != x ? (bits >> 16) | 0x40u : rounded)};
}

// The four float8 formats: bits of the significand, exponent of the smallest normal number, codes (without sign) of the
// largest number, of what is too large, and of NaN. `uz`: no negative zero, whose code is the only NaN.
template <int MANTISSA, int MIN_EXPONENT, int MAX, int OVERFLOW, int NAN_CODE, bool UZ> struct Float8Format {
  static DEVICE float decode(uint8 code) {
    if (UZ && code == 0x80) return NAN_F;
    int magnitude = code & 0x7f;
    float sign = code & 0x80 ? -1.0f : 1.0f;
    if (magnitude > MAX) return magnitude == OVERFLOW && OVERFLOW != NAN_CODE ? sign * INFINITY_F : NAN_F;
    int field = magnitude >> MANTISSA, fraction = magnitude & ((1 << MANTISSA) - 1);
    int significand = field == 0 ? fraction : fraction + (1 << MANTISSA);
    int exponent = MIN_EXPONENT + (field == 0 ? 0 : field - 1) - MANTISSA;
    return sign * (float)significand * __uint_as_float((uint32)(127 + exponent) << 23);
  }
  static DEVICE uint8 encode(float x) {
    uint32 bits = __float_as_uint(x), sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint8)(NAN_CODE | sign);
    int exponent = (int)(magnitude >> 23) - 127;
    if (exponent < MIN_EXPONENT) exponent = MIN_EXPONENT;
    if (exponent > 40) return (uint8)(OVERFLOW | (UZ ? 0 : sign));
    // In units of the last place, rounded to an integer, ties to even.
    float unit = __uint_as_float((uint32)(127 - exponent + MANTISSA) << 23);
    int code = (int)rintf(__uint_as_float(magnitude) * unit) + ((exponent - MIN_EXPONENT) << MANTISSA);
    if (code > MAX) return (uint8)(OVERFLOW | (UZ ? 0 : sign));
    return (uint8)(UZ && code == 0 ? 0 : code | sign);
  }
};
typedef Float8Format<3, -6, 0x7e, 0x7e, 0x7f, false> FormatE4m3fn;
typedef Float8Format<2, -14, 0x7b, 0x7c, 0x7f, false> FormatE5m2;
typedef Float8Format<3, -7, 0x7f, 0x80, 0x80, true> FormatE4m3fnuz;
typedef Float8Format<2, -15, 0x7f, 0x80, 0x80, true> FormatE5m2fnuz;

DEVICE float to_float(float8_e4m3fn x) { return FormatE4m3fn::decode(x.bits); }
DEVICE float to_float(float8_e5m2 x) { return FormatE5m2::decode(x.bits); }
DEVICE float to_float(float8_e4m3fnuz x) { return FormatE4m3fnuz::decode(x.bits); }
DEVICE float to_float(float8_e5m2fnuz x) { return FormatE5m2fnuz::decode(x.bits); }

// The type that holds an element in a register, and the conversions.
template <class T> struct Element {
  typedef T Register;
  static DEVICE T load(T x) { return x; }
  static DEVICE T store(T x) { return x; }
};
#define FLOAT_ELEMENT(T, ENCODE)                         \
  template <> struct Element<T> {                        \
    typedef float Register;                              \
    static DEVICE float load(T x) { return to_float(x); } \
    static DEVICE T store(float x) { return ENCODE; }    \
  };
FLOAT_ELEMENT(float16, to_float16(x))
FLOAT_ELEMENT(bfloat16, to_bfloat16(x))
FLOAT_ELEMENT(float8_e4m3fn, float8_e4m3fn{FormatE4m3fn::encode(x)})
FLOAT_ELEMENT(float8_e5m2, float8_e5m2{FormatE5m2::encode(x)})
FLOAT_ELEMENT(float8_e4m3fnuz, float8_e4m3fnuz{FormatE4m3fnuz::encode(x)})
FLOAT_ELEMENT(float8_e5m2fnuz, float8_e5m2fnuz{FormatE5m2fnuz::encode(x)})
template <> struct Element<boolean> {
  typedef bool Register;
  static DEVICE bool load(boolean x) { return x.bits != 0; }
  static DEVICE boolean store(bool x) { return boolean{(uint8)(x ? 1 : 0)}; }
};
template <class T> using Register = typename Element<T>::Register;

// Rounds a register's value to an element type and back.
template <class T> DEVICE Register<T> round_to(Register<T> x) { return Element<T>::load(Element<T>::store(x)); }

template <class T> DEVICE Register<T> load(const T *p) { return Element<T>::load(*p); }
template <class T> DEVICE void store(T *p, Register<T> x) { *p = Element<T>::store(x); }

// Conversion by value. Floats become integers through 64 bits, cut towards zero, as on the CPU.
template <class To, class From> struct Convert {
  static DEVICE To call(From x) { return (To)x; }
};
template <class From> struct Convert<bool, From> {
  static DEVICE bool call(From x) { return x != (From)0; }
};
// What 64 bits cannot hold becomes the nearest they can hold, NaN becomes 0; narrower integers then wrap.
DEVICE int64 cut(float x) { return x != x ? 0 : __float2ll_rz(x); }
DEVICE int64 cut(double x) { return x != x ? 0 : __double2ll_rz(x); }
#define CUT(To)                                                                               \
  template <> struct Convert<To, float> { static DEVICE To call(float x) { return (To)cut(x); } };  \
  template <> struct Convert<To, double> { static DEVICE To call(double x) { return (To)cut(x); } };
CUT(int8) CUT(uint8) CUT(int16) CUT(uint16) CUT(int32) CUT(uint32) CUT(int64)
template <> struct Convert<uint64, double> {
  static DEVICE uint64 call(double x) { return x >= 9223372036854775808.0 ? __double2ull_rz(x) : (uint64)cut(x); }
};
template <> struct Convert<uint64, float> {
  static DEVICE uint64 call(float x) { return Convert<uint64, double>::call((double)x); }
};
template <class To, class From> DEVICE To convert(From x) { return Convert<To, From>::call(x); }

// ---- Bits --------------------------------------------------------------------------------------------------------------

template <int BYTES> struct Word;
template <> struct Word<1> { typedef uint8 type; };
template <> struct Word<2> { typedef uint16 type; };
template <> struct Word<4> { typedef uint32 type; };
template <> struct Word<8> { typedef uint64 type; };

template <class To, class From> DEVICE To bits_of(From x) {
  static_assert(sizeof(To) == sizeof(From), "the same number of bits");
  union { From from; To to; } both;
  both.from = x;
  return both.to;
}
// The bits of a value held in a register, as an element type of the same size, as a register holds that.
template <class To, class From> DEVICE Register<To> bitcast(Register<From> x) {
  return Element<To>::load(bits_of<To>(Element<From>::store(x)));
}

// ---- Several elements at once ------------------------------------------------------------------------------------------

template <int BYTES> struct Chunk;
template <> struct Chunk<1> { typedef uint8 type; };
template <> struct Chunk<2> { typedef uint16 type; };
template <> struct Chunk<4> { typedef uint32 type; };
template <> struct Chunk<8> { typedef uint2 type; };
template <> struct Chunk<16> { typedef uint4 type; };

// One of N elements.
template <class T, int N> struct Pick {
  static DEVICE Register<T> at(const T *element, int i) { return Element<T>::load(element[i]); }
};
#ifdef __CUDA_ARCH__
// From the words that loads fill, one instruction each.
template <int N> struct PairsOfBfloat16 {
  static DEVICE float at(const bfloat16 *element, int i) {
    uint32 word;
    memcpy(&word, element + i / 2 * 2, 4);
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
};
template <> struct Pick<bfloat16, 2> : PairsOfBfloat16<2> {};
template <> struct Pick<bfloat16, 4> : PairsOfBfloat16<4> {};
template <> struct Pick<bfloat16, 8> : PairsOfBfloat16<8> {};
#endif
// N elements side by side; accesses of as many bytes as they have, 16 at most, where memory is aligned for it.
template <class T, int N> struct Vector {
  T element[N];
  DEVICE Register<T> operator[](int i) const { return Pick<T, N>::at(element, i); }
  DEVICE void set(int i, Register<T> x) { element[i] = Element<T>::store(x); }
};
// How values become elements. EXACT: they are elements already. RESULT: they come from arithmetic, whose NaNs have no sign to keep.
enum Rounding { EXACT, RESULT, ANY };

// Two values in one word, where there is an instruction for it.
template <class T, Rounding HOW> struct Pair { static const bool THERE = false; static DEVICE uint32 pack(Register<T>, Register<T>) { return 0; } };
#ifdef __CUDA_ARCH__
template <Rounding HOW> struct Pair<float16, HOW> {
  static const bool THERE = true;
  static DEVICE uint32 pack(float low, float high) {
    uint32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }
};
template <> struct Pair<bfloat16, RESULT> {
  static const bool THERE = true;
  static DEVICE uint32 pack(float low, float high) {
    uint32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }
};
template <> struct Pair<bfloat16, EXACT> {
  static const bool THERE = true;
  static DEVICE uint32 pack(float low, float high) { return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632); }
};
#endif
template <Rounding HOW, class T, int N> DEVICE Vector<T, N> pack(const Register<T> (&x)[N]) {
  union { Vector<T, N> v; uint32 word[(N + 1) / 2]; } u;
  typedef Pair<T, HOW> P;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    if (P::THERE && N % 2 == 0) u.word[i / 2] = P::pack(x[i], x[i + 1 < N ? i + 1 : i]);
    else {
      u.v.element[i] = Element<T>::store(x[i]);
      if (i + 1 < N) u.v.element[i + 1] = Element<T>::store(x[i + 1 < N ? i + 1 : i]);
    }
  }
  return u.v;
}
// Rounds the result of arithmetic.
DEVICE float round_result(float x) {
#ifdef __CUDA_ARCH__
  uint32 bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
  return __uint_as_float(bits);
#else
  return round_to<bfloat16>(x);
#endif
}
template <Rounding HOW> DEVICE void store_as(bfloat16 *p, float x) {
#ifdef __CUDA_ARCH__
  if (HOW == ANY) store(p, x);
  else p->bits = (uint16)(__float_as_uint(HOW == EXACT ? x : round_result(x)) >> 16);
#else
  store(p, x);
#endif
}
template <class T, int N> struct Access {
  static const int BYTES = N * (int)sizeof(T) > 16 ? 16 : N * (int)sizeof(T);
  static const int COUNT = N * (int)sizeof(T) / BYTES;
  typedef typename Chunk<BYTES>::type Type;
  static DEVICE bool aligned(const void *p) { return ((uint64)p & (BYTES - 1)) == 0; }
};
template <int N, class T> DEVICE Vector<T, N> load_vector(const T *p, int count) {
  typedef Access<T, N> A;
  union { Vector<T, N> v; typename A::Type chunk[A::COUNT]; } u;
  if (count >= N && A::aligned(p)) {
#pragma unroll
    for (int i = 0; i < A::COUNT; ++i) u.chunk[i] = reinterpret_cast<const typename A::Type *>(p)[i];
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) u.v.element[i] = i < count ? p[i] : T{};
  }
  return u.v;
}
// The same where all elements are there, at a place that is aligned for them: buffers begin so.
template <int N, class T> DEVICE Vector<T, N> load_aligned(const T *p) {
  typedef Access<T, N> A;
  union { Vector<T, N> v; typename A::Type chunk[A::COUNT]; } u;
#pragma unroll
  for (int i = 0; i < A::COUNT; ++i) u.chunk[i] = reinterpret_cast<const typename A::Type *>(p)[i];
  return u.v;
}
template <class T, int N> DEVICE void store_aligned(T *p, const Vector<T, N> &v) {
  typedef Access<T, N> A;
  union { Vector<T, N> v; typename A::Type chunk[A::COUNT]; } u;
  u.v = v;
#pragma unroll
  for (int i = 0; i < A::COUNT; ++i) reinterpret_cast<typename A::Type *>(p)[i] = u.chunk[i];
}
// The same at an aligned place: all elements or zeros.
template <int N, class T> DEVICE Vector<T, N> load_whole(const T *p, bool there) {
  typedef Access<T, N> A;
  union { Vector<T, N> v; typename A::Type chunk[A::COUNT]; } u;
#pragma unroll
  for (int i = 0; i < A::COUNT; ++i) {
    u.chunk[i] = typename A::Type{};
    if (there) u.chunk[i] = reinterpret_cast<const typename A::Type *>(p)[i];
  }
  return u.v;
}
template <int N, class T> DEVICE void store_vector(T *p, const Vector<T, N> &v, int count) {
  typedef Access<T, N> A;
  if (count >= N && A::aligned(p)) {
    union { Vector<T, N> v; typename A::Type chunk[A::COUNT]; } u;
    u.v = v;
#pragma unroll
    for (int i = 0; i < A::COUNT; ++i) reinterpret_cast<typename A::Type *>(p)[i] = u.chunk[i];
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) if (i < count) p[i] = v.element[i];
  }
}

// The block's dynamic shared memory.
DEVICE unsigned char *dynamic_shared() {
  DYNAMIC_SHARED(memory);
  return memory;
}

// ---- Integers of index expressions ---------------------------------------------------------------------------------------

template <class T> DEVICE T floor_div(T a, T b) {
  if (b == 0) return 0;
  T q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
template <class T> DEVICE T floor_mod(T a, T b) {
  if (b == 0) return 0;
  T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T> DEVICE T smaller(T a, T b) { return a < b ? a : b; }
template <class T> DEVICE T larger(T a, T b) { return a > b ? a : b; }
DEVICE int64 scale_floor(int64 a, double factor) { return (int64)floor((double)a * factor); }

// ---- The error flag ------------------------------------------------------------------------------------------------------

// One a call, zeroed before it and looked at after it. The first to raise it fills it in. Nothing ever traps.
struct ErrorFlag {
  int code;  // 0: not raised, 1: an index out of range, 2: a failed assertion
  int message;
  int64 value;
  int64 size;
};

DEVICE void raise(ErrorFlag *flag, int code, int message, int64 value, int64 size) {
  if (atomicCAS(&flag->code, 0, code) == 0) {
    flag->message = message;
    flag->value = value;
    flag->size = size;
  }
}
template <bool WRAP> DEVICE int64 check(ErrorFlag *flag, int64 index, int64 size, int message) {
  int64 wrapped = WRAP && index < 0 ? index + size : index;
  if (wrapped >= 0 && wrapped < size) return wrapped;
  raise(flag, 1, message, index, size);
  return 0;
}

// The first check of a thread that failed, to be raised when all of its loads are under way.
struct Fault {
  int message;
  int64 value, size;
  DEVICE Fault() : message(-1), value(0), size(0) {}
  DEVICE void raise_in(ErrorFlag *flag) const {
    if (message >= 0) raise(flag, 1, message, value, size);
  }
};
template <bool WRAP> DEVICE int64 check(Fault &fault, int64 index, int64 size, int message) {
  int64 wrapped = WRAP && index < 0 ? index + size : index;
  const bool good = wrapped >= 0 && wrapped < size, first = !good && fault.message < 0;
  fault.message = first ? message : fault.message;
  fault.value = first ? index : fault.value;
  fault.size = first ? size : fault.size;
  return good ? wrapped : 0;
}

// ---- Random numbers ------------------------------------------------------------------------------------------------------

// In device memory, so that a replayed graph sees each call's own.
struct RandomState { uint64 seed; uint64 call; };

// A word of a block of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011), as an int64.
template <int WORD> DEVICE int64 random_word(const RandomState *state, uint32 draw, int64 index) {
  uint32 k0 = (uint32)state->seed, k1 = (uint32)(state->seed >> 32);
  uint32 c0 = (uint32)index, c1 = (uint32)((uint64)index >> 32), c2 = draw, c3 = (uint32)state->call;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    uint64 left = (uint64)0xD2511F53u * c0, right = (uint64)0xCD9E8D57u * c2;
    c0 = (uint32)(right >> 32) ^ c1 ^ k0;
    c2 = (uint32)(left >> 32) ^ c3 ^ k1;
    c1 = (uint32)right;
    c3 = (uint32)left;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return WORD == 0 ? c0 : WORD == 1 ? c1 : WORD == 2 ? c2 : c3;
}

// ---- Updates -----------------------------------------------------------------------------------------------------------------

template <class Op, class T> DEVICE void update(T *p, Register<T> x) {
  typename Op::Accumulator a = load(p);
  Op::take(a, x);
  store(p, (Register<T>)Op::result(a));
}
