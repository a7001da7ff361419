// Singular values and QR decomposition. Columns lie as rows in scratch memory.

// A unit vector that is orthogonal to `count` rows of `m`, fewer than m. `x` gets it.
template <int THREADS> DEVICE void another_direction(int64 m, int64 count, const double *basis, double *x) {
  typedef MatrixBlock<THREADS> Block;
  for (int64 axis = 0; axis < m; ++axis) {
    Block::each(m, [=](int64 i) { x[i] = i == axis ? 1.0 : 0.0; });
    // Twice, against cancellation.
    for (int64 k = 0; k < 2 * count; ++k) {
      const double *row = basis + k % count * m;
      const double along = Block::dot(m, row, x);
      Block::each(m, [=](int64 i) { x[i] -= along * row[i]; });
    }
    const double norm = sqrt(Block::dot(m, x, x));
    // Of the axes at least one keeps this much.
    if (norm * norm * (double)m >= 0.5) {
      Block::each(m, [=](int64 i) { x[i] /= norm; });
      return;
    }
  }
}

// A = U diag(s) Vh for m >= n, s in descending order, by one-sided Jacobi rotations (Hestenes, 1958).
template <int THREADS, class A, class U, class S, class Vh>
DEVICE void tall_svd(int64 m, int64 n, A a, double *work, U u, S s, Vh vh) {
  typedef MatrixBlock<THREADS> Block;
  double *columns = work, *basis = columns + m * n, *v = basis + m * n, *norms = v + n * n;
  int64 *order = reinterpret_cast<int64 *>(norms + n);
  // Columns of A are rotated until they are orthogonal: then they are U diag(s), and the rotations are V.
  Block::fill(n, m, columns, [=](int64 j, int64 i) { return a(i, j); });
  Block::fill(n, n, v, [](int64 i, int64 j) { return i == j ? 1.0 : 0.0; });
  bool rotated = true;
  for (int sweep = 0; sweep < JACOBI_SWEEPS && rotated; ++sweep) {
    rotated = false;
    for (int64 p = 0; p < n; ++p) {
      for (int64 q = p + 1; q < n; ++q) {
        double *x = columns + p * m, *y = columns + q * m;
        const double xx = Block::dot(m, x, x), yy = Block::dot(m, y, y), xy = Block::dot(m, x, y);
        if (xy == 0 || fabs(xy) <= EPSILON_D * sqrt(xx * yy) || !isfinite(xy)) continue;
        rotated = true;
        const Rotation r = Rotation::of(xx, yy, xy);
        Block::each(m, [=](int64 i) { r.turn(x[i], y[i]); });
        Block::each(n, [=](int64 i) { r.turn(v[p * n + i], v[q * n + i]); });
      }
    }
  }
  for (int64 j = 0; j < n; ++j) {
    const double norm = sqrt(Block::dot(m, columns + j * m, columns + j * m));
    if (threadIdx.x == 0) norms[j] = norm;
  }
  __syncthreads();
  Block::order(n, true, order, [=](int64 j) { return norms[j]; });
  const double least = n > 0 ? norms[order[0]] * EPSILON_D * (double)m : 0.0;
  for (int64 j = 0; j < n; ++j) {
    const double size = norms[order[j]];
    const double *column = columns + order[j] * m;
    double *to = basis + j * m;
    if (size > least || size != size) {
      Block::each(m, [=](int64 i) { to[i] = column[i] / size; });
    } else {
      // Any direction will do that is orthogonal to the others.
      another_direction<THREADS>(m, j, basis, to);
    }
  }
  Block::each(n, [=](int64 j) { s(j, norms[order[j]]); });
  Block::each(m * n, [=](int64 i) { u(i / n, i % n, basis[i % n * m + i / n]); });
  Block::each(n * n, [=](int64 i) { vh(i / n, i % n, v[order[i / n] * n + i % n]); });
}

// A wide matrix is done as its transpose, with the factors exchanged. Scratch, r = min(m, n): 2 m n + r r + 2 r.
template <int THREADS, class A, class U, class S, class Vh>
DEVICE void linalg_svd(int64 m, int64 n, A a, double *work, U u, S s, Vh vh) {
  if (m >= n) {
    tall_svd<THREADS>(m, n, a, work, u, s, vh);
  } else {
    tall_svd<THREADS>(
        n, m, [=](int64 i, int64 j) { return a(j, i); }, work, [=](int64 i, int64 j, double x) { vh(j, i, x); }, s,
        [=](int64 i, int64 j, double x) { u(j, i, x); });
  }
}

// x -= tau v (v . x) for the elements from k on, by a warp.
DEVICE void reflect(int64 m, int64 k, const double *v, double tau, double *x, int lane) {
  // A lane keeps its elements whatever k is.
  double along = 0;
  for (int64 i = k / 32 * 32 + lane; i < m; i += 32)
    if (i >= k) along += v[i] * x[i];
  along = Across<PlainSum<double>, WarpLanes>::reduce(along);
  for (int64 i = k / 32 * 32 + lane; i < m; i += 32)
    if (i >= k) x[i] -= tau * along * v[i];
}

// A = Q R by Householder reflections with LAPACK's signs: an element of R's diagonal is negative where the reflected column began with a
// positive number. Scratch, r = min(m, n): m n + 2 m r + r.
template <int THREADS, class A, class Q, class R> DEVICE void linalg_qr(int64 m, int64 n, A a, double *work, Q q, R r) {
  typedef MatrixBlock<THREADS> Block;
  const int64 rank = smaller(m, n);
  double *columns = work, *reflections = columns + m * n, *turned = reflections + m * rank, *taus = turned + m * rank;
  Block::fill(n, m, columns, [=](int64 j, int64 i) { return a(i, j); });
  for (int64 k = 0; k < rank; ++k) {
    double *column = columns + k * m, *v = reflections + k * m;
    const double rest = sqrt(Block::dot(m - k - 1, column + k + 1, column + k + 1)), alpha = column[k];
    const double beta = rest == 0 ? alpha : -copysign(hypot(alpha, rest), alpha);
    const double tau = rest == 0 ? 0.0 : (beta - alpha) / beta;
    // Nobody writes before all have read.
    __syncthreads();
    Block::each(m - k, [=](int64 i) {
      v[k + i] = rest == 0 ? 0.0 : i == 0 ? 1.0 : column[k + i] / (alpha - beta);
      column[k + i] = i == 0 ? beta : 0.0;
      if (i == 0) taus[k] = tau;
    });
    Block::each_warp(n - k - 1, [=](int64 j, int lane) { reflect(m, k, v, tau, column + (j + 1) * m, lane); });
  }
  Block::fill(rank, m, turned, [](int64 j, int64 i) { return i == j ? 1.0 : 0.0; });
  Block::each_warp(rank, [=](int64 j, int lane) {
    for (int64 k = rank - 1; k >= 0; --k) reflect(m, k, reflections + k * m, taus[k], turned + j * m, lane);
  });
  Block::each(m * rank, [=](int64 i) { q(i / rank, i % rank, turned[i % rank * m + i / rank]); });
  Block::each(rank * n, [=](int64 i) { r(i / n, i % n, columns[i % n * m + i / n]); });
}
