// Products whose operands the copy engine brings (sm_90a): one thread asks for whole tiles by tensor maps, and warpgroups multiply what has come.

struct alignas(64) TensorMap {
  uint64 words[16];
};

// ---- Barriers in shared memory ---------------------------------------------------------------------------------------------

#ifdef __CUDA_ARCH__
DEVICE uint32 shared_address(const void *p) { return (uint32)__cvta_generic_to_shared(p); }
// A phase ends when so many have arrived, and all bytes that they expect are there.
DEVICE void init_barrier(uint64 *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Shows the barriers to the copy engine.
DEVICE void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }
DEVICE void arrive(uint64 *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(barrier)) : "memory");
}
DEVICE void arrive_expecting(uint64 *barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Waits for the end of the phase of this parity: 0 is the first.
DEVICE void await_phase(uint64 *barrier, int parity) {
  uint32 done = 0;
  while (!done)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
}
#else
DEVICE void init_barrier(uint64 *barrier, int arrivals) { host_init_barrier(barrier, arrivals); }
DEVICE void show_barriers() {}
DEVICE void arrive(uint64 *barrier) { host_arrive(barrier, 0); }
DEVICE void arrive_expecting(uint64 *barrier, int bytes) { host_arrive(barrier, bytes); }
DEVICE void await_phase(uint64 *barrier, int parity) { host_await_phase(barrier, parity); }
#endif

// ---- Operands --------------------------------------------------------------------------------------------------------------

// A matrix of `rows`, whose elements along the depth are neighbours, or, TURNED, along the rows; `at` are its coordinates in the batch.
template <class T, int LEADING, bool TURNED_> struct Mapped {
  typedef T Type;
  static const bool TURNED = TURNED_;
  const TensorMap *map;
  int64 rows;
  int at[LEADING > 0 ? LEADING : 1];
  // Begins to copy a tile of ROWS and 64 elements of depth; the barrier is told of its bytes. A turned one lies in blocks of 64 rows.
  template <int ROWS> DEVICE void begin(T *to, uint64 *barrier, int row, int k) const {
    if (TURNED)
#pragma unroll
      for (int r = 0; r < ROWS; r += 64) begin_block(to + r * STAGE_DEPTH, barrier, k, row + r);
    else begin_block(to, barrier, row, k);
  }
  // The copy engine counts the innermost dimension first.
  DEVICE void begin_block(T *to, uint64 *barrier, int row, int k) const {
#ifdef __CUDA_ARCH__
#define BULK(DIMS, PLACES, ...)                                                                                        \
  asm volatile("cp.async.bulk.tensor." DIMS ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" PLACES "}], [%2];" \
               : : "r"(shared_address(to)), "l"(map), "r"(shared_address(barrier)), __VA_ARGS__ : "memory")
    if constexpr (LEADING == 0) BULK("2d", "%3, %4", "r"(k), "r"(row));
    if constexpr (LEADING == 1) BULK("3d", "%3, %4, %5", "r"(k), "r"(row), "r"(at[0]));
    if constexpr (LEADING == 2) BULK("4d", "%3, %4, %5, %6", "r"(k), "r"(row), "r"(at[0]), "r"(at[1]));
    if constexpr (LEADING == 3) BULK("5d", "%3, %4, %5, %6, %7", "r"(k), "r"(row), "r"(at[0]), "r"(at[1]), "r"(at[2]));
#undef BULK
#else
    int all[5] = {k, row};
    for (int d = 0; d < LEADING; ++d) all[2 + d] = at[d];
    host_copy_tile(to, map, barrier, all);
#endif
  }
};

// ---- The product -----------------------------------------------------------------------------------------------------------

// As `warpgroup_product`, by a warp more than the warpgroups have: it fills the stages, each as soon as all have multiplied what was there.
template <int GROUPS, int COLUMNS, int STAGES, int SLICES, class A, class B, class Out>
DEVICE void bulk_product(int64 tile_m, int64 tile_n, int64 begin, int64 end, const A &a, const B &b, Out out) {
  typedef typename A::Type T;
  const int M = 64 * GROUPS, THREADS = 128 * GROUPS + 32, PART = PartOf<COLUMNS, B::TURNED>::VALUE, PARTS = COLUMNS / PART;
  const int SIZE_A = M * STAGE_DEPTH, SIZE_B = COLUMNS * STAGE_DEPTH, BYTES = (SIZE_A + SIZE_B) * (int)sizeof(T);
  const int RESULTS = M * (COLUMNS + RESULTS_APART) * (int)sizeof(float);
  T *as = reinterpret_cast<T *>(dynamic_shared()), *bs = as + STAGES * SIZE_A;
  uint64 *full = reinterpret_cast<uint64 *>(dynamic_shared() + (STAGES * BYTES > RESULTS ? STAGES * BYTES : RESULTS)), *empty = full + STAGES;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int m0 = (int)tile_m * M, n0 = (int)tile_n * COLUMNS;
  int steps = (int)((end - begin + STAGE_DEPTH - 1) / STAGE_DEPTH);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init_barrier(full + s, 1);
      init_barrier(empty + s, 4 * GROUPS);
    }
    show_barriers();
  }
  __syncthreads();
  float sum[PARTS][PART / 8][4];
  if (warp == 4 * GROUPS) {
    if (lane == 0) {
      int slot = 0, phase = 1;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        if (step >= STAGES) await_phase(empty + slot, phase);
        arrive_expecting(full + slot, BYTES);
        b.template begin<COLUMNS>(bs + slot * SIZE_B, full + slot, n0, (int)begin + step * STAGE_DEPTH);
        a.template begin<M>(as + slot * SIZE_A, full + slot, m0, (int)begin + step * STAGE_DEPTH);
        if (++slot == STAGES) slot = 0, phase ^= 1;
      }
    }
  } else {
    uint64 first_a = operand_at(as + warp / 4 * 64 * STAGE_DEPTH, 16), first_b = operand_at(bs, B::TURNED ? 64 * STAGE_DEPTH * (int)sizeof(T) : 16);
    int slot = 0, phase = 0, before = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      await_phase(full + slot, phase);
      uint64 left = first_a + slot * (SIZE_A * (int)sizeof(T) / 16), right = first_b + slot * (SIZE_B * (int)sizeof(T) / 16);
      begin_multiply();
#pragma unroll
      for (int k = 0; k < STAGE_DEPTH / 16; ++k)
#pragma unroll
        for (int h = 0; h < PARTS; ++h) {
          // Sixteen elements of depth are 32 bytes of each line, or 16 lines of 128.
          uint64 part = right + (B::TURNED ? 128 : 2) * k + h * (PART * 128 / 16);
          if constexpr (B::TURNED) multiply_turned(sum[h], left + 2 * k, part, step > 0 || k > 0, T{});
          else multiply(sum[h], left + 2 * k, part, step > 0 || k > 0, T{});
        }
      end_multiply();
      await_multiply<1>();
      if (step > 0 && lane == 0) arrive(empty + before);
      before = slot;
      if (++slot == STAGES) slot = 0, phase ^= 1;
    }
    await_multiply<0>();
#pragma unroll
    for (int h = 0; h < PARTS; ++h) hold_results(sum[h]);
    if (steps == 0) clear_sums(sum);
  }
  __syncthreads();
  float *tile = reinterpret_cast<float *>(dynamic_shared());
  if (warp < 4 * GROUPS) hold_sums<COLUMNS>(tile, sum);
  put_tile<M, COLUMNS, THREADS, SLICES>(tile, m0, n0, a.rows, b.rows, out);
}
