// Products of float32 matrices without tensor cores, exact: each thread multiplies and adds in the order of the depth.

// A tile of M x N a block of WARPS_M x WARPS_N warps. While a stage is multiplied, the STAGES - 1 after it are on their way. Lines are four elements
// longer than what lies at a depth: then eight depths of four rows, which a warp copies at once where rows are not adjacent, are in different banks. A
// lane's rows (and columns) come in fours, 4 lanes' (8 lanes') fours apart. Lanes are numbered so that each reads what the next but one or its
// neighbour does: then a warp's reads of fours take half as long.
template <int M, int N, int WARPS_M, int WARPS_N, int DEPTH, int STAGES, int SLICES, class A, class B, class Out>
DEVICE void fma_product(int64 tile_m, int64 tile_n, int64 begin, int64 end, const A &a, const B &b, Out out) {
  const int THREADS = 32 * WARPS_M * WARPS_N, WARP_M = M / WARPS_M, WARP_N = N / WARPS_N, ROWS = WARP_M / 4, COLUMNS = WARP_N / 8;
  typedef Lines<M, DEPTH, 4, THREADS, A> LinesA;
  typedef Lines<N, DEPTH, 4, THREADS, B> LinesB;
  const int STAGE = LinesA::SIZE + LinesB::SIZE;
  float *memory = reinterpret_cast<float *>(dynamic_shared());
  const int64 m0 = tile_m * M, n0 = tile_n * N;
  const Staged<LinesA, LinesB, DEPTH, STAGES> stages(a, b, m0, n0, begin, end, memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / WARPS_N * WARP_M + (lane % 2 + lane / 16 * 2) * 4, column = warp % WARPS_N * WARP_N + lane / 2 % 8 * 4;
  float sum[ROWS][COLUMNS], x[2][ROWS], y[2][COLUMNS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) sum[i][j] = 0.0f;
  const auto load_line = [&](const float *stage, int k, int to) {
#pragma unroll
    for (int i = 0; i < ROWS; i += 4) {
      Vector<float, 4> four = load_aligned<4>(stage + k * LinesA::LINE + row + i * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) x[to][i + e] = four.element[e];
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4) {
      Vector<float, 4> four = load_aligned<4>(stage + LinesA::SIZE + k * LinesB::LINE + column + j * 8);
#pragma unroll
      for (int e = 0; e < 4; ++e) y[to][j + e] = four.element[e];
    }
  };
  stages.start();
  load_line(memory, 0, 0);
  int now = 0, ahead = STAGES - 1;
  for (int step = 0; step < stages.steps; ++step) {
    const float *stage = memory + now * STAGE;
    now = now + 1 == STAGES ? 0 : now + 1;
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      if (k + 1 < DEPTH) {
        load_line(stage, k + 1, (k + 1) % 2);
      } else {
        // The next stage is there, and this one's lines are in registers.
        await_copies<STAGES - 2>();
        __syncthreads();
        load_line(memory + now * STAGE, 0, 0);
      }
      if (k == 0) {
        stages.fetch(step + STAGES - 1, ahead);
        stages.prepare(step + STAGES);
        ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
      }
      // In this order, fewest operands of an instruction are in one bank of registers.
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
        for (int i = 0; i < ROWS; ++i) sum[i][j] = fmaf(x[k % 2][i], y[k % 2][j], sum[i][j]);
    }
  }
  // Nothing is on its way any more, but others may still read the last stage's.
  await_copies<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4) {
      Vector<float, 4> four = {{sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]}};
      store_aligned(memory + (row + i / 4 * 16 + i % 4) * (N + RESULTS_APART) + column + j * 8, four);
    }
  put_tile<M, N, THREADS, SLICES>(memory, m0, n0, a.rows, b.rows, out);
}
