// Products of matrices by tiles. Where operands lie is a loader's business: strided memory, or an image's windows.

// What products accumulate in: float16 and bfloat16 in float, rounded once; integers wrap.
DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }
template <class T> DEVICE T multiply_add(T a, T b, T c) { return op_add(op_mul(a, b), c); }

// Elements of a matrix in strided memory, `rows` x `depth`; outside of it, zero.
template <class T> struct Strided {
  typedef T Type;
  static const bool IN_MEMORY = true;
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
  // Where eight elements along the adjacent direction lie, if they lie side by side and aligned; else null.
  DEVICE const T *eight(int64 row, int64 k) const {
    const T *p = start + row * row_stride + k * depth_stride;
    bool whole = rows_are_adjacent() ? row + 8 <= rows && k < depth : depth_stride == 1 && row < rows && k + 8 <= depth;
    return whole && ((uint64)p & 15) == 0 ? p : nullptr;
  }
};

// Elements that a function gives; outside, zero.
template <class T, class F> struct Computed {
  typedef T Type;
  static const bool IN_MEMORY = false;
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

// Four 8 x 8 matrices of 16-bit elements from shared memory, in the layout `mma` takes; each lane gives the address of one row. TRANSPOSED:
// of one column.
template <bool TRANSPOSED> DEVICE void load_matrices(uint32 (&r)[4], const void *row) {
#ifdef __CUDA_ARCH__
  uint32 at = (uint32)__cvta_generic_to_shared(row);
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
#else
  host_load_matrices(r, row, TRANSPOSED);
#endif
}
// Copies 16 bytes to shared memory while the thread goes on; `copies_arrived` waits for all of the thread's.
DEVICE void copy_16(void *to, const void *from) {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"((uint32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
  *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
#endif
}
DEVICE void copies_arrived() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

// A tile of ROWS x 32 elements in shared memory, as it lies in memory: by rows, or by columns where rows are adjacent. Each line is a little
// longer, so that the eight lines a warp reads at once are in different banks.
const int MMA_DEPTH = 32;
template <int ROWS, int THREADS, class Loader> struct Tile {
  typedef typename Loader::Type T;
  static const int BY_ROW = MMA_DEPTH + 8, BY_COLUMN = ROWS + 8;
  static const int SIZE = ROWS * BY_ROW > MMA_DEPTH * BY_COLUMN ? ROWS * BY_ROW : MMA_DEPTH * BY_COLUMN;
  static const int COUNT = ROWS * MMA_DEPTH / 8 / THREADS;
  Vector<T, 8> held[COUNT];

  // The place of eight elements: row and column of the first.
  static DEVICE void place(const Loader &loader, int i, int &row, int &k) {
    int at = threadIdx.x + THREADS * i;
    row = loader.rows_are_adjacent() ? at % (ROWS / 8) * 8 : at / (MMA_DEPTH / 8);
    k = loader.rows_are_adjacent() ? at / (ROWS / 8) : at % (MMA_DEPTH / 8) * 8;
  }
  static DEVICE int offset(const Loader &loader, int row, int k) {
    return loader.rows_are_adjacent() ? k * BY_COLUMN + row : row * BY_ROW + k;
  }
  DEVICE Vector<T, 8> fetch(const Loader &loader, int64 row, int64 k) const {
    return loader.rows_are_adjacent() ? loader.along_rows(row, k) : loader.along_depth(row, k);
  }
  // Begins to fetch; what is computed waits in registers until `finish`.
  template <class L> DEVICE void begin_memory(const L &loader, int64 row0, int64 k0, T *tile) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      int row, k;
      place(loader, i, row, k);
      const T *from = loader.eight(row0 + row, k0 + k);
      T *to = tile + offset(loader, row, k);
      if (from) copy_16(to, from);
      else store_vector(to, fetch(loader, row0 + row, k0 + k), 8);
    }
  }
  DEVICE void begin(const Loader &loader, int64 row0, int64 k0, T *tile) {
    if constexpr (Loader::IN_MEMORY) {
      begin_memory(loader, row0, k0, tile);
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        int row, k;
        place(loader, i, row, k);
        held[i] = fetch(loader, row0 + row, k0 + k);
      }
    }
  }
  DEVICE void finish(const Loader &loader, T *tile) {
    if constexpr (!Loader::IN_MEMORY) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        int row, k;
        place(loader, i, row, k);
        store_vector(tile + offset(loader, row, k), held[i], 8);
      }
    }
  }
  // The 16 x 16 elements from (row, k): matrices in the order rows first (for the left operand), or columns first (for the right one).
  static DEVICE void fragment(const Loader &loader, const T *tile, int row, int k, bool rows_first, uint32 (&r)[4]) {
    int lane = threadIdx.x % 32, line = lane % 8, a = lane / 8 % 2 * 8, b = lane / 16 * 8;
    int dr = rows_first ? a : b, dk = rows_first ? b : a;
    if (loader.rows_are_adjacent()) load_matrices<true>(r, tile + (k + dk + line) * BY_COLUMN + row + dr);
    else load_matrices<false>(r, tile + (row + dr + line) * BY_ROW + k + dk);
  }
};

// The same product on tensor cores, a tile of M x N a block of 256 threads: eight warps in two rows of four. The next tiles are fetched
// while the present ones are multiplied.
template <int M, int N, class A, class B, class Out>
DEVICE void mma_product(int64 tile_m, int64 tile_n, int64 depth, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  typedef Tile<M, 256, A> TileA;
  typedef Tile<N, 256, B> TileB;
  const int WARP_M = M / 2, WARP_N = N / 4;
  __shared__ __align__(16) T as[2][TileA::SIZE], bs[2][TileB::SIZE];
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
  TileA next_a;
  TileB next_b;
  next_a.begin(a, m0, 0, as[0]);
  next_b.begin(b, n0, 0, bs[0]);
  next_a.finish(a, as[0]);
  next_b.finish(b, bs[0]);
  copies_arrived();
  __syncthreads();
  int now = 0;
  for (int64 k0 = 0; k0 < depth; k0 += MMA_DEPTH) {
    bool more = k0 + MMA_DEPTH < depth;
    if (more) {
      next_a.begin(a, m0, k0 + MMA_DEPTH, as[now ^ 1]);
      next_b.begin(b, n0, k0 + MMA_DEPTH, bs[now ^ 1]);
    }
#pragma unroll
    for (int k = 0; k < MMA_DEPTH; k += 16) {
      uint32 x[WARP_M / 16][4], y[WARP_N / 16][4];
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i) TileA::fragment(a, as[now], wm + 16 * i, k, true, x[i]);
#pragma unroll
      for (int j = 0; j < WARP_N / 16; ++j) TileB::fragment(b, bs[now], wn + 16 * j, k, false, y[j]);
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; ++j) {
          const uint32 pair[2] = {y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]};
          mma(sum[i][j], x[i], pair, T{});
        }
    }
    if (more) {
      next_a.finish(a, as[now ^ 1]);
      next_b.finish(b, bs[now ^ 1]);
      copies_arrived();
    }
    now ^= 1;
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
