// Products with few rows.

// M rows (few) times a matrix whose columns lie along the depth: bound by reading the matrix. A block takes COLUMNS columns, its warps share
// the depth. EARLY: the matrix is a constant, so that its first elements are on their way before the work before this is done.
template <int M, int COLUMNS, int WARPS, bool EARLY, class A, class B, class Out>
DEVICE void thin_product(int64 column0, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  typedef Register<T> R;
  const int N = 16 / (int)sizeof(T) > 8 ? 8 : 16 / (int)sizeof(T), AHEAD = M * COLUMNS <= 8 ? 4 : M * COLUMNS <= 32 ? 2 : 1, STEP = 32 * N;
  __shared__ R parts[WARPS][COLUMNS][M];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool chunks_a = a.template in_chunks<N>(), chunks_b = b.template in_chunks<N>();
  R sum[COLUMNS][M];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
    for (int m = 0; m < M; ++m) sum[c][m] = (R)0;
  Vector<T, N> y[AHEAD][COLUMNS];
  const auto ask = [&](int64 k0) {
#pragma unroll
    for (int s = 0; s < AHEAD; ++s)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) y[s][c] = fetch_depth<N>(b, column0 + c, k0 + s * STEP + lane * N, chunks_b);
  };
  int64 k0 = (int64)warp * STEP * AHEAD;
  ask(k0);
  if (EARLY) BEGIN_KERNEL;
  for (bool first = true; k0 < b.depth; k0 += (int64)WARPS * STEP * AHEAD, first = false) {
    if (!first) ask(k0);
#pragma unroll
    for (int s = 0; s < AHEAD; ++s)
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Vector<T, N> x = fetch_depth<N>(a, m, k0 + s * STEP + lane * N, chunks_a);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
          for (int i = 0; i < N; ++i) sum[c][m] = multiply_add(x[i], y[s][c][i], sum[c][m]);
      }
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
    for (int m = 0; m < M; ++m) {
      R all = Across<PlainSum<R>, WarpLanes>::reduce(sum[c][m]);
      if (lane == 0) parts[warp][c][m] = all;
    }
  __syncthreads();
  for (int i = threadIdx.x; i < COLUMNS * M; i += 32 * WARPS) {
    int c = i % COLUMNS, m = i / COLUMNS;
    R total = parts[0][c][m];
    for (int w = 1; w < WARPS; ++w) total = op_add(total, parts[w][c][m]);
    Run<R, 1> run = {{total}};
    if (column0 + c < b.rows) out(m, column0 + c, run, 1);
  }
}

// The same for up to 16 rows on tensor cores. Nothing passes through shared memory: a lane reads eight elements of one column side by side and
// gives them to two steps as their depths 2q, 2q + 1, 2q + 8, 2q + 9; the rows' elements are dealt alike, so that the sum is the same.
// SETS: of eight columns a block; ROWS: of eight rows.
template <int ROWS, int SETS, int WARPS, bool EARLY, class A, class B, class Out>
DEVICE void thin_mma_product(int64 column0, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  const int AHEAD = 4, STEP = 32;
  __shared__ float parts[WARPS][8 * ROWS][8 * SETS];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  bool chunks_a = a.template in_chunks<8>(), chunks_b = b.template in_chunks<8>();
  union Eight { Vector<T, 8> v; uint32 word[4]; };
  float sum[SETS][4];
#pragma unroll
  for (int s = 0; s < SETS; ++s)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[s][e] = 0.0f;
  Eight y[AHEAD][SETS];
  const auto ask = [&](int64 k0) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
#pragma unroll
      for (int s = 0; s < SETS; ++s) y[i][s].v = fetch_depth<8>(b, column0 + 8 * s + group, k0 + i * STEP + 8 * quad, chunks_b);
  };
  int64 k0 = (int64)warp * STEP * AHEAD;
  ask(k0);
  if (EARLY) BEGIN_KERNEL;
  for (bool first = true; k0 < b.depth; k0 += (int64)WARPS * STEP * AHEAD, first = false) {
    if (!first) ask(k0);
    Eight x[AHEAD][2];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      int64 k = k0 + i * STEP + 8 * quad;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) x[i][r].v = fetch_depth<8>(a, 8 * r + group, k, chunks_a);
    }
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32 left[4] = {x[i][0].word[2 * half], 0, x[i][0].word[2 * half + 1], 0};
        if (ROWS == 2) { left[1] = x[i][1].word[2 * half]; left[3] = x[i][1].word[2 * half + 1]; }
#pragma unroll
        for (int s = 0; s < SETS; ++s) {
          const uint32 right[2] = {y[i][s].word[2 * half], y[i][s].word[2 * half + 1]};
          mma(sum[s], left, right, T{});
        }
      }
  }
#pragma unroll
  for (int s = 0; s < SETS; ++s)
#pragma unroll
    for (int e = 0; e < 2 * ROWS; ++e) parts[warp][group + 8 * (e / 2)][8 * s + 2 * quad + e % 2] = sum[s][e];
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * ROWS * SETS; i += 32 * WARPS) {
    int c = i % (8 * SETS), m = i / (8 * SETS);
    if (m >= a.rows || column0 + c >= b.rows) continue;
    float total = parts[0][m][c];
    for (int w = 1; w < WARPS; ++w) total += parts[w][m][c];
    Run<float, 1> run = {{total}};
    out(m, column0 + c, run, 1);
  }
}
