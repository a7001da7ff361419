// Matrices in float64, row-major in scratch memory, each with a block of THREADS threads: what linear algebra is made of. Every function is
// called by the whole block and ends with its threads together.

template <int THREADS> struct MatrixBlock {
  // body(i) for each i below `count`.
  template <class Body> static DEVICE void each(int64 count, Body body) {
    for (int64 i = threadIdx.x; i < count; i += THREADS) body(i);
    __syncthreads();
  }
  // body(i, warp's lane) for each i below `count`, a warp each.
  template <class Body> static DEVICE void each_warp(int64 count, Body body) {
    for (int64 i = threadIdx.x / 32; i < count; i += THREADS / 32) body(i, (int)(threadIdx.x & 31));
    __syncthreads();
  }
  // The sum of body(i), in one fixed order; every thread gets it.
  template <class Body> static DEVICE double sum(int64 count, Body body) {
    double sum = 0;
    for (int64 i = threadIdx.x; i < count; i += THREADS) sum += body(i);
    return Across<PlainSum<double>, BlockLanes<THREADS> >::reduce(sum);
  }
  static DEVICE double dot(int64 count, const double *x, const double *y) {
    return sum(count, [=](int64 i) { return x[i] * y[i]; });
  }
  // The [m, n] matrix of element(i, j).
  template <class Element> static DEVICE void fill(int64 m, int64 n, double *to, Element element) {
    each(m * n, [=](int64 i) { to[i] = element(i / n, i % n); });
  }
  // out(i, j, element) for a matrix whose rows begin `stride` apart.
  template <class Out> static DEVICE void store(int64 m, int64 n, const double *from, int64 stride, Out out) {
    each(m * n, [=](int64 i) { out(i / n, i % n, from[i / n * stride + i % n]); });
  }
  // The product of two [n, n] matrices.
  static DEVICE void product(int64 n, const double *a, const double *b, double *to) {
    fill(n, n, to, [=](int64 i, int64 j) {
      double sum = 0;
      for (int64 k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      return sum;
    });
  }
  // place[r] = i where value(i) is the r-th in ascending order, NaN last, equals in order of i; and the reverse of it but for equals.
  template <class Value> static DEVICE void order(int64 n, bool descending, int64 *place, Value value) {
    each(n, [=](int64 i) {
      int64 rank = 0;
      for (int64 j = 0; j < n; ++j) {
        double x = descending ? value(i) : value(j), y = descending ? value(j) : value(i);
        bool first = less(x, y), last = less(y, x);
        rank += first || (!last && j < i);
      }
      place[rank] = i;
    });
  }
  static DEVICE bool less(double x, double y) { return y != y ? x == x : x < y; }
};
