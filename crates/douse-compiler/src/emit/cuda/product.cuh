// Products of matrices by tiles: out[m, n] = sum over k of a[m, k] * b[n, k]. Where an operand lies is its loader's business.

// Tiles in groups of eight rows of them: blocks that run together share what they read.
DEVICE void tile_at(uint32 tile, uint32 tiles_m, uint32 tiles_n, int64 &m, int64 &n) {
  uint32 group = tile / (8 * tiles_n), rest = tile % (8 * tiles_n), height = smaller(8u, tiles_m - 8 * group);
  m = 8 * group + rest % height;
  n = rest / height;
}

// ---- Without tensor cores ------------------------------------------------------------------------------------------------

// The sum over k from `begin` to `end`: a tile of TILE x TILE a block of 256 threads. Exact products in the accumulator's type. A thread's rows
// (and columns) come in fours, TILE / 4 threads' fours apart, so that reads of shared memory meet in no bank.
template <int TILE, class A, class B, class Out>
DEVICE void tile_product(int64 tile_m, int64 tile_n, int64 begin, int64 end, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  typedef Register<T> R;
  const int DEPTH = 16, SIDE = TILE / 16, N = sizeof(T) == 8 ? 2 : 4, COUNT = TILE * DEPTH / N / 256;
  // Dynamic, as functions that stand together in a kernel would each have their own otherwise.
  typedef R Stage[DEPTH][TILE + 4];
  DYNAMIC_SHARED(memory);
  Stage *as = reinterpret_cast<Stage *>(memory), *bs = as + 2;
  int64 m0 = tile_m * TILE, n0 = tile_n * TILE;
  int row = threadIdx.x / 16, column = threadIdx.x % 16;
  bool chunks_a = a.template in_chunks<N>(), chunks_b = b.template in_chunks<N>();
  Vector<T, N> next_a[COUNT], next_b[COUNT];
  const auto place = [](bool adjacent, int i, int &r, int &k) {
    int at = threadIdx.x + 256 * i;
    r = adjacent ? at % (TILE / N) * N : at / (DEPTH / N);
    k = adjacent ? at / (TILE / N) : at % (DEPTH / N) * N;
  };
  const auto begin_fetch = [&](int64 k0) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      int r, k;
      place(a.rows_are_adjacent(), i, r, k);
      next_a[i] = fetch<N>(a, m0 + r, k0 + k, chunks_a);
      place(b.rows_are_adjacent(), i, r, k);
      next_b[i] = fetch<N>(b, n0 + r, k0 + k, chunks_b);
    }
  };
  const auto end_fetch = [&](int slot) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
#pragma unroll
      for (int e = 0; e < N; ++e) {
        int r, k;
        place(a.rows_are_adjacent(), i, r, k);
        as[slot][k + (a.rows_are_adjacent() ? 0 : e)][r + (a.rows_are_adjacent() ? e : 0)] = next_a[i][e];
        place(b.rows_are_adjacent(), i, r, k);
        bs[slot][k + (b.rows_are_adjacent() ? 0 : e)][r + (b.rows_are_adjacent() ? e : 0)] = next_b[i][e];
      }
    }
  };
  R sum[SIDE][SIDE];
#pragma unroll
  for (int i = 0; i < SIDE; ++i)
#pragma unroll
    for (int j = 0; j < SIDE; ++j) sum[i][j] = (R)0;
  begin_fetch(begin);
  end_fetch(0);
  __syncthreads();
  int slot = 0;
  for (int64 k0 = begin; k0 < end; k0 += DEPTH) {
    bool more = k0 + DEPTH < end;
    if (more) begin_fetch(k0 + DEPTH);
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      R x[SIDE], y[SIDE];
#pragma unroll
      for (int i = 0; i < SIDE; ++i) {
        x[i] = as[slot][k][i / 4 * 64 + row * 4 + i % 4];
        y[i] = bs[slot][k][i / 4 * 64 + column * 4 + i % 4];
      }
#pragma unroll
      for (int i = 0; i < SIDE; ++i)
#pragma unroll
        for (int j = 0; j < SIDE; ++j) sum[i][j] = multiply_add(x[i], y[j], sum[i][j]);
    }
    slot ^= 1;
    if (more) end_fetch(slot);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < SIDE; ++i)
#pragma unroll
    for (int j = 0; j < SIDE; j += 4) {
      int64 m = m0 + i / 4 * 64 + row * 4 + i % 4, n = n0 + j / 4 * 64 + column * 4;
      Run<R, 4> run = {{sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]}};
      if (m < a.rows && n < b.rows) out(m, n, run, (int)smaller<int64>(4, b.rows - n));
    }
}

// ---- Tensor cores ----------------------------------------------------------------------------------------------------------

// A step of the tensor cores: 16 x 8 += 16 x 16 times 16 x 8.
DEVICE void mma(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2], float16) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  host_mma_f16(c, a, b);
#endif
}
DEVICE void mma(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2], bfloat16) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
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

// Copies the first `bytes` of 16 to shared memory, and zeros for the others, while the thread goes on.
DEVICE void copy_16(void *to, const void *from, int bytes) {
#ifdef __CUDA_ARCH__
  uint32 at = (uint32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(bytes) : "memory");
#else
  for (int i = 0; i < 16; ++i) static_cast<uint8 *>(to)[i] = i < bytes ? static_cast<const uint8 *>(from)[i] : 0;
#endif
}
// Ends a group of the thread's copies.
DEVICE void end_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
// Waits until all but the last PENDING groups of the thread's copies are there.
template <int PENDING> DEVICE void await_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
#endif
}

// A tile of ROWS x DEPTH elements in shared memory, as it lies in memory: lines are rows, or columns where rows are adjacent, in blocks of 64
// elements (128 bytes) of each line. The eight chunks of a line are shuffled by its number, so that the eight lines which a warp reads at once
// are in different banks.
template <int ROWS, int DEPTH, int THREADS, class Loader> struct Tile {
  typedef typename Loader::Type T;
  static const int SIZE = ROWS * DEPTH, COUNT = SIZE / 8 / THREADS;
  Vector<T, 8> held[COUNT];
  // Of an operand that lies along the depth: where the thread's first chunk of the first stage is, and a bit for each of its rows that is there.
  const T *first;
  uint32 there;

  // Before the first of several stages of the same rows.
  DEVICE void aim(const Loader &loader, int64 row0) {
    if constexpr (Loader::STRIDED) {
      int row, k;
      place(loader, 0, row, k);
      first = loader.start + ((row0 + row) * loader.row_stride + k);
      there = 0;
#pragma unroll
      for (int i = 0; i < COUNT; ++i) there |= row0 + row + i * (ROWS / COUNT) < loader.rows ? 1u << i : 0u;
    }
  }
  // As `begin` for a stage of the rows aimed at; what the other side of the tile lacks is zeros.
  DEVICE void begin_aimed(const Loader &loader, int64 row0, int64 k0, T *tile, bool in_chunks) {
    if constexpr (Loader::STRIDED && Loader::CHUNKS != SCATTERED && DEPTH == 64 && ROWS * 8 >= THREADS) {
      if (in_chunks && !loader.rows_are_adjacent()) {
        int row, k;
        place(loader, 0, row, k);
        int left = (int)smaller<int64>(loader.depth - k0 - k, 8), bytes = left < 0 ? 0 : 2 * left;
        const T *from = first + k0;
        T *to = tile + offset(loader, row, k);
        // Rows of a thread are a multiple of 8 apart, so that they are shuffled alike.
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
          copy_16(to + i * (ROWS / COUNT) * DEPTH, from + i * (ROWS / COUNT) * loader.row_stride, there >> i & 1 ? bytes : 0);
        return;
      }
    }
    begin(loader, row0, k0, tile, in_chunks);
  }

  static DEVICE int offset(const Loader &loader, int row, int k) {
    int line = loader.rows_are_adjacent() ? k : row, chunk = (loader.rows_are_adjacent() ? row : k) / 8;
    int lines = loader.rows_are_adjacent() ? DEPTH : ROWS;
    return ((chunk / 8 * lines + line) * 8 + (chunk % 8 ^ (line & 7))) * 8;
  }
  // The chunks of a thread: row and column of the first element.
  static DEVICE void place(const Loader &loader, int i, int &row, int &k) {
    int at = threadIdx.x + THREADS * i;
    row = loader.rows_are_adjacent() ? at % (ROWS / 8) * 8 : at / (DEPTH / 8);
    k = loader.rows_are_adjacent() ? at / (ROWS / 8) : at % (DEPTH / 8) * 8;
  }
  // Begins to fetch. What does not lie in chunks waits in registers until `finish`.
  DEVICE void begin(const Loader &loader, int64 row0, int64 k0, T *tile, bool in_chunks) {
    int row, k;
    if (Loader::CHUNKS == SCATTERED) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        place(loader, i, row, k);
        held[i] = fetch<8>(loader, row0 + row, k0 + k, false);
      }
    } else if (in_chunks) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        int count;
        place(loader, i, row, k);
        const T *from = loader.template chunk<8>(row0 + row, k0 + k, count);
        copy_16(tile + offset(loader, row, k), from, 2 * count);
      }
    } else {
      // Memory that a caller gave, at an odd place.
#pragma unroll 1
      for (int i = 0; i < 8 * COUNT; ++i) {
        place(loader, i / 8, row, k);
        bool by_rows = loader.rows_are_adjacent();
        tile[offset(loader, row, k) + i % 8] = loader.at(row0 + row + (by_rows ? i % 8 : 0), k0 + k + (by_rows ? 0 : i % 8));
      }
    }
  }
  DEVICE void finish(const Loader &loader, T *tile) {
    if (Loader::CHUNKS != SCATTERED) return;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      int row, k;
      place(loader, i, row, k);
      store_vector(tile + offset(loader, row, k), held[i], 8);
    }
  }
  // The 16 x 16 elements from (row, k): matrices in the order rows first (for the left operand), or columns first (for the right one).
  static DEVICE void fragment(const Loader &loader, const T *tile, int row, int k, bool rows_first, uint32 (&r)[4]) {
    int lane = threadIdx.x % 32, line = lane % 8, a = lane / 8 % 2 * 8, b = lane / 16 * 8;
    int dr = rows_first ? a : b, dk = rows_first ? b : a;
    if (loader.rows_are_adjacent()) load_matrices<true>(r, tile + offset(loader, row + dr, k + dk + line));
    else load_matrices<false>(r, tile + offset(loader, row + dr + line, k + dk));
  }
};

// Results pass through shared memory, where a row is so much longer than the tile: then each thread has eight neighbours of a row, and what is
// loaded and stored with them are whole lines.
const int RESULTS_APART = 8;
template <int N> DEVICE void hold_pair(float *tile, int row, int column, float x, float y) {
  Vector<float, 2> pair;
  pair.element[0] = x, pair.element[1] = y;
  store_vector(tile + row * (N + RESULTS_APART) + column, pair, 2);
}
// SLICES: the blocks of a cluster have each summed a slice of the depth. Each takes a share of the tile, and adds the slices in their order.
template <int M, int N, int THREADS, int SLICES, class Out>
DEVICE void put_tile(const float *tile, int64 m0, int64 n0, int64 rows, int64 columns, const Out &out) {
  if (SLICES > 1) sync_cluster();
  else __syncthreads();
  int first = SLICES > 1 ? (int)blockIdx.y * THREADS + (int)threadIdx.x : (int)threadIdx.x;
  const auto put = [&](int i, bool whole) {
    int row = i / (N / 8), column = i % (N / 8) * 8;
    if (!whole && (m0 + row >= rows || n0 + column >= columns)) return;
    const float *from = tile + row * (N + RESULTS_APART) + column;
    Run<float, 8> run;
    if (SLICES > 1) {
#pragma unroll
      for (int s = 0; s < SLICES; ++s) {
        Vector<float, 4> low = load_cluster(from, s), high = load_cluster(from + 4, s);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          run.x[e] = s == 0 ? low.element[e] : run.x[e] + low.element[e];
          run.x[4 + e] = s == 0 ? high.element[e] : run.x[4 + e] + high.element[e];
        }
      }
    } else {
      Vector<float, 8> results = load_aligned<8>(from);
#pragma unroll
      for (int e = 0; e < 8; ++e) run.x[e] = results.element[e];
    }
    out(m0 + row, n0 + column, run, whole ? 8 : (int)smaller<int64>(8, columns - n0 - column));
  };
  // Without conditions, what several runs load is under way together.
  if (m0 + M <= rows && n0 + N <= columns) {
#pragma unroll 4
    for (int i = first; i < M * N / 8; i += THREADS * SLICES) put(i, true);
  } else {
#pragma unroll 1
    for (int i = first; i < M * N / 8; i += THREADS * SLICES) put(i, false);
  }
  // Others may still read this block's.
  if (SLICES > 1) sync_cluster();
}

// Elements of depth of a stage.
const int STAGE_DEPTH = 64;

// The same product on tensor cores: a tile of M x N a block of WARPS_M x WARPS_N warps. While a stage is multiplied, the STAGES - 1 after it are
// on their way.
template <int M, int N, int WARPS_M, int WARPS_N, int STAGES, int SLICES, class A, class B, class Out>
DEVICE void mma_product(int64 tile_m, int64 tile_n, int64 begin, int64 end, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  const int THREADS = 32 * WARPS_M * WARPS_N, WARP_M = M / WARPS_M, WARP_N = N / WARPS_N, ROWS = WARP_M / 16, COLUMNS = WARP_N / 8;
  typedef Tile<M, STAGE_DEPTH, THREADS, A> TileA;
  typedef Tile<N, STAGE_DEPTH, THREADS, B> TileB;
  T *as = reinterpret_cast<T *>(dynamic_shared()), *bs = as + STAGES * TileA::SIZE;
  int64 m0 = tile_m * M, n0 = tile_n * N;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int wm = warp / WARPS_N * WARP_M, wn = warp % WARPS_N * WARP_N, group = lane / 4, quad = lane % 4;
  bool chunks_a = a.template in_chunks<8>(), chunks_b = b.template in_chunks<8>();
  float sum[ROWS][COLUMNS][4];
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
  TileA next_a;
  TileB next_b;
  next_a.aim(a, m0);
  next_b.aim(b, n0);
  int steps = (int)((end - begin + STAGE_DEPTH - 1) / STAGE_DEPTH);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) {
      next_a.begin_aimed(a, m0, begin + s * STAGE_DEPTH, as + s * TileA::SIZE, chunks_a);
      next_b.begin_aimed(b, n0, begin + s * STAGE_DEPTH, bs + s * TileB::SIZE, chunks_b);
      next_a.finish(a, as + s * TileA::SIZE);
      next_b.finish(b, bs + s * TileB::SIZE);
    }
    end_copies();
  }
  int now = 0, ahead = STAGES - 1;
  for (int step = 0; step < steps; ++step) {
    await_copies<STAGES - 2>();
    __syncthreads();
    bool more = step + STAGES - 1 < steps;
    if (more) {
      int64 k0 = begin + (int64)(step + STAGES - 1) * STAGE_DEPTH;
      next_a.begin_aimed(a, m0, k0, as + ahead * TileA::SIZE, chunks_a);
      next_b.begin_aimed(b, n0, k0, bs + ahead * TileB::SIZE, chunks_b);
    }
    end_copies();
    const T *at = as + now * TileA::SIZE, *bt = bs + now * TileB::SIZE;
    uint32 x[2][ROWS][4], y[2][COLUMNS / 2][4];
    const auto load_step = [&](int k, int to) {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) TileA::fragment(a, at, wm + 16 * i, k, true, x[to][i]);
#pragma unroll
      for (int j = 0; j < COLUMNS / 2; ++j) TileB::fragment(b, bt, wn + 16 * j, k, false, y[to][j]);
    };
    load_step(0, 0);
#pragma unroll
    for (int k = 0; k < STAGE_DEPTH / 16; ++k) {
      if (k + 1 < STAGE_DEPTH / 16) load_step(16 * (k + 1), (k + 1) % 2);
#pragma unroll
      for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
          const uint32 pair[2] = {y[k % 2][j / 2][j % 2 * 2], y[k % 2][j / 2][j % 2 * 2 + 1]};
          mma(sum[i][j], x[k % 2][i], pair, T{});
        }
    }
    if (more) {
      next_a.finish(a, as + ahead * TileA::SIZE);
      next_b.finish(b, bs + ahead * TileB::SIZE);
    }
    now = now + 1 == STAGES ? 0 : now + 1;
    ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
  }
  // The last stage may still be read.
  __syncthreads();
  float *tile = reinterpret_cast<float *>(dynamic_shared());
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        hold_pair<N>(tile, wm + 16 * i + group + 8 * half, wn + 8 * j + 2 * quad, sum[i][j][2 * half], sum[i][j][2 * half + 1]);
  put_tile<M, N, THREADS, SLICES>(tile, m0, n0, a.rows, b.rows, out);
}

// ---- Shared depth ------------------------------------------------------------------------------------------------------------

// Where a product's blocks each sum a slice of the depth: the slices' sums [slices, rows, columns], in their order, give the results. A thread
// takes four columns.
template <class R, class Out> DEVICE void sum_slices(int64 at, int64 slices, int64 rows, int64 columns, const R *parts, Out out) {
  int64 fours = (columns + 3) / 4, row = at / fours, column = at % fours * 4;
  if (row >= rows) return;
  int count = (int)smaller<int64>(4, columns - column);
  Run<R, 4> run = {{(R)0, (R)0, (R)0, (R)0}};
  for (int64 s = 0; s < slices; ++s) {
    Vector<R, 4> part = load_vector<4>(parts + (s * rows + row) * columns + column, count);
#pragma unroll
    for (int i = 0; i < 4; ++i) run.x[i] += part[i];
  }
  out(row, column, run, count);
}
