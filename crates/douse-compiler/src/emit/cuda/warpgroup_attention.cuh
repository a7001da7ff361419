// `mma_attention` by warpgroups: two of them take 64 rows each, with 128 keys a step. Weights go from the scores' registers straight into the
// product with the values.
template <class T, int HEAD, int VALUE, bool CAUSAL, int GROUP, class Query, class Key, class Val, class Score, class Out>
DEVICE void warpgroup_attention(int64 row0, int64 end, const Query &query, const Key &key, const Val &value, Score score, Out out) {
  const int THREADS = 256, ROWS = 128, KEYS = 128, HEAD_LINE = (HEAD + 63) / 64 * 64, HEAD_STEPS = HEAD / 16;
  typedef Tile<ROWS, HEAD_LINE, THREADS, Query> TileQ;
  typedef Tile<KEYS, HEAD_LINE, THREADS, Key> TileK;
  typedef Tile<KEYS, VALUE, THREADS, Val> TileV;
  T *qs = reinterpret_cast<T *>(dynamic_shared()), *ks = qs + TileQ::SIZE, *vs = ks + 2 * TileK::SIZE;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  bool chunks_q = query.template in_chunks<8>(), chunks_k = key.template in_chunks<8>(), chunks_v = value.template in_chunks<8>();
  TileQ tile_q;
  TileK tile_k;
  TileV tile_v;
  if (CAUSAL) end = smaller(end, (smaller(row0 + ROWS, query.rows) - 1) / GROUP + 1);
  const auto fetch_keys = [&](int64 key0, int slot) {
    tile_k.begin(key, key0, 0, ks + slot * TileK::SIZE, chunks_k);
    tile_v.begin(value, key0, 0, vs + slot * TileV::SIZE, chunks_v);
  };
  tile_q.begin(query, row0, 0, qs, chunks_q);
  tile_q.finish(query, qs);
  fetch_keys(0, 0);
  end_copies();
  float sum[VALUE / 8][4], top[2] = {-INFINITY_F, -INFINITY_F}, total[2] = {0.0f, 0.0f};
#pragma unroll
  for (int j = 0; j < VALUE / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[j][e] = 0.0f;
  int slot = 0;
  for (int64 key0 = 0; key0 < end; key0 += KEYS) {
    await_copies<0>();
    show_shared();
    __syncthreads();
    if (key0 + KEYS < end) fetch_keys(key0 + KEYS, slot ^ 1);
    end_copies();
    // A block of 64 columns of a tile of 128 lines has 16384 bytes, a step of 16 in it 32.
    uint64 left = operand_at(qs + warp / 4 * 64 * 64, 16), right = operand_at(ks + slot * TileK::SIZE, 16);
    float s[KEYS / 8][4];
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = 0.0f;
    begin_multiply();
#pragma unroll
    for (int d = 0; d < HEAD_STEPS; ++d) multiply(s, left + d / 4 * 1024 + d % 4 * 2, right + d / 4 * 1024 + d % 4 * 2, d > 0, T{});
    end_multiply();
    await_multiply<0>();
    hold_results(s);
    bool cut = key0 + KEYS > end || (CAUSAL && key0 + KEYS > (row0 + 16 * warp) / GROUP + 1);
    score_step<CAUSAL, GROUP>(s, row0 + 16 * warp + group, query.rows, key0 + 2 * quad, end, cut, score);
    float factors[2] = {running_softmax<0>(s, top[0], total[0]), running_softmax<1>(s, top[1], total[1])};
#pragma unroll
    for (int j = 0; j < VALUE / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[j][e] *= factors[e / 2];
    uint32 weight[KEYS / 16][4];
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) weight[j][e] = pack_pair(s[2 * j + e / 2][e % 2 * 2], s[2 * j + e / 2][e % 2 * 2 + 1], T{});
    // 16 keys are two groups of eight lines.
    uint64 values = operand_at(vs + slot * TileV::SIZE, KEYS * 128);
    hold_results(sum);
    begin_multiply();
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j) multiply(sum, weight[j], values + j * 128, T{});
    end_multiply();
    await_multiply<0>();
    hold_results(sum);
    slot ^= 1;
  }
  await_copies<0>();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += shuffle_xor(total[half], 1);
    total[half] += shuffle_xor(total[half], 2);
    int64 row = row0 + 16 * warp + group + 8 * half;
#pragma unroll
    for (int j = 0; j < VALUE / 8; ++j) {
      Run<float, 2> run = {{sum[j][2 * half], sum[j][2 * half + 1]}};
      if (row < query.rows) out(row, 8 * j + 2 * quad, run, 2, top[half], total[half]);
    }
  }
}
