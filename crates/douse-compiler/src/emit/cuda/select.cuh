// The first of a row's elements in the order of (key, index), without sorting the row: a block has a tile of candidates and finds the last that is
// wanted, digit by digit from the highest; the digits of keys, then those of indices, by which equal keys differ.

template <class Key, int ITEMS = sizeof(Key) == 8 ? 8 : 16> struct Select {
  static const int THREADS = 256, TILE = THREADS * ITEMS;
  static const int BITS = 11, DIGITS = 1 << BITS, SHARE = DIGITS / THREADS;
  static const int KEY_PASSES = ((int)sizeof(Key) * 8 + BITS - 1) / BITS, PASSES = KEY_PASSES + (32 + BITS - 1) / BITS;

  // The digit of a pass; the last one of a key or index may be narrower.
  template <class Word> static DEVICE uint32 digit(Word word, int pass) {
    const int shift = (int)sizeof(Word) * 8 - BITS * (pass + 1);
    return (uint32)(shift >= 0 ? word >> shift : word) & ((1u << (shift >= 0 ? BITS : BITS + shift)) - 1);
  }

  // Calls out(place, key, index) for the first `wanted` of the candidates from `start` on that are there, in no order of meaning.
  template <class At, class IndexAt, class Out>
  static DEVICE void select(int64 n, int64 start, int wanted, At key, IndexAt index, Out out) {
    __shared__ uint32 counts[DIGITS];
    __shared__ uint32 found[3];
    Key keys[ITEMS];
    uint32 indices[ITEMS];
    // By item: not decided yet; wanted.
    uint32 open = 0, in = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int64 at = start + i * THREADS + threadIdx.x;
      const bool there = at < n;
      keys[i] = there ? key(at) : Key();
      indices[i] = there ? index(at) : 0;
      open |= (uint32)there << i;
    }
    uint32 rest = (uint32)wanted;
    if (n - start <= wanted) in = open;
    else {
      for (int pass = 0; pass < PASSES; ++pass) {
#pragma unroll
        for (int d = 0; d < SHARE; ++d) counts[d * THREADS + threadIdx.x] = 0;
        __syncthreads();
        uint32 digits[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
          digits[i] = pass < KEY_PASSES ? digit(keys[i], pass) : digit(indices[i], pass - KEY_PASSES);
          if (open >> i & 1) atomicAdd(&counts[digits[i]], 1u);
        }
        __syncthreads();
        uint32 own = 0;
#pragma unroll
        for (int d = 0; d < SHARE; ++d) own += counts[threadIdx.x * SHARE + d];
        const uint32 until = Across<PlainSum<uint32>, BlockLanes<THREADS> >::scan(own);
        if (until - own < rest && rest <= until) {
          uint32 before = until - own;
          int d = threadIdx.x * SHARE;
          while (before + counts[d] < rest) before += counts[d++];
          found[0] = d;
          found[1] = before;
          found[2] = counts[d];
        }
        __syncthreads();
        const uint32 last = found[0];
        rest -= found[1];
        const bool done = found[2] == rest;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
          const uint32 bit = open & 1u << i;
          if (digits[i] < last || done && digits[i] == last) in |= bit;
          if (digits[i] != last) open &= ~bit;
        }
        if (done) break;
        // `found` and the counts are read by all before they change.
        __syncthreads();
      }
    }
    int place = (int)(Across<PlainSum<uint32>, BlockLanes<THREADS> >::scan(__popc(in)) - __popc(in));
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (in >> i & 1) out(place++, keys[i], indices[i]);
  }

  // The same in order: calls out(place, index). MOST is a power of two, and `wanted` no more.
  template <int MOST, class At, class IndexAt, class Out>
  static DEVICE void sorted(int64 n, int wanted, At key, IndexAt index, Out out) {
    typedef Sorted<Key> Item;
    __shared__ Item tile[MOST];
    for (int i = threadIdx.x; i < MOST; i += THREADS) tile[i] = Item{(Key)~(Key)0, 0xffffffffu};
    __syncthreads();
    select(n, 0, wanted, key, index, [=](int place, Key key, uint32 index) { tile[place] = Item{key, index}; });
    sort_tile<THREADS, MOST>(tile);
    for (int i = threadIdx.x; i < wanted; i += THREADS) out(i, tile[i].index);
  }
};
