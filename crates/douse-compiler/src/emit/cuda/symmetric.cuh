// Decompositions of symmetric matrices, of which the lower part is read.

// L of A = L L^T; raises CODE with the order of the first leading minor that is not positive. Scratch: n n.
template <int THREADS, int CODE, class A, class Out>
DEVICE void linalg_cholesky(int64 n, A a, double *work, ErrorFlag *flag, Out out) {
  typedef MatrixBlock<THREADS> Block;
  Block::fill(n, n, work, [=](int64 i, int64 j) { return j <= i ? a(i, j) : 0.0; });
  bool positive = true;
  for (int64 k = 0; k < n; ++k) {
    const double rest = work[k * n + k];
    if (positive && !(rest > 0)) {
      positive = false;
      if (threadIdx.x == 0) raise(flag, CODE, 0, k + 1, n);
    }
    __syncthreads();
    const double root = sqrt(rest);
    Block::each(n - k, [=](int64 i) { work[(k + i) * n + k] = i == 0 ? root : work[(k + i) * n + k] / root; });
    const int64 below = n - k - 1;
    Block::each(below * below, [=](int64 at) {
      int64 i = k + 1 + at / below, j = k + 1 + at % below;
      if (j <= i) work[i * n + j] -= work[i * n + k] * work[j * n + k];
    });
  }
  Block::store(n, n, work, n, out);
}

// Cosine and sine of the rotation that makes the off-diagonal element zero.
struct Rotation {
  double c, s;
  static DEVICE Rotation of(double app, double aqq, double off) {
    double tau = (aqq - app) / (2.0 * off);
    double t = tau >= 0 ? 1.0 / (tau + hypot(tau, 1.0)) : -1.0 / (-tau + hypot(tau, 1.0));
    double c = 1.0 / hypot(t, 1.0);
    return Rotation{c, t * c};
  }
  DEVICE void turn(double &x, double &y) const {
    double old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  }
};

// Sweeps after which Jacobi's methods stop whatever they have.
#define JACOBI_SWEEPS 60
#define EPSILON_D 2.220446049250313e-16

// Ascending eigenvalues, and eigenvectors as columns, by Jacobi's cyclic method (Golub and Van Loan, "Matrix Computations", 8.5).
// Scratch: 2 n n + n.
template <int THREADS, class A, class Values, class Vectors>
DEVICE void linalg_eigh(int64 n, A element, double *work, Values values, Vectors vectors) {
  typedef MatrixBlock<THREADS> Block;
  double *a = work, *v = a + n * n;
  int64 *order = reinterpret_cast<int64 *>(v + n * n);
  Block::fill(n, n, a, [=](int64 i, int64 j) { return element(larger(i, j), smaller(i, j)); });
  // Rows of `v` are the vectors.
  Block::fill(n, n, v, [](int64 i, int64 j) { return i == j ? 1.0 : 0.0; });
  bool rotated = true;
  for (int sweep = 0; sweep < JACOBI_SWEEPS && rotated; ++sweep) {
    rotated = false;
    for (int64 p = 0; p < n; ++p) {
      for (int64 q = p + 1; q < n; ++q) {
        const double off = a[p * n + q], app = a[p * n + p], aqq = a[q * n + q];
        // Elements that are lost in the rounding of the diagonal count as zero.
        if (off == 0 || fabs(off) <= EPSILON_D * 1e-3 * sqrt(fabs(app) * fabs(aqq)) || !isfinite(off)) continue;
        rotated = true;
        const Rotation r = Rotation::of(app, aqq, off);
        // Nobody writes before all have read.
        __syncthreads();
        Block::each(n, [=](int64 i) {
          r.turn(a[p * n + i], a[q * n + i]);
          r.turn(v[p * n + i], v[q * n + i]);
        });
        Block::each(n, [=](int64 i) {
          r.turn(a[i * n + p], a[i * n + q]);
          if (i == p) a[i * n + q] = 0;
          if (i == q) a[i * n + p] = 0;
        });
      }
    }
  }
  Block::order(n, false, order, [=](int64 i) { return a[i * n + i]; });
  Block::each(n, [=](int64 i) { values(i, a[order[i] * n + order[i]]); });
  Block::each(n * n, [=](int64 i) { vectors(i / n, i % n, v[order[i % n] * n + i / n]); });
}
