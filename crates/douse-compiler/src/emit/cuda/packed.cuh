// Attention over packed sequences: a running softmax over the keys of a query's own sequence; no score is stored, and no token outside of the
// sequences is read.

// Raises `code` unless bound(0..=sequences), one at least, rise and stay within the tokens. By a block. Returns the longest sequence's length.
template <int THREADS, class Bound>
DEVICE int64 check_bounds(ErrorFlag *flag, int code, int64 sequences, int64 tokens, Bound bound) {
  int64 longest = 0;
  if (sequences < 0 && threadIdx.x == 0) raise(flag, code, 0, 0, tokens);
  for (int64 s = threadIdx.x; s <= sequences; s += THREADS) {
    const int64 start = bound(s), end = s < sequences ? bound(s + 1) : start;
    if (start < 0 || end < start || end > tokens) raise(flag, code, 0, 0, tokens);
    longest = larger(longest, end - start);
  }
  return Across<Max<int64>, BlockLanes<THREADS> >::reduce(longest);
}

// The keys, `first..end`, that token `token` sees; none outside of all sequences. With bounds that do not rise: some range within the tokens.
struct KeyRange { int64 first, end; };
template <class QueryBound, class KeyBound>
DEVICE KeyRange keys_of(int64 token, int64 sequences, int64 keys, QueryBound query_bound, KeyBound key_bound, int64 left, int64 right) {
  // The last sequence that starts at or before the token.
  int64 low = 0, high = sequences + 1;
  while (low < high) {
    int64 middle = (low + high) / 2;
    if (query_bound(middle) <= token) low = middle + 1; else high = middle;
  }
  if (low == 0 || low > sequences) return KeyRange{0, 0};
  const int64 start = smaller(larger(key_bound(low - 1), 0ll), keys), end = smaller(larger(key_bound(low), start), keys);
  // The diagonal ends at the last query and the last key.
  const int64 diagonal = end - (query_bound(low) - token);
  const int64 first = left < 0 || left > diagonal ? start : larger(start, diagonal - left);
  const int64 last = right < 0 || right >= end - diagonal ? end : diagonal + right + 1;
  return KeyRange{first, larger(first, last)};
}

// One query row with a warp: a lane has one key of 32 while scores are computed, and then every 32nd element of the value, 32 * PARTS at a
// time. A row without keys gives zeros.
template <class R, class Query, class Key, class Value, class Out>
DEVICE void packed_row(KeyRange keys, int64 head, int64 width, R scale, Query query, Key key, Value value, Out out) {
  const int PARTS = 4;
  const int lane = threadIdx.x & 31;
  for (int64 first = 0; first < width; first += 32 * PARTS) {
    R most = Limits<R>::lowest(), total = 0, sum[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; ++p) sum[p] = 0;
    for (int64 j = keys.first; j < keys.end; j += 32) {
      R score = Limits<R>::lowest();
      if (j + lane < keys.end) {
        score = 0;
        for (int64 d = 0; d < head; ++d) score = multiply_add(query(d), key(j + lane, d), score);
        score *= scale;
      }
      const R top = op_maximum(most, Across<Max<R>, WarpLanes>::reduce(score));
      // While every score is -inf there is nothing to scale.
      const R old = most == top ? (R)1 : op_exp(most - top);
      const R weight = score == Limits<R>::lowest() ? (R)0 : op_exp(score - top);
      total = total * old + Across<PlainSum<R>, WarpLanes>::reduce(weight);
      most = top;
#pragma unroll
      for (int p = 0; p < PARTS; ++p) sum[p] *= old;
      const int count = (int)smaller(keys.end - j, 32ll);
      for (int k = 0; k < count; ++k) {
        const R w = shuffle_from(weight, k);
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
          const int64 d = first + lane + 32 * p;
          if (d < width) sum[p] = multiply_add(w, value(j + k, d), sum[p]);
        }
      }
    }
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int64 d = first + lane + 32 * p;
      if (d < width) out(d, total == 0 && most == Limits<R>::lowest() ? (R)0 : sum[p] / total);
    }
  }
}
