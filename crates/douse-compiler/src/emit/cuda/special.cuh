// Special functions, in float64 whatever the element type, by the formulas of `douse_core::math`.

#define PI_D 3.141592653589793
#define EPSILON_D 2.220446049250313e-16

#define SPECIAL1(NAME, FUNCTION)                                             \
  DEVICE double op_##NAME(double x) { return FUNCTION(x); }                  \
  DEVICE float op_##NAME(float x) { return (float)FUNCTION((double)x); }
#define SPECIAL2(NAME, FUNCTION)                                                                        \
  DEVICE double op_##NAME(double x, double y) { return FUNCTION(x, y); }                                \
  DEVICE float op_##NAME(float x, float y) { return (float)FUNCTION((double)x, (double)y); }

// ---- Error functions --------------------------------------------------------------------------------------------------------

__device__ inline double normal_quantile(double p) { return p >= 0.0 && p <= 1.0 ? normcdfinv(p) : NAN_D; }
__device__ inline double log_normal(double x) {
  double t = x * 0.7071067811865476;
  if (x < -1.0) return x == -INFINITY_D ? x : log(erfcx(-t)) - 0.6931471805599453 - t * t;
  return log1p(-0.5 * erfc(t));
}
SPECIAL1(erfinv, erfinv)
SPECIAL1(erfcx, erfcx)
SPECIAL1(ndtri, normal_quantile)
SPECIAL1(log_ndtr, log_normal)

// ---- Gamma functions --------------------------------------------------------------------------------------------------------

__device__ inline double digamma_positive(double x) {
  double sum = 0.0;
  while (x < 10.0) { sum -= 1.0 / x; x += 1.0; }
  double z = 1.0 / (x * x);
  double tail = z * (1.0 / 12 + z * (-1.0 / 120 + z * (1.0 / 252 + z * (-1.0 / 240 + z * (1.0 / 132 + z * (-691.0 / 32760 + z * (1.0 / 12)))))));
  return sum + log(x) - 0.5 / x - tail;
}
__device__ inline double digamma(double x) {
  if (x == 0.0) return copysign(INFINITY_D, -x);
  if (x < 0.0) return x == trunc(x) ? NAN_D : digamma_positive(1.0 - x) - PI_D / tan(PI_D * (x - trunc(x)));
  return digamma_positive(x);
}

// The Euler-Maclaurin sum; 2k-th Bernoulli numbers over factorials.
__device__ const double ZETA_COEFFICIENTS[12] = {
    1.0 / 12.0, -1.0 / 720.0, 1.0 / 30240.0, -1.0 / 1209600.0, 1.0 / 47900160.0, -691.0 / 1307674368000.0,
    1.0 / 74724249600.0, -3617.0 / 10670622842880000.0, 43867.0 / 5109094217170944000.0,
    -174611.0 / 802857662698291200000.0, 77683.0 / 14101100039391805440000.0,
    -236364091.0 / 1693824136731743669452800000.0};
__device__ inline double zeta_right(double x, double q) {
  if (q == INFINITY_D) return NAN_D;
  double sum = 0.0, base = q;
  while (base < 10.0) {
    double term = pow(base, -x);
    sum += term;
    if (term <= EPSILON_D / 16.0 * sum) return sum;
    base += 1.0;
  }
  double power = pow(base, -x);
  sum += power * base / (x - 1.0) + 0.5 * power;
  double factor = power * x / base;
  for (int k = 0; k < 12; ++k) {
    double term = factor * ZETA_COEFFICIENTS[k];
    sum += term;
    if (fabs(term) <= EPSILON_D / 16.0 * fabs(sum)) break;
    double step = x + 2 * k;
    factor *= (step + 1.0) * (step + 2.0) / (base * base);
  }
  return sum;
}
__device__ inline double zeta(double x, double q) {
  if (x == 1.0) return INFINITY_D;
  if (!(x >= 1.0)) return NAN_D;
  if (q <= 0.0) {
    if (q == floor(q)) return INFINITY_D;
    if (x != floor(x)) return NAN_D;
    double fraction = q - floor(q), sign = fmod(x, 2.0) == 0.0 ? 1.0 : -1.0;
    return zeta_right(x, fraction) + sign * (zeta_right(x, 1.0 - fraction) - zeta_right(x, 1.0 - q));
  }
  return zeta_right(x, q);
}
__device__ inline double trigamma(double x) {
  if (x < 0.5) {
    double sine = sin(PI_D * x), y = 1.0 - x;
    return PI_D * PI_D / (sine * sine) - (y == INFINITY_D ? 0.0 : zeta(2.0, y));
  }
  return x == INFINITY_D ? 0.0 : zeta(2.0, x);
}
__device__ inline double polygamma(double n, double x) {
  if (!(n >= 0.0)) return NAN_D;
  if (n == 0.0) return digamma(x);
  if (n == 1.0) return trigamma(x);
  return (fmod(n, 2.0) == 0.0 ? -1.0 : 1.0) * exp(lgamma(n + 1.0)) * zeta(n + 1.0, x);
}

__device__ inline double log1p_minus(double ratio, double excess) {
  if (fabs(excess) > 0.3) return log(ratio) - excess;
  double power = -excess * excess, sum = 0.0;
  for (int k = 2; k < 64; ++k) {
    double term = power / k;
    sum += term;
    if (fabs(term) <= EPSILON_D / 8.0 * fabs(sum)) break;
    power *= -excess;
  }
  return sum;
}
__device__ inline double gamma_density(double a, double x) {
  if (a < 20.0) return exp(a * log(x) - x - lgamma(a + 1.0));
  double z = 1.0 / (a * a);
  double stirling = (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - z / 1680) * z) * z) / a;
  return exp(a * log1p_minus(x / a, (x - a) / a) - stirling) / sqrt(2.0 * PI_D * a);
}
__device__ inline double gamma_series(double a, double x) {
  double term = 1.0, sum = 1.0, denominator = a;
  for (int i = 0; i < 20000; ++i) {
    denominator += 1.0;
    term *= x / denominator;
    sum += term;
    if (term <= EPSILON_D / 8.0 * sum) break;
  }
  return sum;
}
__device__ inline double gamma_fraction(double a, double x) {
  const double tiny = 1e-300;
  double b = x + 1.0 - a, c = 1.0 / tiny, d = 1.0 / b, h = d;
  for (int i = 1; i < 20000; ++i) {
    double numerator = -(double)i * ((double)i - a);
    b += 2.0;
    d = numerator * d + b;
    d = 1.0 / (fabs(d) < tiny ? tiny : d);
    c = b + numerator / c;
    c = fabs(c) < tiny ? tiny : c;
    double step = d * c;
    h *= step;
    if (fabs(step - 1.0) <= EPSILON_D) break;
  }
  return a * h;
}
__device__ inline double gamma_small_upper(double a, double x) {
  double power = 1.0, sum = 0.0;
  for (int k = 1; k < 40; ++k) {
    power *= -x / k;
    double term = power / (a + k);
    sum += term;
    if (fabs(term) <= EPSILON_D / 8.0 * fabs(sum)) break;
  }
  double scale = a * log(x) - lgamma(a + 1.0);
  return -expm1(scale) - exp(scale) * a * sum;
}
// The lower and the upper regularised incomplete gamma function.
__device__ inline double incomplete_gamma(double a, double x, bool want_upper) {
  double lower, upper;
  if (a < 0.0 || x < 0.0) return NAN_D;
  if (a == 0.0) return x > 0.0 ? (want_upper ? 0.0 : 1.0) : NAN_D;
  if (x == 0.0) return want_upper ? 1.0 : 0.0;
  if (a == INFINITY_D) return x == INFINITY_D ? NAN_D : want_upper ? 1.0 : 0.0;
  if (x == INFINITY_D) return want_upper ? 0.0 : 1.0;
  if (a != a || x != x) return NAN_D;
  if (a > 1e6) {
    // Temme's uniform expansion.
    double excess = (x - a) / a, half_square = -log1p_minus(x / a, excess);
    double eta = copysign(sqrt(2.0 * half_square), excess);
    double correction = fabs(eta) < 1e-2
        ? -1.0 / 3.0 + eta / 12.0 - 2.0 * eta * eta / 135.0 + eta * eta * eta / 864.0
        : 1.0 / excess - 1.0 / eta;
    double rest = exp(-a * half_square) / sqrt(2.0 * PI_D * a) * correction, argument = eta * sqrt(a / 2.0);
    return want_upper ? 0.5 * erfc(argument) + rest : 0.5 * erfc(-argument) - rest;
  }
  double scale = gamma_density(a, x);
  if (x < a + 1.0) {
    lower = scale * gamma_series(a, x);
    upper = a < 0.5 && x < 1.0 ? gamma_small_upper(a, x) : 1.0 - lower;
    lower = lower < 1.0 ? lower : 1.0;
  } else {
    upper = scale * gamma_fraction(a, x);
    lower = 1.0 - upper;
  }
  return want_upper ? upper : lower;
}
__device__ inline double igamma(double a, double x) { return incomplete_gamma(a, x, false); }
__device__ inline double igammac(double a, double x) { return incomplete_gamma(a, x, true); }
SPECIAL1(lgamma, lgamma)
SPECIAL1(digamma, digamma)
SPECIAL2(zeta, zeta)
SPECIAL2(polygamma, polygamma)
SPECIAL2(igamma, igamma)
SPECIAL2(igammac, igammac)

// ---- Bessel's and Airy's functions --------------------------------------------------------------------------------------------

// Cephes' fits (Moshier, 1989) of the slowly varying factors, highest power first, read as PyTorch reads them.
__device__ const double J0_COSINE_ABOVE[] = {
    0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687, 8.74716500199817, 5.303240382353949, 1.0};
__device__ const double J0_COSINE_BELOW[] = {
    0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171, 8.761908832370695, 5.306052882353947, 1.0};
__device__ const double J0_SINE_ABOVE[] = {
    -0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683, -177.68116798048806, -147.07750515495118, -51.41053267665993, -6.050143506007285};
__device__ const double J0_SINE_BELOW[] = {
    64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525, 5930.727011873169, 2062.0933166032783, 242.0057402402914};
__device__ const double J1_COSINE_ABOVE[] = {
    0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076, 8.424045901417724, 5.214515986823615, 1.0};
__device__ const double J1_COSINE_BELOW[] = {
    0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015, 8.399855543276042, 5.209828486823619, 1.0};
__device__ const double J1_SINE_ABOVE[] = {
    0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508, 710.8563049989261, 597.4896124006136, 211.68875710057213, 25.207020585802372};
__device__ const double J1_SINE_BELOW[] = {
    74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562, 7997.041604473507, 2826.1927851763908, 336.0936078106983};
__device__ const double AIRY_SINE_ABOVE[] = {
    -0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191, -0.04919001326095003, -0.004062659235948854, -0.0001592764962392621, -2.776491081552329e-06, -1.6778769848911465e-08};
__device__ const double AIRY_SINE_BELOW[] = {
    13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596, 1.4752914677166642, 0.11568717379518804, 0.004402916416152112, 7.547203482874142e-05, 4.5185009297058035e-07};
__device__ const double AIRY_COSINE_ABOVE[] = {
    0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502, 0.35146565610554764, 0.06338889196289255, 0.005858041130483885, 0.000282851600836737, 6.98793669997261e-06, 8.117892395543892e-08, 3.415517847659236e-10};
__device__ const double AIRY_COSINE_BELOW[] = {
    9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755, 0.9542936116189619, 0.08645808263523921, 0.004126565238242226, 0.00010125908511650914, 1.1716673321441352e-06, 4.9183457006293e-09};

template <int N> __device__ inline double horner(const double (&coefficients)[N], double x) {
  double sum = 0.0;
  for (int i = 0; i < N; ++i) sum = sum * x + coefficients[i];
  return sum;
}
// J and Y of order 0 or 1, x above 5.
__device__ inline double oscillating(double x, int order, bool second) {
  double z = 25.0 / (x * x), amplitude = sqrt(0.6366197723675814 / x);
  double c, s;
  if (order == 0) {
    c = horner(J0_COSINE_ABOVE, z) / horner(J0_COSINE_BELOW, z);
    s = horner(J0_SINE_ABOVE, z) / horner(J0_SINE_BELOW, z);
  } else {
    c = horner(J1_COSINE_ABOVE, z) / horner(J1_COSINE_BELOW, z);
    s = horner(J1_SINE_ABOVE, z) / horner(J1_SINE_BELOW, z);
  }
  c *= amplitude;
  s *= amplitude * 5.0 / x;
  double angle = x - (order == 0 ? 0.25 : 0.75) * PI_D;
  return second ? c * sin(angle) + s * cos(angle) : c * cos(angle) - s * sin(angle);
}
__device__ inline double bessel_j0(double x) { x = fabs(x); return x > 5.0 ? oscillating(x, 0, false) : j0(x); }
__device__ inline double bessel_j1(double x) {
  double y = fabs(x) > 5.0 ? oscillating(fabs(x), 1, false) : j1(fabs(x));
  return signbit(x) ? -y : y;
}
__device__ inline double bessel_y0(double x) {
  return x > 5.0 ? oscillating(x, 0, true) : x < 0.0 ? NAN_D : x == 0.0 ? -INFINITY_D : y0(x);
}
__device__ inline double bessel_y1(double x) {
  return x > 5.0 ? oscillating(x, 1, true) : x < 0.0 ? NAN_D : x == 0.0 ? -INFINITY_D : y1(x);
}
__device__ inline double spherical_bessel_j0(double x) { return op_isinf(x) ? 0.0 : x == 0.0 ? 1.0 : sin(x) / x; }

__device__ inline double i_series(double x, int order) {
  double quarter = x * x / 4.0, term = order == 0 ? 1.0 : x / 2.0, sum = term;
  for (int k = 1; k < 200; ++k) {
    term *= quarter / ((double)k * (k + order));
    sum += term;
    if (term <= EPSILON_D / 8.0 * sum) break;
  }
  return sum;
}
__device__ inline double i_asymptotic(double x, int order) {
  double mu = 4.0 * order * order, term = 1.0, sum = 1.0;
  for (int k = 1; k < 40; ++k) {
    double odd = 2 * k - 1;
    term *= (odd * odd - mu) / (8.0 * k * x);
    sum += term;
    if (fabs(term) <= EPSILON_D / 8.0 * fabs(sum)) break;
  }
  return x == INFINITY_D ? 0.0 : sum / sqrt(2.0 * PI_D * x);
}
__device__ inline double bessel_i(double x, int order, bool scaled) {
  double y = fabs(x);
  double value = y <= 24.0 ? i_series(y, order) * (scaled ? exp(-y) : 1.0) : i_asymptotic(y, order) * (scaled ? 1.0 : exp(y));
  return order == 1 && x < 0.0 ? -value : value;
}
__device__ inline double bessel_i0(double x) { return bessel_i(x, 0, false); }
__device__ inline double bessel_i0e(double x) { return bessel_i(x, 0, true); }
__device__ inline double bessel_i1(double x) { return bessel_i(x, 1, false); }
__device__ inline double bessel_i1e(double x) { return bessel_i(x, 1, true); }

__device__ inline double k0_series(double x) {
  double quarter = x * x / 4.0, term = 1.0, harmonic = 0.0, sum = 0.0;
  for (int k = 1; k < 30; ++k) {
    term *= quarter / ((double)k * k);
    harmonic += 1.0 / k;
    sum += term * harmonic;
    if (term * harmonic <= EPSILON_D / 8.0 * sum) break;
  }
  return sum - (log(x / 2.0) + 0.5772156649015329) * i_series(x, 0);
}
// e^x K(x), by the trapezoidal rule.
__device__ inline double k_scaled(double order, double x) {
  double root = sqrt(2.0 * x), sum = 0.5;
  for (int i = 1; i <= 26; ++i) {
    double u = 0.25 * i, s = u / root;
    double angle = order == 0.0 ? 1.0 : cosh(order * 2.0 * asinh(s));
    sum += exp(-u * u) * angle / sqrt(1.0 + s * s);
  }
  return sum * 0.5 / root;
}
__device__ inline double bessel_k0(double x) {
  return x == 0.0 ? INFINITY_D : x < 0.0 ? NAN_D : x <= 2.0 ? k0_series(x) : k_scaled(0.0, x) * exp(-x);
}
__device__ inline double bessel_k1(double x) {
  return x == 0.0 ? INFINITY_D : x < 0.0 ? NAN_D
      : x <= 2.0 ? (1.0 / x - i_series(x, 1) * k0_series(x)) / i_series(x, 0) : k_scaled(1.0, x) * exp(-x);
}
__device__ inline double bessel_k0e(double x) { return x > 2.0 ? k_scaled(0.0, x) : bessel_k0(x) * exp(x); }
__device__ inline double bessel_k1e(double x) { return x > 2.0 ? k_scaled(1.0, x) : bessel_k1(x) * exp(x); }

__device__ inline double airy(double x) {
  if (op_isinf(x)) return NAN_D;
  if (x < -2.09) {
    double y = -x, zeta_ = 2.0 / 3.0 * y * sqrt(y), z = 1.0 / zeta_, angle = zeta_ + 0.25 * PI_D, square = z * z;
    double s = sin(angle) * (1.0 + square * (horner(AIRY_SINE_ABOVE, square) / horner(AIRY_SINE_BELOW, square)));
    double c = cos(angle) * z * (horner(AIRY_COSINE_ABOVE, square) / horner(AIRY_COSINE_BELOW, square));
    return (s - c) / sqrt(PI_D * sqrt(y));
  }
  if (x <= 1.0) {
    double cube = x * x * x, even = 0.3550280538878172, odd = 0.2588194037928068 * x, sum = even - odd;
    for (int k = 1; k < 100; ++k) {
      double n = 3.0 * k;
      even *= cube / (n * (n - 1.0));
      odd *= cube / (n * (n + 1.0));
      sum += even - odd;
      if (fabs(even) + fabs(odd) <= EPSILON_D / 16.0 * fabs(sum)) break;
    }
    return sum;
  }
  double zeta_ = 2.0 / 3.0 * x * sqrt(x);
  return sqrt(x / 3.0) / PI_D * k_scaled(1.0 / 3.0, zeta_) * exp(-zeta_);
}
SPECIAL1(bessel_j0, bessel_j0)
SPECIAL1(bessel_j1, bessel_j1)
SPECIAL1(bessel_y0, bessel_y0)
SPECIAL1(bessel_y1, bessel_y1)
SPECIAL1(spherical_bessel_j0, spherical_bessel_j0)
SPECIAL1(i0, bessel_i0)
SPECIAL1(i0e, bessel_i0e)
SPECIAL1(i1, bessel_i1)
SPECIAL1(i1e, bessel_i1e)
SPECIAL1(modified_bessel_k0, bessel_k0)
SPECIAL1(modified_bessel_k1, bessel_k1)
SPECIAL1(scaled_modified_bessel_k0, bessel_k0e)
SPECIAL1(scaled_modified_bessel_k1, bessel_k1e)
SPECIAL1(airy_ai, airy)

// ---- Polynomials of a degree, which is cut to an integer ----------------------------------------------------------------------

__device__ inline int64 degree(double n) { return fabs(n) < 9.2e18 ? (int64)n : -1; }
__device__ inline double polynomial_edge(double x, int64 n, double right, double left) {
  return x > 0.0 ? right : n % 2 == 0 ? left : -left;
}
// Three-term recurrences p' = step(k, q, p), from 1 and `first`.
template <class Step> __device__ inline double recur(int64 n, double first, Step step) {
  if (n < 1) return n < 0 ? 0.0 : 1.0;
  double p = 1.0, q = first;
  for (int64 k = 1; k < n && q == q; ++k) {
    double next = step((double)k, q, p);
    p = q;
    q = next;
  }
  return q;
}
struct ChebyshevStep { double x; DEVICE double operator()(double, double q, double p) const { return (x + x) * q - p; } };
struct HermiteHStep { double x; DEVICE double operator()(double k, double q, double p) const { return (x + x) * q - (k + k) * p; } };
struct HermiteHeStep { double x; DEVICE double operator()(double k, double q, double p) const { return x * q - k * p; } };
struct LaguerreStep { double x; DEVICE double operator()(double k, double q, double p) const { return ((k + k + 1.0 - x) * q - k * p) / (k + 1.0); } };
struct LegendreStep { double x; DEVICE double operator()(double k, double q, double p) const { return ((k + k + 1.0) * x * q - k * p) / (k + 1.0); } };

__device__ inline double second_kind(double x, int64 n) {
  double angle = acos(x), d = (double)(n + 1), sine = sin(angle);
  return sine == 0.0 ? d * cos(d * angle) / x : sin(d * angle) / sine;
}
__device__ inline double third_kind(double x, int64 n) {
  double angle = acos(x), d = (double)n + 0.5;
  return sin(angle / 2.0) != 1.0 ? cos(d * angle) / cos(angle / 2.0) : polynomial_edge(-1.0, n, 1.0, (double)(n + n + 1));
}
__device__ inline double fourth_kind(double x, int64 n) {
  double angle = acos(x), d = (double)n + 0.5;
  return cos(angle / 2.0) != 1.0 ? sin(d * angle) / sin(angle / 2.0) : polynomial_edge(x, n, (double)(n + n + 1), 1.0);
}
__device__ inline double chebyshev_t(double x, double d) {
  int64 n = degree(d);
  if (fabs(x) == 1.0) return n < 0 ? 0.0 : polynomial_edge(x, n, 1.0, 1.0);
  if (n > 6 && fabs(x) < 1.0) return cos((double)n * acos(x));
  return recur(n, x, ChebyshevStep{x});
}
__device__ inline double chebyshev_u(double x, double d) {
  int64 n = degree(d);
  if (fabs(x) == 1.0) return n < 0 ? 0.0 : polynomial_edge(x, n, (double)n + 1.0, (double)n + 1.0);
  if (n > 8 && fabs(x) < 1.0) return second_kind(x, n);
  return recur(n, x + x, ChebyshevStep{x});
}
__device__ inline double chebyshev_v(double x, double d) {
  int64 n = degree(d);
  if (fabs(x) == 1.0) return n < 0 ? 0.0 : polynomial_edge(x, n, 1.0, (double)(n + n + 1));
  if (n > 8 && fabs(x) < 1.0) return third_kind(x, n);
  return recur(n, x + x - 1.0, ChebyshevStep{x});
}
__device__ inline double chebyshev_w(double x, double d) {
  int64 n = degree(d);
  if (fabs(x) == 1.0) return n < 0 ? 0.0 : polynomial_edge(x, n, (double)(n + n + 1), 1.0);
  if (n > 8 && fabs(x) < 1.0) return fourth_kind(x, n);
  return recur(n, x + x + 1.0, ChebyshevStep{x});
}
__device__ inline double shifted_chebyshev_t(double y, double d) {
  int64 n = degree(d);
  double x = y + y - 1.0;
  return n > 6 && fabs(x) < 1.0 ? cos((double)n * acos(x)) : chebyshev_t(x, d);
}
__device__ inline double shifted_chebyshev_u(double y, double d) {
  int64 n = degree(d);
  double x = y + y - 1.0;
  return n > 6 && fabs(x) < 1.0 ? second_kind(x, n) : chebyshev_u(x, d);
}
__device__ inline double shifted_chebyshev_v(double y, double d) {
  int64 n = degree(d);
  double x = y + y - 1.0;
  return n > 6 && fabs(x) < 1.0 ? third_kind(x, n) : chebyshev_v(x, d);
}
__device__ inline double shifted_chebyshev_w(double y, double d) {
  int64 n = degree(d);
  double x = y + y - 1.0;
  return n > 4 && fabs(x) < 1.0 ? fourth_kind(x, n) : chebyshev_w(x, d);
}
// Beyond this degree PyTorch gives NaN.
#define HERMITE_LIMIT 512
__device__ inline double hermite_h(double x, double d) {
  int64 n = degree(d);
  return n > HERMITE_LIMIT ? NAN_D : recur(n, x + x, HermiteHStep{x});
}
__device__ inline double hermite_he(double x, double d) {
  int64 n = degree(d);
  return n > HERMITE_LIMIT ? NAN_D : recur(n, x, HermiteHeStep{x});
}
__device__ inline double laguerre_l(double x, double d) {
  int64 n = degree(d);
  return x == 0.0 ? (n < 0 ? 0.0 : 1.0) : recur(n, 1.0 - x, LaguerreStep{x});
}
__device__ inline double legendre_p(double x, double d) {
  int64 n = degree(d);
  return fabs(x) == 1.0 ? (n < 0 ? 0.0 : polynomial_edge(x, n, 1.0, 1.0)) : recur(n, x, LegendreStep{x});
}
SPECIAL2(chebyshev_polynomial_t, chebyshev_t)
SPECIAL2(chebyshev_polynomial_u, chebyshev_u)
SPECIAL2(chebyshev_polynomial_v, chebyshev_v)
SPECIAL2(chebyshev_polynomial_w, chebyshev_w)
SPECIAL2(shifted_chebyshev_polynomial_t, shifted_chebyshev_t)
SPECIAL2(shifted_chebyshev_polynomial_u, shifted_chebyshev_u)
SPECIAL2(shifted_chebyshev_polynomial_v, shifted_chebyshev_v)
SPECIAL2(shifted_chebyshev_polynomial_w, shifted_chebyshev_w)
SPECIAL2(hermite_polynomial_h, hermite_h)
SPECIAL2(hermite_polynomial_he, hermite_he)
SPECIAL2(laguerre_polynomial_l, laguerre_l)
SPECIAL2(legendre_polynomial_p, legendre_p)
