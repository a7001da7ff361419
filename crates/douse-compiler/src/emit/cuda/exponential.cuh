// The exponential of a matrix by scaling and squaring (Higham, "The scaling and squaring method for the matrix exponential revisited", 2005).

// Coefficient i of the numerator of the Pade approximant of degree 13, relative to the last one.
DEVICE double pade(int i) {
  const double coefficients[14] = {64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
                                   129060195264000.0,   10559470521600.0,    670442572800.0,     33522128640.0,
                                   1323241920.0,        40840800.0,          960960.0,           16380.0,
                                   182.0,               1.0};
  return coefficients[i];
}

// Scratch: 9 n n.
template <int THREADS, class A, class Out> DEVICE void linalg_matrix_exp(int64 n, A element, double *work, Out out) {
  typedef MatrixBlock<THREADS> Block;
  const int64 size = n * n;
  double *a = work, *a2 = a + size, *a4 = a2 + size, *a6 = a4 + size, *even = a6 + size, *odd = even + size;
  double *rest = odd + size, *system = rest + size;
  Block::fill(n, n, a, element);
  // NaN wins.
  double norm = 0;
  for (int64 j = threadIdx.x; j < n; j += THREADS) {
    double sum = 0;
    for (int64 i = 0; i < n; ++i) sum += fabs(a[i * n + j]);
    norm = op_maximum(norm, sum);
  }
  norm = Across<Max<double>, BlockLanes<THREADS> >::reduce(norm);
  if (!isfinite(norm)) {
    Block::each(size, [=](int64 i) { out(i / n, i % n, NAN_D); });
    return;
  }
  // The norm up to which the approximant is exact to float64.
  const double theta = 5.371920351148152;
  const int squarings = norm > theta ? (int)ceil(log2(norm / theta)) : 0;
  Block::each(size, [=](int64 i) { a[i] /= exp2((double)squarings); });
  Block::product(n, a, a, a2);
  Block::product(n, a2, a2, a4);
  Block::product(n, a2, a4, a6);
  // Powers 8 to 12 are a6 times the lower ones. The odd part is a times such a sum too.
  for (int first = 0; first < 2; ++first) {
    double *to = first == 0 ? even : odd;
    Block::each(size, [=](int64 i) { rest[i] = pade(first + 8) * a2[i] + pade(first + 10) * a4[i] + pade(first + 12) * a6[i]; });
    Block::product(n, a6, rest, to);
    Block::each(size, [=](int64 i) {
      double one = i / n == i % n ? pade(first) : 0.0;
      to[i] += one + pade(first + 2) * a2[i] + pade(first + 4) * a4[i] + pade(first + 6) * a6[i];
    });
  }
  Block::product(n, a, odd, rest);
  Block::each(size, [=](int64 i) {
    double *row = system + i / n * 2 * n + i % n;
    row[0] = even[i] - rest[i];
    row[n] = even[i] + rest[i];
  });
  eliminate<THREADS>(n, 2 * n, system);
  substitute<THREADS>(n, 2 * n, system);
  Block::fill(n, n, a, [=](int64 i, int64 j) { return system[i * 2 * n + n + j]; });
  for (int k = 0; k < squarings; ++k) {
    Block::product(n, a, a, a2);
    double *swap = a;
    a = a2;
    a2 = swap;
  }
  Block::store(n, n, a, n, out);
}
