// Products of matrices by tiles. Where operands lie is a loader's business: strided memory, or an image's windows.

// What products accumulate in: float16 and bfloat16 in float, rounded once; integers wrap.
DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }
template <class T> DEVICE T multiply_add(T a, T b, T c) { return op_add(op_mul(a, b), c); }

// Elements of a matrix in strided memory, `rows` x `depth`; outside of it, zero.
template <class T> struct Strided {
  typedef T Type;
  const T *start;
  int64 rows, depth, row_stride, depth_stride;
  DEVICE T at(int64 row, int64 k) const {
    return row < rows && k < depth ? start[row * row_stride + k * depth_stride] : T{};
  }
  // Eight elements along the depth.
  DEVICE Vector<T, 8> along_depth(int64 row, int64 k) const {
    if (depth_stride == 1 && row < rows && k + 8 <= depth) return load_vector<8>(start + row * row_stride + k, 8);
    Vector<T, 8> v;
#pragma unroll
    for (int i = 0; i < 8; ++i) v.element[i] = at(row, k + i);
    return v;
  }
  // Eight elements along the rows.
  DEVICE Vector<T, 8> along_rows(int64 row, int64 k) const {
    if (row + 8 <= rows && k < depth) return load_vector<8>(start + row + k * depth_stride, 8);
    Vector<T, 8> v;
#pragma unroll
    for (int i = 0; i < 8; ++i) v.element[i] = at(row + i, k);
    return v;
  }
  DEVICE bool rows_are_adjacent() const { return row_stride == 1 && depth_stride != 1; }
};

// Elements that a function gives; outside, zero.
template <class T, class F> struct Computed {
  typedef T Type;
  F f;
  int64 rows, depth;
  DEVICE T at(int64 row, int64 k) const { return row < rows && k < depth ? f(row, k) : T{}; }
  DEVICE Vector<T, 8> along_depth(int64 row, int64 k) const {
    Vector<T, 8> v;
#pragma unroll
    for (int i = 0; i < 8; ++i) v.element[i] = at(row, k + i);
    return v;
  }
  DEVICE Vector<T, 8> along_rows(int64 row, int64 k) const {
    Vector<T, 8> v;
#pragma unroll
    for (int i = 0; i < 8; ++i) v.element[i] = at(row + i, k);
    return v;
  }
  DEVICE bool rows_are_adjacent() const { return true; }
};
template <class T, class F> DEVICE Computed<T, F> computed(F f, int64 rows, int64 depth) { return Computed<T, F>{f, rows, depth}; }

// out[m, n] = sum over k of a[m, k] * b[n, k], a tile of 64 x 64 a block of 256 threads, 4 x 4 a thread. Exact products in the accumulator's type.
template <class A, class B, class Out> DEVICE void tile_product(int64 tile_m, int64 tile_n, int64 depth, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  typedef Register<T> R;
  const int TILE = 64, DEPTH = 16;
  __shared__ R as[DEPTH][TILE + 4], bs[DEPTH][TILE + 4];
  int64 m0 = tile_m * TILE, n0 = tile_n * TILE;
  int row = threadIdx.x / 16, column = threadIdx.x % 16;
  R sum[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i][j] = (R)0;
  for (int64 k0 = 0; k0 < depth; k0 += DEPTH) {
#pragma unroll
    for (int i = 0; i < TILE * DEPTH / 256; ++i) {
      int at = threadIdx.x + 256 * i;
      int ar = a.rows_are_adjacent() ? at % TILE : at / DEPTH, ak = a.rows_are_adjacent() ? at / TILE : at % DEPTH;
      as[ak][ar] = Element<T>::load(a.at(m0 + ar, k0 + ak));
      int br = b.rows_are_adjacent() ? at % TILE : at / DEPTH, bk = b.rows_are_adjacent() ? at / TILE : at % DEPTH;
      bs[bk][br] = Element<T>::load(b.at(n0 + br, k0 + bk));
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      R x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) { x[i] = as[k][row * 4 + i]; y[i] = bs[k][column * 4 + i]; }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = multiply_add(x[i], y[j], sum[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int64 m = m0 + row * 4 + i, n = n0 + column * 4 + j;
      if (m < a.rows && n < b.rows) out(m, n, sum[i][j]);
    }
}

// A step of the tensor cores: 16 x 8 += 16 x 16 times 16 x 8.
DEVICE void mma(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2], float16) {
#ifdef __CUDA_ARCH__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  host_mma_f16(c, a, b);
#endif
}
DEVICE void mma(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2], bfloat16) {
#ifdef __CUDA_ARCH__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  host_mma_bf16(c, a, b);
#endif
}

// 32 columns of a tile's rows, in shared memory. Rows of 40 elements put the eight rows that a warp reads at once in different banks.
const int MMA_DEPTH = 32, MMA_ROW = 40;

template <int ROWS, int THREADS, class Loader> struct TileLoad {
  typedef typename Loader::Type T;
  static const int COUNT = ROWS * MMA_DEPTH / 8 / THREADS;
  Vector<T, 8> held[COUNT];
  DEVICE void from(const Loader &loader, int64 row0, int64 k0) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      int at = threadIdx.x + THREADS * i;
      held[i] = loader.rows_are_adjacent() ? loader.along_rows(row0 + at % (ROWS / 8) * 8, k0 + at / (ROWS / 8))
                                           : loader.along_depth(row0 + at / (MMA_DEPTH / 8), k0 + at % (MMA_DEPTH / 8) * 8);
    }
  }
  DEVICE void to(const Loader &loader, T *tile) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      int at = threadIdx.x + THREADS * i;
      if (loader.rows_are_adjacent()) {
        int row = at % (ROWS / 8) * 8, k = at / (ROWS / 8);
#pragma unroll
        for (int j = 0; j < 8; ++j) tile[(row + j) * MMA_ROW + k] = held[i].element[j];
      } else {
        store_vector(tile + at / (MMA_DEPTH / 8) * MMA_ROW + at % (MMA_DEPTH / 8) * 8, held[i], 8);
      }
    }
  }
};

// The same product on tensor cores, a tile of M x N a block of 256 threads: eight warps in two rows of four. The next tiles are fetched
// while the present ones are multiplied.
template <int M, int N, class A, class B, class Out>
DEVICE void mma_product(int64 tile_m, int64 tile_n, int64 depth, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  const int WARP_M = M / 2, WARP_N = N / 4;
  __shared__ __align__(16) T as[2][M * MMA_ROW], bs[2][N * MMA_ROW];
  int64 m0 = tile_m * M, n0 = tile_n * N;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int wm = warp / 4 * WARP_M, wn = warp % 4 * WARP_N, group = lane / 4, quad = lane % 4;
  float sum[WARP_M / 16][WARP_N / 8][4];
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WARP_N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
  TileLoad<M, 256, A> next_a;
  TileLoad<N, 256, B> next_b;
  next_a.from(a, m0, 0);
  next_b.from(b, n0, 0);
  next_a.to(a, as[0]);
  next_b.to(b, bs[0]);
  __syncthreads();
  int now = 0;
  for (int64 k0 = 0; k0 < depth; k0 += MMA_DEPTH) {
    bool more = k0 + MMA_DEPTH < depth;
    if (more) {
      next_a.from(a, m0, k0 + MMA_DEPTH);
      next_b.from(b, n0, k0 + MMA_DEPTH);
    }
#pragma unroll
    for (int k = 0; k < MMA_DEPTH; k += 16) {
      uint32 x[WARP_M / 16][4], y[WARP_N / 8][2];
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i) {
        const T *p = as[now] + (wm + 16 * i + group) * MMA_ROW + k + 2 * quad;
        x[i][0] = *reinterpret_cast<const uint32 *>(p);
        x[i][1] = *reinterpret_cast<const uint32 *>(p + 8 * MMA_ROW);
        x[i][2] = *reinterpret_cast<const uint32 *>(p + 8);
        x[i][3] = *reinterpret_cast<const uint32 *>(p + 8 * MMA_ROW + 8);
      }
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j) {
        const T *p = bs[now] + (wn + 8 * j + group) * MMA_ROW + k + 2 * quad;
        y[j][0] = *reinterpret_cast<const uint32 *>(p);
        y[j][1] = *reinterpret_cast<const uint32 *>(p + 8);
      }
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; ++j) mma(sum[i][j], x[i], y[j], T{});
    }
    if (more) {
      now ^= 1;
      next_a.to(a, as[now]);
      next_b.to(b, bs[now]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WARP_N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int64 m = m0 + wm + 16 * i + group + 8 * (e / 2), n = n0 + wn + 8 * j + 2 * quad + e % 2;
        if (m < a.rows && n < b.rows) out(m, n, sum[i][j][e]);
      }
}

// M rows (few) times a matrix whose columns lie along the depth: bound by reading the matrix. SPLIT warps share a column's depth.
template <int M, int SPLIT, class T, class Out>
DEVICE void thin_product(int64 column, const Strided<T> &a, const Strided<T> &b, Out out) {
  typedef Register<T> R;
  __shared__ R parts[SPLIT][M];
  const int WIDTH = sizeof(T) <= 2 ? 8 : 16 / (int)sizeof(T);
  int lane = threadIdx.x % 32, part = threadIdx.x / 32 % SPLIT;
  R sum[M];
#pragma unroll
  for (int m = 0; m < M; ++m) sum[m] = (R)0;
  for (int64 k = (part * 32 + lane) * WIDTH; k < b.depth; k += 32 * SPLIT * WIDTH) {
    int count = (int)smaller<int64>(WIDTH, b.depth - k);
    auto y = load_vector<WIDTH>(b.start + column * b.row_stride + k, count);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      if (a.depth_stride == 1) {
        auto x = load_vector<WIDTH>(a.start + m * a.row_stride + k, count);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum[m] = multiply_add(x[i], y[i], sum[m]);
      } else {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum[m] = multiply_add(Element<T>::load(a.at(m, k + i)), y[i], sum[m]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < M; ++m) {
    sum[m] = Across<PlainSum<R>, WarpLanes>::reduce(sum[m]);
    if (lane == 0) parts[part][m] = sum[m];
  }
  __syncthreads();
  if ((int)threadIdx.x < M) {
    R total = parts[0][threadIdx.x];
    for (int p = 1; p < SPLIT; ++p) total = op_add(total, parts[p][threadIdx.x]);
    out(threadIdx.x, column, total);
  }
}
