// `mma_attention` where the copy engine brings keys and values (sm_90a): a warp of a warpgroup that does nothing else, and so leaves its registers to
// the others, asks for the tiles of each step, and two warpgroups take 64 rows each.
// While one step's scores become weights, the next step's scores are multiplied, and the weights of the step before by its values. Weights go from
// registers straight into that product.

// How many registers each thread of a warpgroup has from here on: a multiple of 8. What some give up, others may take.
template <int COUNT> DEVICE void give_registers() {
#ifdef __CUDA_ARCH__
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(COUNT));
#endif
}
template <int COUNT> DEVICE void take_registers() {
#ifdef __CUDA_ARCH__
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(COUNT));
#endif
}

// Warpgroups in turn: while one has the tensor cores, the other makes weights. What a turn orders is time alone.
DEVICE void await_turn(int warpgroup) {
#ifdef __CUDA_ARCH__
  asm volatile("barrier.sync %0, 256;" : : "r"(1 + warpgroup) : "memory");
#endif
}
DEVICE void give_turn(int warpgroup) {
#ifdef __CUDA_ARCH__
  asm volatile("barrier.arrive %0, 256;" : : "r"(1 + warpgroup) : "memory");
#endif
}

// A tile of KEYS lines of SIZE elements, in blocks of 64 of them.
template <int SIZE, int KEYS, class Map, class T> DEVICE void begin_lines(const Map &map, T *to, uint64 *barrier, int64 key0) {
  arrive_expecting(barrier, SIZE * KEYS * (int)sizeof(T));
#pragma unroll
  for (int d = 0; d < SIZE; d += 64) map.template begin<KEYS>(to + d * KEYS, barrier, (int)key0, d);
}

template <class T, int HEAD, int VALUE, int STAGES, bool CAUSAL, int GROUP, class Query, class Key, class Val, class Look, class Score, class Out>
DEVICE void bulk_attention(int64 row0, int64 end, const Query &query, const Key &key, const Val &value, const Look &look, const Score &score, Out out) {
  const int THREADS = 256, ROWS = 128, KEYS = 128, SIZE_K = KEYS * HEAD, SIZE_V = KEYS * VALUE;
  typedef Tile<ROWS, HEAD, THREADS, Query> TileQ;
  T *qs = reinterpret_cast<T *>(dynamic_shared()), *ks = qs + TileQ::SIZE, *vs = ks + STAGES * SIZE_K;
  uint64 *full_k = reinterpret_cast<uint64 *>(vs + STAGES * SIZE_V), *full_v = full_k + STAGES, *empty_k = full_v + STAGES, *empty_v = empty_k + STAGES;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4, own = warp / 4;
  const int64 rows = smaller<int64>(query.rows - row0, ROWS);
  if (CAUSAL) end = smaller(end, (row0 + rows - 1) / GROUP + 1);
  const int64 steps = (end + KEYS - 1) / KEYS;
  if (threadIdx.x < THREADS) {
    TileQ tile_q;
    tile_q.begin(query, row0, 0, qs, query.template in_chunks<8>());
    tile_q.finish(query, qs);
    end_copies();
  } else if (threadIdx.x == THREADS) {
    for (int s = 0; s < STAGES; ++s) {
      init_barrier(full_k + s, 1);
      init_barrier(full_v + s, 1);
      init_barrier(empty_k + s, THREADS / 32);
      init_barrier(empty_v + s, THREADS / 32);
    }
    show_barriers();
  }
  const auto sights = look(reinterpret_cast<unsigned char *>(empty_v + STAGES), rows, end);
  await_copies<0>();
  show_shared();
  __syncthreads();
  if (own == 2) {
    give_registers<24>();
    if (warp == THREADS / 32 && lane == 0) {
      int slot = 0, parity = 1, asked = 0;
#pragma unroll 1
      for (int64 step = sights.next(0, steps); step < steps; step = sights.next(step + 1, steps), ++asked) {
        if (asked >= STAGES) await_phase(empty_k + slot, parity);
        begin_lines<HEAD, KEYS>(key, ks + slot * SIZE_K, full_k + slot, step * KEYS);
        if (asked >= STAGES) await_phase(empty_v + slot, parity);
        begin_lines<VALUE, KEYS>(value, vs + slot * SIZE_V, full_v + slot, step * KEYS);
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
    }
    return;
  }
  take_registers<240>();
  float s[KEYS / 8][4], sum[VALUE / 8][4], top[2] = {-INFINITY_F, -INFINITY_F}, total[2] = {0.0f, 0.0f};
  uint32 weight[KEYS / 16][4];
#pragma unroll
  for (int j = 0; j < VALUE / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[j][e] = 0.0f;
  const uint64 left = operand_at(qs + own * 64 * 64, 16), keys = operand_at(ks, 16), values = operand_at(vs, KEYS * 128);
  const int64 row = row0 + 16 * warp + group;
  // A block of 64 columns of a tile of 128 lines has 16384 bytes, a step of 16 in it 32.
  const auto multiply_keys = [&](int slot) {
    const uint64 right = keys + slot * (SIZE_K * (int)sizeof(T) / 16);
    begin_multiply();
#pragma unroll
    for (int d = 0; d < HEAD / 16; ++d) multiply(s, left + d / 4 * 1024 + d % 4 * 2, right + d / 4 * 1024 + d % 4 * 2, d > 0, T{});
    end_multiply();
  };
  // 16 keys are two groups of eight lines.
  const auto multiply_values = [&](int slot) {
    const uint64 right = values + slot * (SIZE_V * (int)sizeof(T) / 16);
    begin_multiply();
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j) multiply(sum, weight[j], right + j * 128, T{});
    end_multiply();
  };
  // Scores of a step to weights, in place; what earlier sums are multiplied by.
  const auto weigh = [&](int64 step, float (&factors)[2]) {
    const int64 key0 = step * KEYS;
    const bool cut = key0 + KEYS > end || (CAUSAL && key0 + KEYS > (row0 + 16 * warp) / GROUP + 1);
    score_step<CAUSAL, GROUP>(s, row, query.rows, key0 + 2 * quad, end, cut, sights.plain(step), score);
    factors[0] = running_softmax<0>(s, score.factor, top[0], total[0]);
    factors[1] = running_softmax<1>(s, score.factor, top[1], total[1]);
  };
  const auto pack_weights = [&] {
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) weight[j][e] = pack_pair(s[2 * j + e / 2][e % 2 * 2], s[2 * j + e / 2][e % 2 * 2 + 1], T{});
  };
  int64 step = sights.next(0, steps);
  if (own == 1) give_turn(0);
  if (step < steps) {
    float factors[2];
    await_phase(full_k, 0);
    multiply_keys(0);
    await_multiply<0>();
    hold_results(s);
    if (lane == 0) arrive(empty_k);
    weigh(step, factors);
    pack_weights();
    int slot = 0, parity = 0;
#pragma unroll 1
    for (int64 next = sights.next(step + 1, steps); next < steps; next = sights.next(next + 1, steps)) {
      const int slot_k = slot + 1 == STAGES ? 0 : slot + 1, parity_k = slot_k == 0 ? parity ^ 1 : parity;
      await_phase(full_k + slot_k, parity_k);
      await_turn(own);
      multiply_keys(slot_k);
      await_phase(full_v + slot, parity);
      hold_results(sum);
      multiply_values(slot);
      give_turn(own ^ 1);
      await_multiply<1>();
      hold_results(s);
      if (lane == 0) arrive(empty_k + slot_k);
      weigh(next, factors);
      await_multiply<0>();
      hold_results(sum);
      if (lane == 0) arrive(empty_v + slot);
#pragma unroll
      for (int j = 0; j < VALUE / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[j][e] *= factors[e / 2];
      pack_weights();
      slot = slot_k, parity = parity_k;
    }
    await_phase(full_v + slot, parity);
    multiply_values(slot);
    await_multiply<0>();
    hold_results(sum);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += shuffle_xor(total[half], 1);
    total[half] += shuffle_xor(total[half], 2);
#pragma unroll
    for (int j = 0; j < VALUE / 8; ++j) {
      Run<float, 2> run = {{sum[j][2 * half], sum[j][2 * half + 1]}};
      if (row + 8 * half < query.rows) out(row + 8 * half, 8 * j + 2 * quad, run, 2, top[half] * score.factor, total[half]);
    }
  }
}
