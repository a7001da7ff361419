// Products of float32 matrices on tensor cores, where their operands may be rounded to TF32.

// To nearest, halves away from zero: what is left has 10 bits of mantissa.
DEVICE uint32 round_to_tf32(float x) {
#ifdef __CUDA_ARCH__
  uint32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
#else
  return host_round_to_tf32(x);
#endif
}
// A step of the tensor cores: 16 x 8 += 16 x 8 times 8 x 8.
DEVICE void mma_tf32(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  host_mma_tf32(c, a, b);
#endif
}

// A tile of M x N a block of WARPS_M x WARPS_N warps. While a stage is multiplied, the STAGES - 1 after it are on their way. Lines in shared memory are
// eight elements longer than what lies at a depth, so that what a warp reads at once is in different banks. Where the instruction has rows `group` and
// `group + 8`, a lane takes two neighbours: which rows are multiplied together does not change. (Rounding each stage where it lies, once for all warps,
// took a quarter longer than each warp's rounding what it reads.)
template <int M, int N, int WARPS_M, int WARPS_N, int DEPTH, int STAGES, int SLICES, class A, class B, class Out>
DEVICE void tf32_product(int64 tile_m, int64 tile_n, int64 begin, int64 end, const A &a, const B &b, Out out) {
  const int THREADS = 32 * WARPS_M * WARPS_N, WARP_M = M / WARPS_M, WARP_N = N / WARPS_N, ROWS = WARP_M / 16, COLUMNS = WARP_N / 8;
  typedef Lines<M, DEPTH, 8, THREADS, A> LinesA;
  typedef Lines<N, DEPTH, 8, THREADS, B> LinesB;
  const int STAGE = LinesA::SIZE + LinesB::SIZE;
  float *memory = reinterpret_cast<float *>(dynamic_shared());
  const int64 m0 = tile_m * M, n0 = tile_n * N;
  const Staged<LinesA, LinesB, DEPTH, STAGES> stages(a, b, m0, n0, begin, end, memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const int row = warp / WARPS_N * WARP_M, column = warp % WARPS_N * WARP_N;
  float sum[ROWS][COLUMNS][4];
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
  stages.start();
  int now = 0, ahead = STAGES - 1;
  for (int step = 0; step < stages.steps; ++step) {
    await_copies<STAGES - 2>();
    __syncthreads();
    stages.fetch(step + STAGES - 1, ahead);
    stages.prepare(step + STAGES);
    ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
    const float *as = memory + now * STAGE + quad * LinesA::LINE + row + 2 * group;
    const float *bs = memory + now * STAGE + LinesA::SIZE + quad * LinesB::LINE + column + group;
    now = now + 1 == STAGES ? 0 : now + 1;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 8) {
      // Of eight elements of depth, those at `quad` and four later.
      uint32 x[ROWS][4], y[COLUMNS][2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          const Vector<float, 2> two = load_aligned<2>(as + (k + 4 * h) * LinesA::LINE + 16 * i);
          x[i][2 * h] = round_to_tf32(two.element[0]), x[i][2 * h + 1] = round_to_tf32(two.element[1]);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) y[j][h] = round_to_tf32(bs[(k + 4 * h) * LinesB::LINE + 8 * j]);
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) mma_tf32(sum[i][j], x[i], y[j]);
    }
  }
  // Nothing is on its way any more, but others may still read the last stage's.
  await_copies<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        hold_pair<N>(memory, row + 16 * i + 2 * group + half, column + 8 * j + 2 * quad, sum[i][j][2 * half], sum[i][j][2 * half + 1]);
  put_tile<M, N, THREADS, SLICES>(memory, m0, n0, a.rows, b.rows, out);
}
