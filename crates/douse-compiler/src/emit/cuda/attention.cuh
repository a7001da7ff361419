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
