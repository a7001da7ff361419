// Products by warpgroups (sm_90a): four warps together multiply operands in shared memory, and go on meanwhile. Tiles lie as `Tile` lays them out,
// which is the 128-byte swizzle of the PTX manual's "Asynchronous Warpgroup Level Matrix Shared Memory Layout" where they begin at multiples of 1024.

// What says where an operand begins in shared memory; `apart` is the distance of blocks of 64 columns, in bytes, where rows are adjacent.
DEVICE uint64 operand_at(const void *tile, int apart) {
#ifdef __CUDA_ARCH__
  uint64 at = (uint64)__cvta_generic_to_shared(tile);
#else
  uint64 at = host_shared_place(tile);
#endif
  return (at & 0x3ffff) >> 4 | (uint64)(apart >> 4) << 16 | (uint64)(1024 >> 4) << 32 | (uint64)1 << 62;
}
#ifdef __CUDA_ARCH__
// Makes what the thread wrote to shared memory visible to the tensor cores.
DEVICE void show_shared() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
DEVICE void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
DEVICE void end_multiply() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
// Waits until all but the last PENDING groups of products are there.
template <int PENDING> DEVICE void await_multiply() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(PENDING) : "memory"); }
// Keeps uses of results behind the wait for them.
template <int N> DEVICE void hold_results(float (&c)[N][4]) {
#pragma unroll
  for (int j = 0; j < N; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[j][e]) : : "memory");
}
#else
DEVICE void show_shared() {}
DEVICE void begin_multiply() {}
DEVICE void end_multiply() {}
// There, a warp's lanes go on together.
template <int PENDING> DEVICE void await_multiply() { __syncwarp(); }
template <int N> DEVICE void hold_results(float (&)[N][4]) {}
#endif

#define RESULTS_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define RESULTS_48 RESULTS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define RESULTS_64 RESULTS_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HELD_32(c) "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), \
  "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]), \
  "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
  "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), \
  "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), \
  "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
  "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), \
  "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
#define HELD_48(c) HELD_32(c), "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]), "+f"(c[8][3]), \
  "+f"(c[9][0]), "+f"(c[9][1]), "+f"(c[9][2]), "+f"(c[9][3]), \
  "+f"(c[10][0]), "+f"(c[10][1]), "+f"(c[10][2]), "+f"(c[10][3]), \
  "+f"(c[11][0]), "+f"(c[11][1]), "+f"(c[11][2]), "+f"(c[11][3])
#define HELD_64(c) HELD_48(c), "+f"(c[12][0]), "+f"(c[12][1]), "+f"(c[12][2]), "+f"(c[12][3]), \
  "+f"(c[13][0]), "+f"(c[13][1]), "+f"(c[13][2]), "+f"(c[13][3]), \
  "+f"(c[14][0]), "+f"(c[14][1]), "+f"(c[14][2]), "+f"(c[14][3]), \
  "+f"(c[15][0]), "+f"(c[15][1]), "+f"(c[15][2]), "+f"(c[15][3])

// c += (or, without `add`, =) the product of 64 x 16 and 16 x 128 (or 96, or 64). A's rows lie along the depth, and B's, or, `multiply_turned`, B's columns
// are adjacent. A warp has 16 rows, as `mma` deals them.
#ifdef __CUDA_ARCH__
#define MULTIPLY_SHARED(FUNCTION, TURNED, T, NAME, N, COUNT, A, B, ADD)                                                \
  DEVICE void FUNCTION(float (&c)[COUNT / 4][4], uint64 a, uint64 b, bool add, T) {                                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32." #NAME "." #NAME " {" RESULTS_##COUNT \
                 "}, " A ", " B ", p, 1, 1, 0, " #TURNED ";\n}"                                                        \
                 : HELD_##COUNT(c) : "l"(a), "l"(b), "r"((int)add));                                                   \
  }
// c += the product of 64 x 16 in registers and 16 x 128 (or 64) whose columns are adjacent.
#define MULTIPLY_HELD(T, NAME, N, COUNT, A0, A1, A2, A3, B)                                                            \
  DEVICE void multiply(float (&c)[COUNT / 4][4], const uint32 (&a)[4], uint64 b, T) {                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N "k16.f32." #NAME "." #NAME " {" RESULTS_##COUNT                 \
                 "}, {" A0 "," A1 "," A2 "," A3 "}, " B ", 1, 1, 1, 1;"                                                \
                 : HELD_##COUNT(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                              \
  }
#else
#define MULTIPLY_SHARED(FUNCTION, TURNED, T, NAME, N, COUNT, A, B, ADD)                                                \
  DEVICE void FUNCTION(float (&c)[COUNT / 4][4], uint64 a, uint64 b, bool add, T) { host_multiply_##NAME(c, a, b, add, TURNED); }
#define MULTIPLY_HELD(T, NAME, N, COUNT, A0, A1, A2, A3, B)                                                            \
  DEVICE void multiply(float (&c)[COUNT / 4][4], const uint32 (&a)[4], uint64 b, T) { host_multiply_held_##NAME(c, a, b); }
#endif
#define MULTIPLY(T, NAME)                                                                                              \
  MULTIPLY_SHARED(multiply, 0, T, NAME, "128", 64, "%64", "%65", "%66")                                                \
  MULTIPLY_SHARED(multiply, 0, T, NAME, "96", 48, "%48", "%49", "%50")                                                 \
  MULTIPLY_SHARED(multiply, 0, T, NAME, "64", 32, "%32", "%33", "%34")                                                 \
  MULTIPLY_SHARED(multiply_turned, 1, T, NAME, "128", 64, "%64", "%65", "%66")                                         \
  MULTIPLY_SHARED(multiply_turned, 1, T, NAME, "64", 32, "%32", "%33", "%34")                                          \
  MULTIPLY_HELD(T, NAME, "128", 64, "%64", "%65", "%66", "%67", "%68")                                                 \
  MULTIPLY_HELD(T, NAME, "64", 32, "%32", "%33", "%34", "%35", "%36")
MULTIPLY(float16, f16)
MULTIPLY(bfloat16, bf16)

// Columns that one instruction multiplies: those of a turned operand lie in blocks of 64.
template <int COLUMNS, bool TURNED> struct PartOf {
  static const int VALUE = COLUMNS % 128 == 0 ? 128 : COLUMNS % 96 == 0 && !TURNED ? 96 : 64;
};

// Sums of 64 rows of a tile, which a warpgroup has: by parts of the columns.
template <int PARTS, int N> DEVICE void clear_sums(float (&sum)[PARTS][N][4]) {
#pragma unroll
  for (int h = 0; h < PARTS; ++h)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[h][j][e] = 0.0f;
}
// Puts them where the tile's results pass through shared memory.
template <int COLUMNS, int PARTS, int N> DEVICE void hold_sums(float *tile, float (&sum)[PARTS][N][4]) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int h = 0; h < PARTS; ++h) {
    hold_results(sum[h]);
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        hold_pair<COLUMNS>(tile, 16 * warp + group + 8 * half, 8 * (N * h + j) + 2 * quad, sum[h][j][2 * half], sum[h][j][2 * half + 1]);
  }
}

// The product of `mma_product` by warpgroups, each with 64 rows of a tile of 64 GROUPS x COLUMNS. Both operands' rows lie along the depth. The next
// STAGES - 2 stages are on their way while one is multiplied and the one before may still be.
template <int GROUPS, int COLUMNS, int STAGES, int SLICES, class A, class B, class Out>
DEVICE void warpgroup_product(int64 tile_m, int64 tile_n, int64 begin, int64 end, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  const int M = 64 * GROUPS, THREADS = 128 * GROUPS, PART = PartOf<COLUMNS, false>::VALUE, PARTS = COLUMNS / PART;
  typedef Tile<M, STAGE_DEPTH, THREADS, A> TileA;
  typedef Tile<COLUMNS, STAGE_DEPTH, THREADS, B> TileB;
  T *as = reinterpret_cast<T *>(dynamic_shared()), *bs = as + STAGES * TileA::SIZE;
  int64 m0 = tile_m * M, n0 = tile_n * COLUMNS;
  int warp = threadIdx.x / 32;
  bool chunks_a = a.template in_chunks<8>(), chunks_b = b.template in_chunks<8>();
  float sum[PARTS][PART / 8][4];
  clear_sums(sum);
  TileA next_a;
  TileB next_b;
  next_a.aim(a, m0);
  next_b.aim(b, n0);
  int steps = (int)((end - begin + STAGE_DEPTH - 1) / STAGE_DEPTH), now = 0, ahead = STAGES - 2;
#pragma unroll
  for (int s = 0; s < STAGES - 2; ++s) {
    if (s < steps) {
      next_a.begin_aimed(a, m0, begin + s * STAGE_DEPTH, as + s * TileA::SIZE, chunks_a);
      next_b.begin_aimed(b, n0, begin + s * STAGE_DEPTH, bs + s * TileB::SIZE, chunks_b);
    }
    end_copies();
  }
  for (int step = 0; step < steps; ++step) {
    await_copies<STAGES - 3>();
    show_shared();
    __syncthreads();
    uint64 left = operand_at(as + now * TileA::SIZE + warp / 4 * 64 * STAGE_DEPTH, 16);
    uint64 right = operand_at(bs + now * TileB::SIZE, 16);
    begin_multiply();
#pragma unroll
    for (int k = 0; k < STAGE_DEPTH / 16; ++k)
#pragma unroll
      for (int h = 0; h < PARTS; ++h) multiply(sum[h], left + 2 * k, right + 2 * k + h * (PART * 128 / 16), true, T{});
    end_multiply();
    if (step + STAGES - 2 < steps) {
      int64 k0 = begin + (int64)(step + STAGES - 2) * STAGE_DEPTH;
      next_a.begin_aimed(a, m0, k0, as + ahead * TileA::SIZE, chunks_a);
      next_b.begin_aimed(b, n0, k0, bs + ahead * TileB::SIZE, chunks_b);
    }
    end_copies();
    await_multiply<1>();
    now = now + 1 == STAGES ? 0 : now + 1;
    ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
  }
  await_multiply<0>();
  __syncthreads();
  float *tile = reinterpret_cast<float *>(dynamic_shared());
  hold_sums<COLUMNS>(tile, sum);
  put_tile<M, COLUMNS, THREADS, SLICES>(tile, m0, n0, a.rows, b.rows, out);
}
