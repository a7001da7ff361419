// softmax(q k^T scale + mask) v with a running softmax: no matrix of scores is ever stored.

// A block of four warps takes 16 queries of one head, four a warp; keys and values pass through shared memory 32 at a time. A lane has one
// key while scores are computed and every 32nd element of the head while values are summed. `allowed(query, key)` and `bias(query, key)` are
// the mask; a row with no key allowed gives zeros.
template <class T, int HEAD, int VALUE, class Query, class Key, class Val, class Score, class Out>
DEVICE void attention(int64 query0, int64 queries, int64 keys, Query query, Key key, Val value, Score score, Out out) {
  typedef Register<T> R;
  const int ROWS = 4, WARPS = 4, KEYS = 32, PARTS = (VALUE + 31) / 32;
  DYNAMIC_SHARED(shared);
  R *qs = reinterpret_cast<R *>(shared);
  R *ks = qs + ROWS * WARPS * HEAD;
  R *vs = ks + KEYS * (HEAD + 1);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < ROWS * WARPS * HEAD; i += 32 * WARPS) {
    int64 q = query0 + i / HEAD;
    qs[i] = q < queries ? query(q, i % HEAD) : (R)0;
  }
  R most[ROWS], total[ROWS], sum[ROWS][PARTS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    most[r] = Limits<R>::lowest();
    total[r] = 0;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) sum[r][p] = 0;
  }
  for (int64 key0 = 0; key0 < keys; key0 += KEYS) {
    __syncthreads();
    for (int i = threadIdx.x; i < KEYS * HEAD; i += 32 * WARPS) {
      int64 k = key0 + i / HEAD;
      ks[i / HEAD * (HEAD + 1) + i % HEAD] = k < keys ? key(k, i % HEAD) : (R)0;
    }
    for (int i = threadIdx.x; i < KEYS * VALUE; i += 32 * WARPS) {
      int64 k = key0 + i / VALUE;
      vs[i] = k < keys ? value(k, i % VALUE) : (R)0;
    }
    __syncthreads();
    R p[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) p[r] = 0;
    for (int d = 0; d < HEAD; ++d) {
      R k = ks[lane * (HEAD + 1) + d];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) p[r] = multiply_add(qs[(warp * ROWS + r) * HEAD + d], k, p[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      int64 q = query0 + warp * ROWS + r, k = key0 + lane;
      R s = q < queries && k < keys ? score(q, k, p[r]) : Limits<R>::lowest();
      R top = op_maximum(most[r], Across<Max<R>, WarpLanes>::reduce(s));
      // While every score is -inf there is nothing to scale.
      R old = most[r] == top ? (R)1 : op_exp(most[r] - top);
      p[r] = s == Limits<R>::lowest() ? (R)0 : op_exp(s - top);
      total[r] = total[r] * old + Across<PlainSum<R>, WarpLanes>::reduce(p[r]);
      most[r] = top;
#pragma unroll
      for (int i = 0; i < PARTS; ++i) sum[r][i] *= old;
    }
    for (int j = 0; j < KEYS; ++j) {
      R weight[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) weight[r] = shuffle_from(p[r], j);
#pragma unroll
      for (int i = 0; i < PARTS; ++i) {
        int d = lane + 32 * i;
        R v = d < VALUE ? vs[j * VALUE + d] : (R)0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum[r][i] = multiply_add(weight[r], v, sum[r][i]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    int64 q = query0 + warp * ROWS + r;
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      int d = lane + 32 * i;
      if (q < queries && d < VALUE) out(q, d, total[r] == 0 && most[r] == Limits<R>::lowest() ? (R)0 : sum[r][i] / total[r]);
    }
  }
}

// ---- Tensor cores ----------------------------------------------------------------------------------------------------------

// 2 to the power of x, to 2 units in the last place.
DEVICE float fast_exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
const float LOG2_E = 1.44269504088896341f;

// Two elements side by side, the first in the lower half.
DEVICE uint32 pack_pair(float low, float high, float16) {
#ifdef __CUDA_ARCH__
  uint32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return to_float16(low).bits | (uint32)to_float16(high).bits << 16;
#endif
}
DEVICE uint32 pack_pair(float low, float high, bfloat16) {
#ifdef __CUDA_ARCH__
  uint32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return to_bfloat16(low).bits | (uint32)to_bfloat16(high).bits << 16;
#endif
}

// What is left of a sum under the maximum `old` under another, `top`: while every score is -inf there is nothing to scale. Scores are in powers of 2.
DEVICE float rescale(float old, float top) { return fast_exp2(old - (top == -INFINITY_F ? 0.0f : top)); }

// How scores come from products: `see(row, key, product)` is where a mask hides or changes something, `plain(product)` elsewhere. Scores times `factor`,
// which is positive, are in powers of 2.
template <class Plain, class See> struct Scores {
  float factor;
  Plain plain;
  See see;
};
template <class Plain, class See> DEVICE Scores<Plain, See> scores(float factor, Plain plain, See see) {
  return Scores<Plain, See>{factor, plain, see};
}

// A step of the softmax that runs along a row, of which each lane of a quad has some scores, as `mma` deals them (HALF: of the row eight below):
// scores become weights. Returns what earlier sums are multiplied by.
template <int HALF, int N> DEVICE float running_softmax(float (&s)[N][4], float scale, float &top, float &total) {
  float most = top;
#pragma unroll
  for (int j = 0; j < N; ++j) most = fmaxf(most, fmaxf(s[j][2 * HALF], s[j][2 * HALF + 1]));
  most = fmaxf(most, shuffle_xor(most, 1));
  most = fmaxf(most, shuffle_xor(most, 2));
  const float zero = most == -INFINITY_F ? 0.0f : -most * scale, factor = fast_exp2(fmaf(top, scale, zero));
  float own = 0.0f;
  top = most;
#pragma unroll
  for (int j = 0; j < N; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float &x = s[j][2 * HALF + e];
      x = fast_exp2(fmaf(x, scale, zero));
      own += x;
    }
  total = total * factor + own;
  return factor;
}

// Makes scores of a step's products: of keys from `key0` on, of rows `row` and eight below. PLAIN: no mask hides or changes any. `cut`: some keys
// are not there, or later than a causal product sees.
template <bool CAUSAL, int GROUP, int N, class Score>
DEVICE void score_step(float (&s)[N][4], int64 row0, int64 rows, int64 key0, int64 end, bool cut, bool plain, const Score &score) {
  if (plain && !cut) {
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = score.plain(s[j][e]);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int64 row = row0 + 8 * half, in_rows = smaller(row, rows - 1);
    int64 seen = CAUSAL ? smaller(end, row / GROUP + 1) : end;
    int limit = (int)larger<int64>(smaller<int64>(seen - key0, 8 * N), 0);
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float &x = s[j][2 * half + e];
        if (8 * j + e >= limit) x = -INFINITY_F;
        else x = plain ? score.plain(x) : score.see(in_rows, key0 + 8 * j + e, x);
      }
  }
}

// ---- What masks let through ------------------------------------------------------------------------------------------------

// Of the keys of a step: none is seen by any row; all are, as they are; or one must look.
const uint8 HIDDEN = 0, PLAIN = 1, MIXED = 2;
// No mask, or nothing known of it.
template <bool MASKED> struct Unlooked {
  DEVICE Unlooked operator()(unsigned char *, int64, int64) const { return *this; }
  DEVICE bool plain(int64) const { return !MASKED; }
  DEVICE int64 next(int64 step, int64) const { return step; }
};
// What was looked at, step by step; of later ones nothing is known.
struct Sights {
  const uint8 *at;
  int64 known;
  DEVICE bool plain(int64 step) const { return step < known && at[step] == PLAIN; }
  // The first step from this on where something is seen.
  DEVICE int64 next(int64 step, int64 steps) const {
    while (step < smaller(known, steps) && at[step] == HIDDEN) ++step;
    return step;
  }
};
DEVICE bool hides(boolean m) { return m.bits == 0; }
DEVICE bool changes(boolean m) { return m.bits == 0; }
template <class M> DEVICE bool hides(M m) { return Element<M>::load(m) == -INFINITY_F; }
template <class M> DEVICE bool changes(M m) { return Element<M>::load(m) != 0; }

// Looks at a mask's rows for the keys before `end`, KEYS a step; a block's warps share the steps, and see what is there after a barrier. Rows of the
// product from a multiple of UNIT on have one row of the mask, whose elements are neighbours. (Where they begin at multiples of 16 bytes, they come at once.)
template <int64 UNIT, int KEYS, class M, class Row>
DEVICE Sights look(unsigned char *room, int most, int warps, int64 row0, int64 rows, int64 end, const Row &row_at) {
  const int N = 16 / (int)sizeof(M), LANES = KEYS / N, TOGETHER = 32 / LANES;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64 first = row0 / UNIT, last = (row0 + rows - 1) / UNIT, known = smaller<int64>((end + KEYS - 1) / KEYS, most);
  for (int64 step = warp; step < known; step += warps) {
    const int64 key = step * KEYS + lane % LANES * N;
    const int count = (int)larger<int64>(smaller<int64>(end - key, N), 0);
    bool seen = false, changed = false;
#pragma unroll 4
    for (int64 r = first + lane / LANES; r <= last; r += TOGETHER) {
      const Vector<M, N> v = load_vector<N>(row_at(r * UNIT) + key, count);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        seen |= i < count && !hides(v.element[i]);
        changed |= i < count && changes(v.element[i]);
      }
    }
    seen = __any_sync(0xffffffffu, seen);
    changed = __any_sync(0xffffffffu, changed);
    if (lane == 0) room[step] = !seen ? HIDDEN : changed ? MIXED : PLAIN;
  }
  return Sights{room, known};
}

// Rows of queries (of every head that shares the keys) against the keys from `begin` to `end`, on tensor cores: 16 rows a warp, ROW_WARPS of them;
// KEY_WARPS warps share the KEYS keys of a step. Keys and values of the next STAGES - 1 steps are on their way meanwhile. `look(rows)` says which
// steps may be left out. CAUSAL: row r, which is query r / GROUP, sees keys up to that. `out(row, d, run, count, top, total)` gets sums
// of weights 2^(score - top) times values, and of weights.
template <class T, int HEAD, int VALUE, int ROW_WARPS, int KEY_WARPS, int KEYS, int STAGES, bool CAUSAL, int GROUP, class Query, class Key, class Val, class Look,
          class Score, class Out>
DEVICE void mma_attention(int64 row0, int64 begin, int64 end, const Query &query, const Key &key, const Val &value, const Look &look, const Score &score, Out out) {
  const int THREADS = 32 * ROW_WARPS * KEY_WARPS, ROWS = 16 * ROW_WARPS, OWN = KEYS / KEY_WARPS;
  const int HEAD_LINE = (HEAD + 63) / 64 * 64, VALUE_LINE = (VALUE + 63) / 64 * 64, HEAD_STEPS = (HEAD + 15) / 16, VALUE_STEPS = (VALUE + 15) / 16;
  // Fragments of longer heads would take too many registers.
  const bool HOLD = HEAD <= 128;
  typedef Tile<ROWS, HEAD_LINE, THREADS, Query> TileQ;
  typedef Tile<KEYS, HEAD_LINE, THREADS, Key> TileK;
  typedef Tile<KEYS, VALUE_LINE, THREADS, Val> TileV;
  T *qs = reinterpret_cast<T *>(dynamic_shared()), *ks = qs + TileQ::SIZE, *vs = ks + STAGES * TileK::SIZE;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  int own_row = warp / KEY_WARPS * 16, own_key = warp % KEY_WARPS * OWN;
  bool chunks_q = query.template in_chunks<8>(), chunks_k = key.template in_chunks<8>(), chunks_v = value.template in_chunks<8>();
  TileQ tile_q;
  TileK tile_k;
  TileV tile_v;
  const int64 rows = smaller<int64>(query.rows - row0, ROWS);
  if (CAUSAL) end = smaller(end, (row0 + rows - 1) / GROUP + 1);
  const int64 steps = end > begin ? (end - begin + KEYS - 1) / KEYS : 0;
  tile_q.begin(query, row0, 0, qs, chunks_q);
  tile_q.finish(query, qs);
  const auto sights = look(reinterpret_cast<unsigned char *>(vs + STAGES * TileV::SIZE), rows, end);
  const auto fetch_keys = [&](int64 step, int slot) {
    if (step >= steps) return;
    const int64 key0 = begin + step * KEYS;
    tile_k.begin(key, key0, 0, ks + slot * TileK::SIZE, chunks_k);
    tile_v.begin(value, key0, 0, vs + slot * TileV::SIZE, chunks_v);
    tile_k.finish(key, ks + slot * TileK::SIZE);
    tile_v.finish(value, vs + slot * TileV::SIZE);
  };
  int64 step = sights.next(0, steps), ahead = step;
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    fetch_keys(ahead, s);
    end_copies();
    ahead = sights.next(ahead + 1, steps);
  }
  float sum[2 * VALUE_STEPS][4], top[2] = {-INFINITY_F, -INFINITY_F}, total[2] = {0.0f, 0.0f};
#pragma unroll
  for (int j = 0; j < 2 * VALUE_STEPS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[j][e] = 0.0f;
  uint32 held[HOLD ? HEAD_STEPS : 1][4];
  bool first = true;
  for (int slot = 0, free = STAGES - 1; step < steps; step = sights.next(step + 1, steps)) {
    const int64 key0 = begin + step * KEYS;
    await_copies<STAGES - 2>();
    __syncthreads();
    if (HOLD && first) {
#pragma unroll
      for (int d = 0; d < HEAD_STEPS; ++d) TileQ::fragment(query, qs, own_row, 16 * d, true, held[HOLD ? d : 0]);
    }
    first = false;
    fetch_keys(ahead, free);
    end_copies();
    ahead = sights.next(ahead + 1, steps);
    const T *kt = ks + slot * TileK::SIZE, *vt = vs + slot * TileV::SIZE;
    float s[OWN / 8][4];
#pragma unroll
    for (int j = 0; j < OWN / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = 0.0f;
#pragma unroll
    for (int d = 0; d < HEAD_STEPS; ++d) {
      uint32 fresh[4];
      if (!HOLD) TileQ::fragment(query, qs, own_row, 16 * d, true, fresh);
      const uint32 (&x)[4] = HOLD ? held[HOLD ? d : 0] : fresh;
#pragma unroll
      for (int j = 0; j < OWN / 16; ++j) {
        uint32 y[4];
        TileK::fragment(key, kt, own_key + 16 * j, 16 * d, false, y);
        const uint32 left[2] = {y[0], y[1]}, right[2] = {y[2], y[3]};
        mma(s[2 * j], x, left, T{});
        mma(s[2 * j + 1], x, right, T{});
      }
    }
    bool cut = key0 + KEYS > end || (CAUSAL && key0 + KEYS > (row0 + own_row) / GROUP + 1);
    score_step<CAUSAL, GROUP>(s, row0 + own_row + group, query.rows, key0 + own_key + 2 * quad, end, cut, sights.plain(step), score);
    float factors[2] = {running_softmax<0>(s, score.factor, top[0], total[0]), running_softmax<1>(s, score.factor, top[1], total[1])};
#pragma unroll
    for (int j = 0; j < 2 * VALUE_STEPS; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[j][e] *= factors[e / 2];
#pragma unroll
    for (int j = 0; j < OWN / 16; ++j) {
      const float (&a)[4] = s[2 * j], (&b)[4] = s[2 * j + 1];
      const uint32 weight[4] = {pack_pair(a[0], a[1], T{}), pack_pair(a[2], a[3], T{}), pack_pair(b[0], b[1], T{}), pack_pair(b[2], b[3], T{})};
#pragma unroll
      for (int d = 0; d < VALUE_STEPS; ++d) {
        uint32 y[4];
        int row = own_key + 16 * j + lane % 16, column = 16 * d + lane / 16 * 8;
        load_matrices<true>(y, vt + TileV::offset(value, row, column));
        const uint32 left[2] = {y[0], y[1]}, right[2] = {y[2], y[3]};
        mma(sum[2 * d], weight, left, T{});
        mma(sum[2 * d + 1], weight, right, T{});
      }
    }
    free = slot;
    slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
  await_copies<0>();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += shuffle_xor(total[half], 1);
    total[half] += shuffle_xor(total[half], 2);
    top[half] *= score.factor;
  }
  if (KEY_WARPS > 1) {
    // The warps' parts, in their order. [warp][row][value, top, total]
    const int LINE = 16 * VALUE_STEPS + 2;
    float *parts = reinterpret_cast<float *>(dynamic_shared());
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float *line = parts + (warp * 16 + group + 8 * half) * LINE;
#pragma unroll
      for (int j = 0; j < 2 * VALUE_STEPS; ++j) {
        line[8 * j + 2 * quad] = sum[j][2 * half];
        line[8 * j + 2 * quad + 1] = sum[j][2 * half + 1];
      }
      if (quad == 0) { line[LINE - 2] = top[half]; line[LINE - 1] = total[half]; }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * ((VALUE + 1) / 2); i += THREADS) {
      int row = i / ((VALUE + 1) / 2), d = i % ((VALUE + 1) / 2) * 2;
      const float *line = parts + (row / 16 * KEY_WARPS * 16 + row % 16) * LINE;
      float most = -INFINITY_F, all = 0.0f;
      Run<float, 2> run = {{0.0f, 0.0f}};
#pragma unroll
      for (int w = 0; w < KEY_WARPS; ++w) most = fmaxf(most, line[w * 16 * LINE + LINE - 2]);
#pragma unroll
      for (int w = 0; w < KEY_WARPS; ++w) {
        const float *part = line + w * 16 * LINE;
        float factor = rescale(part[LINE - 2], most);
        all = fmaf(part[LINE - 1], factor, all);
        run.x[0] = fmaf(part[d], factor, run.x[0]);
        run.x[1] = fmaf(part[d + 1], factor, run.x[1]);
      }
      if (row0 + row < query.rows) out(row0 + row, d, run, VALUE - d < 2 ? 1 : 2, most, all);
    }
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int j = 0; j < 2 * VALUE_STEPS; ++j) {
      int64 row = row0 + own_row + group + 8 * half;
      int d = 8 * j + 2 * quad;
      Run<float, 2> run = {{sum[j][2 * half], sum[j][2 * half + 1]}};
      if (row < query.rows && d < VALUE) out(row, d, run, VALUE - d < 2 ? 1 : 2, top[half], total[half]);
    }
}

// Stores the answer from sums over all keys; zeros where no key was allowed.
template <class Out> struct Divided {
  Out out;
  DEVICE void operator()(int64 row, int d, const Run<float, 2> &run, int count, float top, float total) const {
    float factor = total == 0.0f && top == -INFINITY_F ? 0.0f : 1.0f / total;
    Run<float, 2> mean = {{run.x[0] * factor, run.x[1] * factor}};
    out(row, d, mean, count);
  }
};
template <class Out> DEVICE Divided<Out> divided(Out out) { return Divided<Out>{out}; }

// Where blocks each take a part of the keys, they leave lines of VALUE sums, top and total, [parts, rows].
template <int VALUE> struct Part {
  float *lines;
  DEVICE void operator()(int64 row, int d, const Run<float, 2> &run, int count, float top, float total) const {
    float *line = lines + row * (VALUE + 2);
    store_run(line + d, 1, run, count);
    if (d == 0) { line[VALUE] = top; line[VALUE + 1] = total; }
  }
};
// The same in a block's own memory, for the rows of its tile.
template <int VALUE> struct Own {
  float *lines;
  int64 row0;
  DEVICE void operator()(int64 row, int d, const Run<float, 2> &run, int count, float top, float total) const {
    Part<VALUE>{lines}(row - row0, d, run, count, top, total);
  }
};
// A thread joins two columns of a row's lines, in their order.
template <int VALUE, int PARTS, class Out> DEVICE void join_parts(int64 at, int64 rows, const float *lines, Out out) {
  const int PAIRS = (VALUE + 1) / 2, LINE = VALUE + 2;
  int64 row = at / PAIRS;
  int d = (int)(at % PAIRS) * 2;
  if (row >= rows) return;
  float most = -INFINITY_F, all = 0.0f;
  Run<float, 2> run = {{0.0f, 0.0f}};
  // All parts' tops are on their way at once, and then some parts' sums.
  float tops[PARTS];
#pragma unroll
  for (int p = 0; p < PARTS; ++p) tops[p] = lines[(p * rows + row) * LINE + VALUE];
#pragma unroll
  for (int p = 0; p < PARTS; ++p) most = fmaxf(most, tops[p]);
#pragma unroll
  for (int p = 0; p < PARTS; ++p) {
    const float *line = lines + (p * rows + row) * LINE;
    const Vector<float, 2> pair = load_vector<2>(line + d, VALUE - d < 2 ? 1 : 2);
    const float factor = rescale(tops[p], most);
    all = fmaf(line[VALUE + 1], factor, all);
    run.x[0] = fmaf(pair.element[0], factor, run.x[0]);
    run.x[1] = fmaf(pair.element[1], factor, run.x[1]);
  }
  divided(out)(row, d, run, VALUE - d < 2 ? 1 : 2, most, all);
}

// Where the blocks of a cluster each took a part of the keys, and left their lines in shared memory: each joins a share of the rows' pairs of columns.
template <int VALUE, int PARTS, int ROWS, int THREADS, class Out>
DEVICE void join_cluster(const float *lines, int64 row0, int64 rows, Out out) {
  const int PAIRS = (VALUE + 1) / 2, LINE = VALUE + 2;
  sync_cluster();
  for (int i = (int)blockIdx.y * THREADS + (int)threadIdx.x; i < ROWS * PAIRS; i += THREADS * PARTS) {
    int row = i / PAIRS, d = i % PAIRS * 2;
    if (row0 + row >= rows) continue;
    const float *line = lines + row * LINE;
    Vector<float, 2> ends[PARTS], sums[PARTS];
    float most = -INFINITY_F, all = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      ends[p] = load_cluster_pair(line + VALUE, p);
      sums[p] = load_cluster_pair(line + d, p);
      most = fmaxf(most, ends[p].element[0]);
    }
    Run<float, 2> run = {{0.0f, 0.0f}};
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      float factor = rescale(ends[p].element[0], most);
      all = fmaf(ends[p].element[1], factor, all);
      run.x[0] = fmaf(sums[p].element[0], factor, run.x[0]);
      if (d + 1 < VALUE) run.x[1] = fmaf(sums[p].element[1], factor, run.x[1]);
    }
    divided(out)(row0 + row, d, run, VALUE - d < 2 ? 1 : 2, most, all);
  }
  sync_cluster();
}
