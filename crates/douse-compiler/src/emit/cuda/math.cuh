// The operations on scalars that kernels are written in (`douse_core::pointwise`): op_NAME, overloaded by register type.
// float16, bfloat16 and float8 compute in float; the kernel rounds each result. Integers wrap.

#define EACH_INT(M) M(int8, uint8) M(uint8, uint8) M(int16, uint16) M(uint16, uint16) M(int32, uint32) M(uint32, uint32) M(int64, uint64) M(uint64, uint64)
#define EACH_FLOAT(M) M(float) M(double)

// ---- Integers: in unsigned arithmetic, where overflow is defined ------------------------------------------------------------

DEVICE bool negative(int64 x) { return x < 0; }
template <class T> struct IsSigned { static const bool value = (T)-1 < (T)0; };

#define INT_OPERATIONS(T, U)                                                                                   \
  DEVICE T op_add(T a, T b) { return (T)((U)a + (U)b); }                                                       \
  DEVICE T op_sub(T a, T b) { return (T)((U)a - (U)b); }                                                       \
  DEVICE T op_mul(T a, T b) { return (T)((uint64)(U)a * (uint64)(U)b); }                                       \
  DEVICE T op_neg(T a) { return (T)((U)0 - (U)a); }                                                            \
  DEVICE T op_abs(T a) { return IsSigned<T>::value && a < (T)0 ? (T)((U)0 - (U)a) : a; }                       \
  DEVICE T op_sign(T a) { return (T)((a > (T)0) - (IsSigned<T>::value && a < (T)0)); }                         \
  DEVICE T op_bitwise_not(T a) { return (T)~a; }                                                               \
  DEVICE T op_bitwise_and(T a, T b) { return (T)(a & b); }                                                     \
  DEVICE T op_bitwise_or(T a, T b) { return (T)(a | b); }                                                      \
  DEVICE T op_bitwise_xor(T a, T b) { return (T)(a ^ b); }                                                     \
  /* A zero divisor gives 0; the least number over -1 wraps. */                                                \
  DEVICE T op_trunc_divide(T a, T b) {                                                                         \
    if (b == (T)0) return (T)0;                                                                                \
    if (IsSigned<T>::value && b == (T)-1) return (T)((U)0 - (U)a);                                             \
    return (T)(a / b);                                                                                         \
  }                                                                                                            \
  DEVICE T op_fmod(T a, T b) {                                                                                 \
    if (b == (T)0 || (IsSigned<T>::value && b == (T)-1)) return (T)0;                                          \
    return (T)(a % b);                                                                                         \
  }                                                                                                            \
  DEVICE T op_floor_divide(T a, T b) {                                                                         \
    T q = op_trunc_divide(a, b), r = op_fmod(a, b);                                                            \
    return IsSigned<T>::value && r != (T)0 && (r < (T)0) != (b < (T)0) ? (T)(q - (T)1) : q;                    \
  }                                                                                                            \
  DEVICE T op_remainder(T a, T b) {                                                                            \
    T r = op_fmod(a, b);                                                                                       \
    return IsSigned<T>::value && r != (T)0 && (r < (T)0) != (b < (T)0) ? (T)(r + b) : r;                       \
  }                                                                                                            \
  DEVICE T op_pow(T base, T exponent) {                                                                        \
    if (IsSigned<T>::value && exponent < (T)0)                                                                 \
      return base == (T)1 ? (T)1 : base == (T)-1 ? (T)((exponent & 1) ? -1 : 1) : (T)0;                        \
    uint64 result = 1, square = (uint64)base;                                                                  \
    for (U rest = (U)exponent; rest > 0; rest >>= 1) {                                                         \
      if (rest & 1) result *= square;                                                                          \
      square *= square;                                                                                        \
    }                                                                                                          \
    return (T)result;                                                                                          \
  }                                                                                                            \
  DEVICE T op_minimum(T a, T b) { return a < b ? a : b; }                                                      \
  DEVICE T op_maximum(T a, T b) { return a > b ? a : b; }                                                      \
  DEVICE T op_bitwise_left_shift(T a, T b) {                                                                   \
    return (IsSigned<T>::value && b < (T)0) || (uint64)b >= sizeof(T) * 8 ? (T)0 : (T)((uint64)(U)a << (int)b); \
  }                                                                                                            \
  DEVICE T op_bitwise_right_shift(T a, T b) {                                                                  \
    if ((IsSigned<T>::value && b < (T)0) || (uint64)b >= sizeof(T) * 8)                                        \
      return IsSigned<T>::value && a < (T)0 ? (T)-1 : (T)0;                                                    \
    return (T)(a >> (int)b);                                                                                   \
  }                                                                                                            \
  DEVICE T op_gcd(T a, T b) {                                                                                  \
    U x = (U)op_abs(a), y = (U)op_abs(b);                                                                      \
    while (y != 0) { U r = (U)(x % y); x = y; y = r; }                                                         \
    return (T)x;                                                                                               \
  }                                                                                                            \
  DEVICE T op_lcm(T a, T b) {                                                                                  \
    T divisor = op_gcd(a, b);                                                                                  \
    return divisor == (T)0 ? (T)0 : op_abs(op_mul(op_trunc_divide(a, divisor), b));                            \
  }
EACH_INT(INT_OPERATIONS)

// ---- Bool ------------------------------------------------------------------------------------------------------------------

DEVICE bool op_logical_not(bool a) { return !a; }
DEVICE bool op_bitwise_and(bool a, bool b) { return a && b; }
DEVICE bool op_bitwise_or(bool a, bool b) { return a || b; }
DEVICE bool op_bitwise_xor(bool a, bool b) { return a != b; }
DEVICE bool op_minimum(bool a, bool b) { return a && b; }
DEVICE bool op_maximum(bool a, bool b) { return a || b; }
DEVICE bool op_add(bool a, bool b) { return a || b; }
DEVICE bool op_mul(bool a, bool b) { return a && b; }

// ---- Comparisons -----------------------------------------------------------------------------------------------------------

template <class T> DEVICE bool op_eq(T a, T b) { return a == b; }
template <class T> DEVICE bool op_ne(T a, T b) { return a != b; }
template <class T> DEVICE bool op_lt(T a, T b) { return a < b; }
template <class T> DEVICE bool op_le(T a, T b) { return a <= b; }
template <class T> DEVICE bool op_gt(T a, T b) { return a > b; }
template <class T> DEVICE bool op_ge(T a, T b) { return a >= b; }

// ---- Floats ----------------------------------------------------------------------------------------------------------------

// In PyTorch's convention a maximum or minimum is NaN if either is; of equals it is the first.
#define FLOAT_OPERATIONS(T)                                                                     \
  DEVICE T op_add(T a, T b) { return a + b; }                                                   \
  DEVICE T op_sub(T a, T b) { return a - b; }                                                   \
  DEVICE T op_mul(T a, T b) { return a * b; }                                                   \
  DEVICE T op_div(T a, T b) { return a / b; }                                                   \
  DEVICE T op_neg(T a) { return -a; }                                                           \
  DEVICE T op_sign(T a) { return (T)((a > 0) - (a < 0)); }                                      \
  DEVICE T op_reciprocal(T a) { return (T)1 / a; }                                              \
  DEVICE T op_minimum(T a, T b) { return a != a || a <= b ? a : b; }                            \
  DEVICE T op_maximum(T a, T b) { return a != a || a >= b ? a : b; }                            \
  DEVICE T op_fmin(T a, T b) { return b != b || a <= b ? a : b; }                               \
  DEVICE T op_fmax(T a, T b) { return b != b || a >= b ? a : b; }                               \
  DEVICE bool op_isnan(T a) { return a != a; }                                                  \
  DEVICE bool op_isinf(T a) { return a == (T)INFINITY_F || a == -(T)INFINITY_F; }               \
  DEVICE bool op_signbit(T a) { return signbit(a); }                                            \
  DEVICE T op_fmod(T a, T b) { return fmod(a, b); }                                             \
  DEVICE T op_remainder(T a, T b) {                                                             \
    T r = fmod(a, b);                                                                           \
    return r != 0 && (b < 0) != (r < 0) ? r + b : r;                                            \
  }                                                                                             \
  /* From the exact remainder, so that it is never one too large where a / b rounds up. */      \
  DEVICE T op_floor_divide(T a, T b) {                                                          \
    if (b == 0) return a / b;                                                                   \
    T r = fmod(a, b), q = (a - r) / b;                                                          \
    if (r != 0 && (b < 0) != (r < 0)) q -= (T)1;                                                \
    if (q == 0) return copysign((T)0, a / b);                                                   \
    T whole = floor(q);                                                                         \
    return q - whole > (T)0.5 ? whole + (T)1 : whole;                                           \
  }
EACH_FLOAT(FLOAT_OPERATIONS)

#define FLOAT_FUNCTION(NAME, F32, F64)                  \
  DEVICE float op_##NAME(float x) { return F32; }       \
  DEVICE double op_##NAME(double x) { return F64; }
FLOAT_FUNCTION(abs, fabsf(x), fabs(x))
FLOAT_FUNCTION(sqrt, sqrtf(x), sqrt(x))
FLOAT_FUNCTION(rsqrt, rsqrtf(x), 1.0 / sqrt(x))
FLOAT_FUNCTION(exp, expf(x), exp(x))
FLOAT_FUNCTION(exp2, exp2f(x), exp2(x))
FLOAT_FUNCTION(expm1, expm1f(x), expm1(x))
FLOAT_FUNCTION(log, logf(x), log(x))
FLOAT_FUNCTION(log2, log2f(x), log2(x))
FLOAT_FUNCTION(log10, log10f(x), log10(x))
FLOAT_FUNCTION(log1p, log1pf(x), log1p(x))
FLOAT_FUNCTION(sin, sinf(x), sin(x))
FLOAT_FUNCTION(cos, cosf(x), cos(x))
FLOAT_FUNCTION(tan, tanf(x), tan(x))
FLOAT_FUNCTION(asin, asinf(x), asin(x))
FLOAT_FUNCTION(acos, acosf(x), acos(x))
FLOAT_FUNCTION(atan, atanf(x), atan(x))
FLOAT_FUNCTION(sinh, sinhf(x), sinh(x))
FLOAT_FUNCTION(cosh, coshf(x), cosh(x))
FLOAT_FUNCTION(tanh, tanhf(x), tanh(x))
FLOAT_FUNCTION(asinh, asinhf(x), asinh(x))
FLOAT_FUNCTION(acosh, acoshf(x), acosh(x))
FLOAT_FUNCTION(atanh, atanhf(x), atanh(x))
FLOAT_FUNCTION(sigmoid, 1.0f / (1.0f + expf(-x)), 1.0 / (1.0 + exp(-x)))
FLOAT_FUNCTION(erf, erff(x), erf(x))
FLOAT_FUNCTION(erfc, erfcf(x), erfc(x))
FLOAT_FUNCTION(floor, floorf(x), floor(x))
FLOAT_FUNCTION(ceil, ceilf(x), ceil(x))
FLOAT_FUNCTION(round, rintf(x), rint(x))
FLOAT_FUNCTION(trunc, truncf(x), trunc(x))

DEVICE float op_frexp_mantissa(float x) { int e; return frexpf(x, &e); }
DEVICE double op_frexp_mantissa(double x) { int e; return frexp(x, &e); }
DEVICE int32 op_frexp_exponent(float x) { int e = 0; frexpf(x, &e); return isfinite(x) ? e : 0; }
DEVICE int32 op_frexp_exponent(double x) { int e = 0; frexp(x, &e); return isfinite(x) ? e : 0; }

DEVICE float op_pow(float a, float b) { return b == 2.0f ? a * a : b == 1.0f ? a : powf(a, b); }
DEVICE double op_pow(double a, double b) { return pow(a, b); }
DEVICE float op_atan2(float a, float b) { return atan2f(a, b); }
DEVICE double op_atan2(double a, double b) { return atan2(a, b); }
DEVICE float op_hypot(float a, float b) { return hypotf(a, b); }
DEVICE double op_hypot(double a, double b) { return hypot(a, b); }
DEVICE float op_copysign(float a, float b) { return copysignf(a, b); }
DEVICE double op_copysign(double a, double b) { return copysign(a, b); }
DEVICE float op_nextafter(float a, float b) { return nextafterf(a, b); }
DEVICE double op_nextafter(double a, double b) { return nextafter(a, b); }

// One step among the elements of 16 bits, whose bits are sign and magnitude.
template <class T> DEVICE float next_after_16(float x, float to) {
  if (x != x || to != to) return NAN_F;
  if (x == to) return to;
  uint16 bits = Element<T>::store(x).bits;
  if ((bits & 0x7fff) == 0) bits = x < to ? 1 : 0x8001;
  else bits = (uint16)(((bits & 0x8000) != 0) == (x < to) ? bits - 1 : bits + 1);
  return to_float(T{bits});
}

// x Phi(x), the error linear unit, as x * 0.5 * (1 + erf(x / sqrt 2)) and not less exact. Phi(-t) is 2 to a polynomial
// (`scripts/fit_polynomials.py`, for t up to 5.6, beyond which it only falls on); SHORT: within 7e-6, for results of 16 bits.
template <bool SHORT> DEVICE float gelu(float x) {
  const float t = fabsf(x);
  float p;
  if (SHORT) {
    p = fmaf(-1.7602991e-06f, t, 6.0001446e-05f);
    p = fmaf(p, t, -0.0009170396f);
    p = fmaf(p, t, 0.008451054f);
    p = fmaf(p, t, -0.05383549f);
    p = fmaf(p, t, -0.45859793f);
    p = fmaf(p, t, -1.1511941f);
  } else {
    p = fmaf(-2.4519881e-08f, t, 7.4265535e-07f);
    p = fmaf(p, t, -9.66729e-06f);
    p = fmaf(p, t, 6.861454e-05f);
    p = fmaf(p, t, -0.00025197805f);
    p = fmaf(p, t, -5.8131012e-05f);
    p = fmaf(p, t, 0.0070176027f);
    p = fmaf(p, t, -0.052487724f);
    p = fmaf(p, t, -0.45920655f);
    p = fmaf(p, t, -1.1511056f);
  }
  p = fmaf(p, t, -1.0f);
#ifdef __CUDA_ARCH__
  float tail;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(tail) : "f"(p));
#else
  const float tail = exp2f(p);
#endif
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

// Divides by one number many times.
struct Divisor {
  float value, inverse, scale;
  // Scaled so that the inverse is a normal number; what that takes from a dividend takes nothing from a quotient.
  DEVICE Divisor(float x) {
    const float size = fabsf(x);
    scale = size < 7.8886091e-31f && size > 0.0f ? 1.8446744e19f : size > 1.2676506e30f && size < INFINITY_F ? 5.4210109e-20f : 1.0f;
    value = x * scale;
    inverse = 1.0f / value;
  }
  // Within two units of the last place.
  DEVICE float roughly(float x) const { return x * scale * inverse; }
  // Correctly rounded but for dividends far from 1 (Markstein, 1990): the remainder of the first quotient corrects it.
  DEVICE float divide(float x) const {
    x *= scale;
    const float quotient = x * inverse, better = fmaf(fmaf(-quotient, value, x), inverse, quotient), size = fabsf(x);
    return size >= 5.4210109e-20f && size <= 1.1529215e18f ? better : quotient;
  }
};

DEVICE double log_add_exp(double a, double b) {
  if (a == b && op_isinf(a)) return a;
  return op_maximum(a, b) + log1p(exp(-fabs(a - b)));
}
