// Elimination with partial pivoting, and what follows from it.

// The largest magnitude and the first row that has it.
struct PivotRow { double size; int64 row; };
struct LargestPivot {
  typedef PivotRow Accumulator;
  static DEVICE void join(PivotRow &a, PivotRow b) {
    if (b.size > a.size || (b.size == a.size && b.row < a.row)) a = b;
  }
};

struct Elimination {
  double determinant;
  // Of the determinant.
  double sign, log;
  // The first zero pivot, counted from 1; 0: none.
  int64 zero;
};

// Brings the first n columns of a matrix of n rows to upper triangular form; the columns after them, up to `width`, are right-hand sides.
template <int THREADS> DEVICE Elimination eliminate(int64 n, int64 width, double *a) {
  typedef MatrixBlock<THREADS> Block;
  Elimination result{1, 1, 0, 0};
  for (int64 k = 0; k < n; ++k) {
    PivotRow best{-1, n};
    for (int64 row = k + threadIdx.x; row < n; row += THREADS) {
      double size = fabs(a[row * width + k]);
      // NaN is chosen only where it stands in its place.
      if (size != size) size = row == k ? INFINITY_D : -1;
      LargestPivot::join(best, PivotRow{size, row});
    }
    best = Across<LargestPivot, BlockLanes<THREADS> >::reduce(best);
    double *row = a + k * width, *other = a + best.row * width;
    if (other != row) {
      Block::each(width, [=](int64 j) {
        double x = row[j];
        row[j] = other[j];
        other[j] = x;
      });
      result.determinant = -result.determinant;
      result.sign = -result.sign;
    }
    const double pivot = row[k];
    result.determinant *= pivot;
    result.sign *= pivot > 0 ? 1.0 : pivot < 0 ? -1.0 : pivot;
    result.log += log(fabs(pivot));
    if (pivot == 0) {
      if (result.zero == 0) result.zero = k + 1;
      continue;
    }
    const int64 below = n - k - 1, after = width - k - 1;
    Block::each(below, [=](int64 i) { row[(i + 1) * width + k] /= pivot; });
    Block::each(below * after, [=](int64 i) {
      double *to = row + (i / after + 1) * width;
      int64 j = k + 1 + i % after;
      to[j] -= to[k] * row[j];
    });
  }
  return result;
}

// Solves for the right-hand sides of an eliminated matrix, in their place.
template <int THREADS> DEVICE void substitute(int64 n, int64 width, double *a) {
  typedef MatrixBlock<THREADS> Block;
  const int64 sides = width - n;
  for (int64 k = n - 1; k >= 0; --k) {
    double *row = a + k * width;
    Block::each(sides, [=](int64 j) { row[n + j] /= row[k]; });
    Block::each(k * sides, [=](int64 i) {
      double *to = a + i / sides * width;
      to[n + i % sides] -= to[k] * row[n + i % sides];
    });
  }
}

// Scratch: n n.
template <int THREADS, class A, class Out> DEVICE void linalg_det(int64 n, A a, double *work, Out out) {
  MatrixBlock<THREADS>::fill(n, n, work, a);
  Elimination found = eliminate<THREADS>(n, n, work);
  if (threadIdx.x == 0) out(found.determinant);
}

// Scratch: n n.
template <int THREADS, class A, class Sign, class Log> DEVICE void linalg_slogdet(int64 n, A a, double *work, Sign sign, Log log) {
  MatrixBlock<THREADS>::fill(n, n, work, a);
  Elimination found = eliminate<THREADS>(n, n, work);
  if (threadIdx.x == 0) {
    sign(found.sign);
    log(found.log);
  }
}

// A X = B for B [n, sides]; raises `code` where A is singular. Scratch: n (n + sides).
template <int THREADS, int CODE, class A, class B, class Out>
DEVICE void linalg_solve(int64 n, int64 sides, A a, B b, double *work, ErrorFlag *flag, Out out) {
  const int64 width = n + sides;
  MatrixBlock<THREADS>::fill(n, width, work, [=](int64 i, int64 j) { return j < n ? a(i, j) : b(i, j - n); });
  Elimination found = eliminate<THREADS>(n, width, work);
  if (found.zero != 0 && threadIdx.x == 0) raise(flag, CODE, 0, found.zero, n);
  substitute<THREADS>(n, width, work);
  MatrixBlock<THREADS>::store(n, sides, work + n, width, out);
}

// Scratch: 2 n n.
template <int THREADS, int CODE, class A, class Out>
DEVICE void linalg_inverse(int64 n, A a, double *work, ErrorFlag *flag, Out out) {
  const auto identity = [](int64 i, int64 j) { return i == j ? 1.0 : 0.0; };
  linalg_solve<THREADS, CODE>(n, n, a, identity, work, flag, out);
}
